//! The operations of a plan: the difference between observed and desired, as data.

use std::{fmt, sync::Arc};

use serde_json::{Map, Value};

use super::{Generated, Gvk, ObjectId, ResourceVersion, Uid};

/// How a child belongs to its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ownership {
    /// By a controller ownerReference: collected with the parent.
    Owned,
    /// By the annotation `innkeeper.dev/retained-for`: kept.
    Retained,
}

/// One write, complete but for what only the moment of writing can know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Put our finalizer on the parent.
    AddFinalizer,
    /// Make a child; refused by the API server when an object of that name exists.
    Create {
        /// The child's key.
        key: String,
        /// The child.
        id: ObjectId,
        /// The kind in the version to write.
        kind: Gvk,
        /// The whole object to apply, the host's metadata included; shared by the copies of a plan.
        body: Arc<Map<String, Value>>,
        /// Secret keys to generate.
        generate: Vec<Generated>,
    },
    /// Apply a child that exists, bound to what was observed of it.
    Update {
        /// Whether this very object was applied last, so that somebody has changed or taken a field of it since.
        restores: bool,
        /// The child's key.
        key: String,
        /// The child.
        id: ObjectId,
        /// The kind in the version to write.
        kind: Gvk,
        /// The UID observed.
        uid: Uid,
        /// The version observed.
        resource_version: ResourceVersion,
        /// The whole object to apply, the host's metadata included; shared by the copies of a plan.
        body: Arc<Map<String, Value>>,
        /// Secret keys whose present values are stated again, or made where missing.
        generate: Vec<Generated>,
    },
    /// Exchange ownerReference and `retained-for` annotation of a child, and nothing else.
    Transfer {
        /// The child's key.
        key: String,
        /// The child.
        id: ObjectId,
        /// The kind in the version to write.
        kind: Gvk,
        /// The UID observed.
        uid: Uid,
        /// The version observed.
        resource_version: ResourceVersion,
        /// The JSON patch (RFC 6902), tests of UID and resourceVersion included.
        patch: Value,
        /// How the child belongs to the parent afterwards.
        to: Ownership,
    },
    /// Delete a child that is no longer desired, bound to what was observed of it.
    Prune {
        /// The child.
        id: ObjectId,
        /// The kind in the version to delete.
        kind: Gvk,
        /// The UID observed.
        uid: Uid,
        /// The version observed.
        resource_version: ResourceVersion,
    },
    /// Take our finalizer off the parent.
    RemoveFinalizer,
}

impl Operation {
    /// The kind in the version that is written; none for the parent's own finalizer.
    pub fn kind(&self) -> Option<&Gvk> {
        match self {
            Self::Create { kind, .. }
            | Self::Update { kind, .. }
            | Self::Transfer { kind, .. }
            | Self::Prune { kind, .. } => Some(kind),
            Self::AddFinalizer | Self::RemoveFinalizer => None,
        }
    }

    /// Whether it puts back what somebody else has changed.
    pub const fn is_restoration(&self) -> bool {
        matches!(self, Self::Update { restores: true, .. })
    }

    /// The version observed of the child that is written; none for one that is made, and for the parent's own finalizer.
    pub fn child_version(&self) -> Option<ResourceVersion> {
        match self {
            Self::Update {
                resource_version, ..
            }
            | Self::Transfer {
                resource_version, ..
            }
            | Self::Prune {
                resource_version, ..
            } => Some(*resource_version),
            Self::Create { .. } | Self::AddFinalizer | Self::RemoveFinalizer => None,
        }
    }

    /// What is done, in a word or two, for logs and metrics.
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::AddFinalizer => "add finalizer",
            Self::RemoveFinalizer => "remove finalizer",
            Self::Create { .. } => "create",
            Self::Update { .. } => "update",
            Self::Transfer {
                to: Ownership::Owned,
                ..
            } => "own",
            Self::Transfer {
                to: Ownership::Retained,
                ..
            } => "retain",
            Self::Prune { .. } => "prune",
        }
    }

    /// The child that is written; none for the parent's own finalizer.
    pub fn child(&self) -> Option<&ObjectId> {
        match self {
            Self::Create { id, .. }
            | Self::Update { id, .. }
            | Self::Transfer { id, .. }
            | Self::Prune { id, .. } => Some(id),
            Self::AddFinalizer | Self::RemoveFinalizer => None,
        }
    }
}

/// One short line: `create apps/v1 Deployment demo/web`.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = self.verb();
        let (Some(kind), Some(id)) = (self.kind(), self.child()) else {
            return f.write_str(verb);
        };
        match &id.namespace {
            Some(namespace) => write!(f, "{verb} {kind} {namespace}/{}", id.name),
            None => write!(f, "{verb} {kind} {}", id.name),
        }
    }
}
