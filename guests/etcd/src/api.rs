//! The API: what a user declares, and what the status tells.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{LocalObjectReference, ResourceRequirements},
    apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An etcd cluster.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "etcd.ydzs.io",
    version = "v1alpha1",
    kind = "EtcdCluster",
    plural = "etcdclusters",
    shortname = "etcd",
    namespaced,
    status = "EtcdClusterStatus",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.currentVersion"),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Progressing\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image", priority = 1),
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
        "!has(self.options) || !('snapshot-count' in self.options) || !has(self.snapshotCount)"
    )
    .message("snapshot-count is given twice")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EtcdClusterSpec {
    /// How many members; 0 pauses.
    #[serde(default = "default_size")]
    #[schemars(range(min = 0, max = 9))]
    pub(crate) size: i32,
    /// The image of etcd; the plugin's configuration decides when neither it nor the version is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 512),
        regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$")
    )]
    pub(crate) image: Option<String>,
    /// The version, where the image's tag does not tell it; without an image it selects one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^v?\d+\.\d+\.\d+$"))]
    pub(crate) version: Option<String>,
    /// When images are pulled.
    #[serde(default)]
    pub(crate) image_pull_policy: ImagePullPolicy,
    /// Secrets for pulling images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub(crate) image_pull_secrets: Vec<LocalObjectReference>,
    /// Where data is kept.
    #[serde(default)]
    pub(crate) storage: Storage,
    /// Further flags of etcd, by name without dashes; an empty value is a bare flag.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(
        validation = Rule::new("self.all(flag, !flag.startsWith('-') && !flag.endsWith('-'))")
            .message("options: give flag names without dashes at either end"),
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
    /// The size in bytes at which etcd refuses writes; 95 % of the storage when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub(crate) quota_backend_bytes: Option<i64>,
    /// By what old revisions are compacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) auto_compaction_mode: Option<CompactionMode>,
    /// How much is kept: a duration or a number of revisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub(crate) auto_compaction_retention: Option<String>,
    /// After how many writes etcd takes a snapshot of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) snapshot_count: Option<i64>,
    /// Requests and limits; requests cpu 100m and memory 256Mi when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resources: Option<ResourceRequirements>,
    /// Whether members keep apart.
    #[serde(default)]
    pub(crate) anti_affinity: AntiAffinity,
    /// Limits voluntary disruptions.
    #[serde(default)]
    pub(crate) pod_disruption_budget: DisruptionBudget,
    /// After how many seconds a step that does not end is reported.
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

/// When images are pulled.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ImagePullPolicy {
    /// At every start.
    Always,
    /// When the node does not have it.
    #[default]
    IfNotPresent,
    /// Never.
    Never,
}

impl ImagePullPolicy {
    /// The text in a pod.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// By what old revisions are compacted.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CompactionMode {
    /// By time.
    Periodic,
    /// By number of revisions.
    Revision,
}

/// Whether members keep apart.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AntiAffinity {
    /// On different nodes where possible.
    #[default]
    Soft,
    /// On different nodes, or not at all.
    Hard,
    /// Wherever.
    None,
}

/// Where data is kept.
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
    /// The request of each claim, or the limit of an emptyDir.
    #[serde(default = "default_storage_size")]
    pub(crate) size: Quantity,
    /// On what data is kept.
    #[serde(default)]
    pub(crate) medium: Medium,
    /// The class of the claims; the cluster's default when absent.
    #[expect(clippy::struct_field_names, reason = "the name in the API")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub(crate) storage_class_name: Option<String>,
    /// The access modes of the claims.
    #[serde(default = "default_access_modes")]
    #[schemars(length(min = 1, max = 4), inner(length(max = 32)))]
    pub(crate) access_modes: Vec<String>,
    /// What becomes of the claims when the parent goes.
    #[serde(default = "retain")]
    pub(crate) when_deleted: Keeping,
    /// What becomes of the claims of removed members.
    #[serde(default = "delete")]
    pub(crate) when_scaled: Keeping,
    /// What becomes of claims that were there before.
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

/// On what data is kept.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Medium {
    /// On a claim.
    #[default]
    Persistent,
    /// On the node's disk, while the Pod lives.
    EmptyDir,
    /// In memory, while the Pod lives.
    Memory,
}

/// What becomes of claims.
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

/// What becomes of claims that were there before the first start.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExistingClaims {
    /// The cluster waits until they are gone.
    #[default]
    Refuse,
    /// The cluster goes on with the data on them.
    Adopt,
}

/// Limits voluntary disruptions.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new("!has(self.minAvailable) || !has(self.maxUnavailable)")
        .message("minAvailable and maxUnavailable exclude each other")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DisruptionBudget {
    /// Whether the budget exists.
    #[serde(default = "enabled")]
    pub(crate) enabled: bool,
    /// How many must stay; the quorum when neither number is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) min_available: Option<IntOrString>,
    /// How many may be away.
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

/// What is observed.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EtcdClusterStatus {
    /// The generation of the parent that the status belongs to.
    #[serde(default)]
    pub(crate) observed_generation: i64,
    /// How many members are asked for.
    #[serde(default)]
    pub(crate) size: i32,
    /// Replicas of the StatefulSet.
    #[serde(default)]
    pub(crate) replicas: i32,
    /// Members that are ready.
    #[serde(default)]
    pub(crate) ready_replicas: i32,
    /// The selector of the members.
    #[serde(default)]
    pub(crate) selector: String,
    /// Whether the cluster has been formed; never false again.
    #[serde(default)]
    pub(crate) cluster_formed: bool,
    /// The members by ordinal.
    #[serde(default)]
    pub(crate) members: Vec<Member>,
    /// The lowest version among the members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current_version: Option<String>,
    /// The version asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target_version: Option<String>,
    /// Where clients find the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) endpoints: Option<Endpoints>,
    /// What deserves attention, sorted by code.
    #[serde(default)]
    pub(crate) warnings: Vec<Warning>,
}

/// One member.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Member {
    /// The name of the Pod.
    pub(crate) name: String,
    /// The number at the end of the name.
    pub(crate) ordinal: i32,
    /// Whether it is ready.
    pub(crate) ready: bool,
    /// The version of its image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
}

/// Where clients find the cluster.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Endpoints {
    /// The Service.
    pub(crate) client: String,
    /// Each member.
    pub(crate) members: Vec<String>,
}

/// Something that deserves attention.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Warning {
    /// One word.
    pub(crate) code: String,
    /// A sentence.
    pub(crate) message: String,
}
