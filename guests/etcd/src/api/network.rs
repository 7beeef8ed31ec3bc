//! API blocks for Services, traffic restrictions and metrics.

use std::collections::BTreeMap;

use innkeeper_kit::prelude::*;
use k8s_openapi::api::networking::v1::NetworkPolicyPeer;

/// Options for the Service with the members' names.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeadlessService {
    /// Annotations, at most 32; the plugin's configuration must list them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Options for the client Service.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientService {
    /// Service type. ClusterIP: inside the cluster only; NodePort: on a port of each node; LoadBalancer: through a
    /// cloud load balancer. The plugin's configuration must list types other than ClusterIP. Default: ClusterIP.
    #[serde(rename = "type")]
    pub(crate) type_: Option<ServiceType>,
    /// Annotations, at most 32; the plugin's configuration must list them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Traffic restrictions for the members: peers and the cluster's Jobs may always connect.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new(
        "!has(self.allowedSources) || self.allowedSources.all(source, \
         has(source.ipBlock) != (has(source.podSelector) || has(source.namespaceSelector)))"
    )
    .message("allowedSources: each entry needs either ipBlock, or podSelector, namespaceSelector or both")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Isolation {
    /// Pods, namespaces and address blocks that may reach the client and metrics ports. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub(crate) allowed_sources: Vec<NetworkPolicyPeer>,
}

/// Metrics collection from the members.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Monitoring {
    /// ServiceMonitor for the Prometheus operator, which must be installed. Default: none.
    pub(crate) service_monitor: Option<ServiceMonitor>,
}

/// A ServiceMonitor.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceMonitor {
    /// Scrape interval, such as 30s or 1m.
    #[serde(default = "default_interval")]
    #[schemars(length(max = 16), regex(pattern = r"^[1-9][0-9]*(s|m|h)$"))]
    pub(crate) interval: String,
}

fn default_interval() -> String {
    "30s".to_owned()
}
