//! Checks a parent against the limits for users who create parents.

use crate::{
    api::{ArchiveSettings, BackupSpec, Parent},
    config::Tenants,
    pod,
    programs::{
        self, ETCDCTL, GBAK, MARIADB_BACKUP, MONGODUMP, MYSQLDUMP, OPENSSL, PG_DUMP, PG_DUMPALL,
        Program, REDIS_CLI, SQLPACKAGE, openssl,
    },
    references::Source,
    render::{LocalStorage, Origin, Rendered, is_encrypting},
    status::Warning,
    stop::Stop,
};
use innkeeper_kit::{
    prelude::*,
    tenants::{
        check_environment, check_image, check_listed, check_mount, check_reference, check_secrets,
        is_listed,
    },
};
use serde_json::Value;

/// Checks the parent's fields that the configuration limits. An error lies in the parent.
pub(crate) fn check_parent(parent: &Parent, limits: &Tenants) -> Result<(), String> {
    let spec = &parent.spec;
    if let Some(image) = &spec.image {
        check_image("spec.image", image, &limits.images)?;
    }
    let path = "spec.serviceAccountName";
    let list = "tenants.serviceAccounts";
    let names = &spec.service_account_name;
    check_listed(path, list, names, &limits.service_accounts)?;
    if let Some(template) = &spec.pod_template {
        template.check("spec.podTemplate", &limits.pod_template())?;
    }
    if let Some(run_with) = &spec.run_with {
        run_with.check()?;
    }
    let mut volumes = spec.volumes.iter();
    match volumes.find(|volume| volume.nfs.is_some() || volume.host_path.is_some()) {
        Some(volume) if !limits.host_volumes => {
            return Err(format!(
                "spec.volumes: {} is a hostPath or NFS volume, and \
                 tenants.hostVolumes of the plugin's configuration is off",
                volume.name
            ));
        }
        _ => {}
    }
    check_code(spec, limits)
}

/// Removes a backup's service account from its Restore unless the configuration lists it. The stored backup may be one
/// that the plugin refuses, and a storage with keys can be read without the account.
pub(crate) fn remove_account(spec: &mut BackupSpec, limits: &Tenants) {
    spec.service_account_name
        .take_if(|name| !is_listed(name, &limits.service_accounts));
}

/// Allowed variables with plain values, for gobackup and the clients in the image.
///
/// `GODEBUG` would log requests with their tokens, and `MYSQL_DEBUG`, `PGPASSFILE` and other file names write or read
/// files.
pub(crate) const VARIABLES: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "ETCDCTL_COMMAND_TIMEOUT",
    "ETCDCTL_DIAL_TIMEOUT",
    "ETCDCTL_INSECURE_SKIP_TLS_VERIFY",
    "ETCDCTL_INSECURE_TRANSPORT",
    "ETCDCTL_PASSWORD",
    "ETCDCTL_USER",
    "GOGC",
    "GOMAXPROCS",
    "GOMEMLIMIT",
    "MYSQL_PWD",
    "PGAPPNAME",
    "PGCHANNELBINDING",
    "PGCLIENTENCODING",
    "PGCONNECT_TIMEOUT",
    "PGPASSWORD",
    "PGSSLMAXPROTOCOLVERSION",
    "PGSSLMINPROTOCOLVERSION",
    "PGSSLMODE",
    "PGTARGETSESSIONATTRS",
    "PGTZ",
    "PGUSER",
    "REDISCLI_AUTH",
];

/// Checks that no field changes the run's programs, unless scripts are allowed.
fn check_code(spec: &BackupSpec, limits: &Tenants) -> Result<(), String> {
    if limits.scripts {
        return Ok(());
    }
    if spec.expand_env {
        return Err(
            "spec.expandEnv: a variable of several lines adds settings to the configuration, scripts \
             too, and tenants.scripts of the plugin's configuration is off"
                .to_owned(),
        );
    }
    check_environment("spec", &spec.env, &spec.env_from, VARIABLES)?;
    spec.volumes
        .iter()
        .map(|volume| volume.mount_path.as_str())
        .try_for_each(|mount| check_mount("spec.volumes", mount, &pod::DIRECTORIES))
}

/// Checks the paths of local storages, where the run mounts a claim.
///
/// An error lies in the storage.
pub(crate) fn check_local<'a>(
    mut storages: impl Iterator<Item = &'a LocalStorage>,
    limits: &Tenants,
) -> Result<(), Stop> {
    if limits.scripts {
        return Ok(());
    }
    storages.try_for_each(|storage| {
        let path = format!("Storage {}: config.path", storage.name);
        check_mount(&path, &storage.mount, &pod::DIRECTORIES).map_err(Stop::invalid_reference)
    })
}

/// A database's keys with scripts.
const DATABASE_SCRIPTS: [&str; 3] = ["after_script", "before_script", "on_exit"];

/// A database's keys with program arguments.
const ARGUMENTS: [&str; 2] = ["args", "args_redis"];

/// End of messages about fields that need `tenants.scripts`.
const OFF: &str = "and tenants.scripts of the plugin's configuration is off";

/// Checks the settings that end up in command lines.
///
/// The cipher is a subcommand of openssl, so it must be one of `openssl enc`, whatever the configuration allows.
pub(crate) fn check_settings(settings: &ArchiveSettings, limits: &Tenants) -> Result<(), String> {
    let encryption = settings
        .encode_with
        .as_ref()
        .filter(|encryption| is_encrypting(encryption));
    let cipher = encryption.and_then(|encryption| encryption.cipher.as_deref());
    if let Some(cipher) = cipher.filter(|cipher| !cipher.is_empty() && !openssl::is_cipher(cipher))
    {
        let cipher: String = cipher.chars().take(64).collect();
        return Err(format!(
            "encodeWith.cipher: {cipher} is not a cipher of openssl enc; write one such as aes-256-cbc"
        ));
    }
    if limits.scripts {
        return Ok(());
    }
    if let Some(arguments) = encryption.and_then(|encryption| encryption.args.as_deref()) {
        programs::check(&OPENSSL, arguments, &[])
            .map_err(|problem| format!("encodeWith.args: {problem}, {OFF}"))?;
    }
    let compression = settings.compress_with.as_ref();
    match compression.and_then(|compression| compression.filename_format.as_deref()) {
        Some(format) if format.contains('/') => Err(format!(
            "compressWith.filenameFormat: a slash in {format} leads to another directory, {OFF}"
        )),
        _ => Ok(()),
    }
}

/// Checks the arguments of dump programs, and the Redis file, which the run copies into the archive. An error lies in
/// the database.
pub(crate) fn check_arguments(
    databases: &[Source],
    parent: &Parent,
    limits: &Tenants,
) -> Result<(), Stop> {
    if limits.scripts {
        return Ok(());
    }
    for database in databases {
        let path = database
            .config
            .get("rdb_path")
            .and_then(Value::as_str)
            .filter(|path| database.type_.name == "redis" && !path.is_empty());
        if let Some(path) = path.filter(|path| !programs::is_mounted(path, &parent.spec.volumes)) {
            return Err(Stop::invalid_reference(format!(
                "{}: {path} is not inside a mount in spec.volumes, {OFF}",
                database.path("rdb_path")
            )));
        }
        let Some(program) = dump_program(database) else {
            continue;
        };
        for key in ARGUMENTS {
            let Some(arguments) = database.config.get(key).filter(|value| !value.is_null()) else {
                continue;
            };
            let checked = match arguments.as_str() {
                Some(arguments) => programs::check(program, arguments, &parent.spec.volumes),
                None => Err("is not a text".to_owned()),
            };
            checked.map_err(|problem| {
                let field = database.path(key);
                Stop::invalid_reference(format!("{field}: {problem}, {OFF}"))
            })?;
        }
    }
    Ok(())
}

/// Returns the program that dumps a database, if the command line has tenants' arguments.
fn dump_program(database: &Source) -> Option<&'static Program> {
    match database.type_.name {
        "postgresql" if database.config.get("all_databases") == Some(&true.into()) => {
            Some(&PG_DUMPALL)
        }
        "postgresql" => Some(&PG_DUMP),
        "mysql" => Some(&MYSQLDUMP),
        "mariadb" => Some(&MARIADB_BACKUP),
        "mongodb" => Some(&MONGODUMP),
        "redis" => Some(&REDIS_CLI),
        "mssql" => Some(&SQLPACKAGE),
        "etcd" => Some(&ETCDCTL),
        "firebird" => Some(&GBAK),
        _ => None,
    }
}

/// Removes scripts that may not run, and returns a warning that names them.
pub(crate) fn remove_scripts(
    settings: &mut ArchiveSettings,
    databases: &mut [Source],
    limits: &Tenants,
) -> Option<Warning> {
    if limits.scripts {
        return None;
    }
    let mut removed = Vec::new();
    for (field, script) in [
        ("beforeScript", &mut settings.before_script),
        ("afterScript", &mut settings.after_script),
    ] {
        if script.take().is_some_and(|text| !text.is_empty()) {
            removed.push(field.to_owned());
        }
    }
    // tar runs programs named in options, and gobackup passes none of them correctly.
    if let Some(compression) = &mut settings.compress_with
        && compression.args.take().is_some_and(|text| !text.is_empty())
    {
        removed.push("compressWith.args".to_owned());
    }
    for database in databases {
        for key in DATABASE_SCRIPTS {
            if database.config.remove(key).is_some() {
                removed.push(database.path(key));
            }
        }
    }
    (!removed.is_empty()).then(|| {
        let message = format!(
            "{}: not run, because tenants.scripts of the plugin's configuration is off",
            removed.join(", ")
        );
        Warning::new("ScriptNotAllowed", message)
    })
}

/// Checks that the Secrets and claims exist, have the keys, and are open to the parent, and returns the Secrets. The
/// claim with local archives may be open to `owner` instead, the backup whose archives are restored.
///
/// A run that names a missing object would use whatever is created later under that name, so the plugin creates no run
/// before. The host shows hashes of Secrets, never values.
pub(crate) fn check_references(
    request: &Request,
    host: &dyn Host,
    parent: &Parent,
    rendered: &Rendered,
    owner: Option<Claimant<'_>>,
    limits: &Tenants,
) -> Result<Found, Stop> {
    let spec = &parent.spec;
    let mut references = References::new()
        .environment(&spec.env, &spec.env_from)
        .pull_secrets(&spec.image_pull_secrets);
    for credential in &rendered.credentials {
        if let Origin::Secret(secret) = &credential.origin {
            references = references.secret(&secret.name, [secret.key.as_str()]);
        }
    }
    for volume in &spec.volumes {
        if let Some(secret) = &volume.secret
            && let Some(name) = &secret.secret_name
        {
            references = references.secret(name, []);
        }
    }
    let objects = references.read(request, host)?;
    check_secrets(request, limits.references, objects.objects()).map_err(refused)?;
    let missing: Vec<&str> = objects.awaited_secrets(limits.references).collect();
    if !missing.is_empty() {
        let message = format!("Secret not found: {}", missing.join(", "));
        return Err(Stop::blocked("SecretNotFound", message));
    }
    let incomplete: Vec<String> = objects
        .missing_keys()
        .map(|(name, key)| format!("Secret {name} lacks the key {key}"))
        .collect();
    if !incomplete.is_empty() {
        return Err(Stop::blocked("SecretIncomplete", incomplete.join("; ")));
    }
    check_claims(request, host, parent, owner, limits)?;
    Ok(objects)
}

fn check_claims(
    request: &Request,
    host: &dyn Host,
    parent: &Parent,
    owner: Option<Claimant<'_>>,
    limits: &Tenants,
) -> Result<(), Stop> {
    let local = parent
        .spec
        .local_volume
        .as_ref()
        .and_then(|volume| volume.claim_name.as_deref());
    let mut missing = Vec::new();
    for name in claims(parent) {
        match claim::find(request, host, name)? {
            None => missing.push(name),
            Some(claim) => {
                let check = |claimant: Claimant<'_>| {
                    check_reference(claimant, limits.references, "claim", claim.metadata())
                };
                let owner = owner.filter(|_| local == Some(name));
                if owner.is_none_or(|owner| check(owner).is_err()) {
                    check(request.into()).map_err(refused)?;
                }
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!("PersistentVolumeClaim not found: {}", missing.join(", "));
    Err(Stop::blocked("ClaimNotFound", message))
}

/// Checks the claims that the plugin creates for a parent, if they exist. Their names follow from the parent's, so
/// another kind of parent, or a user, may own such a claim.
pub(crate) fn check_made(
    request: &Request,
    host: &dyn Host,
    names: impl IntoIterator<Item = String>,
    limits: &Tenants,
) -> Result<(), Stop> {
    for name in names {
        if let Some(claim) = claim::find(request, host, &name)? {
            check_reference(request, limits.references, "claim", claim.metadata())
                .map_err(refused)?;
        }
    }
    Ok(())
}

/// The claims that a parent names.
fn claims(parent: &Parent) -> impl Iterator<Item = &str> {
    let spec = &parent.spec;
    let mounted = spec
        .volumes
        .iter()
        .filter_map(|volume| volume.persistent_volume_claim.as_ref());
    let state = spec
        .state
        .iter()
        .filter_map(|state| state.claim_name.as_deref());
    let local = spec.local_volume.iter();
    mounted
        .map(|claim| claim.claim_name.as_str())
        .chain(state)
        .chain(local.filter_map(|volume| volume.claim_name.as_deref()))
}

fn refused(message: String) -> Stop {
    Stop::blocked("ReferenceNotAllowed", message)
}
