//! Converts an object's JSON text into the cached form.
//!
//! The cache has one text per object, as guests see it, and beside it only the fields for frequent decisions. All other
//! fields are parsed on demand.

mod extent;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use innkeeper_model::{
    ANNOTATION_RETAINED_FOR, Access, Gvk, HashKey, ObjectId, ResourceVersion, Selector,
    SelectorExt, Uid,
};
use serde::Deserialize;

use super::fields::{Fields, JsonWriter, MetadataFields, ObjectFields, RawManagedEntry, Text};
pub(super) use extent::Extent;

/// kubectl stores the whole applied object here, including Secret values.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The prefix of a value's hash.
const VALUE_HASH: &str = "hmac-sha256:";

/// The kind that metadata requests return.
const METADATA: &str = "PartialObjectMetadata";

/// The prefix of the host's own field managers.
const MANAGER_PREFIX: &str = "innkeeper:";

/// The reason why a text cannot be cached as an object.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// It is not JSON in the expected shape.
    #[error("failed to parse an object")]
    Parse(#[from] serde_json::Error),
    /// A field that every stored object has is missing.
    #[error("an object has no {0}")]
    Missing(&'static str),
    /// It is not the requested object.
    #[error("the API server answered with {returned} instead of {requested}")]
    Foreign {
        /// The object in the response.
        returned: String,
        /// The kind, and the namespace and name if the request had them.
        requested: String,
    },
    /// The version is not an integer.
    #[error("\"{0}\" is not a resourceVersion")]
    Version(String),
    /// It is not UTF-8.
    #[error("the text is not UTF-8")]
    NotUtf8,
    /// The connection ended twice within the same line.
    #[error("the same event was cut off twice")]
    CutOff,
    /// A hash was requested without a key.
    #[error("there is no hash key")]
    NoHashKey,
}

/// Selects the parts of objects that are cached.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// The kind to write: items in typed lists have none, and items in metadata lists another one.
    pub(super) kind: Gvk,
    /// The form.
    pub(super) form: Access,
    /// Field managers without the host's prefix whose entries are cached; none: all.
    pub(super) managers: Option<Arc<BTreeSet<Arc<str>>>>,
    /// The key for hashes and for proofs that objects are retained; without it, none is.
    pub(super) hash_key: Option<HashKey>,
}

impl Shape {
    /// Whole objects with all managedFields entries.
    pub(super) fn whole(kind: &Gvk) -> Self {
        Self {
            kind: kind.clone(),
            form: Access::Full,
            managers: None,
            hash_key: None,
        }
    }

    fn keeps_manager(&self, name: &str) -> bool {
        let managers = self.managers.as_ref();
        name.starts_with(MANAGER_PREFIX) || managers.is_none_or(|managers| managers.contains(name))
    }
}

/// One cached version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// Empty for cluster-scoped objects.
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) uid: Uid,
    pub(super) version: ResourceVersion,
    /// The controlling owner's UID.
    pub(super) controller: Option<Uid>,
    /// The verified identity of the parent for which the object is retained.
    pub(super) retained_for: Option<Arc<str>>,
    /// The cached managedFields entries as a JSON list without times; none if there are none.
    pub(super) managed: Option<Arc<str>>,
    pub(super) deleting: bool,
    pub(super) has_generation: bool,
    /// The byte range of `metadata` in `json`.
    pub(super) metadata: Range<u32>,
    /// The object as guests see it; empty unless the extent is whole.
    pub(super) json: Arc<str>,
    pub(super) extent: Extent,
}

impl Stored {
    /// The text of `metadata`.
    pub(super) fn metadata(&self) -> &str {
        let index = |offset| usize::try_from(offset).unwrap_or(usize::MAX);
        let range = index(self.metadata.start)..index(self.metadata.end);
        self.json.get(range).unwrap_or("{}")
    }

    /// The labels as text.
    fn labels(&self) -> Option<&str> {
        Fields::parse(self.metadata()).ok()?.get("labels")
    }

    /// Returns true if all indexes have the same keys for another version of the object.
    pub(super) fn has_same_keys(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.controller == other.controller
            && self.retained_for == other.retained_for
            // Equal metadata has equal labels, without parsing them.
            && (self.metadata() == other.metadata() || self.labels() == other.labels())
    }

    /// Shares the texts of another version with [the same keys](Self::has_same_keys), which the indexes also share.
    pub(super) fn share_texts(&mut self, other: &Self) {
        self.namespace = Arc::clone(&other.namespace);
        self.name = Arc::clone(&other.name);
        self.uid = other.uid.clone();
        self.controller.clone_from(&other.controller);
        self.retained_for.clone_from(&other.retained_for);
    }

    /// Returns true if the labels match.
    pub(super) fn is_selected(&self, selector: &Selector) -> bool {
        selector.selects_all() || selector.matches(&self.label_map())
    }

    /// Returns all labels.
    pub(super) fn label_map(&self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        self.each_label(|key, value| {
            labels.insert(key.to_owned(), value.to_owned());
        });
        labels
    }

    /// Calls a function with every label.
    pub(super) fn each_label(&self, mut visit: impl FnMut(&str, &str)) {
        let labels = self
            .labels()
            .and_then(|labels| Fields::parse_nullable(labels).ok());
        for (name, value) in labels.iter().flat_map(Fields::iter) {
            if let Ok(Text(value)) = serde_json::from_str(value) {
                visit(name, &value);
            }
        }
    }
}

/// An object's name, UID and version.
pub(super) struct ObjectIdentity<'a> {
    /// Empty for cluster-scoped objects.
    pub(super) namespace: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) uid: Uid,
    pub(super) version: ResourceVersion,
}

impl<'a> ObjectIdentity<'a> {
    /// Fails if a field is missing that every object has.
    pub(super) fn new(object: &ObjectFields<'a>) -> Result<Self, Malformed> {
        let metadata = &required_metadata(object)?.rest;
        let name = string(metadata, "name")?.ok_or(Malformed::Missing("metadata.name"))?;
        let namespace = string(metadata, "namespace")?.unwrap_or_default();
        let uid = string(metadata, "uid")?.ok_or(Malformed::Missing("metadata.uid"))?;
        let version = string(metadata, "resourceVersion")?
            .ok_or(Malformed::Missing("metadata.resourceVersion"))?;
        Ok(Self {
            namespace,
            name,
            uid: Uid(uid.into()),
            version: parse_version(&version)?,
        })
    }
}

/// Fails unless an object has the requested kind, namespace and name.
///
/// `list` is the kind of the list with the object, because items in typed lists have none.
pub(super) fn check_requested(
    object: &ObjectFields<'_>,
    list: Option<&str>,
    kind: &Gvk,
    (namespace, name): (Option<&str>, Option<&str>),
) -> Result<(), Malformed> {
    let returned = ObjectIdentity::new(object)?;
    let stated = string(&object.rest, "kind")?;
    let listed = || {
        list.and_then(|list| list.strip_suffix("List"))
            .filter(|kind| !kind.is_empty())
    };
    let stated = stated.as_deref().or_else(listed);
    let group = string(&object.rest, "apiVersion")?;
    let is_kind = stated.is_none_or(|stated| stated == &*kind.kind || stated == METADATA)
        && group.is_none_or(|group| group == kind.api_version() || stated == Some(METADATA));
    let is_place = namespace.is_none_or(|namespace| namespace == returned.namespace)
        && name.is_none_or(|name| name == returned.name);
    if is_kind && is_place {
        return Ok(());
    }
    let stated = stated.unwrap_or_default();
    let namespace = namespace.unwrap_or_default();
    let returned = format!("{stated} {}/{}", returned.namespace, returned.name);
    Err(Malformed::Foreign {
        returned: returned.chars().take(256).collect(),
        requested: format!("{kind} {namespace}/{}", name.unwrap_or("*")),
    })
}

/// Returns true if an object states a kind.
pub(super) fn states_kind(object: &ObjectFields<'_>) -> bool {
    matches!(string(&object.rest, "kind"), Ok(Some(_)))
}

/// Parses a version.
pub(super) fn parse_version(text: &str) -> Result<ResourceVersion, Malformed> {
    text.parse()
        .map(ResourceVersion)
        .map_err(|_| Malformed::Version(text.to_owned()))
}

/// Caches the parts of an object's text that the shape selects.
pub(super) fn keep(text: &str, shape: &Shape) -> Result<Stored, Malformed> {
    keep_fields(&serde_json::from_str(text)?, shape)
}

/// Caches the parts of an object that the shape selects.
pub(super) fn keep_fields(object: &ObjectFields<'_>, shape: &Shape) -> Result<Stored, Malformed> {
    let ObjectIdentity {
        namespace,
        name,
        uid,
        version,
    } = ObjectIdentity::new(object)?;
    let rest = &object.rest;
    let MetadataFields {
        rest: metadata,
        managed: entries,
    } = required_metadata(object)?;
    let managed = managed(entries, shape)?;

    let mut out = begin(&shape.kind, rest.bytes() + metadata.bytes() + 128);
    let start = out.len();
    let mark = write_metadata(&mut out, metadata)?;
    let end = out.len();
    match shape.form {
        Access::Full => {
            // `begin` has written these: items in typed lists have neither.
            let is_more = |name: &str| !matches!(name, "apiVersion" | "kind");
            for (name, value) in rest.iter().filter(|(name, _)| is_more(name)) {
                out.raw(name, value);
            }
        }
        Access::Hash => write_hashes(&mut out, rest, [&namespace, &name, &uid.0], shape)?,
        Access::Metadata => {}
    }
    out.end();

    let retained_for = mark.and_then(|mark| verified(&mark, &namespace, &name, shape));
    let offset = |offset| u32::try_from(offset).unwrap_or(u32::MAX);
    Ok(Stored {
        namespace: namespace.into(),
        name: name.into(),
        uid,
        version,
        controller: controller(metadata)?,
        retained_for,
        managed,
        deleting: set(metadata, "deletionTimestamp"),
        has_generation: set(metadata, "generation"),
        metadata: offset(start)..offset(end),
        json: out.finish().into(),
        extent: Extent::Whole,
    })
}

/// Converts a cached text to a poorer form; returns the same text for the same form.
pub(super) fn project(stored: &Stored, from: Access, shape: &Shape) -> Result<Arc<str>, Malformed> {
    if from == shape.form {
        return Ok(Arc::clone(&stored.json));
    }
    let mut out = begin(&shape.kind, stored.json.len());
    out.value(stored.metadata());
    if shape.form == Access::Hash {
        let fields = Fields::parse(&stored.json)?;
        let place = [&*stored.namespace, &stored.name, &stored.uid.0];
        write_hashes(&mut out, &fields, place, shape)?;
    }
    out.end();
    Ok(out.finish().into())
}

/// Begins an object's text; the value of `metadata` must follow.
fn begin(kind: &Gvk, bytes: usize) -> JsonWriter {
    let mut out = JsonWriter::with_capacity(bytes);
    out.begin();
    out.name("apiVersion");
    out.string(&kind.api_version());
    out.name("kind");
    out.string(&kind.kind);
    out.name("metadata");
    out
}

/// Writes metadata as guests see it, and returns the annotation that marks retained objects.
fn write_metadata<'a>(
    out: &mut JsonWriter,
    metadata: &Fields<'a>,
) -> Result<Option<Cow<'a, str>>, Malformed> {
    let mut mark = None;
    out.begin();
    for (name, value) in metadata.iter() {
        match name {
            // It changes with every write, and guests would get a pass for each.
            "resourceVersion" => {}
            "annotations" => {
                let annotations = Fields::parse_nullable(value)?;
                mark = string(&annotations, ANNOTATION_RETAINED_FOR)?;
                let mut visible = annotations
                    .iter()
                    .filter(|(name, _)| *name != LAST_APPLIED)
                    .peekable();
                if visible.peek().is_some() {
                    out.name("annotations");
                    out.begin();
                    visible.for_each(|(name, value)| out.raw(name, value));
                    out.end();
                }
            }
            name => out.raw(name, value),
        }
    }
    out.end();
    Ok(mark)
}

/// Returns the identity in a retained object's annotation, if the host wrote it for this object.
fn verified(mark: &str, namespace: &str, name: &str, shape: &Shape) -> Option<Arc<str>> {
    let namespace = Some(namespace).filter(|name| !name.is_empty());
    let id = ObjectId::new(shape.kind.group_kind(), namespace, name);
    let identity = shape.hash_key.as_ref()?.verified(mark, &id)?;
    Some(identity.into())
}

/// Writes the type and the data keys, with a keyed hash for every value.
fn write_hashes(
    out: &mut JsonWriter,
    fields: &Fields<'_>,
    place: [&str; 3],
    shape: &Shape,
) -> Result<(), Malformed> {
    let key = shape.hash_key.as_ref().ok_or(Malformed::NoHashKey)?;
    let is_secret = shape.kind.group_kind().is_secret();
    if let Some(kind) = fields.get("type") {
        out.raw("type", kind);
    }
    for field in ["data", "binaryData"] {
        let Some(data) = fields.get(field) else {
            continue;
        };
        out.name(field);
        out.begin();
        for (data_key, value) in Fields::parse_nullable(data)?.iter() {
            let value: Option<Text<'_>> = serde_json::from_str(value)?;
            let value = value.map(|Text(value)| value).unwrap_or_default();
            out.name(data_key);
            // A dump has hashes already. No API server returns such a value in a Secret, because it is not base64.
            if field == "data" && is_secret && value.starts_with(VALUE_HASH) {
                out.string(&value);
            } else {
                out.string(&value_hash(key, place, data_key, &value));
            }
        }
        out.end();
    }
    Ok(())
}

/// Returns a data value's hash as guests see it: `hmac-sha256:<hex>`.
pub(super) fn value_hash(
    key: &HashKey,
    [namespace, name, uid]: [&str; 3],
    data_key: &str,
    value: &str,
) -> String {
    // Without the UID, a user who once knew a value could confirm a guess about a later object with the same name.
    let hash = key.hash("value", &[namespace, name, uid, data_key, value]);
    format!("{VALUE_HASH}{hash}")
}

fn controller(metadata: &Fields<'_>) -> Result<Option<Uid>, Malformed> {
    #[derive(Deserialize)]
    struct OwnerReference<'a> {
        #[serde(borrow)]
        uid: Text<'a>,
        controller: Option<bool>,
    }

    let Some(owners) = metadata.get("ownerReferences") else {
        return Ok(None);
    };
    let owners: Option<Vec<OwnerReference<'_>>> = serde_json::from_str(owners)?;
    Ok(owners
        .into_iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
        .map(|OwnerReference { uid: Text(uid), .. }| Uid(uid.into())))
}

/// Returns the cached managedFields entries.
fn managed(
    entries: &[RawManagedEntry<'_>],
    shape: &Shape,
) -> Result<Option<Arc<str>>, serde_json::Error> {
    let is_cached = |entry: &&RawManagedEntry<'_>| {
        entry
            .manager
            .as_ref()
            .is_some_and(|Text(manager)| shape.keeps_manager(manager))
    };
    let cached: Vec<_> = entries.iter().filter(is_cached).collect();
    if cached.is_empty() {
        return Ok(None);
    }
    Ok(Some(serde_json::to_string(&cached)?.into()))
}

fn required_metadata<'a, 'b>(
    object: &'b ObjectFields<'a>,
) -> Result<&'b MetadataFields<'a>, Malformed> {
    object
        .metadata
        .as_ref()
        .ok_or(Malformed::Missing("metadata"))
}

fn string<'a>(fields: &Fields<'a>, name: &str) -> Result<Option<Cow<'a, str>>, Malformed> {
    let Some(value) = fields.get(name) else {
        return Ok(None);
    };
    let value: Option<Text<'_>> = serde_json::from_str(value)?;
    Ok(value.map(|Text(value)| value))
}

fn set(fields: &Fields<'_>, name: &str) -> bool {
    fields.get(name).is_some_and(|value| value != "null")
}

#[cfg(test)]
mod tests;
