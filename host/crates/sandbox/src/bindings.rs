//! The WIT types of every contract version, and the imports of guests.
//!
//! One module per version. Only `convert` uses their types, so that no other code depends on a version.

pub(crate) mod v0_1;
