//! Storage for the members' data.

use innkeeper_kit::prelude::*;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Storage for the members' data.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new(claim::SIZE_IS_QUANTITY)
        .message("storage.size must be a quantity, such as 10Gi"),
    validation = Rule::new(claim::SIZE_NEVER_SHRINKS).message("storage.size cannot shrink"),
    validation = Rule::new(claim::SIZE_IS_POSITIVE).message("storage.size must be greater than 0"),
    validation = Rule::new("self.medium == oldSelf.medium").message("storage.medium is immutable"),
    validation = Rule::new(claim::CLASS_IS_IMMUTABLE)
        .message("storage.storageClassName is immutable"),
    validation = Rule::new(claim::ACCESS_MODES_ARE_IMMUTABLE)
        .message("storage.accessModes is immutable")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Storage {
    /// Size of each member's claim, or size limit of its emptyDir. It can grow but not shrink; claims only grow if
    /// their StorageClass allows it.
    #[serde(default = "default_storage_size")]
    pub(crate) size: Quantity,
    /// Medium: Persistent (a claim), EmptyDir (the node's disk) or Memory. The last two lose a member's data with its
    /// Pod; the member is then replaced, so they need size 3 or more. Immutable.
    #[serde(default)]
    pub(crate) medium: Medium,
    /// StorageClass for the claims. Default: the cluster's default. Immutable.
    #[expect(clippy::struct_field_names, reason = "the name in the API")]
    #[schemars(length(max = 253))]
    pub(crate) storage_class_name: Option<String>,
    /// Claim access mode. ReadWriteOnce: mounted by one node; ReadWriteOncePod: by one Pod. Immutable.
    #[serde(default = "default_access_modes")]
    #[schemars(length(min = 1, max = 1))]
    pub(crate) access_modes: Vec<AccessMode>,
    /// Fate of the claims when the EtcdCluster is deleted: Retain or Delete.
    #[serde(default = "retain")]
    pub(crate) when_deleted: Keeping,
    /// Treatment of claims that exist before the first start: Refuse waits until they are deleted, Adopt starts
    /// with their data.
    #[serde(default)]
    pub(crate) existing_claims: ExistingClaims,
}

fn default_storage_size() -> Quantity {
    Quantity("1Gi".to_owned())
}

fn default_access_modes() -> Vec<AccessMode> {
    vec![AccessMode::ReadWriteOnce]
}

const fn retain() -> Keeping {
    Keeping::Retain
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            size: default_storage_size(),
            medium: Medium::default(),
            storage_class_name: None,
            access_modes: default_access_modes(),
            when_deleted: Keeping::Retain,
            existing_claims: ExistingClaims::default(),
        }
    }
}

/// Claim access mode. Only one member writes to each claim, so no other mode makes sense.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessMode {
    /// Mounted by one node.
    ReadWriteOnce,
    /// Mounted by one pod.
    ReadWriteOncePod,
}

impl AccessMode {
    /// The mode in a claim.
    const fn as_str(self) -> &'static str {
        match self {
            Self::ReadWriteOnce => "ReadWriteOnce",
            Self::ReadWriteOncePod => "ReadWriteOncePod",
        }
    }
}

/// Medium for the members' data.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Medium {
    /// A claim.
    #[default]
    Persistent,
    /// The node's disk, for the Pod's lifetime.
    EmptyDir,
    /// Memory, for the Pod's lifetime.
    Memory,
}

impl Storage {
    /// The access modes as Kubernetes writes them.
    pub(crate) fn access_modes(&self) -> Vec<String> {
        self.access_modes
            .iter()
            .map(|mode| mode.as_str().to_owned())
            .collect()
    }
}

/// Fate of the claims.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// They stay.
    Retain,
    /// They are deleted.
    Delete,
}

impl Keeping {
    /// The value in a StatefulSet.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Retain => "Retain",
            Self::Delete => "Delete",
        }
    }
}

/// Treatment of claims that exist before the first start.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExistingClaims {
    /// The cluster waits until they are deleted.
    #[default]
    Refuse,
    /// The cluster starts with their data.
    Adopt,
}
