//! The Pod of a run: one container with gobackup, admitted by the Pod Security Standard `restricted`.
//!
//! The Job and the CronJob use the same template.

use innkeeper_sdk::{json, pod as block};
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, PodTemplateSpec, SecurityContext};

use crate::{
    plan::Plan,
    render::{Credential, Origin},
};

mod script;
mod volumes;

/// The user and group ID of the run: the usual `nonroot`. The image's default is root, which gobackup
/// does not need.
const USER: i64 = 65532;

/// The directories of the run that no volume of the parent may cover; see `volumes`.
pub(crate) const DIRECTORIES: [&str; 4] = ["/home/gobackup", "/tmp", volumes::STATE, "/work"];

/// The name of the container with gobackup.
pub(crate) const CONTAINER: &str = "gobackup";

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
    let secrets = if spec.image_pull_secrets.is_empty() {
        &plan.config.image_pull_secrets
    } else {
        &spec.image_pull_secrets
    };
    PodSpec {
        restart_policy: Some("Never".to_owned()),
        service_account_name: spec.service_account_name.clone(),
        containers: vec![container(plan)],
        volumes: Some(volumes::volumes(plan)),
        ..block::restricted(Some(USER), secrets)
    }
}

fn container(plan: &Plan<'_>) -> Container {
    let spec = &plan.parent.spec;
    let config = plan.config;
    let env_from: Vec<_> = spec.env_from.iter().map(json::copied).collect();
    let image = spec.image.as_ref().unwrap_or(&config.images.gobackup);
    let resources = spec.resources.as_ref();
    Container {
        name: CONTAINER.to_owned(),
        image: Some(image.clone()),
        image_pull_policy: Some(spec.image_pull_policy.unwrap_or_default().into()),
        command: Some(vec!["/bin/sh".to_owned(), "-c".to_owned()]),
        args: Some(vec![script::script(plan)]),
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
    ]
    .map(|(name, value)| block::variable(name, value));
    let credentials = plan.rendered.credentials.iter().filter(|it| !it.is_file());
    let given = plan.parent.spec.env.iter().map(json::copied);
    fixed
        .into_iter()
        .chain(credentials.map(|credential| {
            let (secret, key) = secret_key(plan, credential);
            block::secret_variable(&credential.name, &secret, &key)
        }))
        .chain(given)
        .collect()
}

/// The Secret and the key that hold a credential.
fn secret_key(plan: &Plan<'_>, credential: &Credential) -> (String, String) {
    match &credential.origin {
        Origin::Clear(_) => (plan.secret_name(), credential.name.clone()),
        Origin::Secret(secret) => (secret.name.clone(), secret.key.clone()),
    }
}
