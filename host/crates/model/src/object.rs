//! An object as the cache holds it.

use std::{collections::BTreeMap, fmt, io, sync::Arc};

use serde_json::{Map, Value};

use super::{ANNOTATION_DEPTH, Access, Gvk, ObjectId};

/// An object's UID: unlike a name, the API server never uses it again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(pub Arc<str>);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A resourceVersion: an integer that grows with every write to a resource type.
///
/// Kubernetes guarantees since 1.35 that versions within one resource type are comparable; they always were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(pub u64);

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The fields that one field manager owns in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedEntry {
    /// The manager's name.
    pub manager: Arc<str>,
    /// The subresource through which it wrote, such as `status`; `None` for the object itself.
    pub subresource: Option<Arc<str>>,
    /// True if the entry comes from server-side apply; updates by the same manager are a separate entry.
    pub applied: bool,
    /// The owned paths as JSON text in Kubernetes' `FieldsV1` form.
    pub fields: Arc<str>,
}

/// An object in one version, as the cache holds it.
///
/// Metadata that the host uses has separate fields. The rest stays text, because a tree of maps would take many times
/// the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The kind in the watched version.
    pub kind: Gvk,
    /// The namespace; `None` for cluster-scoped objects.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
    /// The UID.
    pub uid: Uid,
    /// This state's version.
    pub resource_version: ResourceVersion,
    /// `metadata.generation`, where the kind has one.
    pub generation: Option<i64>,
    /// `metadata.deletionTimestamp`: set while the object is being deleted.
    pub deletion_timestamp: Option<Arc<str>>,
    /// The controller's UID.
    pub controller: Option<Uid>,
    /// `metadata.finalizers` in the stored order.
    pub finalizers: Vec<Arc<str>>,
    /// Labels below `innkeeper.dev/`.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Annotations below `innkeeper.dev/`.
    pub annotations: BTreeMap<Arc<str>, Arc<str>>,
    /// The identity of the parent for which the host retains the object, if the annotation is
    /// [verified](super::HashKey::verified).
    pub retained_for: Option<Arc<str>>,
    /// The managedFields entries for the host's own managers; other managers' entries are not kept.
    pub managed: Vec<ManagedEntry>,
    /// The part of the object that `json` holds.
    pub form: Access,
    /// The object as guests see it: without `managedFields`, `resourceVersion` and the annotation
    /// `kubectl.kubernetes.io/last-applied-configuration`, in the form `form`.
    pub json: Arc<str>,
}

impl Object {
    /// Returns the object's identity.
    pub fn id(&self) -> ObjectId {
        ObjectId {
            kind: self.kind.group_kind(),
            namespace: self.namespace.clone(),
            name: Arc::clone(&self.name),
        }
    }

    /// Returns true if the object is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Returns an annotation below `innkeeper.dev/`; the object keeps no others.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(|value| &**value)
    }

    /// Returns true if the object outlives the parent: the parent does not control it, and it has the host's proof.
    pub fn is_retained(&self, parent: &Self) -> bool {
        self.controller.as_ref() != Some(&parent.uid) && self.retained_for.is_some()
    }

    /// Returns how many parents above this one the host's plugins reconcile; 0 for a user's object.
    ///
    /// The annotation decides, so the depth needs no walk through the owners and no state of the host.
    pub fn depth(&self) -> u32 {
        // Users can edit the annotation: what is not a number must not begin a new count.
        self.annotation(ANNOTATION_DEPTH)
            .map_or(0, |text| text.parse().unwrap_or(u32::MAX))
    }

    /// Returns true if the object has the finalizer.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| &**finalizer == name)
    }
}

/// Returns the length of an object's JSON in bytes, without building the text.
///
/// # Errors
///
/// If it cannot be written as JSON.
pub fn json_length(object: &Map<String, Value>) -> serde_json::Result<usize> {
    let mut length = Length(0);
    serde_json::to_writer(&mut length, object)?;
    Ok(length.0)
}

/// A writer that counts bytes and stores none.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
