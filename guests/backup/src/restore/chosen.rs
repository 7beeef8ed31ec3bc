//! Selects a Restore's databases and storage, and checks the confirmation. Each name must refer to one object.

use std::collections::BTreeSet;

use innkeeper_sdk::prelude::*;

use crate::{
    api::{Parent, Reference, restore::RestoreSpec},
    render,
    status::Restored,
    stop::Stop,
};

/// Returns the kind of a referenced database or storage, from the kinds in both generations.
fn kind_of<'a>(reference: &Reference, [new, old]: [&'a str; 2]) -> &'a str {
    match reference.api_group.as_deref() {
        Some("database.gobackup.io" | "storage.gobackup.io") => old,
        _ => new,
    }
}

const DATABASE: [&str; 2] = ["Database", "PostgreSQL"];

/// Checks that a name refers to one object, because objects of different kinds may share it.
fn named_once(
    field: &str,
    name: &str,
    references: &[Reference],
    kinds: [&str; 2],
) -> Result<(), Stop> {
    let named: Vec<String> = references
        .iter()
        .filter(|reference| reference.name == name)
        .map(|reference| format!("{} {name}", kind_of(reference, kinds)))
        .collect();
    if named.len() < 2 {
        return Ok(());
    }
    Err(Stop::invalid_reference(format!(
        "{field}: {name} is the name of {}; give one of the objects another name",
        named.join(" and ")
    )))
}

/// Returns the storage reference, and the storage's key in the parent's state.
pub(super) fn storage(backup: &Parent, spec: &RestoreSpec) -> Result<(Reference, String), Stop> {
    let references = backup.storages();
    let keys = render::keys(references.iter().map(|storage| storage.name.as_str()));
    if let Some(name) = &spec.storage {
        named_once("storage", name, references, ["Storage", "S3"])?;
    }
    let mut named = references.iter().zip(keys);
    let storage = match &spec.storage {
        None => named.next(),
        Some(name) => named.find(|(storage, _)| storage.name == *name),
    };
    storage
        .map(|(reference, key)| (reference.clone(), key))
        .ok_or_else(|| {
            let name = spec.storage.as_deref().unwrap_or_default();
            Stop::invalid_reference(format!(
                "storage: {name} is not in the storageRefs of {} {}",
                spec.backup_ref.kind.as_str(),
                spec.backup_ref.name
            ))
        })
}

/// Returns the databases to restore: the key of each dump and the target reference.
pub(super) fn chosen(
    backup: &Parent,
    spec: &RestoreSpec,
) -> Result<Vec<(String, Reference)>, Stop> {
    let references = backup.databases();
    let names: BTreeSet<&str> = references
        .iter()
        .map(|database| database.name.as_str())
        .collect();
    let listed = spec.databases.iter().flatten();
    let overridden = spec.overrides.iter().map(|database| &database.database);
    for (list, name) in listed
        .map(|name| ("databases", name))
        .chain(overridden.map(|name| ("overrides", name)))
    {
        if !names.contains(name.as_str()) {
            return Err(Stop::invalid_reference(format!(
                "{list}: {name} is not in the databaseRefs of {} {}",
                spec.backup_ref.kind.as_str(),
                spec.backup_ref.name
            )));
        }
        named_once(list, name, references, DATABASE)?;
    }
    let keys = render::keys(references.iter().map(|database| database.name.as_str()));
    let is_wanted = |name: &String| {
        spec.databases
            .as_ref()
            .is_none_or(|names| names.contains(name))
    };
    let chosen: Vec<_> = references
        .iter()
        .zip(keys)
        .filter(|dump| is_wanted(&dump.0.name))
        .map(|(reference, key)| {
            let target = spec
                .overrides
                .iter()
                .find(|database| database.database == reference.name)
                .map_or(reference, |database| &database.database_ref);
            (key, target.clone())
        })
        .collect();
    Ok(chosen)
}

/// Returns the databases to overwrite as `confirm` lists them: by name, or by kind and name if two names are the same.
fn listed(chosen: &[(String, Reference)]) -> String {
    let objects: BTreeSet<(&str, &str)> = chosen
        .iter()
        .map(|dump| (kind_of(&dump.1, DATABASE), dump.1.name.as_str()))
        .collect();
    let names: BTreeSet<&str> = objects.iter().map(|object| object.1).collect();
    let listed: Vec<String> = if names.len() < objects.len() {
        objects
            .iter()
            .map(|(kind, name)| format!("{kind} {name}"))
            .collect()
    } else {
        names.into_iter().map(str::to_owned).collect()
    };
    listed.join(",")
}

/// Checks that the user confirms the databases to overwrite.
///
/// GitOps tools and restored namespaces apply old manifests, so a Restore with the name of an earlier one only runs if
/// the user also confirms that one's time.
pub(super) fn confirmed(
    request: &Request,
    chosen: &[(String, Reference)],
    spec: &RestoreSpec,
    restores: &[Restored],
) -> Result<(), Stop> {
    let confirm = spec.confirm.as_deref().unwrap_or_default();
    let listed = listed(chosen);
    let is_same =
        |restore: &&Restored| restore.name == request.name() && restore.uid != request.uid();
    if let Some(last) = restores.iter().find(is_same) {
        let time = &last.time;
        let again = format!("{listed} after {time}");
        // A Restore of files alone lists no database and only confirms the time.
        return if confirm == again.trim_start() {
            Ok(())
        } else {
            Err(Stop::Invalid(format!(
                "confirm: a Restore with this name started at {time}; write \"{}\" to allow that the content is replaced \
                 again, or delete this Restore",
                again.trim_start()
            )))
        };
    }
    if confirm == listed {
        return Ok(());
    }
    Err(Stop::Invalid(format!(
        "confirm: write \"{listed}\" to overwrite it"
    )))
}
