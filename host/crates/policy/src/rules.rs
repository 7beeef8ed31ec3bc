//! The rules and facts for checking an answer.

use innkeeper_model::{Limits, Manifest, ObjectId, Phase, Resources};

use super::Grants;

/// The rules and facts that an answer is checked against.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// The manifest that `describe` returned.
    pub manifest: &'a Manifest,
    /// The administrator's grants.
    pub grants: &'a Grants,
    /// The plugin's limits.
    pub limits: &'a Limits,
    /// The served kinds.
    pub resources: &'a dyn Resources,
    /// The host's namespaces: see [`is_system_namespace`](crate::is_system_namespace).
    pub host_namespaces: &'a [String],
    /// The parent that the answer is for.
    pub parent: &'a ObjectId,
    /// The parent's depth: see [`Object::depth`](innkeeper_model::Object::depth).
    pub depth: u32,
    /// The phase of the pass.
    pub phase: Phase,
}
