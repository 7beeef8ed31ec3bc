//! API blocks: the volumes of a run.

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

/// Volume with data that gobackup reads as files.
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
    /// Volume name, a DNS label that is unique in this list.
    #[schemars(
        length(min = 1, max = 50),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub(crate) name: String,
    /// Absolute mount path in the container.
    #[schemars(length(min = 2, max = 512), regex(pattern = r"^/[^:]+$"))]
    pub(crate) mount_path: String,
    /// Mount the volume read-only. Otherwise the kubelet may change the group of a claim's files.
    #[serde(default = "yes")]
    pub(crate) read_only: bool,
    /// PersistentVolumeClaim in the same namespace.
    pub(crate) persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    /// ConfigMap in the same namespace.
    pub(crate) config_map: Option<ConfigMapVolumeSource>,
    /// Secret in the same namespace.
    pub(crate) secret: Option<SecretVolumeSource>,
    /// NFS share.
    pub(crate) nfs: Option<NFSVolumeSource>,
    /// File or directory on the node.
    pub(crate) host_path: Option<HostPathVolumeSource>,
}

const fn yes() -> bool {
    true
}

impl Volume {
    /// Returns true if a path is inside this mount.
    pub(crate) fn holds(&self, path: &str) -> bool {
        let mount = self.mount_path.trim_end_matches('/');
        path.strip_prefix(mount)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// User and groups, which decide which files the run can read.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunUser {
    /// User ID, for example 33 for www-data. It cannot be root. Default: 65532.
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub(crate) run_as_user: Option<i64>,
    /// Group ID. Default: the user ID.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub(crate) run_as_group: Option<i64>,
    /// ID of the group to which the kubelet gives each writable volume. Default: the user's group if the run has its
    /// own claim or credential files, else none.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub(crate) fs_group: Option<i64>,
    /// IDs of additional groups, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(range(min = 0, max = 2_147_483_647)))]
    pub(crate) supplemental_groups: Vec<i64>,
}

/// Size of the state claim, also without `state`.
pub(crate) const STATE_SIZE: &str = "64Mi";

/// Size of the claim for local archives, also without `localVolume`.
pub(crate) const LOCAL_SIZE: &str = "10Gi";

/// Volume for gobackup's state, the list of stored archives.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct State {
    /// When to use a claim: Auto (only if `keep` is set for a storage from which gobackup cannot read its state back),
    /// Volume (always) or Ephemeral (never).
    #[serde(default)]
    pub(crate) mode: StateMode,
    /// Claim size. It grows with this field and never shrinks.
    #[schemars(extend("default" = STATE_SIZE))]
    pub(crate) size: Option<Quantity>,
    /// StorageClass, which cannot change once the claim exists. Default: the cluster's default.
    pub(crate) storage_class_name: Option<String>,
    /// Existing claim to use instead.
    pub(crate) claim_name: Option<String>,
}

/// When to use a claim for the state.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StateMode {
    /// If `keep` is set for a storage from which gobackup cannot read its state back.
    #[default]
    Auto,
    /// Always.
    Volume,
    /// Never. `keep` has no effect on storages from which gobackup cannot read its state back.
    Ephemeral,
}

/// Claim for the archives in storages with the type local.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LocalVolume {
    /// Existing claim to use instead.
    pub(crate) claim_name: Option<String>,
    /// Claim size. It grows with this field and never shrinks.
    #[schemars(extend("default" = LOCAL_SIZE))]
    pub(crate) size: Option<Quantity>,
    /// StorageClass, which cannot change once the claim exists. Default: the cluster's default.
    pub(crate) storage_class_name: Option<String>,
}

/// Volume for temporary files.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("!has(self.storageClassName) || has(self.size)")
        .message("work: a storageClassName needs a size"),
    validation = Rule::new("!has(self.storageClassName) || !has(self.medium)")
        .message("work: set either medium or storageClassName")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Work {
    /// emptyDir size limit, or claim size. Default: no limit for an emptyDir.
    pub(crate) size: Option<Quantity>,
    /// emptyDir medium: Memory, or empty for the node's disk.
    #[schemars(length(max = 32))]
    pub(crate) medium: Option<String>,
    /// StorageClass of an ephemeral claim, which is deleted with the Pod and replaces the emptyDir. Requires size.
    pub(crate) storage_class_name: Option<String>,
}
