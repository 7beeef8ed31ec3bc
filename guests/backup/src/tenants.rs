//! Checks of a parent against the limits for those who create parents.

use crate::{
    api::{ArchiveSettings, Parent},
    config::Tenants,
    references::Source,
    render::{Origin, Rendered},
    status::Warning,
    stop::Stop,
};
use innkeeper_sdk::{
    claim,
    prelude::*,
    references::References,
    tenants::{ReferenceScope, check_image, check_reference, check_secrets},
};

/// Checks the fields of the parent that the configuration limits. An error lies in the parent.
pub(crate) fn check_parent(parent: &Parent, limits: &Tenants) -> Result<(), Stop> {
    let spec = &parent.spec;
    if let Some(image) = &spec.image {
        check_image("spec.image", image, &limits.images).map_err(Stop::Invalid)?;
    }
    if let Some(name) = &spec.service_account_name
        && !limits.service_accounts.contains(name)
    {
        return Err(Stop::Invalid(format!(
            "spec.serviceAccountName: tenants.serviceAccounts of the plugin's configuration does not \
             list {name}"
        )));
    }
    let mut volumes = spec.volumes.iter();
    match volumes.find(|volume| volume.nfs.is_some() || volume.host_path.is_some()) {
        Some(volume) if !limits.host_volumes => Err(Stop::Invalid(format!(
            "spec.volumes: {} is a directory of the node or of an NFS server, and tenants.hostVolumes of \
             the plugin's configuration is off",
            volume.name
        ))),
        _ => Ok(()),
    }
}

/// The keys of a database whose values are scripts.
const DATABASE_SCRIPTS: [&str; 3] = ["after_script", "before_script", "on_exit"];

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

/// Checks that the Secrets and claims exist, have the keys, and are open to the parent.
///
/// A run that names a missing object would use the object of any later creator, so no run is made before.
/// The host shows hashes of Secrets, never values.
pub(crate) fn check_references(
    request: &Request,
    host: &dyn Host,
    parent: &Parent,
    rendered: &Rendered,
    limits: &Tenants,
) -> Result<(), Stop> {
    let spec = &parent.spec;
    let mut wanted = References::new().environment(&spec.env, &spec.env_from);
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
    // An optional Secret too: a later run would take it up.
    let missing: Vec<&str> = match limits.references {
        ReferenceScope::Shared => found.absent_secrets().collect(),
        ReferenceScope::Namespace => found.missing_secrets().collect(),
    };
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
    check_claims(request, host, parent, limits)
}

fn check_claims(
    request: &Request,
    host: &dyn Host,
    parent: &Parent,
    limits: &Tenants,
) -> Result<(), Stop> {
    let mut missing = Vec::new();
    for name in claims(parent) {
        match claim::find(request, host, name)? {
            None => missing.push(name),
            Some(claim) => {
                let checked = check_reference(request, limits.references, "claim", &claim.metadata);
                checked.map_err(refused)?;
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
