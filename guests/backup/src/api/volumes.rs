//! Blocks of the API about volumes of the run.

use k8s_openapi::{
    api::core::v1::{
        ConfigMapVolumeSource, HostPathVolumeSource, NFSVolumeSource,
        PersistentVolumeClaimVolumeSource, SecretVolumeSource,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Data that gobackup reads as files.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new(
        "[has(self.persistentVolumeClaim), has(self.configMap), has(self.secret), has(self.nfs), \
         has(self.hostPath)].filter(it, it).size() == 1"
    )
    .message("volumes: set exactly one of persistentVolumeClaim, configMap, secret, nfs, hostPath")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Volume {
    /// A name for it.
    #[schemars(
        length(min = 1, max = 50),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub(crate) name: String,
    /// Where it is mounted.
    #[schemars(length(min = 2, max = 512), regex(pattern = r"^/[^:]+$"))]
    pub(crate) mount_path: String,
    /// Whether it is only read.
    #[serde(default = "yes")]
    pub(crate) read_only: bool,
    /// A claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    /// A ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) config_map: Option<ConfigMapVolumeSource>,
    /// A Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<SecretVolumeSource>,
    /// A share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nfs: Option<NFSVolumeSource>,
    /// A directory of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host_path: Option<HostPathVolumeSource>,
}

const fn yes() -> bool {
    true
}

impl Volume {
    /// Whether a path is in this mount.
    pub(crate) fn holds(&self, path: &str) -> bool {
        let mount = self.mount_path.trim_end_matches('/');
        path.strip_prefix(mount)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Where gobackup remembers what it stored.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct State {
    /// Whether it needs a claim.
    #[serde(default)]
    pub(crate) mode: StateMode,
    /// The size of the claim; 64Mi when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<Quantity>,
    /// The class of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) storage_class_name: Option<String>,
    /// A claim that is there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) claim_name: Option<String>,
}

/// Whether the state needs a claim.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StateMode {
    /// When a storage cannot give it back.
    #[default]
    Auto,
    /// Always.
    Volume,
    /// Never; retention is lost where a storage cannot give it back.
    Ephemeral,
}

/// The claim of storages of type local.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LocalVolume {
    /// A claim that is there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) claim_name: Option<String>,
    /// The size of the claim; 10Gi when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<Quantity>,
    /// The class of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) storage_class_name: Option<String>,
}

/// Scratch space.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("!has(self.storageClassName) || has(self.size)")
        .message("work: a storageClassName needs a size"),
    validation = Rule::new("!has(self.storageClassName) || !has(self.medium)")
        .message("work: set either medium or storageClassName")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Work {
    /// How large it may grow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<Quantity>,
    /// Memory keeps it off the node's disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub(crate) medium: Option<String>,
    /// Makes it a claim that goes with the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) storage_class_name: Option<String>,
}
