//! The input from files and standard input: objects are read, split into the parent and others, and admitted by their
//! schemas.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use innkeeper_command::{
    Exit, Failure, HASH_KEY_SECRET, OrFail as _, Streams,
    file::{INPUT_BYTES_MAX, read_within},
};
use innkeeper_crd::{Kinds, Schema};
use innkeeper_model::{HashKey, Manifest, Scope, yaml};
use innkeeper_plugin_controller::resource::grants_of_file;
use innkeeper_policy::Grants;
use serde_json::{Map, Value};

use super::seed;
use crate::document::{self, Document};

/// The longest `generateName` prefix in bytes; the API server cuts off the rest.
const PREFIX_BYTES_MAX: usize = 58;

/// The default namespace for a parent, and for observed objects if the parent is cluster-scoped.
const NAMESPACE: &str = "default";

/// The message for a schema that does not compile.
const SCHEMA: &str = "failed to compile a CustomResourceDefinition of the plugin";

/// Objects that are given to a pass.
pub(crate) struct GivenObjects {
    pub(crate) parent: Document,
    pub(crate) others: Vec<Document>,
}

/// File paths for a pass.
pub(crate) struct Paths {
    pub(crate) parent: PathBuf,
    pub(crate) observed: Vec<PathBuf>,
    pub(crate) config: Option<PathBuf>,
    pub(crate) grants: Option<PathBuf>,
    pub(crate) hash_key: Option<PathBuf>,
}

/// All files for a pass, read and parsed.
pub(crate) struct Files {
    pub(crate) config: Map<String, Value>,
    pub(crate) grants: Option<Grants>,
    pub(crate) hash_key: Option<HashKey>,
    /// The parent file's name in messages.
    parent: String,
    /// The objects in the parent file.
    with_parent: Vec<Document>,
    observed: Vec<Document>,
}

impl Files {
    /// Reads the files.
    pub(crate) fn read(paths: &Paths, streams: &mut Streams<'_>) -> Result<Self, Failure> {
        let config = one_object(paths.config.as_deref(), streams)?;
        let grants = grants_in(paths.grants.as_deref(), streams)?;
        let hash_key = paths
            .hash_key
            .as_deref()
            .map(|path| hash_key(path, streams))
            .transpose()?;
        let with_parent = documents(&paths.parent, streams)?;
        let mut observed = Vec::new();
        for path in &paths.observed {
            for file in files(path)? {
                observed.extend(documents(&file, streams)?);
            }
        }
        Ok(Self {
            config,
            grants,
            hash_key,
            parent: named(&paths.parent),
            with_parent,
            observed,
        })
    }
}

/// Finds the parent and admits all objects.
pub(crate) fn given(
    files: Files,
    seed: u64,
    manifest: &Manifest,
    kinds: &Kinds,
    streams: &mut Streams<'_>,
) -> Result<GivenObjects, Failure> {
    let is_parent = |document: &Document| {
        manifest
            .parents
            .iter()
            .any(|parent| parent.kind.group_kind() == document.group_kind())
    };
    let (mut parents, mut others): (Vec<Document>, Vec<Document>) =
        files.with_parent.into_iter().partition(is_parent);
    let count = parents.len();
    let (Some(mut parent), true) = (parents.pop(), count == 1) else {
        let kinds: Vec<String> = manifest
            .parents
            .iter()
            .map(|parent| parent.kind.to_string())
            .collect();
        let from = files.parent;
        let kinds = kinds.join(" or ");
        return Err(unusable(format!(
            "{from} contains {count} parents of kind {kinds}: the plugin needs exactly one"
        )));
    };
    others.extend(files.observed);

    let supported = manifest
        .parents
        .iter()
        .map(|parent| &parent.kind)
        .find(|kind| kind.group_kind() == parent.group_kind());
    if let Some(supported) = supported
        && *supported != parent.kind
    {
        return Err(unusable(format!(
            "the parent is {}, but the plugin supports {supported}: convert the parent to that version",
            parent.kind
        )));
    }
    name_and_place(&mut parent, kinds, NAMESPACE, seed);
    let namespace = parent
        .namespace
        .clone()
        .unwrap_or_else(|| NAMESPACE.to_owned());
    let mut schemas = Schemas::new(manifest);
    let parent = schemas.admit(parent, streams)?;
    let mut admitted = Vec::with_capacity(others.len());
    for mut other in others {
        name_and_place(&mut other, kinds, &namespace, seed);
        admitted.push(schemas.admit(other, streams)?);
    }
    Ok(GivenObjects {
        parent,
        others: admitted,
    })
}

/// Sets the name from `generateName` and the URL's namespace, as the API server does before admission.
fn name_and_place(document: &mut Document, kinds: &Kinds, namespace: &str, seed: u64) {
    if kinds.resource_of(&document.kind).scope == Scope::Namespaced {
        document.default_namespace(namespace);
    }
    if document.metadata("name").is_none() {
        let prefix = document
            .name
            .get(..PREFIX_BYTES_MAX)
            .unwrap_or(&document.name);
        document.name = format!("{prefix}{}", seed::name_suffix(seed, prefix));
        let name = document.name.as_str().into();
        document.default_metadata("name", name);
    }
}

/// The plugin's CustomResourceDefinition schemas, compiled on first use.
struct Schemas<'a> {
    manifest: &'a Manifest,
    compiled: BTreeMap<String, Schema>,
}

impl<'a> Schemas<'a> {
    fn new(manifest: &'a Manifest) -> Self {
        Self {
            manifest,
            compiled: BTreeMap::new(),
        }
    }

    /// Prunes, defaults and validates an object if there is a schema for it.
    fn admit(
        &mut self,
        mut document: Document,
        streams: &mut Streams<'_>,
    ) -> Result<Document, Failure> {
        let Some(crd) = self.manifest.crd_for(&document.group_kind()) else {
            return Ok(document);
        };
        let key = document.kind.to_string();
        let schema = match self.compiled.entry(key) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                let schema = Schema::new(crd, &document.kind.version);
                place.insert(schema.or_fail(Exit::Finding, SCHEMA)?)
            }
        };
        let admitted = schema
            .admit(document.object)
            .map_err(|rejection| Failure::new(Exit::Finding, rejection.to_string()))?;
        // `kubectl` warns about them too.
        for field in &admitted.unknown_fields {
            streams.note(&format!(
                "warning: {} {}: unknown field \"{field}\" is dropped",
                document.kind, document.name
            ));
        }
        document.object = admitted.object;
        Ok(document)
    }
}

/// Reads a grants file, if there is one.
pub fn grants_in(
    path: Option<&Path>,
    streams: &mut Streams<'_>,
) -> Result<Option<Grants>, Failure> {
    let Some(path) = path else {
        return Ok(None);
    };
    let object = one_object(Some(path), streams)?;
    let message = format!("failed to parse the grants in {}", named(path));
    grants_of_file(&object)
        .map(Some)
        .or_fail(Exit::Usage, message)
}

/// Reads a file's single object; an empty file and no file count as an empty object.
pub fn one_object(
    path: Option<&Path>,
    streams: &mut Streams<'_>,
) -> Result<Map<String, Value>, Failure> {
    let Some(path) = path else {
        return Ok(Map::new());
    };
    let mut values = yaml::read(&text(path, streams)?)
        .or_fail(Exit::Usage, format!("failed to parse {}", named(path)))?;
    match (values.pop(), values.is_empty()) {
        (None, _) => Ok(Map::new()),
        (Some(Value::Object(object)), true) => Ok(object),
        _ => Err(unusable(format!(
            "{} must contain exactly one object",
            named(path)
        ))),
    }
}

/// Reads a file, or the standard input for `-`; at most [`INPUT_BYTES_MAX`].
pub(crate) fn bytes(path: &Path, streams: &mut Streams<'_>) -> Result<Vec<u8>, Failure> {
    let content = if path.as_os_str() == "-" {
        read_within(&mut streams.stdin, INPUT_BYTES_MAX)
    } else {
        fs::File::open(path).and_then(|file| read_within(file, INPUT_BYTES_MAX))
    };
    content.or_fail(Exit::Usage, unreadable(path))
}

/// Reads the key for hash reads.
fn hash_key(path: &Path, streams: &mut Streams<'_>) -> Result<HashKey, Failure> {
    let key = bytes(path, streams)?;
    if key.is_empty() {
        return Err(unusable(format!(
            "{} is empty: it must contain the cluster's hash key, the bytes of the Secret {HASH_KEY_SECRET}",
            named(path)
        )));
    }
    Ok(HashKey::new(key))
}

fn unusable(message: String) -> Failure {
    Failure::new(Exit::Usage, message)
}

fn unreadable(path: &Path) -> String {
    format!("failed to read {}", named(path))
}

/// Returns a file's name in messages.
pub(crate) fn named(path: &Path) -> String {
    if path.as_os_str() == "-" {
        "the standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

fn text(path: &Path, streams: &mut Streams<'_>) -> Result<String, Failure> {
    let content = bytes(path, streams)?;
    String::from_utf8(content).or_fail(Exit::Usage, unreadable(path))
}

fn documents(path: &Path, streams: &mut Streams<'_>) -> Result<Vec<Document>, Failure> {
    document::documents(&text(path, streams)?, &named(path))
}

/// Returns the file itself, or a directory's YAML and JSON files, sorted by name.
fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).or_fail(Exit::Usage, unreadable(path))? {
        let file = entry.or_fail(Exit::Usage, unreadable(path))?.path();
        let extension = file.extension().and_then(OsStr::to_str);
        let is_recognized = matches!(extension, Some("yaml" | "yml" | "json"));
        if is_recognized && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}
