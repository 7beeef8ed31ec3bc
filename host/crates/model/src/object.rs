//! An object as the cache shows it.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::{Access, Gvk, ObjectId};

/// The UID of an object: unlike its name, never used twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(pub Arc<str>);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A resourceVersion: an integer that grows with every write to a resource type.
///
/// Comparable within one resource type since Kubernetes 1.35 by promise, and in practice long before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(pub u64);

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What one field manager owns of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedEntry {
    /// The manager's name.
    pub manager: Arc<str>,
    /// The subresource through which it wrote: `status`; none for the object itself.
    pub subresource: Option<Arc<str>>,
    /// Whether the entry comes from server-side apply; updates by the same name are separate entries.
    pub applied: bool,
    /// The owned paths as JSON text in Kubernetes' `FieldsV1` form.
    pub fields: Arc<str>,
}

/// One version of an object as the cache holds it.
///
/// Metadata that the host decides by is taken out; the rest stays text, because a tree of maps would take many times
/// the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The kind, in the version that is watched.
    pub kind: Gvk,
    /// The namespace; none for cluster-scoped objects.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
    /// The UID.
    pub uid: Uid,
    /// The version of this state.
    pub resource_version: ResourceVersion,
    /// `metadata.generation`, where the kind has one.
    pub generation: Option<i64>,
    /// `metadata.deletionTimestamp`: set while the object is being deleted.
    pub deletion_timestamp: Option<Arc<str>>,
    /// The UID of the owner that is marked as controller.
    pub controller: Option<Uid>,
    /// `metadata.finalizers` in the stored order.
    pub finalizers: Vec<Arc<str>>,
    /// Labels below `innkeeper.dev/`.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Annotations below `innkeeper.dev/`.
    pub annotations: BTreeMap<Arc<str>, Arc<str>>,
    /// The managedFields entries of the host's own managers; those of others are not kept.
    pub managed: Vec<ManagedEntry>,
    /// How much of the object `json` holds.
    pub form: Access,
    /// The object as guests see it: without `managedFields`, `resourceVersion` and the annotation
    /// `kubectl.kubernetes.io/last-applied-configuration`, in the form `form`.
    pub json: Arc<str>,
}

impl Object {
    /// The object's identity.
    pub fn id(&self) -> ObjectId {
        ObjectId {
            kind: self.kind.group_kind(),
            namespace: self.namespace.clone(),
            name: Arc::clone(&self.name),
        }
    }

    /// Whether the object is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// An annotation below `innkeeper.dev/`.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(|value| &**value)
    }

    /// Whether the finalizer is on the object.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| &**finalizer == name)
    }
}
