//! What the pods of site and database have in common: identity, security, pull secrets.
//!
//! Everything fits the Pod Security level `restricted`.

use innkeeper_sdk::json;
use k8s_openapi::{
    api::core::v1::{
        Capabilities, EnvVar, EnvVarSource, PodSecurityContext, PodSpec, ResourceRequirements,
        SeccompProfile, SecretKeySelector, SecurityContext, Sysctl,
    },
    apimachinery::pkg::api::resource::Quantity,
};

use crate::{observe::Observation, site::Site};

/// Changes when the passwords of the database change.
pub(super) const CREDENTIALS_HASH: &str = "example.com/credentials-hash";
/// Changes when salts, Secrets or ConfigMaps that the pods read change.
pub(super) const SECRET_HASH: &str = "example.com/secret-hash";
/// Changes when a configuration that this plugin writes changes.
pub(super) const CONFIG_HASH: &str = "example.com/config-hash";

/// A pod that runs as this user and group.
pub(super) fn spec(site: &Site<'_>, user: i64, sysctls: Option<Vec<Sysctl>>) -> PodSpec {
    let user = site.user(user);
    let secrets = &site.spec.image_pull_secrets;
    PodSpec {
        automount_service_account_token: Some(false),
        // Variables of other people's Services could be taken for settings of the images.
        enable_service_links: Some(false),
        image_pull_secrets: (!secrets.is_empty())
            .then(|| secrets.iter().map(json::copied).collect()),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: user,
            run_as_group: user,
            fs_group: user,
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..Default::default()
            }),
            sysctls,
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The security of every container.
pub(super) fn security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            ..Default::default()
        }),
        run_as_non_root: Some(true),
        ..Default::default()
    }
}

/// When images are pulled.
pub(super) fn pull_policy(site: &Site<'_>) -> Option<String> {
    let policy = site.spec.image_pull_policy?;
    Some(policy.as_str().to_owned())
}

/// What the user gives as a whole, or these requests.
pub(super) fn resources(
    given: Option<&ResourceRequirements>,
    cpu: &str,
    memory: &str,
) -> ResourceRequirements {
    given.map_or_else(
        || ResourceRequirements {
            requests: Some(
                [("cpu", cpu), ("memory", memory)]
                    .into_iter()
                    .map(|(resource, text)| (resource.to_owned(), Quantity(text.to_owned())))
                    .collect(),
            ),
            ..Default::default()
        },
        json::copied,
    )
}

/// A variable with this value.
pub(super) fn variable(name: &str, value: impl Into<String>) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.into()),
        ..Default::default()
    }
}

/// A variable whose value is in a Secret.
pub(super) fn secret_variable(name: &str, secret: &str, key: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: secret.to_owned(),
                key: key.to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The hash of the passwords in use, as the site's pods carry it.
///
/// The passwords that a managed database knows are those of its first start, and nothing here sets
/// others in it: a changed Secret would only take the site away from its database, so the hash that
/// is observed stays.
pub(super) fn credentials_hash(site: &Site<'_>, observation: &Observation) -> Option<String> {
    let observed = observation.web_annotation(CREDENTIALS_HASH);
    match (&observation.credentials, observed) {
        (None, observed) => observed.map(ToOwned::to_owned),
        (Some(_), Some(observed)) if site.managed.is_some() => Some(observed.to_owned()),
        (Some(found), _) => Some(innkeeper_sdk::hash::content_hash([found])),
    }
}

/// The hash over salts and everything that the spec names.
pub(super) fn secret_hash(observation: &Observation) -> String {
    let is_missing = observation.salts.is_none() || observation.references.is_incomplete();
    match observation.web_annotation(SECRET_HASH) {
        // A restart would help nobody while something is missing.
        Some(observed) if is_missing => observed.to_owned(),
        _ => {
            let found = observation.references.found();
            innkeeper_sdk::hash::content_hash(observation.salts.iter().chain(found))
        }
    }
}

/// Whether the site's pods are about to take other passwords than those that they run with.
pub(crate) fn takes_new_credentials(site: &Site<'_>, observation: &Observation) -> bool {
    observation
        .web_annotation(CREDENTIALS_HASH)
        .is_some_and(|observed| credentials_hash(site, observation).as_deref() != Some(observed))
}
