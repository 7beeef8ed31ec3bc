//! The databases and the storage that a Restore chooses, and its confirmation: each name is that of one object.

use std::collections::BTreeSet;

use innkeeper_sdk::prelude::*;

use crate::{
    api::{Parent, Reference, restore::RestoreSpec},
    render,
    status::Restored,
    stop::Stop,
};

/// The kind that a reference to a database or a storage names, by the kinds of the two generations.
fn kind_of<'a>(reference: &Reference, [new, old]: [&'a str; 2]) -> &'a str {
    match reference.api_group.as_deref() {
        Some("database.gobackup.io" | "storage.gobackup.io") => old,
        _ => new,
    }
}

const DATABASE: [&str; 2] = ["Database", "PostgreSQL"];

/// Checks that a name is that of one reference, because the names of two kinds may be the same.
fn named_once(
    field: &str,
    name: &str,
    references: &[Reference],
    kinds: [&str; 2],
) -> Result<(), Stop> {
    let named = references.iter().filter(|it| it.name == name);
    let named: Vec<String> = named
        .map(|it| format!("{} {name}", kind_of(it, kinds)))
        .collect();
    if named.len() < 2 {
        return Ok(());
    }
    Err(Stop::invalid_reference(format!(
        "{field}: {name} is the name of {}; give one of the objects another name",
        named.join(" and ")
    )))
}

/// The storage reference, and the key of the storage in the state of the parent.
pub(super) fn storage(backup: &Parent, spec: &RestoreSpec) -> Result<(Reference, String), Stop> {
    let references = backup.storages();
    let keys = render::keys(references.iter().map(|it| it.name.as_str()));
    if let Some(name) = &spec.storage {
        named_once("storage", name, references, ["Storage", "S3"])?;
    }
    let mut named = references.iter().zip(keys);
    let found = match &spec.storage {
        None => named.next(),
        Some(name) => named.find(|(it, _)| it.name == *name),
    };
    found
        .map(|(reference, key)| (reference.clone(), key))
        .ok_or_else(|| {
            let name = spec.storage.as_deref().unwrap_or_default();
            Stop::invalid_reference(format!(
                "storage: {name} is in no storageRefs of {} {}",
                spec.backup_ref.kind.as_str(),
                spec.backup_ref.name
            ))
        })
}

/// The databases to restore: the key of each dump and the reference to its target.
pub(super) fn chosen(
    backup: &Parent,
    spec: &RestoreSpec,
) -> Result<Vec<(String, Reference)>, Stop> {
    let references = backup.databases();
    let names: BTreeSet<&str> = references.iter().map(|it| it.name.as_str()).collect();
    let listed = spec.databases.iter().flatten();
    let overridden = spec.overrides.iter().map(|it| &it.database);
    for (list, name) in listed
        .map(|it| ("databases", it))
        .chain(overridden.map(|it| ("overrides", it)))
    {
        if !names.contains(name.as_str()) {
            return Err(Stop::invalid_reference(format!(
                "{list}: {name} is in no databaseRefs of {} {}",
                spec.backup_ref.kind.as_str(),
                spec.backup_ref.name
            )));
        }
        named_once(list, name, references, DATABASE)?;
    }
    let keys = render::keys(references.iter().map(|it| it.name.as_str()));
    let is_wanted = |name: &String| spec.databases.as_ref().is_none_or(|it| it.contains(name));
    let wanted = references
        .iter()
        .zip(keys)
        .filter(|it| is_wanted(&it.0.name));
    let chosen: Vec<_> = wanted
        .map(|(reference, key)| {
            let mut overrides = spec.overrides.iter();
            let other = overrides.find(|it| it.database == reference.name);
            let target = other.map_or(reference, |it| &it.database_ref);
            (key, target.clone())
        })
        .collect();
    Ok(chosen)
}

/// The databases whose content is replaced, as `confirm` lists them: by name, and by kind and name if two names are the same.
fn listed(chosen: &[(String, Reference)]) -> String {
    let objects: BTreeSet<(&str, &str)> = chosen
        .iter()
        .map(|it| (kind_of(&it.1, DATABASE), it.1.name.as_str()))
        .collect();
    let names: BTreeSet<&str> = objects.iter().map(|it| it.1).collect();
    let listed: Vec<String> = if names.len() < objects.len() {
        let objects = objects.iter();
        objects
            .map(|(kind, name)| format!("{kind} {name}"))
            .collect()
    } else {
        names.into_iter().map(str::to_owned).collect()
    };
    listed.join(",")
}

/// Checks that the user names the databases whose content is replaced.
///
/// A Restore that is deleted and applied again is another one of the same name. It runs only if the user names the time of
/// the last one, because GitOps tools and restored namespaces apply old manifests.
pub(super) fn confirmed(
    request: &Request,
    chosen: &[(String, Reference)],
    spec: &RestoreSpec,
    restores: &[Restored],
) -> Result<(), Stop> {
    let given = spec.confirm.as_deref().unwrap_or_default();
    let wanted = listed(chosen);
    let is_same = |it: &&Restored| it.name == request.name() && it.uid != request.uid();
    if let Some(last) = restores.iter().find(is_same) {
        let time = &last.time;
        let again = format!("{wanted} after {time}");
        return if given == again.trim_start() {
            Ok(())
        } else {
            Err(Stop::Invalid(format!(
                "confirm: a Restore of this name started at {time}; write \"{}\" to allow that the content is replaced \
                 again, or delete this Restore",
                again.trim_start()
            )))
        };
    }
    if given == wanted {
        return Ok(());
    }
    Err(Stop::Invalid(format!(
        "confirm: write \"{wanted}\" to allow that it is overwritten"
    )))
}
