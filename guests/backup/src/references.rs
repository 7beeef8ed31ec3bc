//! Reads the objects that the parent references, and brings both generations into one form.
//!
//! The host tracks the reads and runs the parent's next pass when a missing object appears, so a missing object is not
//! an error in the parent. `render::entry` checks the content.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_sdk::{host::ReadError, prelude::*};
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    api::{
        ArchiveSettings, Parent, Reference,
        related::{
            BackupModel, Database, PostgreSQL, PostgreSQLSpec, S3, S3Spec, Storage, StorageSpec,
        },
    },
    catalog::{self, Family},
    status::Warning,
    stop::Stop,
};

/// A database or storage of either generation.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// `Database`, `PostgreSQL`, `Storage` or `S3`.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) type_: &'static catalog::Type,
    /// gobackup's keys, neither checked nor translated. A storage's path is that of the parent's archives.
    pub(crate) config: BTreeMap<String, Value>,
    /// The storage's own path, which other parents may share.
    pub(crate) root: String,
    /// True if the owner allows verifications to replace the database's content.
    pub(crate) is_scratch: bool,
}

/// The annotation on a `Database` or `PostgreSQL`: `true` allows verifications to replace its content.
pub(crate) const SCRATCH: &str = "gobackup.io/scratch";

impl Source {
    /// Returns the object and the path of a key, as the user wrote it.
    pub(crate) fn path(&self, key: &str) -> String {
        let field = match self.kind {
            "PostgreSQL" | "S3" => old_field(key),
            _ => format!("config.{key}"),
        };
        format!("{} {}: {field}", self.kind, self.name)
    }

    /// Returns the storage with the path of a parent's archives, below the storage's own.
    ///
    /// Everything that writes, reads or compares archives uses this path.
    fn below<const N: usize>(mut self, parts: [&str; N]) -> Self {
        self.config
            .get("path")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .clone_into(&mut self.root);
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let path = if self.type_.name == "ftp" {
            // gobackup only creates the last directory. No parent's name contains the separator.
            let parts: Vec<String> = parts.map(|part| part.replace('/', "_")).collect();
            match (self.root.trim_end_matches('/'), parts.join("_")) {
                (_, below) if below.is_empty() => self.root.clone(),
                ("", below) => format!("{}{below}", self.root),
                (root, below) => format!("{root}_{below}"),
            }
        } else {
            parts.fold(self.root.clone(), |path, part| match path.as_str() {
                "" => part.to_owned(),
                path => format!("{}/{part}", path.trim_end_matches('/')),
            })
        };
        if path != self.root {
            self.config.insert("path".to_owned(), json!(path));
        }
        self
    }
}

/// Returns the first generation's field for a key.
fn old_field(key: &str) -> String {
    match key {
        "args" => return "additionalOptions".to_owned(),
        "access_key_id" => return "accessKeyID".to_owned(),
        "access_key_id_ref" => return "accessKeyIDRef".to_owned(),
        _ => {}
    }
    let mut words = key.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |field, word| {
        let (initial, rest) = word.split_at(word.len().min(1));
        field + &initial.to_uppercase() + rest
    })
}

/// The objects that the parent refers to.
#[derive(Clone, Debug)]
pub(crate) struct Related {
    pub(crate) model: ArchiveSettings,
    pub(crate) databases: Vec<Source>,
    pub(crate) storages: Vec<Source>,
    pub(crate) warnings: Vec<Warning>,
}

/// Kind of a referenced object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Database,
    PostgreSQL,
    Storage,
    S3,
}

impl Target {
    const fn kind(self) -> &'static str {
        match self {
            Self::Database => "Database",
            Self::PostgreSQL => "PostgreSQL",
            Self::Storage => "Storage",
            Self::S3 => "S3",
        }
    }
}

/// Returns the kinds of references. An error lies in the parent.
pub(crate) fn targets(
    list: &str,
    references: &[Reference],
    new: Target,
    old: Target,
    old_group: &str,
) -> Result<Vec<Target>, String> {
    let mut targets_by_name = BTreeSet::new();
    let mut targets = Vec::new();
    for (index, reference) in references.iter().enumerate() {
        let group = reference.api_group.as_deref().unwrap_or_default();
        let type_ = reference.type_.as_deref().unwrap_or_default();
        let target = if group.is_empty() || group == "gobackup.io" {
            new
        } else if group == old_group && type_.eq_ignore_ascii_case(old.kind()) {
            old
        } else if group == old_group && type_.is_empty() {
            return Err(format!(
                "{list}[{index}]: {group} needs the type {}; set it, or use a {}",
                old.kind(),
                new.kind()
            ));
        } else {
            return Err(format!(
                "{list}[{index}]: there is no kind {type_} in {group}; use a {}",
                new.kind()
            ));
        };
        if !targets_by_name.insert((target, reference.name.as_str())) {
            return Err(format!(
                "{list}[{index}]: {} {} is referenced twice",
                target.kind(),
                reference.name
            ));
        }
        targets.push(target);
    }
    Ok(targets)
}

/// Returns the kinds of the parent's databases.
pub(crate) fn database_targets(parent: &Parent) -> Result<Vec<Target>, String> {
    databases("databaseRefs", parent.databases())
}

/// Returns the kinds in a list of databases.
pub(crate) fn databases(list: &str, references: &[Reference]) -> Result<Vec<Target>, String> {
    targets(
        list,
        references,
        Target::Database,
        Target::PostgreSQL,
        "database.gobackup.io",
    )
}

/// Returns the kinds of the parent's storages.
pub(crate) fn storage_targets(parent: &Parent) -> Result<Vec<Target>, String> {
    targets(
        "storageRefs",
        parent.storages(),
        Target::Storage,
        Target::S3,
        "storage.gobackup.io",
    )
}

/// Reads all referenced objects.
///
/// The parent's archives are below each storage's path, in `own` and then in the reference's path.
pub(crate) fn read(
    request: &Request,
    host: &dyn Host,
    parent: &Parent,
    own: &str,
) -> Result<Related, Stop> {
    let mut reader = Reader {
        host,
        namespace: request.namespace(),
        missing: BTreeMap::new(),
        problem: None,
        warnings: Vec::new(),
    };
    let model = match parent.model() {
        None => ArchiveSettings::default(),
        Some(name) => reader
            .get::<BackupModel>(name)?
            .map(|model| model.spec.settings)
            .unwrap_or_default(),
    };
    let mut databases = Vec::new();
    for (reference, target) in parent.databases().iter().zip(database_targets(parent)?) {
        databases.extend(reader.database(reference, target)?);
    }
    let mut storages = Vec::new();
    for (reference, target) in parent.storages().iter().zip(storage_targets(parent)?) {
        let source = reader.storage(reference, target)?;
        storages
            .extend(source.map(|storage| {
                storage.below([own, reference.path.as_deref().unwrap_or_default()])
            }));
    }
    // Only now, so that the host tracks every read and the message names all missing objects at once.
    reader.finish()?;
    Ok(Related {
        model,
        databases,
        storages,
        warnings: reader.warnings,
    })
}

/// Returns the storage of a `Storage` that is itself the parent.
pub(crate) fn own(name: &str, spec: &StorageSpec, own: &str) -> Result<Source, Stop> {
    let Some(type_) = catalog::STORAGES.find(&spec.type_) else {
        return Err(format!("type: {} is unknown to gobackup", spec.type_).into());
    };
    let source = Source {
        kind: Target::Storage.kind(),
        name: name.to_owned(),
        type_,
        config: spec.config.clone(),
        root: String::new(),
        is_scratch: false,
    };
    Ok(source.below([own]))
}

struct Reader<'a> {
    host: &'a dyn Host,
    namespace: &'a str,
    /// Names of missing objects by kind.
    missing: BTreeMap<String, BTreeSet<String>>,
    /// The error for the first object that has an unknown type or does not match the schema.
    problem: Option<Stop>,
    warnings: Vec<Warning>,
}

impl Reader<'_> {
    fn get<T>(&mut self, name: &str) -> Result<Option<T>, Stop>
    where
        T: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let kind = T::kind(&());
        let missing = match self.host.get::<T>(self.namespace, name) {
            Ok(Some(object)) => return Ok(Some(object)),
            Ok(None) => name.to_owned(),
            // The kind may be installed later, just as an object may be created.
            Err(ReadError::NotServed { .. }) => format!("{name} (the kind is not installed)"),
            Err(ReadError::Unreadable { problem, .. }) => {
                let stop = Stop::invalid_reference(format!("{kind} {name}: {problem}"));
                self.problem.get_or_insert(stop);
                return Ok(None);
            }
            Err(denied @ (ReadError::NotDeclared { .. } | ReadError::NotGranted { .. })) => {
                return Err(denied.into());
            }
        };
        self.missing
            .entry(kind.into_owned())
            .or_default()
            .insert(missing);
        Ok(None)
    }

    fn finish(&mut self) -> Result<(), Stop> {
        if !self.missing.is_empty() {
            let listed = self.missing.iter().map(|(kind, names)| {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                format!("{kind} not found: {}", names.join(", "))
            });
            let message = listed.collect::<Vec<_>>().join("; ");
            return Err(Stop::blocked("ReferenceNotFound", message));
        }
        self.problem.take().map_or(Ok(()), Err)
    }

    fn database(&mut self, reference: &Reference, target: Target) -> Result<Option<Source>, Stop> {
        let name = &reference.name;
        let (metadata, type_, config) = match target {
            Target::PostgreSQL => match self.get::<PostgreSQL>(name)? {
                Some(database) => (
                    database.metadata,
                    "postgresql".to_owned(),
                    old_database(database.spec),
                ),
                None => return Ok(None),
            },
            _ => match self.get::<Database>(name)? {
                Some(database) => (database.metadata, database.spec.type_, database.spec.config),
                None => return Ok(None),
            },
        };
        let is_scratch = metadata
            .annotations
            .unwrap_or_default()
            .get(SCRATCH)
            .is_some_and(|value| value == "true");
        let source = self.source(reference, target, &catalog::DATABASES, &type_, config);
        Ok(source.map(|source| Source {
            is_scratch,
            ..source
        }))
    }

    fn storage(&mut self, reference: &Reference, target: Target) -> Result<Option<Source>, Stop> {
        let name = &reference.name;
        let (type_, config) = match target {
            Target::S3 => match self.get::<S3>(name)? {
                Some(storage) => old_storage(storage.spec),
                None => return Ok(None),
            },
            _ => match self.get::<Storage>(name)? {
                Some(storage) => (storage.spec.type_, storage.spec.config),
                None => return Ok(None),
            },
        };
        let source = self.source(reference, target, &catalog::STORAGES, &type_, config);
        Ok(source.map(|source| overridden(source, reference)))
    }

    fn source(
        &mut self,
        reference: &Reference,
        target: Target,
        family: &Family,
        type_: &str,
        config: BTreeMap<String, Value>,
    ) -> Option<Source> {
        let kind = target.kind();
        let name = reference.name.clone();
        let Some(catalog_type) = family.find(type_) else {
            let message = format!("{kind} {name}: type {type_} is not known");
            self.problem
                .get_or_insert_with(|| Stop::invalid_reference(message));
            return None;
        };
        let expected = reference.type_.as_deref().unwrap_or_default();
        let is_matching = [type_, kind, ""]
            .iter()
            .any(|name| name.eq_ignore_ascii_case(expected));
        if !is_matching {
            self.warnings.push(Warning::new(
                "RefTypeMismatch",
                format!("{kind} {name} is of type {type_}, not {expected}"),
            ));
        }
        Some(Source {
            kind,
            name,
            type_: catalog_type,
            config,
            root: String::new(),
            is_scratch: false,
        })
    }
}

/// Returns the storage with the reference's `keep` and `timeout`, if the type has these keys.
fn overridden(mut source: Source, reference: &Reference) -> Source {
    for (key, value) in [("keep", reference.keep), ("timeout", reference.timeout)] {
        if let Some(value) = value.filter(|value| *value > 0)
            && source.type_.key(key).is_some()
        {
            source.config.insert(key.to_owned(), json!(value));
        }
    }
    source
}

/// Returns the keys with values other than null.
fn config<const N: usize>(values: [(&str, Value); N]) -> BTreeMap<String, Value> {
    values
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

fn old_database(spec: PostgreSQLSpec) -> BTreeMap<String, Value> {
    config([
        ("host", json!(spec.host)),
        ("port", json!(spec.port)),
        ("database", json!(spec.database)),
        ("username", json!(spec.username)),
        ("username_ref", json!(spec.username_ref)),
        ("password", json!(spec.password)),
        ("password_ref", json!(spec.password_ref)),
        ("tables", json!(spec.tables)),
        ("exclude_tables", json!(spec.exclude_tables)),
        ("args", json!(spec.additional_options)),
    ])
}

fn old_storage(spec: S3Spec) -> (String, BTreeMap<String, Value>) {
    let config = config([
        ("bucket", json!(spec.bucket)),
        ("region", json!(spec.region)),
        ("endpoint", json!(spec.endpoint)),
        ("path", json!(spec.path)),
        ("access_key_id", json!(spec.access_key_id)),
        ("access_key_id_ref", json!(spec.access_key_id_ref)),
        ("secret_access_key", json!(spec.secret_access_key)),
        ("secret_access_key_ref", json!(spec.secret_access_key_ref)),
        ("force_path_style", json!(spec.force_path_style)),
        ("storage_class", json!(spec.storage_class)),
        ("max_retries", json!(spec.max_retries)),
    ]);
    (spec.type_.unwrap_or_else(|| "s3".to_owned()), config)
}
