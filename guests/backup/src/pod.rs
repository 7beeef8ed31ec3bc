//! The Pod of a run: one container with gobackup, admitted by the Pod Security Standard `restricted`.
//!
//! The Job and the CronJob use the same template.

use std::collections::BTreeMap;

use innkeeper_sdk::json;
use k8s_openapi::{
    api::core::v1::{
        Capabilities, Container, EnvVar, EnvVarSource, PodSecurityContext, PodSpec,
        PodTemplateSpec, ResourceRequirements, SeccompProfile, SecretKeySelector, SecurityContext,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};

use crate::{
    api::ImagePullPolicy,
    plan::Plan,
    render::{Credential, Origin},
};

mod volumes;

/// The user and group ID of the run: the usual `nonroot`. The image's default is root, which gobackup
/// does not need.
const USER: i64 = 65532;

/// The name of the container with gobackup.
pub(crate) const CONTAINER: &str = "gobackup";

/// The script of a run. It fails if gobackup succeeds without an upload, and writes the names of the
/// stored files as the termination message.
///
/// gobackup exits with 0 in some cases in which it stores nothing, for example for a storage type
/// that it does not have. The script therefore checks that the state of each storage is newer than
/// the start of the run. Both times are those of files on one file system, so clocks of other machines
/// do not matter; they are compared in whole seconds, the resolution that every file system has.
const SCRIPT: &str = r#"set -u
mkdir -p "$GOBACKUP_DIR/cycler"
started="$GOBACKUP_DIR/.started"
touch "$started" || exit 1
gobackup perform --config /etc/gobackup/gobackup.yml || exit $?
artifacts=""
for key in $STORAGES; do
  state="$GOBACKUP_DIR/cycler/${MODEL}_$key.json"
  if [ ! -f "$state" ] || [ "$(stat -c %Y "$state")" -lt "$(stat -c %Y "$started")" ]; then
    echo "nothing was stored in $key" >&2
    exit 1
  fi
  file=$(grep -o '"file_key" *: *"[^"]*"' "$state" | tail -n 1 | cut -d '"' -f 4)
  artifacts="$artifacts${artifacts:+,}{\"storage\":\"$key\",\"file\":\"$file\"}"
done
printf '{"artifacts":[%s]}' "$artifacts" >/dev/termination-log
"#;

/// The template of a run's Pods.
pub(crate) fn template(plan: &Plan<'_>) -> PodTemplateSpec {
    let given = plan
        .parent
        .spec
        .pod_template
        .as_ref()
        .and_then(|it| it.metadata.clone())
        .unwrap_or_default();
    let mut labels = json::copied(&given.labels);
    labels.extend(plan.labels("run"));
    let annotations: BTreeMap<String, String> = given
        .annotations
        .into_iter()
        .filter(|(key, _)| !key.starts_with("innkeeper.dev/"))
        .collect();
    labels.retain(|key, _| !key.starts_with("innkeeper.dev/"));
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels),
            annotations: (!annotations.is_empty()).then_some(annotations),
            ..Default::default()
        }),
        spec: Some(pod(plan)),
    }
}

fn pod(plan: &Plan<'_>) -> PodSpec {
    let spec = &plan.parent.spec;
    let given = if spec.image_pull_secrets.is_empty() {
        &plan.config.image_pull_secrets
    } else {
        &spec.image_pull_secrets
    };
    let secrets: Vec<_> = given.iter().map(json::copied).collect();
    PodSpec {
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        restart_policy: Some("Never".to_owned()),
        service_account_name: spec.service_account_name.clone(),
        image_pull_secrets: (!secrets.is_empty()).then_some(secrets),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            fs_group: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        }),
        containers: vec![container(plan)],
        volumes: Some(volumes::volumes(plan)),
        ..Default::default()
    }
}

fn container(plan: &Plan<'_>) -> Container {
    let spec = &plan.parent.spec;
    let policy = spec.image_pull_policy;
    let env_from: Vec<_> = spec.env_from.iter().map(json::copied).collect();
    Container {
        name: CONTAINER.to_owned(),
        image: Some(match &spec.image {
            Some(image) => image.clone(),
            None => plan.config.images.gobackup.clone(),
        }),
        image_pull_policy: Some(
            policy
                .unwrap_or(ImagePullPolicy::IfNotPresent)
                .as_str()
                .to_owned(),
        ),
        command: Some(vec!["/bin/sh".to_owned(), "-c".to_owned()]),
        args: Some(vec![SCRIPT.to_owned()]),
        env: Some(env(plan)),
        env_from: (!env_from.is_empty()).then_some(env_from),
        resources: Some(resources(plan)),
        volume_mounts: Some(volumes::mounts(plan)),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Default::default()
            }),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn resources(plan: &Plan<'_>) -> ResourceRequirements {
    let given = plan.parent.spec.resources.as_ref();
    if let Some(resources) = given.or(plan.config.default_resources.as_ref()) {
        return json::copied(resources);
    }
    ResourceRequirements {
        requests: Some(BTreeMap::from([
            ("cpu".to_owned(), Quantity("100m".to_owned())),
            ("memory".to_owned(), Quantity("128Mi".to_owned())),
        ])),
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
    .map(|(name, value)| EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        ..Default::default()
    });
    let credentials = plan.rendered.credentials.iter().filter(|it| !it.is_file);
    let given = plan.parent.spec.env.iter().map(json::copied);
    fixed
        .into_iter()
        .chain(credentials.map(|credential| variable(plan, credential)))
        .chain(given)
        .collect()
}

fn variable(plan: &Plan<'_>, credential: &Credential) -> EnvVar {
    let (name, key) = secret_key(plan, credential);
    EnvVar {
        name: credential.name.clone(),
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name,
                key,
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The Secret and the key that hold a credential.
fn secret_key(plan: &Plan<'_>, credential: &Credential) -> (String, String) {
    match &credential.origin {
        Origin::Clear(_) => (plan.secret_name(), credential.name.clone()),
        Origin::Secret(secret) => (secret.name.clone(), secret.key.clone()),
    }
}
