//! The site's addresses: routes, Ingress, Service.

use std::collections::BTreeMap;

use innkeeper_kit::prelude::*;

/// A site address.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Route {
    /// DNS name, without wildcard.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub(crate) domain: String,
    /// Path below the domain; a trailing slash is removed. The official images only serve the domain's root: a path
    /// needs another image that serves it.
    #[serde(default = "root_path")]
    #[schemars(
        length(max = 256),
        regex(pattern = r"^/([A-Za-z0-9._~-]+/)*[A-Za-z0-9._~-]*$")
    )]
    pub(crate) path: String,
}

fn root_path() -> String {
    "/".to_owned()
}

impl Route {
    /// The path without a trailing slash; empty for the root.
    pub(crate) fn trimmed_path(&self) -> &str {
        self.path.trim_end_matches('/')
    }
}

/// URL scheme.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scheme {
    /// Without TLS.
    Http,
    /// With TLS.
    Https,
}

impl Scheme {
    /// The scheme in a URL.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Ingress options.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IngressOptions {
    /// Creates the Ingress; by default it exists if there are routes.
    pub(crate) enabled: Option<bool>,
    /// Ingress class; the class from the plugin's configuration when absent.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) class_name: Option<String>,
    /// Annotations, at most 32.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Service options.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new(
        "!has(self.nodePort) || (has(self.type) && self.type in ['NodePort', 'LoadBalancer'])"
    )
    .message("service.nodePort needs service.type NodePort or LoadBalancer")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceOptions {
    /// Service type. ClusterIP: inside the cluster only; NodePort: on a port of each node; LoadBalancer: through a
    /// cloud load balancer. The default is NodePort without routes, otherwise ClusterIP.
    #[serde(rename = "type")]
    pub(crate) type_: Option<ServiceType>,
    /// Port on each node; an unused one when absent.
    #[schemars(range(min = 1, max = 65535))]
    pub(crate) node_port: Option<i32>,
    /// Annotations, at most 32.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub(crate) annotations: BTreeMap<String, String>,
}
