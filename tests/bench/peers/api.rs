//! The parent as Rust types: as much of it as the kube-rs peer needs, and whoever waits for its status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// What a user declares; the API server fills in the defaults.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
#[kube(
    group = "cache.example.com",
    version = "v1",
    kind = "Memcached",
    namespaced,
    status = "MemcachedStatus",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemcachedSpec {
    pub(crate) size: Option<i32>,
    pub(crate) image: Option<String>,
    pub(crate) container_port: i32,
    pub(crate) memcached: MemcachedOptions,
}

/// Options that become arguments.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemcachedOptions {
    #[serde(rename = "maxMemoryMB")]
    pub(crate) max_memory_mb: i32,
    pub(crate) max_connections: i32,
    pub(crate) threads: i32,
    pub(crate) max_item_size: String,
}

/// What is observed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct MemcachedStatus {
    pub(crate) nodes: Vec<String>,
    pub(crate) replicas: i32,
    pub(crate) ready_replicas: i32,
    pub(crate) selector: String,
    pub(crate) image: String,
    pub(crate) observed_generation: i64,
    pub(crate) conditions: Vec<Condition>,
}

impl MemcachedStatus {
    /// The condition of a type.
    pub(crate) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|it| it.type_ == kind)
    }
}
