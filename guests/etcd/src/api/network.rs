//! Blocks of the API: Services, limits of the traffic, and the collection of metrics.

use std::collections::BTreeMap;

use innkeeper_kit::pod::ServiceType;
use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Options of the Service with the names of the members.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeadlessService {
    /// Annotations, at most 32, if the plugin's configuration lists them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Options of the Service for clients.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientService {
    /// Type of the Service. ClusterIP: for the cluster only; NodePort: on a port of each node; LoadBalancer:
    /// by a load balancer of the cloud. Others than ClusterIP only if the plugin's configuration lists them.
    /// Default: ClusterIP.
    #[serde(rename = "type")]
    pub(crate) type_: Option<ServiceType>,
    /// Annotations, at most 32, if the plugin's configuration lists them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Limits of the traffic to the members: peers and Jobs of the cluster may connect always.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new(
        "!has(self.allowedSources) || self.allowedSources.all(source, \
         has(source.ipBlock) != (has(source.podSelector) || has(source.namespaceSelector)))"
    )
    .message("allowedSources: each one has either ipBlock, or podSelector, namespaceSelector or both")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Isolation {
    /// Pods, namespaces and blocks of addresses that may reach the client and metrics ports. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub(crate) allowed_sources: Vec<NetworkPolicyPeer>,
}

/// Collection of the members' metrics.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Monitoring {
    /// ServiceMonitor for the Prometheus operator, which the cluster must have. Default: none.
    pub(crate) service_monitor: Option<ServiceMonitor>,
}

/// A ServiceMonitor.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceMonitor {
    /// Time between two collections, such as 30s or 1m.
    #[serde(default = "default_interval")]
    #[schemars(length(max = 16), regex(pattern = r"^[1-9][0-9]*(s|m|h)$"))]
    pub(crate) interval: String,
}

fn default_interval() -> String {
    "30s".to_owned()
}
