//! Volumes and mounts of a run.

use innkeeper_kit::pod::{empty_dir, from_claim, mount};
use innkeeper_sdk::json;
use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, EphemeralVolumeSource, KeyToPath, NFSVolumeSource,
    PersistentVolumeClaimSpec, PersistentVolumeClaimTemplate, PersistentVolumeClaimVolumeSource,
    ProjectedVolumeSource, SecretProjection, SecretVolumeSource, Volume, VolumeMount,
    VolumeProjection, VolumeResourceRequirements,
};
use std::collections::BTreeMap;

use super::{CONFIG_PATH, secret_key};
use crate::{
    plan::{CONFIG_FILE, Plan},
    render::{Credential, KEYS},
};

/// Directory for gobackup's state, the list of stored archives.
pub(super) const STATE: &str = "/var/lib/gobackup";

/// Mode of key files: readable for root, which owns them, and for the run's group.
const KEY_MODE: i32 = 0o440;

/// Returns the name of a parent's volume. The prefix avoids the names of the plugin's own volumes.
fn data_volume_name(name: &str) -> String {
    format!("data-{name}")
}

pub(super) fn volumes(plan: &Plan<'_>) -> Vec<Volume> {
    let mut volumes = vec![Volume {
        name: "config".to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(plan.secret_name()),
            items: Some(vec![key_to_path(CONFIG_FILE, CONFIG_FILE)]),
            ..Default::default()
        }),
        ..Default::default()
    }];
    volumes.extend(keys(plan));
    volumes.push(match plan.state_claim() {
        Some(claim) => from_claim("state", claim),
        None => empty_dir("state"),
    });
    volumes.push(work(plan));
    volumes.extend([empty_dir("tmp"), empty_dir("home")]);
    if let Some(claim) = plan.local_claim() {
        volumes.push(from_claim("local", claim));
    }
    volumes.extend(plan.parent.spec.volumes.iter().map(volume));
    volumes
}

/// Returns a volume of the parent.
pub(crate) fn volume(volume: &crate::api::Volume) -> Volume {
    Volume {
        name: data_volume_name(&volume.name),
        // NB: The kubelet changes the group of a volume's files unless its source is read-only, whatever the mount is.
        // The running application would lose the files, or refuse to start on them.
        persistent_volume_claim: volume.persistent_volume_claim.as_ref().map(|claim| {
            PersistentVolumeClaimVolumeSource {
                read_only: volume.read_only.then_some(true).or(claim.read_only),
                ..json::sanitized(claim)
            }
        }),
        config_map: volume.config_map.as_ref().map(json::sanitized),
        secret: volume.secret.as_ref().map(json::sanitized),
        nfs: volume.nfs.as_ref().map(|nfs| NFSVolumeSource {
            read_only: volume.read_only.then_some(true).or(nfs.read_only),
            ..json::sanitized(nfs)
        }),
        host_path: volume.host_path.as_ref().map(json::sanitized),
        ..Default::default()
    }
}

pub(super) fn mounts(plan: &Plan<'_>) -> Vec<VolumeMount> {
    let mut mounts = vec![VolumeMount {
        // The kubelet never updates a file that is mounted by subPath. gobackup reloads a
        // configuration that changes, which must not happen during a run.
        sub_path: Some(CONFIG_FILE.to_owned()),
        read_only: Some(true),
        ..mount("config", CONFIG_PATH)
    }];
    if plan.rendered.credentials.iter().any(Credential::is_file) {
        mounts.push(VolumeMount {
            read_only: Some(true),
            ..mount("keys", KEYS)
        });
    }
    mounts.extend([
        mount("state", STATE),
        mount("work", "/work"),
        mount("tmp", "/tmp"),
        mount("home", "/home/gobackup"),
    ]);
    mounts.extend(plan.claimed_locals().map(|local| VolumeMount {
        sub_path: Some(local.key.clone()),
        ..mount("local", &local.mount)
    }));
    mounts.extend(data_mounts(plan));
    mounts
}

/// Returns the mounts of the parent's volumes.
pub(crate) fn data_mounts(plan: &Plan<'_>) -> impl Iterator<Item = VolumeMount> {
    plan.parent.spec.volumes.iter().map(|volume| VolumeMount {
        read_only: volume.read_only.then_some(true),
        ..mount(&data_volume_name(&volume.name), &volume.mount_path)
    })
}

/// Returns the volume with credential files.
pub(crate) fn keys(plan: &Plan<'_>) -> Option<Volume> {
    let sources: Vec<VolumeProjection> = plan
        .rendered
        .credentials
        .iter()
        .filter(|credential| credential.is_file())
        .map(|credential| {
            let (name, key) = secret_key(plan, credential);
            VolumeProjection {
                secret: Some(SecretProjection {
                    name,
                    items: Some(vec![key_to_path(&key, &credential.name)]),
                    ..Default::default()
                }),
                ..Default::default()
            }
        })
        .collect();
    (!sources.is_empty()).then(|| Volume {
        name: "keys".to_owned(),
        projected: Some(ProjectedVolumeSource {
            default_mode: Some(KEY_MODE),
            sources: Some(sources),
        }),
        ..Default::default()
    })
}

fn key_to_path(key: &str, path: &str) -> KeyToPath {
    KeyToPath {
        key: key.to_owned(),
        path: path.to_owned(),
        ..Default::default()
    }
}

/// The volume for temporary files.
pub(crate) fn work(plan: &Plan<'_>) -> Volume {
    let work = plan.parent.spec.work.clone().unwrap_or_default();
    let Some(class) = work.storage_class_name else {
        return Volume {
            empty_dir: Some(EmptyDirVolumeSource {
                medium: work.medium,
                size_limit: work.size,
            }),
            name: "work".to_owned(),
            ..Default::default()
        };
    };
    let requests = work
        .size
        .map(|size| BTreeMap::from([("storage".to_owned(), size)]));
    Volume {
        name: "work".to_owned(),
        ephemeral: Some(EphemeralVolumeSource {
            volume_claim_template: Some(PersistentVolumeClaimTemplate {
                spec: PersistentVolumeClaimSpec {
                    access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
                    storage_class_name: Some(class),
                    resources: Some(VolumeResourceRequirements {
                        requests,
                        ..Default::default()
                    }),
                    ..Default::default()
                },
                ..Default::default()
            }),
        }),
        ..Default::default()
    }
}
