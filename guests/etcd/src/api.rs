//! The API: spec and status of `EtcdCluster`.

mod network;
mod storage;
mod tls;

use std::collections::BTreeMap;

use innkeeper_kit::{budget, image, placement::PodTemplate, pod::ImagePullPolicy};
use k8s_openapi::{
    api::core::v1::{LocalObjectReference, ResourceRequirements},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    network::{ClientService, HeadlessService, Isolation, Monitoring},
    storage::{ExistingClaims, Keeping, Medium, Storage},
    tls::{IssuerRef, OnChange, Tls},
};

/// Specification of the cluster.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "etcd.ydzs.io",
    version = "v1alpha1",
    kind = "EtcdCluster",
    plural = "etcdclusters",
    shortname = "etcd",
    shortname = "etcdc",
    category = "innkeeper",
    namespaced,
    status = "EtcdClusterStatus",
    doc = "An etcd cluster on a StatefulSet. Its members form the cluster once; later starts keep their \
           data and identity.",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.currentVersion"),
    printcolumn(name = "Image", type_ = "string", json_path = ".status.image", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new(
        "self.metadata.name.size() <= 44 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"
    )
    .message("metadata.name must be a DNS label of at most 44 characters that starts with a letter")
)]
#[x_kube(
    validation = Rule::new("self.size > 0 || self.storage.medium == 'Persistent'").message(
        "size 0 needs persistent storage: an emptyDir loses its data when the Pod stops"
    ),
    validation = Rule::new(
        "!has(self.podDisruptionBudget.minAvailable) \
         || !string(self.podDisruptionBudget.minAvailable).matches('^-?[0-9]{1,9}$') \
         || (int(string(self.podDisruptionBudget.minAvailable)) >= 0 \
             && (self.size == 0 || int(string(self.podDisruptionBudget.minAvailable)) <= self.size))"
    )
    .message("podDisruptionBudget.minAvailable must be between 0 and size"),
    validation = budget::allows_evictions("podDisruptionBudget", "size"),
    validation = Rule::new(
        "self.size == 0 || !self.podDisruptionBudget.enabled \
         || (!has(self.podDisruptionBudget.minAvailable) \
             || string(self.podDisruptionBudget.minAvailable) != string(self.size)) \
         && (!has(self.podDisruptionBudget.maxUnavailable) \
             || !(string(self.podDisruptionBudget.maxUnavailable) in ['0', '0%']))"
    )
    .message(budget::BLOCKS_EVICTIONS),
    validation = Rule::new(
        "!has(self.podDisruptionBudget.maxUnavailable) \
         || !string(self.podDisruptionBudget.maxUnavailable).matches('^-?[0-9]{1,9}$') \
         || (int(string(self.podDisruptionBudget.maxUnavailable)) >= 0 \
             && (self.size == 0 || int(string(self.podDisruptionBudget.maxUnavailable)) <= self.size))"
    )
    .message("podDisruptionBudget.maxUnavailable must be between 0 and size"),
    validation = Rule::new(
        "!has(self.options) || !('quota-backend-bytes' in self.options) || !has(self.quotaBackendBytes)"
    )
    .message("quota-backend-bytes is given twice"),
    validation = Rule::new(
        "!has(self.options) || !('auto-compaction-mode' in self.options) || !has(self.autoCompactionMode)"
    )
    .message("auto-compaction-mode is given twice"),
    validation = Rule::new(
        "!has(self.options) || !('auto-compaction-retention' in self.options) \
         || !has(self.autoCompactionRetention)"
    )
    .message("auto-compaction-retention is given twice"),
    validation = Rule::new(
        "!has(self.autoCompactionRetention) || !has(self.autoCompactionMode) \
         || self.autoCompactionMode != 'revision' || self.autoCompactionRetention.matches('^[1-9][0-9]{0,17}$')"
    )
    .message("autoCompactionRetention must be a whole number of revisions with autoCompactionMode revision"),
    validation = Rule::new(
        "!has(self.options) || !('snapshot-count' in self.options) || !has(self.snapshotCount)"
    )
    .message("snapshot-count is given twice"),
    validation = Rule::new(
        "(has(self.tls) && has(self.tls.peer)) == (has(oldSelf.tls) && has(oldSelf.tls.peer))"
    )
    .message(
        "tls.peer cannot be added or removed, because members with and without it refuse each other: create another EtcdCluster"
    ),
    validation = Rule::new(
        "(has(self.tls) && has(self.tls.client)) == (has(oldSelf.tls) && has(oldSelf.tls.client))"
    )
    .message(
        "tls.client cannot be added or removed, because the addresses of the members change: create another EtcdCluster"
    )
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EtcdClusterSpec {
    /// Number of members, 0 to 9; an odd number is recommended. 0 pauses the cluster: it stops all
    /// members and keeps their claims. Once the cluster is formed, only 0 and its number of members are
    /// supported.
    #[serde(default = "default_size")]
    #[schemars(range(min = 0, max = 9))]
    pub(crate) size: i32,
    /// Image of etcd. Default: that of version, else that of the plugin's configuration.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = image::is_reference())]
    pub(crate) image: Option<String>,
    /// Version of etcd, for an image whose tag does not name it. Without image it selects the image:
    /// the imageRepository of the plugin's configuration with the tag v<version>.
    #[schemars(
        length(max = 32),
        regex(pattern = r"^v?\d{1,4}\.\d{1,4}\.\d{1,4}(-(alpha|beta|pre|rc)(\.\d{1,4})?)?$")
    )]
    pub(crate) version: Option<String>,
    /// Pull policy of all images.
    #[serde(default)]
    pub(crate) image_pull_policy: ImagePullPolicy,
    /// Secrets for pulling the images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub(crate) image_pull_secrets: Vec<LocalObjectReference>,
    /// Storage of the members' data.
    #[serde(default)]
    pub(crate) storage: Storage,
    /// Additional flags of etcd: names without leading dashes, with their values. An empty value stands
    /// for a flag without a value. Flags that name files or addresses only if the plugin's configuration lists them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 64,
        "additionalProperties" = { "type": "string", "maxLength": 4096 }
    ))]
    #[x_kube(
        validation = Rule::new("self.all(flag, !flag.startsWith('-') && !flag.endsWith('-'))")
            .message("options: give flag names without dashes at either end"),
        validation = Rule::new("self.all(flag, flag.matches('^[a-z0-9-]{1,63}$'))")
            .message("options: flag names have at most 63 lower-case letters, digits and dashes, and no other characters"),
        validation = Rule::new(
            "!self.exists(flag, flag.matches('^(name|data-dir|wal-dir|config-file|force-new-cluster\
             |listen-.*-urls|advertise-client-urls|initial-.*|discovery.*|peer-.*|auto-tls\
             |trusted-ca-file|client-cert-auth|cert-file|key-file)$'))"
        )
        .message(Message::Expression(
            "'options: ' + self.filter(flag, flag.matches('^(name|data-dir|wal-dir|config-file\
             |force-new-cluster|listen-.*-urls|advertise-client-urls|initial-.*|discovery.*|peer-.*\
             |auto-tls|trusted-ca-file|client-cert-auth|cert-file|key-file)$'))[0] \
             + ' is set by the guest'".into()
        ))
    )]
    pub(crate) options: BTreeMap<String, String>,
    /// Size of the database in bytes at which etcd rejects writes. Default: 95 % of the smallest volume,
    /// at most that of storage.size and 8 GiB.
    #[schemars(range(min = 0))]
    pub(crate) quota_backend_bytes: Option<i64>,
    /// Mode of automatic compaction: periodic keeps the revisions of a duration, revision keeps a number
    /// of revisions. Default: that of etcd, periodic.
    pub(crate) auto_compaction_mode: Option<CompactionMode>,
    /// Revisions that automatic compaction keeps: a duration such as 1h in mode periodic, a number of
    /// revisions in mode revision. Default: 5m in mode periodic, 1000 in mode revision.
    #[schemars(length(min = 1, max = 32))]
    pub(crate) auto_compaction_retention: Option<String>,
    /// Number of committed writes after which etcd writes a snapshot to its disk. Default: 10000.
    #[schemars(range(min = 1))]
    pub(crate) snapshot_count: Option<i64>,
    /// Requests and limits of the container etcd. Default: requests of cpu 100m and memory 256Mi.
    pub(crate) resources: Option<ResourceRequirements>,
    /// Placement of members on different nodes: Soft prefers it, Hard requires it, None ignores it.
    #[serde(default)]
    pub(crate) anti_affinity: AntiAffinity,
    /// Metadata of the members' Pods, and the placement of Pods on nodes.
    pub(crate) pod_template: Option<PodTemplate>,
    /// Service with the names of the members.
    #[serde(default)]
    pub(crate) headless_service: HeadlessService,
    /// Service for clients.
    #[serde(default)]
    pub(crate) client_service: ClientService,
    /// Certificates of members, clients and Jobs.
    pub(crate) tls: Option<Tls>,
    /// NetworkPolicy that limits the traffic to the members.
    pub(crate) network_policy: Option<Isolation>,
    /// Collection of the members' metrics.
    pub(crate) monitoring: Option<Monitoring>,
    /// PodDisruptionBudget of the members; it exists while the cluster is formed and not paused.
    #[serde(default)]
    pub(crate) pod_disruption_budget: DisruptionBudget,
    /// Regular inspection of etcd for alarms, which the conditions then tell. Default: none.
    pub(crate) inspection: Option<Inspection>,
    /// Time in seconds after which a formation, or a member that a roll-out has replaced, is reported as
    /// failed if it is not ready.
    #[serde(default = "default_deadline")]
    #[schemars(range(min = 1))]
    pub(crate) progress_deadline_seconds: i32,
}

const fn default_size() -> i32 {
    3
}

const fn default_deadline() -> i32 {
    600
}

/// Mode of automatic compaction.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CompactionMode {
    /// Keeps the revisions of a duration.
    Periodic,
    /// Keeps a number of revisions.
    Revision,
}

/// Placement of members on different nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AntiAffinity {
    /// On different nodes if possible.
    #[default]
    Soft,
    /// Only on different nodes.
    Hard,
    /// On any node.
    None,
}

/// Regular inspection of etcd for alarms, by a CronJob.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inspection {
    /// Schedule of the CronJob in UTC, such as `*/10 * * * *` for every ten minutes.
    #[schemars(length(min = 1, max = 128))]
    pub(crate) schedule: String,
}

/// Limit of voluntary disruptions.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new("!has(self.minAvailable) || !has(self.maxUnavailable)")
        .message("minAvailable and maxUnavailable exclude each other"),
    validation = Rule::new(
        // A number is equal to its own text as a number, a string never is.
        "(!has(self.minAvailable) || (string(self.minAvailable).matches('^-?[0-9]{1,9}$') \
         ? self.minAvailable == int(string(self.minAvailable)) \
         : string(self.minAvailable).matches('^(100|[1-9]?[0-9])%$'))) \
         && (!has(self.maxUnavailable) || (string(self.maxUnavailable).matches('^-?[0-9]{1,9}$') \
         ? self.maxUnavailable == int(string(self.maxUnavailable)) \
         : string(self.maxUnavailable).matches('^(100|[1-9]?[0-9])%$')))"
    )
    .message("minAvailable and maxUnavailable must be a number or a percentage")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DisruptionBudget {
    /// Create the PodDisruptionBudget.
    #[serde(default = "enabled")]
    pub(crate) enabled: bool,
    /// Minimum number or percentage of available members. Default: the quorum, unless maxUnavailable is
    /// set.
    pub(crate) min_available: Option<IntOrString>,
    /// Maximum number or percentage of unavailable members, instead of minAvailable.
    pub(crate) max_unavailable: Option<IntOrString>,
}

const fn enabled() -> bool {
    true
}

impl Default for DisruptionBudget {
    fn default() -> Self {
        Self {
            enabled: true,
            min_available: None,
            max_unavailable: None,
        }
    }
}

/// Observed state of the cluster.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EtcdClusterStatus {
    /// Generation of the object that this status describes.
    #[serde(default)]
    pub(crate) observed_generation: i64,
    /// Number of members in the spec.
    #[serde(default)]
    pub(crate) size: i32,
    /// Number of replicas in the spec of the StatefulSet.
    #[serde(default)]
    pub(crate) replicas: i32,
    /// Number of members that are ready.
    #[serde(default)]
    pub(crate) ready_replicas: i32,
    /// Label selector of the members' Pods.
    #[serde(default)]
    pub(crate) selector: String,
    /// True once the cluster is formed; it stays true.
    #[serde(default)]
    pub(crate) cluster_formed: bool,
    /// The members, by ordinal.
    #[serde(default)]
    pub(crate) members: Vec<Member>,
    /// Image of etcd that the members have or get next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
    /// Version with which all members were ready last; upgrades start from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current_version: Option<String>,
    /// Version in the spec, or of the image in the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target_version: Option<String>,
    /// Addresses for clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) endpoints: Option<Endpoints>,
    /// Warnings, sorted by code.
    #[serde(default)]
    pub(crate) warnings: Vec<Warning>,
}

/// A member.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Member {
    /// Name of the Pod.
    pub(crate) name: String,
    /// Ordinal of the Pod, the number at the end of its name.
    pub(crate) ordinal: i32,
    /// True if the Pod is ready.
    pub(crate) ready: bool,
    /// Version of etcd, from the tag of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
}

/// Addresses for clients.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Endpoints {
    /// URL of the client Service, while it belongs to this EtcdCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<String>,
    /// URL of each member, while the headless Service belongs to this EtcdCluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) members: Vec<String>,
}

/// A warning.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Warning {
    /// Kind of the warning, one word in CamelCase.
    pub(crate) code: String,
    /// The problem and its remedy.
    pub(crate) message: String,
}
