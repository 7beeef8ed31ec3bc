//! The parent as Rust types, with the fields that the kube-rs peer and the wait for the status need.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// The spec of a parent; the API server has filled in the defaults.
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

/// Options that become command-line arguments of memcached.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemcachedOptions {
    #[serde(rename = "maxMemoryMB")]
    pub(crate) max_memory_mb: i32,
    pub(crate) max_connections: i32,
    pub(crate) threads: i32,
    pub(crate) max_item_size: String,
}

/// The observed state.
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
    /// Returns the condition of a type.
    pub(crate) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|it| it.type_ == kind)
    }
}
