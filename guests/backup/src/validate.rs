//! What is wrong with the parent, or with the blocks of its model.
//!
//! CEL checks what one field can tell; here stands what needs several, or the model.

use crate::{
    api::{Archive, Compression, Encryption, Parent},
    references,
    related::BackupModelSpec,
    render::{self, Blocks},
    stop::Stop,
};

/// What the parent alone can tell.
pub(crate) fn parent(parent: &Parent) -> Result<(), Stop> {
    let spec = &parent.spec;
    if parent.storages().is_empty() {
        return Err(invalid("storageRefs: at least one is needed"));
    }
    if parent.databases().is_empty() && spec.archive.is_none() && parent.model().is_none() {
        return Err(nothing_to_back_up());
    }
    references::database_targets(parent)?;
    references::storage_targets(parent)?;
    if let Some(default) = &spec.default_storage
        && !parent.storages().iter().any(|it| it.name == *default)
    {
        return Err(Stop::Invalid(format!(
            "defaultStorage: {default} is in no storageRefs"
        )));
    }
    let problem = spec.compress_with.as_ref().and_then(compression);
    let problem = problem.or_else(|| spec.encode_with.as_ref().and_then(encryption));
    let problem = problem.or_else(|| spec.archive.as_ref().and_then(|it| archive(parent, it)));
    problem.map_or(Ok(()), |problem| Err(Stop::Invalid(problem)))
}

/// What the model adds; an error in it is not the parent's.
pub(crate) fn model(parent: &Parent, model: &BackupModelSpec) -> Result<(), Stop> {
    let blocks = Blocks::new(parent, model);
    if parent.databases().is_empty() && blocks.archive.is_none() {
        return Err(nothing_to_back_up());
    }
    let problem = blocks.compress_with.and_then(compression);
    let problem = problem.or_else(|| blocks.encode_with.and_then(encryption));
    let problem = problem.or_else(|| blocks.archive.and_then(|it| archive(parent, it)));
    let Some(problem) = problem else {
        return Ok(());
    };
    let name = parent.model().unwrap_or_default();
    let message = format!("BackupModel {name}: {problem}");
    Err(Stop::invalid_reference(message))
}

fn invalid(message: &str) -> Stop {
    Stop::Invalid(message.to_owned())
}

fn nothing_to_back_up() -> Stop {
    invalid("databaseRefs or archive is needed")
}

fn compression(given: &Compression) -> Option<String> {
    let type_ = given.type_.as_deref().filter(|type_| !type_.is_empty())?;
    render::compression(type_)
        .is_none()
        .then(|| format!("compressWith.type: {type_} is not known to gobackup"))
}

fn encryption(given: &Encryption) -> Option<String> {
    let type_ = given.type_.as_deref().unwrap_or_default();
    if !matches!(type_, "" | "openssl") {
        return Some(format!("encodeWith.type: {type_} is not known to gobackup"));
    }
    if !render::is_encrypting(given) {
        let says_nothing = Encryption {
            type_: None,
            openssl: None,
            ..given.clone()
        } == Encryption::default();
        return (!says_nothing)
            .then(|| "encodeWith: without type openssl nothing would be encrypted".to_owned());
    }
    let has_password = given.password.as_ref().is_some_and(|it| !it.is_empty());
    (!has_password && given.password_ref.is_none())
        .then(|| "encodeWith: password or passwordRef is required".to_owned())
}

fn archive(parent: &Parent, given: &Archive) -> Option<String> {
    let is_inside = |path: &&String| parent.spec.volumes.iter().any(|it| it.holds(path));
    let outside = given.includes.iter().find(|path| !is_inside(path))?;
    Some(format!(
        "archive.includes: {outside} is not an absolute path inside a mount of spec.volumes"
    ))
}
