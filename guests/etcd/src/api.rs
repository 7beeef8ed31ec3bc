//! The API: spec and status of `EtcdCluster`.

mod network;
mod tls;

use std::collections::BTreeMap;

use innkeeper_sdk::{placement::PodTemplate, pod::ImagePullPolicy};
use k8s_openapi::{
    api::core::v1::{LocalObjectReference, ResourceRequirements},
    apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    network::{ClientService, HeadlessService, Isolation, Monitoring},
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
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image", priority = 1),
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 512),
        regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$")
    )]
    pub(crate) image: Option<String>,
    /// Version of etcd, for an image whose tag does not name it. Without image it selects the image:
    /// the imageRepository of the plugin's configuration with the tag v<version>.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^v?\d+\.\d+\.\d+$"))]
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
    /// for a flag without a value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(
        validation = Rule::new("self.all(flag, !flag.startsWith('-') && !flag.endsWith('-'))")
            .message("options: give flag names without dashes at either end"),
        validation = Rule::new("self.all(flag, flag.matches('^[a-z0-9-]+$'))")
            .message("options: flag names have lower-case letters, digits and dashes only"),
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub(crate) quota_backend_bytes: Option<i64>,
    /// Mode of automatic compaction: periodic keeps the revisions of a duration, revision keeps a number
    /// of revisions. Default: that of etcd, periodic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) auto_compaction_mode: Option<CompactionMode>,
    /// Revisions that automatic compaction keeps: a duration such as 1h in mode periodic, a number of
    /// revisions in mode revision. Default: 5m in mode periodic, 1000 in mode revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub(crate) auto_compaction_retention: Option<String>,
    /// Number of committed writes after which etcd writes a snapshot to its disk. Default: 10000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) snapshot_count: Option<i64>,
    /// Requests and limits of the container etcd. Default: requests of cpu 100m and memory 256Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resources: Option<ResourceRequirements>,
    /// Placement of members on different nodes: Soft prefers it, Hard requires it, None ignores it.
    #[serde(default)]
    pub(crate) anti_affinity: AntiAffinity,
    /// Metadata of the members' Pods, and the placement of Pods on nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod_template: Option<PodTemplate>,
    /// Service with the names of the members.
    #[serde(default)]
    pub(crate) headless_service: HeadlessService,
    /// Service for clients.
    #[serde(default)]
    pub(crate) client_service: ClientService,
    /// Certificates of members, clients and Jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tls: Option<Tls>,
    /// NetworkPolicy that limits the traffic to the members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) network_policy: Option<Isolation>,
    /// Collection of the members' metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) monitoring: Option<Monitoring>,
    /// PodDisruptionBudget of the members; it exists while the cluster is formed and not paused.
    #[serde(default)]
    pub(crate) pod_disruption_budget: DisruptionBudget,
    /// Regular inspection of etcd for alarms, which the conditions then tell. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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

/// Storage of the members' data.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new("quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0")
        .message("storage.size cannot shrink"),
    validation = Rule::new("quantity(string(self.size)).isGreaterThan(quantity('0'))")
        .message("storage.size must be greater than 0"),
    validation = Rule::new("self.medium == oldSelf.medium").message("storage.medium is immutable"),
    validation = Rule::new(
        "has(self.storageClassName) == has(oldSelf.storageClassName) \
         && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)"
    )
    .message("storage.storageClassName is immutable"),
    validation = Rule::new("self.accessModes == oldSelf.accessModes")
        .message("storage.accessModes is immutable")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Storage {
    /// Size of each member's claim, or size limit of its emptyDir. It can grow but not shrink; claims
    /// grow if their StorageClass allows it.
    #[serde(default = "default_storage_size")]
    pub(crate) size: Quantity,
    /// Medium: Persistent (a claim), EmptyDir (the node's disk) or Memory. The last two lose the data of a member
    /// with its Pod; the member is then replaced, so they need a size of 3 or more. Immutable.
    #[serde(default)]
    pub(crate) medium: Medium,
    /// StorageClass of the claims. Default: the cluster's default. Immutable.
    #[expect(clippy::struct_field_names, reason = "the name in the API")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub(crate) storage_class_name: Option<String>,
    /// Access modes of the claims. Immutable.
    #[serde(default = "default_access_modes")]
    #[schemars(length(min = 1, max = 4), inner(length(max = 32)))]
    pub(crate) access_modes: Vec<String>,
    /// Treatment of the claims when the EtcdCluster is deleted: Retain or Delete.
    #[serde(default = "retain")]
    pub(crate) when_deleted: Keeping,
    /// Treatment of the claims of removed members: Retain or Delete. A pause retains them always.
    #[serde(default = "delete")]
    pub(crate) when_scaled: Keeping,
    /// Treatment of claims that exist before the first start: Refuse waits for their deletion, Adopt
    /// starts with the data on them.
    #[serde(default)]
    pub(crate) existing_claims: ExistingClaims,
}

fn default_storage_size() -> Quantity {
    Quantity("1Gi".to_owned())
}

fn default_access_modes() -> Vec<String> {
    vec!["ReadWriteOnce".to_owned()]
}

const fn retain() -> Keeping {
    Keeping::Retain
}

const fn delete() -> Keeping {
    Keeping::Delete
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            size: default_storage_size(),
            medium: Medium::default(),
            storage_class_name: None,
            access_modes: default_access_modes(),
            when_deleted: Keeping::Retain,
            when_scaled: Keeping::Delete,
            existing_claims: ExistingClaims::default(),
        }
    }
}

/// Medium of the members' data.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Medium {
    /// A claim.
    #[default]
    Persistent,
    /// The node's disk, for the life of the Pod.
    EmptyDir,
    /// Memory, for the life of the Pod.
    Memory,
}

/// Treatment of claims.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// They stay.
    Retain,
    /// They go.
    Delete,
}

impl Keeping {
    /// The text in a StatefulSet.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Retain => "Retain",
            Self::Delete => "Delete",
        }
    }
}

/// Treatment of claims that exist before the first start.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExistingClaims {
    /// The cluster waits for their deletion.
    #[default]
    Refuse,
    /// The cluster starts with the data on them.
    Adopt,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) min_available: Option<IntOrString>,
    /// Maximum number or percentage of unavailable members, instead of minAvailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// URL of the client Service.
    pub(crate) client: String,
    /// URL of each member.
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
