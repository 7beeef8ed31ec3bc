//! The configuration of the plugin.

use innkeeper_kit::{
    image, placement::PodTemplateLists, pod::PodMetadataLists, tenants::ReferenceScope,
};
use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceRequirements};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the administrator for all parents.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Config {
    /// Images for parents without one.
    pub(crate) images: Images,
    /// Requests and limits of the run for parents without any. Default: requests of cpu 100m and memory
    /// 128Mi.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_resources: Option<ResourceRequirements>,
    /// Secrets for pulling images, for parents without any.
    pub(crate) image_pull_secrets: Vec<LocalObjectReference>,
    /// Path below that of each storage, in which the archives of one parent lie: parts of letters, digits, '.', '_' and
    /// '-' with single slashes between them, in which {namespace}, {kind} and {name} stand for those of the parent. Parents
    /// whose paths are the same delete each other's archives. Empty: none.
    #[schemars(length(max = 253), regex(pattern = STORAGE_PATH))]
    pub(crate) storage_path: String,
    /// Limits for those who create parents.
    pub(crate) tenants: Tenants,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            images: Images::default(),
            default_resources: None,
            image_pull_secrets: Vec::new(),
            storage_path: "{namespace}/{kind}/{name}".to_owned(),
            tenants: Tenants::default(),
        }
    }
}

/// No part begins with a dot or a dash: `..` would leave the path of the storage, and a dash would begin an option of the
/// `mkdir` that scp runs on its server, in a shell, without quotes.
const STORAGE_PATH: &str = r"^(([A-Za-z0-9_]|\{(namespace|kind|name)\})([A-Za-z0-9_]|\{(namespace|kind|name)\}|[.-])*(/([A-Za-z0-9_]|\{(namespace|kind|name)\})([A-Za-z0-9_]|\{(namespace|kind|name)\}|[.-])*)*)?$";

impl Config {
    /// The path of a parent's archives below that of each storage; empty for none.
    pub(crate) fn path_of(&self, namespace: &str, kind: &str, name: &str) -> String {
        [
            ("{namespace}", namespace),
            ("{kind}", kind),
            ("{name}", name),
        ]
        .iter()
        .fold(self.storage_path.clone(), |path, (from, to)| {
            path.replace(from, to)
        })
    }
}

/// Limits for those who create parents.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Tenants {
    /// Repositories whose images parents may name; an entry that ends with a slash stands for all that
    /// start with it. Empty: any image.
    #[schemars(inner(regex(pattern = image::REPOSITORIES)))]
    pub(crate) images: Vec<String>,
    /// True if the runs of parents may mount directories of the node and of NFS servers.
    pub(crate) host_volumes: bool,
    /// Service accounts that parents may name for their runs. Empty: none.
    pub(crate) service_accounts: Vec<String>,
    /// Keys of labels and annotations that parents may set on the Pods of their runs.
    pub(crate) pod_metadata: PodMetadataLists,
    /// Keys of taints that the Pods of runs may tolerate if parents say so; an entry that ends with a slash stands
    /// for all that start with it, and * for a toleration without a key, which tolerates each taint. Empty: none.
    pub(crate) tolerations: Vec<String>,
    /// PriorityClasses that parents may name for their runs. Empty: none.
    pub(crate) priority_classes: Vec<String>,
    /// True if the scripts of parents and of their models run, and if parents may name any variable, any option of
    /// the programs of the run, and mounts that change these programs. Scripts that do not run cause a warning.
    pub(crate) scripts: bool,
    /// Secrets and claims that parents may name: shared (their own, those of no parent, and those with
    /// the annotation innkeeper.dev/shared-with) or namespace (all of their namespace).
    pub(crate) references: ReferenceScope,
}

impl Tenants {
    /// The limits for the metadata and the placement of Pods.
    pub(crate) fn pod_template(&self) -> PodTemplateLists<'_> {
        PodTemplateLists {
            metadata: &self.pod_metadata,
            tolerations: &self.tolerations,
            priority_classes: &self.priority_classes,
        }
    }
}

/// Images for parents without one.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Images {
    /// Image with gobackup and the client programs of the databases.
    #[schemars(regex(pattern = image::REFERENCE))]
    pub(crate) gobackup: String,
    /// Image with rclone and a shell, which fetches archives for a Restore.
    #[schemars(regex(pattern = image::REFERENCE))]
    pub(crate) transfer: String,
}

impl Default for Images {
    fn default() -> Self {
        Self {
            gobackup: "huacnlee/gobackup:latest".to_owned(),
            transfer: "rclone/rclone:1.70".to_owned(),
        }
    }
}
