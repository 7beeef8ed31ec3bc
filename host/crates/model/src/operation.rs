//! Plan operations: the difference between observed and desired, as data.

use std::{fmt, sync::Arc};

use serde_json::{Map, Value};

use super::{Generated, Gvk, ObjectId, RemovalPolicy, ResourceVersion, Uid};

/// One write.
///
/// It is complete except for the values that are only known when it is executed, such as generated Secret values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Adds the host's finalizer to the parent.
    AddFinalizer,
    /// Creates a child; the API server rejects the write if an object with that name exists.
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
    /// Applies an existing child; the API server rejects the write if UID or version are no longer as observed.
    Update {
        /// True unless an annotation on the child shows that another object was applied last, so that generated values
        /// stay.
        restores: bool,
        /// The child's key.
        key: String,
        /// The child.
        id: ObjectId,
        /// The kind in the version to write.
        kind: Gvk,
        /// The observed UID.
        uid: Uid,
        /// The observed version.
        resource_version: ResourceVersion,
        /// The whole object to apply, the host's metadata included; shared by the copies of a plan.
        body: Arc<Map<String, Value>>,
        /// Secret keys to apply again with their present values, or to generate if they are missing.
        generate: Vec<Generated>,
    },
    /// Replaces a child's ownerReference by the `retained-for` annotation or the reverse, and changes nothing else.
    Transfer {
        /// The child's key.
        key: String,
        /// The child.
        id: ObjectId,
        /// The kind in the version to write.
        kind: Gvk,
        /// The observed UID.
        uid: Uid,
        /// The observed version.
        resource_version: ResourceVersion,
        /// The JSON patch (RFC 6902), including tests for UID and resourceVersion.
        patch: Value,
        /// The link to the parent after the write: the ownerReference if the child is deleted with the parent, or else
        /// the annotation.
        to: RemovalPolicy,
    },
    /// Deletes a child that is no longer desired; the API server rejects it if UID or version have changed.
    Prune {
        /// The child.
        id: ObjectId,
        /// The kind in the version to delete.
        kind: Gvk,
        /// The observed UID.
        uid: Uid,
        /// The observed version.
        resource_version: ResourceVersion,
    },
    /// Removes the host's finalizer from the parent.
    RemoveFinalizer,
}

impl Operation {
    /// Returns the kind in the written version; `None` for writes to the parent's finalizer.
    pub fn kind(&self) -> Option<&Gvk> {
        self.written().map(|(kind, _)| kind)
    }

    /// Returns the written child; `None` for writes to the parent's finalizer.
    pub fn child(&self) -> Option<&ObjectId> {
        self.written().map(|(_, id)| id)
    }

    const fn written(&self) -> Option<(&Gvk, &ObjectId)> {
        match self {
            Self::Create { kind, id, .. }
            | Self::Update { kind, id, .. }
            | Self::Transfer { kind, id, .. }
            | Self::Prune { kind, id, .. } => Some((kind, id)),
            Self::AddFinalizer | Self::RemoveFinalizer => None,
        }
    }

    /// Returns the written child's observed version; `None` for a create and for writes to the parent's finalizer.
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

    /// Returns the operation's name for logs and metrics.
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::AddFinalizer => "add finalizer",
            Self::RemoveFinalizer => "remove finalizer",
            Self::Create { .. } => "create",
            Self::Update { .. } => "update",
            Self::Transfer {
                to: RemovalPolicy::Delete,
                ..
            } => "own",
            Self::Transfer {
                to: RemovalPolicy::Retain,
                ..
            } => "retain",
            Self::Prune { .. } => "prune",
        }
    }
}

/// One short line: `create apps/v1 Deployment demo/web`.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = self.verb();
        let Some((kind, id)) = self.written() else {
            return f.write_str(verb);
        };
        match &id.namespace {
            Some(namespace) => write!(f, "{verb} {kind} {namespace}/{}", id.name),
            None => write!(f, "{verb} {kind} {}", id.name),
        }
    }
}
