//! The API: `EtcdCluster` spec and status.

mod network;
mod storage;
mod tls;

use std::collections::BTreeMap;

use innkeeper_kit::prelude::*;
use k8s_openapi::{
    api::core::v1::{LocalObjectReference, ResourceRequirements},
    apimachinery::pkg::util::intstr::IntOrString,
};

pub(crate) use self::{
    network::{ClientService, HeadlessService, Isolation, Monitoring},
    storage::{ExistingClaims, Keeping, Medium, Storage},
    tls::{IssuerRef, OnChange, Tls},
};

/// Cluster specification.
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
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.currentVersion"),
    printcolumn(name = "Image", type_ = "string", json_path = ".status.image", priority = 1),
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
    .message("quota-backend-bytes is set twice"),
    validation = Rule::new(
        "!has(self.options) || !('auto-compaction-mode' in self.options) || !has(self.autoCompactionMode)"
    )
    .message("auto-compaction-mode is set twice"),
    validation = Rule::new(
        "!has(self.options) || !('auto-compaction-retention' in self.options) \
         || !has(self.autoCompactionRetention)"
    )
    .message("auto-compaction-retention is set twice"),
    validation = Rule::new(
        "!has(self.autoCompactionRetention) || !has(self.autoCompactionMode) \
         || self.autoCompactionMode != 'revision' || self.autoCompactionRetention.matches('^[1-9][0-9]{0,17}$')"
    )
    .message("autoCompactionRetention must be a whole number of revisions with autoCompactionMode revision"),
    validation = Rule::new(
        "!has(self.options) || !('snapshot-count' in self.options) || !has(self.snapshotCount)"
    )
    .message("snapshot-count is set twice"),
    validation = Rule::new(
        "(has(self.tls) && has(self.tls.peer)) == (has(oldSelf.tls) && has(oldSelf.tls.peer))"
    )
    .message(
        "tls.peer cannot be added or removed, because members with and without it reject each other: create another EtcdCluster"
    ),
    validation = Rule::new(
        "(has(self.tls) && has(self.tls.client)) == (has(oldSelf.tls) && has(oldSelf.tls.client))"
    )
    .message(
        "tls.client cannot be added or removed, because the members' addresses change: create another EtcdCluster"
    )
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EtcdClusterSpec {
    /// Number of members, 0 to 9; odd numbers are recommended. 0 pauses the cluster: all members stop and their
    /// claims stay. Once the cluster is formed, only 0 and its number of members are valid.
    #[serde(default = "default_size")]
    #[schemars(range(min = 0, max = 9))]
    pub(crate) size: i32,
    /// etcd image. Default: the image for version, otherwise the one in the plugin's configuration.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = image::is_reference())]
    pub(crate) image: Option<String>,
    /// etcd version, for an image whose tag does not contain it. Without image, it selects imageRepository from the
    /// plugin's configuration with the tag `v<version>`.
    #[schemars(
        length(max = 32),
        regex(pattern = r"^v?\d{1,4}\.\d{1,4}\.\d{1,4}(-(alpha|beta|pre|rc)(\.\d{1,4})?)?$")
    )]
    pub(crate) version: Option<String>,
    /// Pull policy for all images.
    #[serde(default)]
    pub(crate) image_pull_policy: ImagePullPolicy,
    /// Pull secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub(crate) image_pull_secrets: Vec<LocalObjectReference>,
    /// Storage for the members' data.
    #[serde(default)]
    pub(crate) storage: Storage,
    /// Additional etcd flags: names without leading dashes, and values. An empty value means a flag without a value.
    /// Flags with files or addresses must be listed in the plugin's configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 64,
        "additionalProperties" = { "type": "string", "maxLength": 4096 }
    ))]
    #[x_kube(
        validation = Rule::new("self.all(flag, !flag.startsWith('-') && !flag.endsWith('-'))")
            .message("options: flag names must not start or end with a dash"),
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
    /// Database size in bytes at which etcd rejects writes. Default: 95 % of the smallest volume, but not more than
    /// 95 % of storage.size or 8 GiB.
    #[schemars(range(min = 0))]
    pub(crate) quota_backend_bytes: Option<i64>,
    /// Automatic compaction mode: periodic keeps the revisions of a time span, revision keeps a number of revisions.
    /// Default: etcd's, periodic.
    pub(crate) auto_compaction_mode: Option<CompactionMode>,
    /// Revisions that automatic compaction keeps: a duration such as 1h in mode periodic (default 5m), a number of
    /// revisions in mode revision (default 1000).
    #[schemars(length(min = 1, max = 32))]
    pub(crate) auto_compaction_retention: Option<String>,
    /// Number of committed writes after which etcd writes a snapshot to disk. Default: 10000.
    #[schemars(range(min = 1))]
    pub(crate) snapshot_count: Option<i64>,
    /// Requests and limits for the etcd container. Default: requests of cpu 100m and memory 256Mi.
    pub(crate) resources: Option<ResourceRequirements>,
    /// Placement of members on different nodes: Soft prefers it, Hard requires it, None ignores it.
    #[serde(default)]
    pub(crate) anti_affinity: AntiAffinity,
    /// Pod metadata and placement for the members.
    pub(crate) pod_template: Option<PodTemplate>,
    /// Service with the members' names.
    #[serde(default)]
    pub(crate) headless_service: HeadlessService,
    /// Service for clients.
    #[serde(default)]
    pub(crate) client_service: ClientService,
    /// Certificates for members, clients and Jobs.
    pub(crate) tls: Option<Tls>,
    /// NetworkPolicy that restricts traffic to the members.
    pub(crate) network_policy: Option<Isolation>,
    /// Metrics collection from the members.
    pub(crate) monitoring: Option<Monitoring>,
    /// PodDisruptionBudget for the members; it exists while the cluster is formed and not paused.
    #[serde(default)]
    pub(crate) pod_disruption_budget: DisruptionBudget,
    /// Scheduled checks for etcd alarms, which then appear in conditions. Default: none.
    pub(crate) inspection: Option<Inspection>,
    /// Seconds after which an unready formation, or an unready member that a rollout has replaced, counts as failed.
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

/// Automatic compaction mode.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CompactionMode {
    /// Keeps the revisions of a time span.
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

/// Scheduled checks for etcd alarms, by a CronJob.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inspection {
    /// CronJob schedule in UTC, such as `*/10 * * * *` for every ten minutes.
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

/// Observed cluster state.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EtcdClusterStatus {
    /// Object generation that the status describes.
    #[serde(default)]
    pub(crate) observed_generation: i64,
    /// Number of members in the spec.
    #[serde(default)]
    pub(crate) size: i32,
    /// Number of replicas in the StatefulSet's spec.
    #[serde(default)]
    pub(crate) replicas: i32,
    /// Number of ready members.
    #[serde(default)]
    pub(crate) ready_replicas: i32,
    /// Pod label selector.
    #[serde(default)]
    pub(crate) selector: String,
    /// True once the cluster is formed; it stays true.
    #[serde(default)]
    pub(crate) cluster_formed: bool,
    /// The members, by ordinal.
    #[serde(default)]
    pub(crate) members: Vec<Member>,
    /// etcd image that the members have or get next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
    /// Version with which all members were last ready; upgrades start from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current_version: Option<String>,
    /// Version in the spec, or in the tag of the spec's image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target_version: Option<String>,
    /// Client addresses.
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
    /// Pod name.
    pub(crate) name: String,
    /// Pod ordinal, the number at the end of its name.
    pub(crate) ordinal: i32,
    /// True if the Pod is ready.
    pub(crate) ready: bool,
    /// etcd version from the image's tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
}

/// Client addresses.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Endpoints {
    /// URL of the client Service, while this EtcdCluster owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<String>,
    /// URL of each member, while this EtcdCluster owns the headless Service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) members: Vec<String>,
}

/// A warning.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Warning {
    /// Warning type, one word in CamelCase.
    pub(crate) code: String,
    /// The problem and its remedy.
    pub(crate) message: String,
}
