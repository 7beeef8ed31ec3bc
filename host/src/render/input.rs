//! The input from files and standard input: objects are read, split into the parent and others, and admitted by their
//! schemas.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use innkeeper_model::{GroupKind, HashKey, Manifest, Scope, yaml};
use innkeeper_plugin_controller::resource::grants_of_file;
use innkeeper_policy::Grants;
use innkeeper_sandbox::Recording;
use innkeeper_schema::{Kinds, Schema, kind_of_crd};
use serde_json::{Map, Value};

use super::{Error, document::Document, seed};
use crate::config::{RenderArgs, Streams};

/// The longest prefix of a `generateName` in bytes; the API server cuts off the rest.
const PREFIX_BYTES_MAX: usize = 58;

/// The namespace of a parent whose file names none, and of such observed objects if the parent is cluster-scoped.
const NAMESPACE: &str = "default";

/// The objects that are given to a pass.
pub(super) struct GivenObjects {
    pub(super) parent: Document,
    pub(super) others: Vec<Document>,
}

/// Reads the parent and the observed objects.
pub(super) fn given(
    args: &RenderArgs,
    parent: &Path,
    manifest: &Manifest,
    kinds: &Kinds,
    streams: &mut Streams<'_>,
) -> Result<GivenObjects, Error> {
    let from = parent.display().to_string();
    let is_parent = |document: &Document| {
        manifest
            .parents
            .iter()
            .any(|parent| parent.kind.group_kind() == document.group_kind())
    };
    let (mut parents, mut others): (Vec<Document>, Vec<Document>) =
        documents(parent, streams)?.into_iter().partition(is_parent);
    let found = parents.len();
    let (Some(mut parent), true) = (parents.pop(), found == 1) else {
        let kinds: Vec<String> = manifest
            .parents
            .iter()
            .map(|parent| parent.kind.to_string())
            .collect();
        return Err(Error::Parents {
            from,
            found,
            kinds: kinds.join(" or "),
        });
    };
    for path in &args.observed {
        for file in files(path)? {
            others.extend(documents(&file, streams)?);
        }
    }

    if let Some(speaks) = spoken(manifest, &parent)
        && speaks != parent.kind.to_string()
    {
        let is = parent.kind.to_string();
        return Err(Error::ParentVersion { is, speaks });
    }
    name_and_place(&mut parent, kinds, NAMESPACE, args.seed);
    let namespace = parent
        .namespace
        .clone()
        .unwrap_or_else(|| NAMESPACE.to_owned());
    let mut schemas = Schemas::new(manifest);
    let parent = schemas.admit(parent, streams)?;
    let mut admitted = Vec::with_capacity(others.len());
    for mut other in others {
        name_and_place(&mut other, kinds, &namespace, args.seed);
        admitted.push(schemas.admit(other, streams)?);
    }
    Ok(GivenObjects {
        parent,
        others: admitted,
    })
}

/// Returns the parent's kind in the version that the plugin supports.
fn spoken(manifest: &Manifest, parent: &Document) -> Option<String> {
    manifest
        .parents
        .iter()
        .find(|one| one.kind.group_kind() == parent.group_kind())
        .map(|one| one.kind.to_string())
}

/// Sets the name from `generateName` and the namespace of the URL, as the API server does before admission.
fn name_and_place(document: &mut Document, kinds: &Kinds, namespace: &str, seed: u64) {
    if kinds.resource_of(&document.kind).scope == Scope::Namespaced {
        document.default_namespace(namespace);
    }
    if document.metadata("name").is_none() {
        let prefix = document.name.get(..PREFIX_BYTES_MAX);
        let prefix = prefix.unwrap_or(&document.name);
        document.name = format!("{prefix}{}", seed::name_suffix(seed, prefix));
        let name = document.name.as_str().into();
        document.default_metadata("name", name);
    }
}

/// The schemas of the plugin's CustomResourceDefinitions, compiled on first use.
struct Schemas<'a> {
    crds: BTreeMap<GroupKind, &'a Map<String, Value>>,
    compiled: BTreeMap<String, Schema>,
}

impl<'a> Schemas<'a> {
    fn new(manifest: &'a Manifest) -> Self {
        Self {
            crds: manifest
                .crds
                .iter()
                .filter_map(|crd| Some((kind_of_crd(crd)?, crd)))
                .collect(),
            compiled: BTreeMap::new(),
        }
    }

    /// Prunes, defaults and validates an object if there is a schema for it.
    fn admit(
        &mut self,
        mut document: Document,
        streams: &mut Streams<'_>,
    ) -> Result<Document, Error> {
        let Some(crd) = self.crds.get(&document.group_kind()) else {
            return Ok(document);
        };
        let key = document.kind.to_string();
        let schema = match self.compiled.entry(key) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(Schema::new(crd, &document.kind.version).map_err(Error::Schema)?)
            }
        };
        let admitted = schema.admit(document.object).map_err(Error::Rejected)?;
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

/// The configuration; `{}` if none is given.
pub(super) fn config(
    path: Option<&PathBuf>,
    streams: &mut Streams<'_>,
) -> Result<Map<String, Value>, Error> {
    path.map_or_else(|| Ok(Map::new()), |path| one_object(path, streams))
}

/// Reads the grants; without a file, the plugin gets those that `manifests` proposes, because nothing is at risk offline.
pub(super) fn grants(
    path: Option<&PathBuf>,
    manifest: &Manifest,
    streams: &mut Streams<'_>,
) -> Result<Grants, Error> {
    let Some(path) = path else {
        return Ok(Grants::proposed(manifest));
    };
    let given = one_object(path, streams)?;
    grants_of_file(&given).map_err(|source| Error::Grants {
        from: path.display().to_string(),
        source,
    })
}

/// Reads the single object of a file; an empty file counts as an empty object.
fn one_object(path: &Path, streams: &mut Streams<'_>) -> Result<Map<String, Value>, Error> {
    let mut values = values(path, streams)?;
    match (values.pop(), values.is_empty()) {
        (None, _) => Ok(Map::new()),
        (Some(Value::Object(object)), true) => Ok(object),
        _ => Err(Error::Shape {
            from: path.display().to_string(),
        }),
    }
}

/// Reads a file, or the standard input for `-`.
fn bytes(path: &Path, streams: &mut Streams<'_>) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    let read = if path.as_os_str() == "-" {
        streams.stdin.read_to_end(&mut content).map(drop)
    } else {
        fs::File::open(path).and_then(|mut file| file.read_to_end(&mut content).map(drop))
    };
    read.map_err(|source| unreadable(path, source))?;
    Ok(content)
}

/// Reads the key for hash reads.
pub(super) fn hash_key(path: &Path, streams: &mut Streams<'_>) -> Result<HashKey, Error> {
    let key = bytes(path, streams)?;
    if key.is_empty() {
        return Err(Error::NoHashKey { from: named(path) });
    }
    Ok(HashKey::new(key))
}

fn unreadable(path: &Path, source: io::Error) -> Error {
    let from = named(path);
    Error::Read { from, source }
}

/// Reads the recording of a pass.
pub(super) fn recording(path: &Path, streams: &mut Streams<'_>) -> Result<Recording, Error> {
    let content = bytes(path, streams)?;
    serde_json::from_slice(&content).map_err(|source| Error::Recording {
        from: named(path),
        source,
    })
}

fn named(path: &Path) -> String {
    if path.as_os_str() == "-" {
        "the standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

fn values(path: &Path, streams: &mut Streams<'_>) -> Result<Vec<Value>, Error> {
    let content = bytes(path, streams)?;
    let text = String::from_utf8(content)
        .map_err(|error| unreadable(path, io::Error::new(io::ErrorKind::InvalidData, error)))?;
    yaml::read(&text).map_err(|source| Error::Parse {
        from: path.display().to_string(),
        source,
    })
}

/// Reads the objects of a file; splits lists as `kubectl get -o yaml` prints them.
fn documents(path: &Path, streams: &mut Streams<'_>) -> Result<Vec<Document>, Error> {
    let mut found = Vec::new();
    for (index, value) in values(path, streams)?.into_iter().enumerate() {
        let items = match value {
            Value::Object(mut list)
                if list.get("items").is_some_and(Value::is_array)
                    && list
                        .get("kind")
                        .and_then(Value::as_str)
                        .is_some_and(|kind| kind.ends_with("List")) =>
            {
                match list.remove("items") {
                    Some(Value::Array(items)) => items,
                    _ => Vec::new(),
                }
            }
            other => vec![other],
        };
        for item in items {
            found.push(Document::new(item).map_err(|problem| Error::NoObject {
                from: path.display().to_string(),
                number: index + 1,
                problem,
            })?);
        }
    }
    Ok(found)
}

/// Returns the file itself, or the YAML and JSON files of a directory, sorted by name.
fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(|source| unreadable(path, source))? {
        let file = entry.map_err(|source| unreadable(path, source))?.path();
        let known = file.extension().is_some_and(|extension| {
            ["yaml", "yml", "json"]
                .iter()
                .any(|known| extension == *known)
        });
        if known && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}
