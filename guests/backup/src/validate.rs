//! Checks the parent and the model's settings.
//!
//! CEL rules check single fields. These checks need several fields or the model.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    api::{
        Archive, ArchiveSettings, Compression, Encryption, HEADERS, Notifier, Parent, Reference,
        Split,
    },
    catalog, pod, programs, references,
    render::{self, LocalStorage},
    stop::Stop,
};

/// Checks the parent alone.
pub(crate) fn parent(parent: &Parent) -> Result<(), String> {
    let settings = &parent.spec.settings;
    if parent.storages().is_empty() {
        return Err("storageRefs: at least one is needed".to_owned());
    }
    // A model may name files; `merged` checks again with it.
    if parent.databases().is_empty() && settings.archive.is_none() && parent.model().is_none() {
        return Err(nothing_to_back_up());
    }
    references::database_targets(parent)?;
    references::storage_targets(parent)?;
    if let Some(default) = &parent.spec.default_storage
        && !parent
            .storages()
            .iter()
            .any(|storage| storage.name == *default)
    {
        return Err(format!("defaultStorage: {default} is not in storageRefs"));
    }
    mounts(parent)?;
    verified(parent)?;
    problem(parent, settings).map_or(Ok(()), Err)
}

/// Checks that each scratch database is for one of the parent's dumps, and is not dumped itself.
fn verified(parent: &Parent) -> Result<(), String> {
    const LIST: &str = "verify.databases";
    let Some(verify) = &parent.spec.verify else {
        return Ok(());
    };
    let scratch: Vec<Reference> = verify
        .databases
        .iter()
        .map(|database| database.database_ref.clone())
        .collect();
    let targets = references::databases(LIST, &scratch)?;
    let dumped = references::database_targets(parent)?;
    let mut dumps = BTreeSet::new();
    for ((index, scratch), target) in verify.databases.iter().enumerate().zip(targets) {
        let name = &scratch.database;
        let mut names = parent.databases().iter().map(|database| &database.name);
        if !names.any(|database| database == name) {
            return Err(format!("{LIST}[{index}]: {name} is not in databaseRefs"));
        }
        if !dumps.insert(name) {
            return Err(format!(
                "{LIST}[{index}]: {name} has two scratch databases; name one"
            ));
        }
        let scratch = &scratch.database_ref.name;
        let mut own = parent.databases().iter().zip(&dumped);
        if own.any(|(database, kind)| database.name == *scratch && *kind == target) {
            return Err(format!(
                "{LIST}[{index}]: {scratch} is in databaseRefs, and a verification replaces its content; name \
                 another database"
            ));
        }
    }
    Ok(())
}

/// Checks the parent's settings together with the model's.
///
/// The parent's own settings have passed [`parent`], so an error lies in the model.
pub(crate) fn merged(parent: &Parent, settings: &ArchiveSettings) -> Result<(), Stop> {
    if parent.databases().is_empty() && settings.archive.is_none() {
        return Err(nothing_to_back_up().into());
    }
    let Some(problem) = problem(parent, settings) else {
        return Ok(());
    };
    let name = parent.model().unwrap_or_default();
    let message = format!("BackupModel {name}: {problem}");
    Err(Stop::invalid_reference(message))
}

/// Checks volume mounts that would make the API server reject the Pod.
pub(crate) fn mounts(parent: &Parent) -> Result<(), String> {
    let mut paths = taken_paths();
    let mut names = BTreeSet::new();
    for (index, volume) in parent.spec.volumes.iter().enumerate() {
        if !names.insert(&volume.name) {
            let name = &volume.name;
            return Err(format!("volumes[{index}]: the name {name} is used twice"));
        }
        if !paths.insert(clean(&volume.mount_path)) {
            let path = &volume.mount_path;
            return Err(format!(
                "volumes[{index}]: another volume or the run itself has the mountPath {path}"
            ));
        }
    }
    Ok(())
}

/// Checks the paths of local storages, where the run mounts a claim. An error lies in the storage.
pub(crate) fn locals<'a>(storages: impl Iterator<Item = &'a LocalStorage>) -> Result<(), Stop> {
    let mut paths = taken_paths();
    for LocalStorage { name, mount, .. } in storages {
        if !paths.insert(clean(mount)) {
            return Err(Stop::invalid_reference(format!(
                "Storage {name}: config.path: another storage or the run itself has the path {mount}"
            )));
        }
    }
    Ok(())
}

/// Returns the run's own mounts.
fn taken_paths() -> BTreeSet<String> {
    [pod::CONFIGURATION, pod::CONFIG_PATH, render::KEYS]
        .into_iter()
        .chain(pod::DIRECTORIES)
        .map(clean)
        .collect()
}

fn clean(path: &str) -> String {
    path.trim_end_matches('/').to_owned()
}

fn nothing_to_back_up() -> String {
    "databaseRefs or archive is needed".to_owned()
}

/// Returns the first problem in the settings.
fn problem(parent: &Parent, settings: &ArchiveSettings) -> Option<String> {
    let compression = || settings.compress_with.as_ref().and_then(compression);
    let encryption = || settings.encode_with.as_ref().and_then(encryption);
    let archive = || archive(parent, settings.archive.as_ref()?);
    let notifiers = || notifiers(settings.notifiers.as_deref()?);
    let split = || split(settings.split_with.as_ref()?);
    compression()
        .or_else(encryption)
        .or_else(split)
        .or_else(archive)
        .or_else(notifiers)
}

fn notifiers(notifiers: &[Notifier]) -> Option<String> {
    let mut names = BTreeSet::new();
    notifiers.iter().find_map(|notifier| {
        let name = &notifier.name;
        if !names.insert(name) {
            return Some(format!("notifiers: the name {name} is used twice"));
        }
        let Some(type_) = catalog::NOTIFIERS.find(&notifier.type_) else {
            let type_ = &notifier.type_;
            return Some(format!(
                "notifiers: {name}: type {type_} is unknown to gobackup"
            ));
        };
        let mut keys = type_.keys.iter();
        let missing =
            keys.find(|key| key.is_required && !render::is_given(&notifier.config, key.name));
        if let Some(key) = missing {
            return Some(format!(
                "notifiers: {name}: config.{} is required",
                key.name
            ));
        }
        let headers = notifier.config.get(HEADERS).and_then(Value::as_object);
        let is_header = |name: &str| {
            let mut bytes = name.bytes();
            !name.is_empty()
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        let wrong = headers?.keys().find(|header| !is_header(header))?;
        Some(format!(
            "notifiers: {name}: config.{HEADERS}: \"{wrong}\" is not a header name: use letters, \
             digits, '-' and '_'"
        ))
    })
}

fn compression(compression: &Compression) -> Option<String> {
    let type_ = compression
        .type_
        .as_deref()
        .filter(|type_| !type_.is_empty())?;
    render::compression(type_)
        .is_none()
        .then(|| format!("compressWith.type: {type_} is unknown to gobackup"))
}

fn encryption(encryption: &Encryption) -> Option<String> {
    let type_ = encryption.type_.as_deref().unwrap_or_default();
    if !matches!(type_, "" | "openssl") {
        return Some(format!("encodeWith.type: {type_} is unknown to gobackup"));
    }
    if !render::is_encrypting(encryption) {
        let is_empty = Encryption {
            type_: None,
            openssl: None,
            ..encryption.clone()
        } == Encryption::default();
        return (!is_empty)
            .then(|| "encodeWith: without type openssl nothing would be encrypted".to_owned());
    }
    let has_password = encryption
        .password
        .as_ref()
        .is_some_and(|password| !password.is_empty());
    (!has_password && encryption.password_ref.is_none())
        .then(|| "encodeWith: password or passwordRef is required".to_owned())
}

fn split(split: &Split) -> Option<String> {
    let size = &split.chunk_size;
    (!programs::is_chunk_size(size)).then(|| {
        format!("splitWith.chunkSize: {size} is not a size of split; write a number with a unit such as 500m, 2G or 1GB")
    })
}

fn archive(parent: &Parent, archive: &Archive) -> Option<String> {
    let is_climbing = |path: &str| path.split('/').any(|part| part == "..");
    let is_inside = |path: &&String| {
        !is_climbing(path) && parent.spec.volumes.iter().any(|volume| volume.holds(path))
    };
    let outside = archive.includes.iter().find(|path| !is_inside(path))?;
    Some(format!(
        "archive.includes: {outside} is not an absolute path inside a mount in spec.volumes"
    ))
}
