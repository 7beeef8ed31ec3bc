//! The plugin's configuration.

use innkeeper_kit::prelude::*;
use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceRequirements};

/// The administrator's settings for all parents.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Config {
    /// Images for parents without one.
    pub(crate) images: Images,
    /// Requests and limits for parents without any. Default: requests of cpu 100m and memory 128Mi.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_resources: Option<ResourceRequirements>,
    /// Secrets for pulling images, for parents without any.
    pub(crate) image_pull_secrets: Vec<LocalObjectReference>,
    /// Path of a parent's archives below each storage's own: parts of letters, digits, '.', '_' and '-' with single
    /// slashes between them. {namespace}, {kind} and {name} stand for the parent's own. Parents with the same path
    /// delete each other's archives. Empty: none.
    #[schemars(length(max = 253), regex(pattern = STORAGE_PATH))]
    pub(crate) storage_path: String,
    /// Limits for users who create parents.
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

/// No part starts with a dot or a dash: `..` would leave the storage's path, and a dash would start an option of the
/// `mkdir` that scp runs on the server, in a shell, without quotes.
const STORAGE_PATH: &str = r"^(([A-Za-z0-9_]|\{(namespace|kind|name)\})([A-Za-z0-9_]|\{(namespace|kind|name)\}|[.-])*(/([A-Za-z0-9_]|\{(namespace|kind|name)\})([A-Za-z0-9_]|\{(namespace|kind|name)\}|[.-])*)*)?$";

impl Config {
    /// Returns the path of a parent's archives below each storage's own; empty for none.
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

/// Limits for users who create parents.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Tenants {
    /// Repositories whose images parents may name; an entry with a final slash is a prefix. Empty: any image.
    #[schemars(inner(regex(pattern = image::REPOSITORIES)))]
    pub(crate) images: Vec<String>,
    /// True if parents may mount directories of the node and NFS servers.
    pub(crate) host_volumes: bool,
    /// Service accounts that parents may name for their runs. Empty: none.
    pub(crate) service_accounts: Vec<String>,
    /// Label and annotation keys that parents may set on their Pods.
    pub(crate) pod_metadata: PodMetadataLists,
    /// Taint keys that parents' Pods may tolerate; an entry with a final slash is a prefix, and * allows a toleration
    /// without a key, which tolerates each taint. Empty: none.
    pub(crate) tolerations: Vec<String>,
    /// PriorityClasses that parents may name for their runs. Empty: none.
    pub(crate) priority_classes: Vec<String>,
    /// True if scripts in parents and models run, and if parents may name any variable, any program option, and mounts
    /// that change the programs. Skipped scripts cause a warning.
    pub(crate) scripts: bool,
    /// Secrets and claims that parents may name: shared (their own, those of no parent, and those with the annotation
    /// innkeeper.dev/shared-with) or namespace (all in their namespace).
    pub(crate) references: ReferenceScope,
}

impl Tenants {
    /// Returns the limits on Pod metadata and placement.
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
    /// Image with gobackup and the database clients.
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
