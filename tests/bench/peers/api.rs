//! The parent as Rust types, with the fields that the kube-rs peer and the status check need.

use std::{borrow::Cow, sync::OnceLock};

use k8s_openapi::{
    NamespaceResourceScope,
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
};
use kube::{
    Resource,
    api::{ApiResource, GroupVersionKind},
};
use serde::{Deserialize, Serialize};

/// The API group for the shipped plugin's parents.
pub(crate) const GROUP: &str = "cache.example.com";
const VERSION: &str = "v1";
const KIND: &str = "Memcached";
const PLURAL: &str = "memcacheds";

/// This process's API group for parents, if it differs from the default: with several operators, each needs a separate kind.
pub(crate) static GROUP_OF_PROCESS: OnceLock<String> = OnceLock::new();

/// The parent kind in an API group.
pub(crate) fn parents_in(group: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, VERSION, KIND), PLURAL)
}

/// The parent.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Memcached {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: MemcachedSpec,
    pub(crate) status: Option<MemcachedStatus>,
}

// Written by hand, because the derived one has a constant group.
impl Resource for Memcached {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP_OF_PROCESS
            .get()
            .map_or(GROUP, |group| group.as_str())
            .into()
    }

    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A parent's spec; the API server has filled in the defaults.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemcachedSpec {
    pub(crate) size: Option<i32>,
    pub(crate) image: Option<String>,
    pub(crate) container_port: i32,
    pub(crate) memcached: MemcachedOptions,
}

/// Options that become command-line arguments of memcached.
#[derive(Clone, Debug, Deserialize)]
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
    /// Returns the condition with this type.
    pub(crate) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.type_ == kind)
    }
}
