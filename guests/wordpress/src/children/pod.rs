//! Parts that the site's and the database's Pods share: security, and the annotations that restart them.

use innkeeper_kit::pod;
use innkeeper_sdk::hash;
use k8s_openapi::api::core::v1::{PodSecurityContext, PodSpec, Sysctl, VolumeMount};

use crate::{
    observe::Observation,
    site::{RESTART_TRIGGER, Site},
};

/// The annotation on Pods with a hash of the database passwords: new passwords replace the Pods.
pub(super) const CREDENTIALS_HASH: &str = "example.com/credentials-hash";
/// The annotation on Pods with a hash of the salts, Secrets and ConfigMaps.
pub(super) const SECRET_HASH: &str = "example.com/secret-hash";
/// The annotation on Pods with a hash of the generated configuration files.
pub(super) const CONFIG_HASH: &str = "example.com/config-hash";

/// A Pod that runs as this user and group.
pub(super) fn spec(site: &Site<'_>, user: i64, sysctls: Option<Vec<Sysctl>>) -> PodSpec {
    let user = site.user(user);
    PodSpec {
        security_context: Some(PodSecurityContext {
            // Otherwise the kubelet would change the group of all files at each start.
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            sysctls,
            ..pod::security(user)
        }),
        ..pod::restricted(user, &site.spec.image_pull_secrets)
    }
}

/// The command that runs a script. Scripts contain no `$(`, which the kubelet would expand as a variable reference.
pub(super) fn script(text: &str) -> Vec<String> {
    ["sh", "-c", text].map(ToOwned::to_owned).into()
}

/// Mounts one directory or file from a volume.
pub(super) fn part(volume: &str, path: &str, sub_path: &str) -> VolumeMount {
    VolumeMount {
        sub_path: Some(sub_path.to_owned()),
        ..pod::mount(volume, path)
    }
}

/// The hash of the passwords in use, as the site's Pods carry it.
///
/// While the Secret is missing, the observed hash stays.
pub(super) fn credentials_hash(site: &Site<'_>, observation: &Observation) -> Option<String> {
    let observed = observation.web_annotation(CREDENTIALS_HASH);
    match (&observation.credentials, observed) {
        (None, observed) => observed.map(ToOwned::to_owned),
        (Some(_), Some(observed)) if keeps_credentials(site, observation) => {
            Some(observed.to_owned())
        }
        (Some(found), _) => Some(hash::content_hash([found])),
    }
}

/// True if a changed Secret must not restart the site.
///
/// A managed database keeps the passwords from the first start, because the plugin cannot change them; a restart with
/// other passwords would cut the site off. A user who has changed them in the database requests the restart.
fn keeps_credentials(site: &Site<'_>, observation: &Observation) -> bool {
    let web = observation.web.as_ref();
    site.managed.is_some()
        && web.is_some_and(|web| {
            web.names_secret(&site.credentials.secret)
                && web.annotation(RESTART_TRIGGER) == site.restart_trigger
        })
}

/// True if the Secret with a managed database's passwords differs from the one that the site started with.
pub(crate) fn has_changed_credentials(site: &Site<'_>, observation: &Observation) -> bool {
    let credentials = observation.credentials.as_ref();
    let stated = credentials_hash(site, observation);
    credentials
        .is_some_and(|credentials| stated.as_deref() != Some(&hash::content_hash([credentials])))
}

/// The hash over the salts and all Secrets and ConfigMaps in the spec.
pub(super) fn secret_hash(observation: &Observation) -> String {
    let observed = observation.web_annotation(SECRET_HASH);
    match (&observation.salts, observed) {
        // The site cannot start without the salts, so a restart must wait for them.
        (None, Some(observed)) => observed.to_owned(),
        (salts, observed) => observation.references.hash(salts, observed),
    }
}

/// True if this pass restarts the site's Pods with new passwords.
pub(crate) fn takes_new_credentials(site: &Site<'_>, observation: &Observation) -> bool {
    observation
        .web_annotation(CREDENTIALS_HASH)
        .is_some_and(|observed| credentials_hash(site, observation).as_deref() != Some(observed))
}
