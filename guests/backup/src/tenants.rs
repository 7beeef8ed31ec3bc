//! Checks of a parent against the limits for those who create parents.

use crate::{
    api::{ArchiveSettings, BackupSpec, Parent},
    config::Tenants,
    pod,
    references::Source,
    render::{LocalStorage, Origin, Rendered},
    status::Warning,
    stop::Stop,
};
use innkeeper_sdk::{
    claim,
    prelude::*,
    references::{Found, References},
    tenants::{
        Claimant, check_environment, check_image, check_listed, check_mount, check_reference,
        check_secrets, is_listed,
    },
};
use serde_json::Value;

/// Checks the fields of the parent that the configuration limits. An error lies in the parent.
pub(crate) fn check_parent(parent: &Parent, limits: &Tenants) -> Result<(), Stop> {
    let spec = &parent.spec;
    if let Some(image) = &spec.image {
        check_image("spec.image", image, &limits.images).map_err(Stop::Invalid)?;
    }
    let (path, list) = ("spec.serviceAccountName", "tenants.serviceAccounts");
    let names = &spec.service_account_name;
    check_listed(path, list, names, &limits.service_accounts).map_err(Stop::Invalid)?;
    if let Some(given) = &spec.pod_template {
        let path = "spec.podTemplate";
        given
            .check(path, &limits.pod_template())
            .map_err(Stop::Invalid)?;
    }
    if let Some(given) = &spec.run_with {
        given.check().map_err(Stop::Invalid)?;
    }
    let mut volumes = spec.volumes.iter();
    match volumes.find(|volume| volume.nfs.is_some() || volume.host_path.is_some()) {
        Some(volume) if !limits.host_volumes => {
            return Err(Stop::Invalid(format!(
                "spec.volumes: {} is a directory of the node or of an NFS server, and \
                 tenants.hostVolumes of the plugin's configuration is off",
                volume.name
            )));
        }
        _ => {}
    }
    check_code(spec, limits).map_err(Stop::Invalid)
}

/// Removes the service account of a backup from its Restore unless the configuration lists it. The stored backup may
/// be one that the plugin refuses, and a storage with keys can be read without the account.
pub(crate) fn remove_account(spec: &mut BackupSpec, limits: &Tenants) {
    let account = &mut spec.service_account_name;
    account.take_if(|name| !is_listed(name, &limits.service_accounts));
}

/// The variables with plain values of gobackup and of the client programs in its image.
///
/// `GODEBUG` would log requests with their tokens, and `MYSQL_DEBUG`, `PGPASSFILE` and all other names of files write or
/// read files.
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

/// Checks that no field changes the programs of the run, unless scripts are allowed.
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
    let mut mounts = spec.volumes.iter().map(|it| it.mount_path.as_str());
    mounts.try_for_each(|mount| check_mount("spec.volumes", mount, &pod::DIRECTORIES))
}

/// Checks the paths of the storages of type local, where the run mounts a claim.
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

/// The keys of a database whose values are scripts.
const DATABASE_SCRIPTS: [&str; 3] = ["after_script", "before_script", "on_exit"];

/// The starts of options with which openssl and the client programs of MySQL and MariaDB load code, or
/// settings that load code.
const LOADING_OPTIONS: [&str; 7] = [
    "default-auth",
    "defaults",
    "engine",
    "login-path",
    "plugin",
    "provider",
    "xtrabackup-plugin",
];

/// The prefixes of MySQL and MariaDB that an option may have besides its name.
const OPTION_PREFIXES: [&str; 6] = [
    "autoset-", "disable-", "enable-", "loose-", "maximum-", "skip-",
];

/// True if arguments have an option that loads code; with `shortens`, also a shortened one.
fn loads_code(arguments: &str, shortens: bool) -> bool {
    let plain = arguments.replace(['\'', '"', '\\'], "").replace('_', "-");
    plain.split_whitespace().any(|it| is_loading(it, shortens))
}

/// True if an argument is an option that loads code. With `shortens`, the program accepts each beginning
/// of a long option that fits no other.
fn is_loading(argument: &str, shortens: bool) -> bool {
    let option = argument.trim_start_matches('-');
    if option.len() == argument.len() {
        return false;
    }
    let mut name = option.split('=').next().unwrap_or_default();
    while let Some(rest) = OPTION_PREFIXES.iter().find_map(|it| name.strip_prefix(it)) {
        name = rest;
    }
    let is_short = shortens && argument.starts_with("--") && !name.is_empty();
    let mut loading = LOADING_OPTIONS.iter();
    loading.any(|it| name.starts_with(it) || is_short && it.starts_with(name))
}

/// True if arguments of a client of PostgreSQL have a connection string that can load code: it names the
/// engine of a key, a service whose settings do, or is a URI, which can encode both.
fn connects_with_code(arguments: &str) -> bool {
    let is_plain = |it: &char| !it.is_whitespace() && !matches!(it, '\'' | '"' | '\\');
    let plain: String = arguments.chars().filter(is_plain).collect();
    let parts = ["://", "service=", "servicefile=", "sslkey="];
    parts.iter().any(|part| plain.contains(part))
}

/// Removes scripts that may not run, also those in arguments of programs, and returns a warning that
/// names them.
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
    // tar runs the programs that its options name.
    if let Some(given) = &mut settings.compress_with
        && given.args.take().is_some_and(|text| !text.is_empty())
    {
        removed.push("compressWith.args".to_owned());
    }
    if let Some(given) = &mut settings.encode_with
        && given.args.take_if(|text| loads_code(text, false)).is_some()
    {
        removed.push("encodeWith.args".to_owned());
    }
    for database in databases {
        for key in DATABASE_SCRIPTS {
            if database.config.remove(key).is_some() {
                removed.push(database.path(key));
            }
        }
        let arguments = database.config.get("args").and_then(Value::as_str);
        let type_ = database.type_.name;
        let loads = |given: &str| {
            loads_code(given, matches!(type_, "mysql" | "mariadb"))
                || type_ == "postgresql" && connects_with_code(given)
        };
        if arguments.is_some_and(loads) {
            database.config.remove("args");
            removed.push(database.path("args"));
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

/// Checks that the Secrets and claims exist, have the keys, and are open to the parent, and returns the Secrets. The claim
/// with local archives may instead be open to their `owner`, the backup whose archives are restored.
///
/// A run that names a missing object would use the object of any later creator, so no run is made before.
/// The host shows hashes of Secrets, never values.
pub(crate) fn check_references(
    request: &Request,
    host: &dyn Host,
    parent: &Parent,
    rendered: &Rendered,
    owner: Option<Claimant<'_>>,
    limits: &Tenants,
) -> Result<Found, Stop> {
    let spec = &parent.spec;
    let mut wanted = References::new()
        .environment(&spec.env, &spec.env_from)
        .pull_secrets(&spec.image_pull_secrets);
    for credential in &rendered.credentials {
        if let Origin::Secret(secret) = &credential.origin {
            wanted = wanted.secret(&secret.name, [secret.key.as_str()]);
        }
    }
    for volume in &spec.volumes {
        if let Some(secret) = &volume.secret
            && let Some(name) = &secret.secret_name
        {
            wanted = wanted.secret(name, []);
        }
    }
    let found = wanted.read(request, host)?;
    check_secrets(request, limits.references, found.objects()).map_err(refused)?;
    let missing: Vec<&str> = found.awaited_secrets(limits.references).collect();
    if !missing.is_empty() {
        return Err(Stop::Blocked {
            reason: "SecretNotFound",
            message: format!("Secret not found: {}", missing.join(", ")),
        });
    }
    let incomplete: Vec<String> = found
        .missing_keys()
        .map(|(name, key)| format!("Secret {name} lacks the key {key}"))
        .collect();
    if !incomplete.is_empty() {
        return Err(Stop::Blocked {
            reason: "SecretIncomplete",
            message: incomplete.join("; "),
        });
    }
    check_claims(request, host, parent, owner, limits)?;
    Ok(found)
}

fn check_claims(
    request: &Request,
    host: &dyn Host,
    parent: &Parent,
    owner: Option<Claimant<'_>>,
    limits: &Tenants,
) -> Result<(), Stop> {
    let local = parent.spec.local_volume.as_ref();
    let local = local.and_then(|it| it.claim_name.as_deref());
    let mut missing = Vec::new();
    for name in claims(parent) {
        match claim::find(request, host, name)? {
            None => missing.push(name),
            Some(claim) => {
                let check = |claimant: Claimant<'_>| {
                    check_reference(claimant, limits.references, "claim", &claim.metadata)
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
    Err(Stop::Blocked {
        reason: "ClaimNotFound",
        message: format!("PersistentVolumeClaim not found: {}", missing.join(", ")),
    })
}

/// Checks the claims that the plugin makes for a parent, where they exist. Their names follow from that of the parent, so
/// another kind of parent of the same name, or a user, may have such a claim.
pub(crate) fn check_made(
    request: &Request,
    host: &dyn Host,
    names: impl IntoIterator<Item = String>,
    limits: &Tenants,
) -> Result<(), Stop> {
    for name in names {
        if let Some(claim) = claim::find(request, host, &name)? {
            let checked = check_reference(request, limits.references, "claim", &claim.metadata);
            checked.map_err(refused)?;
        }
    }
    Ok(())
}

/// The claims that a parent names.
fn claims(parent: &Parent) -> impl Iterator<Item = &str> {
    let spec = &parent.spec;
    let volumes = spec.volumes.iter();
    let mounted = volumes.filter_map(|it| it.persistent_volume_claim.as_ref());
    let state = spec.state.iter().filter_map(|it| it.claim_name.as_deref());
    let local = spec.local_volume.iter();
    mounted
        .map(|it| it.claim_name.as_str())
        .chain(state)
        .chain(local.filter_map(|it| it.claim_name.as_deref()))
}

fn refused(message: String) -> Stop {
    Stop::Blocked {
        reason: "ReferenceNotAllowed",
        message,
    }
}
