//! The limits on what a plugin writes: rates and quotas, and the conditions about them.

pub(crate) mod budget;
pub(crate) mod exceeded;
pub(crate) mod first_writes;
pub(crate) mod quota;
pub(crate) mod throttled;
pub(crate) mod usage;
