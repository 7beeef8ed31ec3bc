//! The Pod of a run: one container with gobackup, admitted by the Pod Security Standard `restricted`.
//!
//! The Job and the CronJob use the same template.

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

/// The user and group ID of the run: the usual `nonroot`. The image's default is root, which gobackup
/// does not need.
const USER: i64 = 65532;

/// The directories of the run that no volume of the parent may cover; see `volumes`.
pub(crate) const DIRECTORIES: [&str; 4] = ["/home/gobackup", "/tmp", volumes::STATE, "/work"];

/// The directory of the configuration, which a volume of the parent would hide.
pub(crate) const CONFIGURATION: &str = "/etc/gobackup";

/// The file of the configuration.
pub(crate) const CONFIG_PATH: &str = "/etc/gobackup/gobackup.yml";

/// The template of a run's Pods.
pub(crate) fn template(plan: &Plan<'_>) -> PodTemplateSpec {
    let given = plan.parent.spec.pod_template.as_ref();
    let given = given.and_then(|it| it.metadata.as_ref());
    PodTemplateSpec {
        metadata: Some(block::metadata(given, plan.labels("run"), [])),
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
    let given = &plan.parent.spec.image_pull_secrets;
    if given.is_empty() {
        &plan.config.image_pull_secrets
    } else {
        given
    }
}

/// The user and groups of a run.
pub(crate) fn security(plan: &Plan<'_>) -> PodSecurityContext {
    let given = plan
        .parent
        .spec
        .security_context
        .clone()
        .unwrap_or_default();
    let user = given.run_as_user.unwrap_or(USER);
    let group = given.run_as_group.unwrap_or(user);
    let fs_group = given
        .fs_group
        .or_else(|| needs_group(plan).then_some(group));
    let groups = given.supplemental_groups;
    PodSecurityContext {
        run_as_user: Some(user),
        run_as_group: Some(group),
        fs_group,
        // Otherwise the kubelet visits each file of each volume at each run.
        fs_group_change_policy: fs_group.map(|_| "OnRootMismatch".to_owned()),
        supplemental_groups: (!groups.is_empty()).then_some(groups),
        ..block::security(None)
    }
}

/// Returns true if the run cannot use its own volumes unless the kubelet gives them to its group.
///
/// The kubelet would change the group and the mode of the files of each writable volume, also of one that an
/// application uses, so the run does without where it can. An emptyDir is writable for each user.
fn needs_group(plan: &Plan<'_>) -> bool {
    let work = plan.parent.spec.work.as_ref();
    plan.state_claim().is_some()
        || plan.local_claim().is_some()
        || work.is_some_and(|it| it.storage_class_name.is_some())
        || plan.rendered.credentials.iter().any(Credential::is_file)
        || plan.stored_volumes().next().is_some()
}

/// The claims whose files the kubelet gives to the group of the run although the run only reads them.
pub(crate) fn changed_claims<'a>(plan: &'a Plan<'_>) -> impl Iterator<Item = &'a str> {
    let has_group = security(plan).fs_group.is_some();
    let volumes = plan.parent.spec.volumes.iter().filter(move |_| has_group);
    let writable = volumes.filter(|it| !it.read_only && it.persistent_volume_claim.is_some());
    let is_stored = |name: &str| plan.stored_volumes().any(|it| it.name == name);
    writable
        .map(|it| it.name.as_str())
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
        ("DOLLAR", "$"),
        ("MODEL", plan.rendered.model.as_str()),
        ("STORAGES", &plan.rendered.storages.join(" ")),
        ("SECRETS", &secrets(plan)),
    ]
    .map(|(name, value)| block::variable(name, value));
    let credentials = plan.rendered.credentials.iter().filter(|it| !it.is_file());
    let given = plan.parent.spec.env.iter().map(json::sanitized);
    fixed
        .into_iter()
        .chain([block::field_variable("POD_UID", "metadata.uid")])
        .chain(credentials.map(|credential| {
            let (secret, key) = secret_key(plan, credential);
            block::secret_variable(&credential.name, &secret, &key)
        }))
        .chain(given)
        .collect()
}

/// The places of the values that the log must not contain: variables, prefixes of variables with a star, and
/// files.
fn secrets(plan: &Plan<'_>) -> String {
    let spec = &plan.parent.spec;
    let credentials = plan.rendered.credentials.iter();
    let own = credentials.map(|it| {
        if it.is_file() {
            format!("{KEYS}/{}", it.name)
        } else {
            it.name.clone()
        }
    });
    let is_secret = |it: &&EnvVar| {
        let source = it.value_from.as_ref();
        source.is_some_and(|it| it.secret_key_ref.is_some())
    };
    let given = spec.env.iter().filter(is_secret).map(|it| it.name.clone());
    let lists = spec.env_from.iter().filter(|it| it.secret_ref.is_some());
    let lists = lists.map(|it| format!("{}*", it.prefix.as_deref().unwrap_or_default()));
    own.chain(given).chain(lists).collect::<Vec<_>>().join(" ")
}

/// The Secret and the key that hold a credential.
pub(crate) fn secret_key(plan: &Plan<'_>, credential: &Credential) -> (String, String) {
    match &credential.origin {
        Origin::Clear(_) => (plan.secret_name(), credential.name.clone()),
        Origin::Secret(secret) => (secret.name.clone(), secret.key.clone()),
    }
}
