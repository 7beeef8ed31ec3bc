//! WIT types for every contract version, and guest imports.
//!
//! One module per version. Only `convert` uses their types, so that no other code depends on a version.

pub(crate) mod v0_1;
