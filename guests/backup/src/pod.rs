//! The Pod of a run: one container with gobackup, which the Pod Security Standard `restricted` admits.
//!
//! Job and CronJob share the template.

use innkeeper_kit::{placement::place, pod as block};
use innkeeper_sdk::json;
use k8s_openapi::api::core::v1::{
    Container, EnvVar, LocalObjectReference, PodSecurityContext, PodSpec, PodTemplateSpec,
    SecurityContext,
};

use crate::{
    api::RunWith,
    names::GOBACKUP,
    plan::Plan,
    render::{Credential, KEYS, Origin},
    script,
};

pub(crate) mod volumes;

/// User and group ID: the usual `nonroot`. The image's default is root, which gobackup does not need.
const USER: i64 = 65532;

/// The run's directories, which the parent's volumes must not cover; see `volumes`.
pub(crate) const DIRECTORIES: [&str; 4] = ["/home/gobackup", "/tmp", volumes::STATE, "/work"];

/// Directory of the configuration, which a volume of the parent would hide.
pub(crate) const CONFIGURATION: &str = "/etc/gobackup";

/// Configuration file.
pub(crate) const CONFIG_PATH: &str = "/etc/gobackup/gobackup.yml";

/// Returns the Pod template of a run.
pub(crate) fn template(plan: &Plan<'_>) -> PodTemplateSpec {
    let metadata = plan
        .parent
        .spec
        .pod_template
        .as_ref()
        .and_then(|template| template.metadata.as_ref());
    PodTemplateSpec {
        metadata: Some(block::metadata(metadata, plan.labels("run"), [])),
        spec: Some(pod(plan)),
    }
}

fn pod(plan: &Plan<'_>) -> PodSpec {
    let spec = &plan.parent.spec;
    let pod = PodSpec {
        restart_policy: Some("Never".to_owned()),
        affinity: spec.run_with.as_ref().map(RunWith::affinity),
        service_account_name: spec.service_account_name.clone(),
        containers: vec![container(plan)],
        volumes: Some(volumes::volumes(plan)),
        security_context: Some(security(plan)),
        ..block::restricted(None, pull_secrets(plan))
    };
    place(spec.pod_template.as_ref(), pod)
}

/// The Secrets for pulling images.
pub(crate) fn pull_secrets<'a>(plan: &'a Plan<'_>) -> &'a [LocalObjectReference] {
    let own = &plan.parent.spec.image_pull_secrets;
    if own.is_empty() {
        &plan.config.image_pull_secrets
    } else {
        own
    }
}

/// Returns the user and groups of a run.
pub(crate) fn security(plan: &Plan<'_>) -> PodSecurityContext {
    let run_user = plan
        .parent
        .spec
        .security_context
        .clone()
        .unwrap_or_default();
    let user = run_user.run_as_user.unwrap_or(USER);
    let group = run_user.run_as_group.unwrap_or(user);
    let fs_group = run_user
        .fs_group
        .or_else(|| needs_group(plan).then_some(group));
    let groups = run_user.supplemental_groups;
    PodSecurityContext {
        run_as_user: Some(user),
        run_as_group: Some(group),
        fs_group,
        // Otherwise the kubelet visits all files in all volumes on each run.
        fs_group_change_policy: fs_group.map(|_| "OnRootMismatch".to_owned()),
        supplemental_groups: (!groups.is_empty()).then_some(groups),
        ..block::security(None)
    }
}

/// Returns true if the run needs the kubelet to give the plugin's volumes to the run's group.
///
/// The kubelet would change group and mode of all files in each writable volume, even while an application uses it, so
/// the run avoids this where it can. Every user can write to an emptyDir.
fn needs_group(plan: &Plan<'_>) -> bool {
    let work = plan.parent.spec.work.as_ref();
    plan.state_claim().is_some()
        || plan.local_claim().is_some()
        || work.is_some_and(|work| work.storage_class_name.is_some())
        || plan.rendered.credentials.iter().any(Credential::is_file)
        || plan.stored_volumes().next().is_some()
}

/// Returns claims whose files the kubelet gives to the run's group although the run only reads them.
pub(crate) fn changed_claims<'a>(plan: &'a Plan<'_>) -> impl Iterator<Item = &'a str> {
    let has_group = security(plan).fs_group.is_some();
    let writable = plan
        .parent
        .spec
        .volumes
        .iter()
        .filter(move |_| has_group)
        .filter(|volume| !volume.read_only && volume.persistent_volume_claim.is_some());
    let is_stored = |name: &str| plan.stored_volumes().any(|volume| volume.name == name);
    writable
        .map(|volume| volume.name.as_str())
        .filter(move |name| !is_stored(name))
}

fn container(plan: &Plan<'_>) -> Container {
    let spec = &plan.parent.spec;
    let config = plan.config;
    let env_from: Vec<_> = spec.env_from.iter().map(json::sanitized).collect();
    let image = spec.image.as_ref().unwrap_or(&config.images.gobackup);
    let resources = spec.resources.as_ref();
    Container {
        name: GOBACKUP.to_owned(),
        image: Some(image.clone()),
        image_pull_policy: Some(spec.image_pull_policy.into()),
        command: Some(vec!["/bin/sh".to_owned(), "-c".to_owned()]),
        args: Some(vec![script::run(plan)]),
        env: Some(env(plan)),
        env_from: (!env_from.is_empty()).then_some(env_from),
        resources: Some(block::resources(
            resources.or(config.default_resources.as_ref()),
            "100m",
            "128Mi",
        )),
        volume_mounts: Some(volumes::mounts(plan)),
        // Explains a run that ends before the script can write a message, for example for lack of memory.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        security_context: Some(SecurityContext {
            read_only_root_filesystem: Some(true),
            ..block::container_security()
        }),
        ..Default::default()
    }
}

fn env(plan: &Plan<'_>) -> Vec<EnvVar> {
    let fixed = [
        ("HOME", "/home/gobackup"),
        ("TMPDIR", "/work"),
        ("GOBACKUP_DIR", volumes::STATE),
        // gobackup expands variables in the configuration, where a literal `$` is `${DOLLAR}`.
        ("DOLLAR", "$"),
        ("MODEL", plan.rendered.model.as_str()),
        ("STORAGES", &plan.rendered.storages.join(" ")),
        ("SECRETS", &secrets(plan)),
    ]
    .map(|(name, value)| block::variable(name, value));
    let credentials = plan
        .rendered
        .credentials
        .iter()
        .filter(|credential| !credential.is_file());
    let variables = plan.parent.spec.env.iter().map(json::sanitized);
    fixed
        .into_iter()
        .chain([block::field_variable("POD_UID", "metadata.uid")])
        .chain(credentials.map(|credential| {
            let (secret, key) = secret_key(plan, credential);
            block::secret_variable(&credential.name, &secret, &key)
        }))
        .chain(variables)
        .collect()
}

/// Returns where the values are that the log must not contain: variables, prefixes of variables with a star, and files.
fn secrets(plan: &Plan<'_>) -> String {
    let spec = &plan.parent.spec;
    let own = plan.rendered.credentials.iter().map(|credential| {
        if credential.is_file() {
            format!("{KEYS}/{}", credential.name)
        } else {
            credential.name.clone()
        }
    });
    let is_secret = |variable: &&EnvVar| {
        variable
            .value_from
            .as_ref()
            .is_some_and(|source| source.secret_key_ref.is_some())
    };
    let variables = spec
        .env
        .iter()
        .filter(is_secret)
        .map(|variable| variable.name.clone());
    let lists = spec
        .env_from
        .iter()
        .filter(|source| source.secret_ref.is_some())
        .map(|source| format!("{}*", source.prefix.as_deref().unwrap_or_default()));
    own.chain(variables)
        .chain(lists)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The Secret and the key that hold a credential.
pub(crate) fn secret_key(plan: &Plan<'_>, credential: &Credential) -> (String, String) {
    match &credential.origin {
        Origin::Clear(_) => (plan.secret_name(), credential.name.clone()),
        Origin::Secret(secret) => (secret.name.clone(), secret.key.clone()),
    }
}
