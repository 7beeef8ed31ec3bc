//! The rules and facts that an answer is checked against.

use innkeeper_model::{Limits, Manifest, ObjectId, Phase, Resources};

use super::Grants;

/// The rules and facts that an answer is checked against.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// The manifest that the plugin returned from `describe`.
    pub manifest: &'a Manifest,
    /// The grants of the administrator.
    pub grants: &'a Grants,
    /// The limits of the plugin.
    pub limits: &'a Limits,
    /// The kinds that the cluster serves.
    pub resources: &'a dyn Resources,
    /// The namespaces of the host: see [`is_system_namespace`](crate::is_system_namespace).
    pub host_namespaces: &'a [String],
    /// The parent that the answer is for.
    pub parent: &'a ObjectId,
    /// The depth of the parent: see [`Object::depth`](innkeeper_model::Object::depth).
    pub depth: u32,
    /// The phase of the pass.
    pub phase: Phase,
}
