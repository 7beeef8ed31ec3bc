//! Claims, and storage for the site's files.

use innkeeper_kit::prelude::*;
use k8s_openapi::{
    api::core::v1::TypedLocalObjectReference, apimachinery::pkg::api::resource::Quantity,
};
use serde_json::Value;

/// Storage for themes, plugins and uploads.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Code {
    /// Claim for the files.
    pub(crate) persistent_volume_claim: Option<Claim>,
}

/// The site's PersistentVolumeClaim.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new(claim::SIZE_IS_QUANTITY).message("size must be a quantity, such as 10Gi"),
    validation = Rule::new(claim::SIZE_IS_POSITIVE).message("size must be greater than zero"),
    validation = Rule::new(claim::CLASS_IS_IMMUTABLE)
        .message("a claim's storage class is immutable"),
    validation = Rule::new(claim::ACCESS_MODES_ARE_IMMUTABLE)
        .message("a claim's access modes are immutable"),
    validation = Rule::new("self.accessModes.size() == 0 || self.accessModes.exists(mode, mode != 'ReadOnlyMany')")
        .message("accessModes needs a writable mode: ReadOnlyMany alone is read-only")
)]
#[serde(rename_all = "camelCase")]
#[expect(
    clippy::struct_field_names,
    reason = "the names of the fields are the API's"
)]
pub(crate) struct Claim {
    /// Requested storage; it can grow but never shrink.
    #[serde(default = "default_size")]
    pub(crate) size: Quantity,
    /// Storage class; the cluster's default when absent.
    #[schemars(length(max = 253))]
    pub(crate) storage_class_name: Option<String>,
    /// Volume access modes. ReadWriteOnce: mounted by one node; ReadOnlyMany: by many nodes, read-only;
    /// ReadWriteMany: by many nodes; ReadWriteOncePod: by one Pod.
    #[serde(default = "default_access_modes")]
    #[schemars(length(min = 1, max = 4))]
    pub(crate) access_modes: Vec<AccessMode>,
    /// Name of an existing claim; the other fields are ignored.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) existing_claim: Option<String>,
    /// Source of the volume's initial data.
    #[serde(default)]
    #[schemars(with = "Option<TypedLocalObjectReference>")]
    pub(crate) data_source: Option<Value>,
}

fn default_size() -> Quantity {
    Quantity("10Gi".to_owned())
}

fn default_access_modes() -> Vec<AccessMode> {
    vec![AccessMode::ReadWriteOnce]
}

impl Default for Claim {
    fn default() -> Self {
        Self {
            size: default_size(),
            storage_class_name: None,
            access_modes: default_access_modes(),
            existing_claim: None,
            data_source: None,
        }
    }
}

impl Claim {
    /// The claim in the form that the children need.
    pub(crate) fn declared(&self) -> DeclaredClaim {
        let modes = self.access_modes.iter().map(|mode| mode.as_str());
        DeclaredClaim {
            size: self.size.clone(),
            storage_class_name: self.storage_class_name.clone(),
            access_modes: modes.map(ToOwned::to_owned).collect(),
        }
    }
}
