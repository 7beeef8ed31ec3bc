//! What a plugin may have: deny by default, pure.
//!
//! [`Grants`] says which kinds a plugin may state and read, an [`Assessment`] what it asks for beyond that; [`check`] holds a whole answer against the contract and
//! the grants before anything of it is planned.
//! It does not know what is in the cluster: that an object of a child's name is somebody else's is found by `plan`.

mod answer;
mod assessment;
mod checked;
mod child;
mod grants;
mod names;
mod order;
mod privilege;
mod rejection;
mod report;
mod selection;
#[cfg(test)]
mod tests;

pub use answer::{Rules, check, check_fault};
pub use assessment::{Assessment, Shortfall};
pub use checked::Checked;
pub use grants::{ChildGrant, CrdGrant, Grants, ParentGrant, ReadGrant};
pub use privilege::{
    BUILT_IN_GROUPS, PRIVILEGED_CORE_KINDS, PRIVILEGED_GROUPS, is_built_in, is_privileged,
    is_secret,
};
pub use rejection::Rejection;
pub use selection::{NotSelected, Selection};
