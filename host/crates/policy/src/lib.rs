//! The rules for a plugin's requests and answers: deny by default, without I/O.
//!
//! [`Grants`] lists the kinds that a plugin may create and read, and an [`Assessment`] lists its requests beyond them.
//! [`check`] checks a whole answer against the contract and the grants before any part of it is planned.
//! This crate does not know the objects in the cluster: `plan` detects that another owner's object has a child's name.

mod answer;
mod assessment;
mod checked;
mod child;
mod depth;
mod grants;
mod interference;
mod order;
mod pod_security;
mod powers;
mod privilege;
mod rejection;
mod report;
mod rules;
mod selection;
#[cfg(test)]
mod tests;

pub use answer::{check, check_fault, predicted};
pub use assessment::{Assessment, Shortfall};
pub use checked::Checked;
pub use child::check_adoption;
pub use grants::{
    ChildGrant, CrdGrant, DEPTH_MAX, Grants, ParentGrant, ReadGrant, is_system_namespace,
};
pub use pod_security::{PodSecurity, makes_pods, pod_violations};
pub use privilege::{
    BUILT_IN_GROUPS, INTERFERING_KINDS, PRIVILEGED_CORE_KINDS, PRIVILEGED_GROUPS, SETTING_GROUPS,
    SETTING_KINDS, is_built_in, is_privileged, is_privileged_to_read,
};
pub use rejection::Rejection;
pub use rules::Rules;
pub use selection::{NotSelected, Selection};
