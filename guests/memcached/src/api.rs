//! The API: the spec that a user declares, and the status.
//!
//! CEL rules are next to the fields they check; the module `validate` checks what CEL cannot express.

use std::collections::BTreeMap;

use innkeeper_kit::prelude::*;
use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceRequirements};

/// The `maxItemSize` rule: memcached exits unless the size is a multiple of its 512 KiB chunks.
pub(crate) const ITEM_SIZE: &str =
    "maxItemSize must be a multiple of 512k, at most half of maxMemoryMB and at most 1024m";

/// The `maxConnections` rule: memcached limits its open files to this number, and each thread needs some.
pub(crate) const CONNECTIONS: &str = "maxConnections must be at least 6 times threads plus 16";

/// The memory limit rule: a cache full of small items takes a tenth more than `maxMemoryMB`.
pub(crate) const MEMORY_LIMIT: &str =
    "resources.limits.memory must be at least 1.1 times memcached.maxMemoryMB plus 32Mi";

/// A pool of memcached processes.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "cache.example.com",
    version = "v1",
    kind = "Memcached",
    plural = "memcacheds",
    shortname = "mcd",
    category = "innkeeper",
    namespaced,
    status = "MemcachedStatus",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Image", type_ = "string", json_path = ".status.image", priority = 1),
    validation = Rule::new("self.metadata.name.size() <= 52")
        .message("metadata.name must be at most 52 characters"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name must be a DNS label that starts with a letter"),
    validation = Rule::new("!self.metadata.name.endsWith('-mcrouter')").message(
        "metadata.name must not end in -mcrouter: that name belongs to the proxy of another Memcached"
    )
)]
// Adds bytes: the API server cannot bound the cost of a quantity built as text.
#[x_kube(
    validation = Rule::new(
        "!has(self.resources) || !has(self.resources.limits) || !('memory' in self.resources.limits) \
         || quantity(string(self.resources.limits['memory'])).compareTo(quantity('0').add(\
         (self.memcached.maxMemoryMB * 11534336 + 9) / 10 + 33554432)) >= 0"
    )
    .message(MEMORY_LIMIT),
    validation = budget::below_replicas("highAvailability.podDisruptionBudget", "size"),
    validation = budget::allows_evictions("highAvailability.podDisruptionBudget", "size")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemcachedSpec {
    /// Number of memcached processes, 0 to 64 (default 1).
    #[schemars(range(min = 0, max = 64))]
    pub(crate) size: Option<i32>,
    /// memcached image; the image from the plugin's configuration when absent.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = image::is_reference())]
    pub(crate) image: Option<String>,
    /// Image pull policy; the Kubernetes default when absent.
    pub(crate) image_pull_policy: Option<ImagePullPolicy>,
    /// Secrets with registry credentials for the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub(crate) image_pull_secrets: Vec<LocalObjectReference>,
    /// Requests and limits per process; by default, requests of 100m CPU and 1.1 times maxMemoryMB plus 64Mi
    /// memory.
    pub(crate) resources: Option<ResourceRequirements>,
    /// Port for clients.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1024, max = 65535))]
    pub(crate) container_port: i32,
    /// Headless Service options.
    pub(crate) service: Option<ServiceOptions>,
    /// memcached command-line options.
    #[serde(default)]
    pub(crate) memcached: MemcachedOptions,
    /// Protection from voluntary disruptions.
    pub(crate) high_availability: Option<HighAvailability>,
}

const fn default_port() -> i32 {
    11211
}

/// Headless Service options.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceOptions {
    /// Service annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// memcached command-line options.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new(
        // Passes values that the pattern rejects, so users see one error.
        "!self.maxItemSize.matches('^[1-9][0-9]{0,6}(k|m)$') \
         || [int(self.maxItemSize.substring(0, self.maxItemSize.size() - 1)) \
         * (self.maxItemSize.endsWith('m') ? 1024 : 1)].all(size, \
         size % 512 == 0 && size <= 1048576 && 2 * size <= self.maxMemoryMB * 1024)"
    )
    .message(ITEM_SIZE),
    validation = Rule::new("self.maxConnections >= 6 * self.threads + 16").message(CONNECTIONS)
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemcachedOptions {
    /// Memory for items in MiB (`-m`).
    #[serde(default = "default_memory", rename = "maxMemoryMB")]
    #[schemars(range(min = 16, max = 65536))]
    pub(crate) max_memory_mb: i32,
    /// Maximum simultaneous connections (`-c`); at least 6 times threads plus 16.
    #[serde(default = "default_connections")]
    #[schemars(range(min = 1, max = 65536))]
    pub(crate) max_connections: i32,
    /// Number of worker threads (`-t`).
    #[serde(default = "default_threads")]
    #[schemars(range(min = 1, max = 128))]
    pub(crate) threads: i32,
    /// Largest item (`-I`) in KiB (`k`) or MiB (`m`): a multiple of 512k, at most half of
    /// maxMemoryMB.
    #[serde(default = "default_item_size")]
    #[schemars(length(max = 8), regex(pattern = r"^[1-9][0-9]{0,6}(k|m)$"))]
    pub(crate) max_item_size: String,
    /// Log level: 0 logs nothing, 1 errors and warnings (`-v`), 2 also commands (`-vv`).
    #[serde(default)]
    #[schemars(range(min = 0, max = 2))]
    pub(crate) verbosity: i32,
    /// More options, appended last: an option and its value are two items or one --option=value. Options that read, write
    /// or run files must be listed in the plugin's configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    pub(crate) extra_args: Vec<String>,
}

const fn default_memory() -> i32 {
    64
}

const fn default_connections() -> i32 {
    1024
}

const fn default_threads() -> i32 {
    4
}

fn default_item_size() -> String {
    "1m".to_owned()
}

impl Default for MemcachedOptions {
    fn default() -> Self {
        Self {
            max_memory_mb: default_memory(),
            max_connections: default_connections(),
            threads: default_threads(),
            max_item_size: default_item_size(),
            verbosity: 0,
            extra_args: Vec::new(),
        }
    }
}

/// Protection from voluntary disruptions.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HighAvailability {
    /// PodDisruptionBudget for the Pods; none when absent.
    pub(crate) pod_disruption_budget: Option<DisruptionBudget>,
}

/// Observed state of the pool.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemcachedStatus {
    /// Sorted names of the Pods that are neither finished nor being deleted.
    #[serde(default)]
    pub(crate) nodes: Vec<String>,
    /// Number of Pods.
    #[serde(default)]
    pub(crate) replicas: i32,
    /// Number of ready Pods.
    #[serde(default)]
    pub(crate) ready_replicas: i32,
    /// Pod label selector, for autoscalers.
    #[serde(default)]
    pub(crate) selector: String,
    /// Client addresses; absent until the cache is first ready, empty at size 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server_list: Option<Vec<String>>,
    /// Image in use.
    #[serde(default)]
    pub(crate) image: String,
    /// Object generation that the status describes.
    #[serde(default)]
    pub(crate) observed_generation: i64,
}
