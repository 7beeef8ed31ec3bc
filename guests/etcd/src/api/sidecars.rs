//! Blocks of the API: further containers in the members' Pods.

use innkeeper_sdk::image;
use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A further container in the Pod of each member: at the Pod Security level restricted, and without Secrets.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new("!(self.name in ['etcd', 'admit', 'tools'])")
        .message("name: etcd, admit and tools are containers of the plugin: take another name")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sidecar {
    /// Name of the container, a DNS label.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub(crate) name: String,
    /// Image of the container, if the plugin's configuration allows its repository.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = image::is_reference())]
    pub(crate) image: String,
    /// Program in place of that of the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub(crate) command: Vec<String>,
    /// Arguments in place of those of the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub(crate) args: Vec<String>,
    /// Environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub(crate) env: Vec<Variable>,
    /// Requests and limits of the container. Default: none.
    pub(crate) resources: Option<ResourceRequirements>,
    /// Path at which the container reads the data directory of the member. Default: not at all.
    #[schemars(length(max = 253), regex(pattern = r"^(/[A-Za-z0-9._-]+)+$"))]
    pub(crate) data_path: Option<String>,
}

/// An environment variable.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    /// Name of the variable.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$")
    )]
    pub(crate) name: String,
    /// Value of the variable. Default: empty.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub(crate) value: String,
}
