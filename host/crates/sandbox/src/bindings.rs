//! The WIT types of every contract version, and the imports that a guest is given.
//!
//! One module per version; only `convert` names their types, so that nothing else depends on a version.

pub(crate) mod v0_1;
