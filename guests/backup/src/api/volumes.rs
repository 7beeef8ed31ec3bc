//! Blocks of the API: the volumes of a run.

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
    /// Name of the volume, a DNS label that is unique in this list.
    #[schemars(
        length(min = 1, max = 50),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub(crate) name: String,
    /// Absolute path of the mount in the container.
    #[schemars(length(min = 2, max = 512), regex(pattern = r"^/[^:]+$"))]
    pub(crate) mount_path: String,
    /// Mount the volume read-only. The kubelet may change the group of the files of a claim that is not.
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
    /// File or directory of the node.
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

/// User and groups of a run, which decide over the files that it can read.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunUser {
    /// ID of the user, for example 33 for files of www-data. It cannot be root. Default: 65532.
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub(crate) run_as_user: Option<i64>,
    /// ID of the user's group. Default: that of the user.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub(crate) run_as_group: Option<i64>,
    /// ID of the group to which the kubelet gives each writable volume. Default: the user's group if the run
    /// has a claim of its own or files with credentials, else none.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub(crate) fs_group: Option<i64>,
    /// IDs of further groups of the user, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(range(min = 0, max = 2_147_483_647)))]
    pub(crate) supplemental_groups: Vec<i64>,
}

/// The size of the claim for the state, also of a parent without `state`.
pub(crate) const STATE_SIZE: &str = "64Mi";

/// The size of the claim for local archives, also of a parent without `localVolume`.
pub(crate) const LOCAL_SIZE: &str = "10Gi";

/// Volume for the state of gobackup, its list of stored archives.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct State {
    /// Use of a claim: Auto (only if `keep` is set for a storage from which gobackup cannot read its
    /// state back), Volume (always) or Ephemeral (never).
    #[serde(default)]
    pub(crate) mode: StateMode,
    /// Size of the claim. It grows with this field and never shrinks.
    #[schemars(extend("default" = STATE_SIZE))]
    pub(crate) size: Option<Quantity>,
    /// StorageClass of the claim; fixed once the claim exists. Default: the cluster's default.
    pub(crate) storage_class_name: Option<String>,
    /// Name of an existing claim to use instead.
    pub(crate) claim_name: Option<String>,
}

/// Use of a claim for the state.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StateMode {
    /// If `keep` is set for a storage from which gobackup cannot read its state back.
    #[default]
    Auto,
    /// Always.
    Volume,
    /// Never. `keep` has no effect for storages from which gobackup cannot read its state back.
    Ephemeral,
}

/// Claim for the archives of storages of type local.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LocalVolume {
    /// Name of an existing claim to use instead.
    pub(crate) claim_name: Option<String>,
    /// Size of the claim. It grows with this field and never shrinks.
    #[schemars(extend("default" = LOCAL_SIZE))]
    pub(crate) size: Option<Quantity>,
    /// StorageClass of the claim; fixed once the claim exists. Default: the cluster's default.
    pub(crate) storage_class_name: Option<String>,
}

/// Volume for temporary files of a run.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("!has(self.storageClassName) || has(self.size)")
        .message("work: a storageClassName needs a size"),
    validation = Rule::new("!has(self.storageClassName) || !has(self.medium)")
        .message("work: set either medium or storageClassName")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Work {
    /// Size limit of the emptyDir, or size of the claim. Default: no limit for an emptyDir.
    pub(crate) size: Option<Quantity>,
    /// Medium of the emptyDir: Memory, or empty for the node's disk.
    #[schemars(length(max = 32))]
    pub(crate) medium: Option<String>,
    /// StorageClass of an ephemeral claim, which is deleted with the Pod and replaces the emptyDir. Requires size.
    pub(crate) storage_class_name: Option<String>,
}
