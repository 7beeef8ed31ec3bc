//! Converts the JSON text of an object into its cached form.
//!
//! The cache keeps one text per object, as guests see it, and beside it only the fields that are needed for frequent
//! decisions. All other fields are read out of the text on demand.

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

/// kubectl stores the whole applied object here, including the values of Secrets.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The beginning of the hash of a value.
const VALUE_HASH: &str = "hmac-sha256:";

/// The kind of objects of which only the metadata was asked for.
const METADATA: &str = "PartialObjectMetadata";

/// Managers with this prefix are the host's own.
const MANAGER_PREFIX: &str = "innkeeper:";

/// The reason why a text cannot be cached as an object.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// It is not JSON of the expected shape.
    #[error("failed to parse an object")]
    Parse(#[from] serde_json::Error),
    /// A field that every stored object has is missing.
    #[error("an object has no {0}")]
    Missing(&'static str),
    /// It is another object than the one that was asked for.
    #[error("the API server answered with {found} instead of {asked}")]
    Foreign {
        /// The object in the answer.
        found: String,
        /// The kind, and as far as they were asked for, the namespace and the name.
        asked: String,
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
    /// A hash was asked for without a key.
    #[error("there is no hash key")]
    NoHashKey,
}

/// The kept part of every object.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// The kind to write: typed lists omit it from their items, and metadata lists name another one.
    pub(super) kind: Gvk,
    /// The form.
    pub(super) form: Access,
    /// Names of field managers, beyond those with our prefix, whose entries are kept; none: all.
    pub(super) managers: Option<Arc<BTreeSet<Arc<str>>>>,
    /// The key for the form `hash` and for the proofs of retained objects; without it, no object is retained.
    pub(super) hash_key: Option<HashKey>,
}

impl Shape {
    /// Whole objects with the entries of all field managers.
    pub(super) fn whole(kind: &Gvk) -> Self {
        Self {
            kind: kind.clone(),
            form: Access::Full,
            managers: None,
            hash_key: None,
        }
    }

    fn keeps_manager(&self, name: &str) -> bool {
        let others = self.managers.as_ref();
        name.starts_with(MANAGER_PREFIX) || others.is_none_or(|others| others.contains(name))
    }
}

/// One version of an object in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// Empty for cluster-scoped objects.
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) uid: Uid,
    pub(super) version: ResourceVersion,
    /// The UID of the controlling owner.
    pub(super) controller: Option<Uid>,
    /// The identity of the parent for which it is retained, verified.
    pub(super) retained_for: Option<Arc<str>>,
    /// The kept managedFields entries as a JSON list without times; none if there is none.
    pub(super) managed: Option<Arc<str>>,
    pub(super) deleting: bool,
    pub(super) has_generation: bool,
    /// The position of `metadata` in `json`.
    pub(super) metadata: Range<u32>,
    /// The object in the form of guests; empty unless it is whole.
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

    /// The text of all labels.
    fn labels(&self) -> Option<&str> {
        Fields::parse(self.metadata()).ok()?.get("labels")
    }

    /// Returns true if all indexes find it under the same keys as another version of it.
    pub(super) fn is_found_as(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.controller == other.controller
            && self.retained_for == other.retained_for
            && (self.metadata() == other.metadata() || self.labels() == other.labels())
    }

    /// Takes over the shared texts of another version with [the same keys](Self::is_found_as), so that the indexes and
    /// the object share them.
    pub(super) fn share_texts(&mut self, other: &Self) {
        self.namespace = Arc::clone(&other.namespace);
        self.name = Arc::clone(&other.name);
        self.uid = other.uid.clone();
        self.controller.clone_from(&other.controller);
        self.retained_for.clone_from(&other.retained_for);
    }

    /// Returns true if its labels match.
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
    pub(super) fn each_label(&self, mut see: impl FnMut(&str, &str)) {
        let labels = self
            .labels()
            .and_then(|labels| Fields::parse_nullable(labels).ok());
        for (name, value) in labels.iter().flat_map(Fields::iter) {
            if let Ok(Text(value)) = serde_json::from_str(value) {
                see(name, &value);
            }
        }
    }
}

/// The name, UID and version of an object.
pub(super) struct ObjectIdentity<'a> {
    /// Empty for cluster-scoped objects.
    pub(super) namespace: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) uid: Uid,
    pub(super) version: ResourceVersion,
}

impl<'a> ObjectIdentity<'a> {
    /// Fails if a field is missing that every object has.
    pub(super) fn of(object: &ObjectFields<'a>) -> Result<Self, Malformed> {
        let metadata = &metadata_of(object)?.rest;
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

/// Fails if an object has another kind, namespace or name than those that were asked for.
///
/// `list` is the kind of the list that has the object, because the items of typed lists state none.
pub(super) fn check_asked(
    object: &ObjectFields<'_>,
    list: Option<&str>,
    kind: &Gvk,
    (namespace, name): (Option<&str>, Option<&str>),
) -> Result<(), Malformed> {
    let found = ObjectIdentity::of(object)?;
    let stated = string(&object.rest, "kind")?;
    let of_list = || {
        list.and_then(|list| list.strip_suffix("List"))
            .filter(|kind| !kind.is_empty())
    };
    let stated = stated.as_deref().or_else(of_list);
    let group = string(&object.rest, "apiVersion")?;
    let is_kind = stated.is_none_or(|stated| stated == &*kind.kind || stated == METADATA)
        && group.is_none_or(|group| group == kind.api_version() || stated == Some(METADATA));
    let is_place = namespace.is_none_or(|namespace| namespace == found.namespace)
        && name.is_none_or(|name| name == found.name);
    if is_kind && is_place {
        return Ok(());
    }
    let (stated, namespace) = (stated.unwrap_or_default(), namespace.unwrap_or_default());
    let found = format!("{stated} {}/{}", found.namespace, found.name);
    Err(Malformed::Foreign {
        found: found.chars().take(256).collect(),
        asked: format!("{kind} {namespace}/{}", name.unwrap_or("*")),
    })
}

/// Returns true if an object states its own kind.
pub(super) fn states_kind(object: &ObjectFields<'_>) -> bool {
    matches!(string(&object.rest, "kind"), Ok(Some(_)))
}

/// Parses the text of a version.
pub(super) fn parse_version(text: &str) -> Result<ResourceVersion, Malformed> {
    let version = text.parse().map(ResourceVersion);
    version.map_err(|_| Malformed::Version(text.to_owned()))
}

/// Keeps the part of an object's text that the shape selects.
pub(super) fn keep(text: &str, shape: &Shape) -> Result<Stored, Malformed> {
    keep_fields(&serde_json::from_str(text)?, shape)
}

/// Keeps the part of an object that the shape selects.
pub(super) fn keep_fields(object: &ObjectFields<'_>, shape: &Shape) -> Result<Stored, Malformed> {
    let ObjectIdentity {
        namespace,
        name,
        uid,
        version,
    } = ObjectIdentity::of(object)?;
    let rest = &object.rest;
    let MetadataFields {
        rest: metadata,
        managed: entries,
    } = metadata_of(object)?;
    let managed = managed(entries, shape)?;

    let mut out = begin(&shape.kind, rest.bytes() + metadata.bytes() + 128);
    let start = out.len();
    let mark = write_metadata(&mut out, metadata)?;
    let end = out.len();
    match shape.form {
        Access::Full => {
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

/// Converts a kept text to a poorer form; for the same form it returns the same text.
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

/// Begins the text of an object; the value of `metadata` must follow.
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

/// Writes metadata in the form of guests, and returns the annotation of retained objects.
fn write_metadata<'a>(
    out: &mut JsonWriter,
    metadata: &Fields<'a>,
) -> Result<Option<Cow<'a, str>>, Malformed> {
    let mut mark = None;
    out.begin();
    for (name, value) in metadata.iter() {
        match name {
            "resourceVersion" => {}
            "annotations" => {
                let annotations = Fields::parse_nullable(value)?;
                mark = string(&annotations, ANNOTATION_RETAINED_FOR)?;
                let mut kept = annotations
                    .iter()
                    .filter(|(name, _)| *name != LAST_APPLIED)
                    .peekable();
                if kept.peek().is_some() {
                    out.name("annotations");
                    out.begin();
                    kept.for_each(|(name, value)| out.raw(name, value));
                    out.end();
                }
            }
            name => out.raw(name, value),
        }
    }
    out.end();
    Ok(mark)
}

/// Returns the identity in the annotation of a retained object, if the host made it for this object.
fn verified(mark: &str, namespace: &str, name: &str, shape: &Shape) -> Option<Arc<str>> {
    let namespace = Some(namespace).filter(|it| !it.is_empty());
    let id = ObjectId::new(shape.kind.group_kind(), namespace, name);
    let identity = shape.hash_key.as_ref()?.verified(mark, &id)?;
    Some(identity.into())
}

/// Writes the type and the data keys, with a keyed hash in place of every value.
fn write_hashes(
    out: &mut JsonWriter,
    fields: &Fields<'_>,
    place: [&str; 3],
    shape: &Shape,
) -> Result<(), Malformed> {
    let key = shape.hash_key.as_ref().ok_or(Malformed::NoHashKey)?;
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
            // A dump has hashes already. No Secret of an API server has such a value, because it is not base64.
            if field == "data" && is_secret(&shape.kind) && value.starts_with(VALUE_HASH) {
                out.string(&value);
            } else {
                out.string(&value_hash(key, place, data_key, &value));
            }
        }
        out.end();
    }
    Ok(())
}

/// Returns the hash of one data value in the form of guests: `hmac-sha256:<hex>`.
///
/// The place is the namespace, name and UID of the object. With the name alone, a user who once knew a value could
/// confirm a guess about the value in a later object of that name.
pub(super) fn value_hash(
    key: &HashKey,
    [namespace, name, uid]: [&str; 3],
    data_key: &str,
    value: &str,
) -> String {
    let hash = key.hash("value", &[namespace, name, uid, data_key, value]);
    format!("{VALUE_HASH}{hash}")
}

fn is_secret(kind: &Gvk) -> bool {
    kind.group.is_empty() && &*kind.kind == "Secret"
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

/// Returns the kept managedFields entries.
fn managed(
    entries: &[RawManagedEntry<'_>],
    shape: &Shape,
) -> Result<Option<Arc<str>>, serde_json::Error> {
    let is_kept = |entry: &&RawManagedEntry<'_>| {
        let manager = entry.manager.as_ref();
        manager.is_some_and(|Text(manager)| shape.keeps_manager(manager))
    };
    let kept: Vec<_> = entries.iter().filter(is_kept).collect();
    if kept.is_empty() {
        return Ok(None);
    }
    Ok(Some(serde_json::to_string(&kept)?.into()))
}

fn metadata_of<'a, 'b>(object: &'b ObjectFields<'a>) -> Result<&'b MetadataFields<'a>, Malformed> {
    let metadata = object.metadata.as_ref();
    metadata.ok_or(Malformed::Missing("metadata"))
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
