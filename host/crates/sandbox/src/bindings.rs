//! WIT types for every contract version, and guest imports.
//!
//! One module per version. Only `convert` uses their types, so the rest of the code depends on no version.

pub(crate) mod v0_1;
