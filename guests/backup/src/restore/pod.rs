//! The Pod of a restoration: an init container fetches the archive, and a container restores it.

use innkeeper_kit::{placement::place, pod as block};
use k8s_openapi::api::core::v1::{
    Container, EnvVar, PersistentVolumeClaimVolumeSource, PodSpec, PodTemplateSpec,
    SecurityContext, Volume, VolumeMount,
};

use super::{Restoration, remote, script};
use crate::{
    api::RunWith,
    names::{FETCH, RESTORE, component},
    pod::{self, secret_key, volumes},
    render::{Credential, KEYS},
};

/// Returns the Pod template.
pub(super) fn template(restoration: &Restoration<'_>) -> PodTemplateSpec {
    let metadata = restoration.spec.pod_metadata();
    let plan = &restoration.plan;
    let labels = plan.labels(component(plan.parent.kind));
    PodTemplateSpec {
        metadata: Some(block::metadata(metadata, labels, [])),
        spec: Some(spec(restoration)),
    }
}

fn spec(restoration: &Restoration<'_>) -> PodSpec {
    let plan = &restoration.plan;
    let spec = &plan.parent.spec;
    let mut volumes: Vec<_> = volumes::keys(plan).into_iter().collect();
    volumes.push(volumes::work(plan));
    volumes.extend([block::empty_dir("tmp"), block::empty_dir("home")]);
    volumes.extend(plan.local_claim().map(archives));
    volumes.extend(spec.volumes.iter().map(volumes::volume));
    let pod = PodSpec {
        restart_policy: Some("Never".to_owned()),
        affinity: spec.run_with.as_ref().map(RunWith::affinity),
        service_account_name: spec.service_account_name.clone(),
        init_containers: Some(vec![fetch(restoration)]),
        containers: vec![restore(restoration)],
        volumes: Some(volumes),
        security_context: Some(pod::security(plan)),
        ..block::restricted(None, pod::pull_secrets(plan))
    };
    place(spec.pod_template.as_ref(), pod)
}

/// Returns the volume with local archives. The source is read-only, or the kubelet would change the files' group.
fn archives(claim_name: String) -> Volume {
    Volume {
        name: "local".to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name,
            read_only: Some(true),
        }),
        ..Default::default()
    }
}

/// A container with the directories that both have.
fn container(restoration: &Restoration<'_>, name: &str, image: &str, script: String) -> Container {
    let plan = &restoration.plan;
    let resources = plan
        .parent
        .spec
        .resources
        .as_ref()
        .or(plan.config.default_resources.as_ref());
    let directories = [
        ("work", "/work"),
        ("tmp", "/tmp"),
        ("home", "/home/gobackup"),
    ];
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(vec!["/bin/sh".to_owned(), "-c".to_owned()]),
        args: Some(vec![script]),
        resources: Some(block::resources(resources, "100m", "128Mi")),
        volume_mounts: Some(
            directories
                .map(|(name, path)| block::mount(name, path))
                .into(),
        ),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        security_context: Some(SecurityContext {
            read_only_root_filesystem: Some(true),
            ..block::container_security()
        }),
        ..Default::default()
    }
}

/// Returns a container's variables, with Secrets by the names that it uses.
fn variables(
    restoration: &Restoration<'_>,
    settings: Vec<(String, String)>,
    name: impl Fn(&Credential) -> Option<String>,
) -> Vec<EnvVar> {
    let plan = &restoration.plan;
    let mut secrets = Vec::new();
    let mut variables = Vec::new();
    for credential in &plan.rendered.credentials {
        let Some(name) = name(credential) else {
            continue;
        };
        if credential.is_file() {
            let path = format!("{KEYS}/{}", credential.name);
            variables.push(block::variable(&name, path.clone()));
            secrets.push(path);
        } else {
            let (secret, key) = secret_key(plan, credential);
            variables.push(block::secret_variable(&name, &secret, &key));
            secrets.push(name);
        }
    }
    let fixed = [
        ("HOME", "/home/gobackup".to_owned()),
        ("TMPDIR", "/tmp".to_owned()),
        ("SECRETS", secrets.join(" ")),
        ("FILE", restoration.file.clone()),
    ]
    .map(|(name, value)| block::variable(name, value));
    let settings = settings.into_iter();
    fixed
        .into_iter()
        .chain(settings.map(|(name, value)| block::variable(&name, value)))
        .chain(variables)
        .collect()
}

fn fetch(restoration: &Restoration<'_>) -> Container {
    let plan = &restoration.plan;
    let remote = &restoration.remote;
    let directory = match remote.directory.as_str() {
        "" => String::new(),
        directory => format!("{directory}/"),
    };
    let mut settings: Vec<_> = remote.variables.clone().into_iter().collect();
    settings.push(("DIRECTORY".to_owned(), directory));
    let image = restoration
        .spec
        .transfer_image
        .as_ref()
        .unwrap_or(&plan.config.images.transfer);
    let mut container = container(restoration, FETCH, image, script::fetch());
    container.env = Some(variables(restoration, settings, remote::credential));
    let mounts = container.volume_mounts.get_or_insert_default();
    if plan.rendered.credentials.iter().any(Credential::is_file) {
        mounts.push(VolumeMount {
            read_only: Some(true),
            ..block::mount("keys", KEYS)
        });
    }
    mounts.extend(restoration.local.iter().map(|local| VolumeMount {
        sub_path: Some(local.key.clone()),
        read_only: Some(true),
        ..block::mount("local", &local.mount)
    }));
    mounts.extend(volumes::data_mounts(plan));
    container
}

fn restore(restoration: &Restoration<'_>) -> Container {
    let plan = &restoration.plan;
    let image = plan
        .parent
        .spec
        .image
        .as_ref()
        .unwrap_or(&plan.config.images.gobackup);
    let mut container = container(restoration, RESTORE, image, script::restore(restoration));
    // Only the other container needs the credentials of the storage.
    let own = |credential: &Credential| {
        (!credential.name.starts_with("ST")).then(|| credential.name.clone())
    };
    container.env = Some(variables(restoration, Vec::new(), own));
    container
        .volume_mounts
        .get_or_insert_default()
        .extend(volumes::data_mounts(plan));
    container
}
