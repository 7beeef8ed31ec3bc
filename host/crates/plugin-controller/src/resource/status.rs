//! `status`: the report of the host about a plugin. Only the host writes it.

use innkeeper_model::{self as model, Digest, ObjectId};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{LimitsSpec, crd};

/// Returns the name of a revision in resources: the first 16 hexadecimal digits of its digest. 64 bits are enough to tell
/// the few revisions of one Plugin apart.
pub fn revision_name(revision: &Digest) -> String {
    revision.to_hex().chars().take(16).collect()
}

/// The number of faults that the status lists.
pub const LAST_FAULTS_MAX: usize = 10;

/// Converts a time to whole seconds, the precision in which the API server stores it.
pub fn whole_seconds(time: Timestamp) -> Time {
    Time(model::whole_seconds(time))
}

/// Converts a number for the status; a number above the range of the field becomes its maximum.
pub fn number<N: TryInto<i32>>(number: N) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

/// The observed state of a plugin, written by the host.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PluginStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The active revision: 16 hexadecimal digits that identify the component and its configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The digest of the active component's bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The version that the active component gives itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The revision that is about to replace the active one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<CandidateStatus>,
    /// The kinds of the plugin's children. A kind is listed until the plugin makes it no more and no child is left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["group".to_owned(), "kind".to_owned()]))]
    pub child_kinds: Vec<ChildKindStatus>,
    /// The number of its parents in each state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parents: Option<Parents>,
    /// The faults of the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<Faults>,
    /// The limits in force: those of the spec, except that memory is less if half of the memory that the host has for all
    /// guests is less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd::limits_in_force")]
    pub limits: Option<LimitsSpec>,
    /// The limits of spec.limits for one namespace of which at least a tenth is used, each for the namespace that has used
    /// most of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["limit".to_owned()]))]
    pub usage: Vec<LimitUsage>,
    /// The revisions that have been active, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub history: Vec<HistoryEntry>,
    /// The keyed hash of the Plugin's UID and its history. A host that starts uses a history only with the hash of a host
    /// with the same hash key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 67))]
    pub history_seal: Option<String>,
    /// The conditions of the plugin. Types: Fetched, Verified, Compiled, Described, Granted, Serving, Ready,
    /// Degraded and RolledBack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    #[schemars(schema_with = "crd::conditions")]
    pub conditions: Vec<Condition>,
}

/// A revision that is about to replace the active one.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CandidateStatus {
    /// The revision: 16 hexadecimal digits. Setting spec.rollout.approve to it approves it.
    pub revision: String,
    /// The digest of its bytes.
    pub digest: String,
    /// The state of the candidate.
    pub verdict: CandidateVerdict,
    /// The result of its dry run on all live parents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<CandidateCounts>,
    /// The first 20 objects that it would delete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub deletes: Vec<ObjectName>,
    /// The first 10 faults of its dry run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub faults: Vec<CandidateFault>,
    /// The path of the whole plan as JSON, on the admin address of the host that serves the Plugin; present if that has
    /// --debug-endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 300))]
    pub plan: Option<String>,
}

/// The state of a candidate.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateVerdict {
    /// It would delete more than spec.rollout.maxPrunes allows.
    TooManyPrunes,
    /// It fails for more than a fifth of the parents.
    TooManyFaults,
    /// It waits for spec.rollout.approve.
    AwaitingApproval,
    /// It may serve.
    Accepted,
}

/// The result of a candidate's dry run.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CandidateCounts {
    /// Parents that it was run on, without those for which it fails and no pass of the active revision succeeded.
    pub parents: i32,
    /// Children that it would create.
    pub creates: i32,
    /// Children that it would change.
    pub updates: i32,
    /// Children that it would delete.
    pub deletes: i32,
    /// Parents for which it fails or which it finds invalid, although the last pass of the active revision succeeded.
    pub faults: i32,
}

/// A fault in a candidate's dry run.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct CandidateFault {
    /// The reason, as in the parent's Synced condition after a pass.
    pub reason: String,
    /// The error message.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// The parent.
    pub parent: ObjectName,
}

/// Names one object.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectName {
    /// The API group; empty for the core group.
    #[serde(default)]
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace; absent for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ObjectName {
    /// Returns the name of an object.
    pub fn of(id: &ObjectId) -> Self {
        Self {
            group: id.kind.group.to_string(),
            kind: id.kind.kind.to_string(),
            namespace: id.namespace.as_deref().map(str::to_owned),
            name: id.name.to_string(),
        }
    }
}

/// A kind of which children were made.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildKindStatus {
    /// The API group; empty for the core group.
    #[serde(default)]
    pub group: String,
    /// The version in which they were made.
    pub version: String,
    /// The kind.
    pub kind: String,
}

/// The number of parents of a plugin in each state.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Parents {
    /// Parents that the plugin selects.
    pub total: i32,
    /// Parents whose Synced condition is True for their current generation.
    pub synced: i32,
    /// Parents whose Ready and Synced conditions are True for their current generation.
    pub ready: i32,
    /// Parents with the annotation innkeeper.dev/paused.
    pub paused: i32,
}

/// The faults of a plugin.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Passes of the active revision that ended in a fault.
    pub count: i64,
    /// The last faults, including those of earlier revisions; the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = LAST_FAULTS_MAX))]
    pub last: Vec<FaultReason>,
}

/// One fault.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct FaultReason {
    /// The reason, the same as in the parent's Synced condition.
    pub reason: String,
    /// The error message.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// The parent.
    pub parent: ObjectName,
    /// The time of the fault.
    pub time: Time,
}

/// The use of a limit.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LimitUsage {
    /// The field of spec.limits.
    pub limit: String,
    /// The namespace; absent for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The used part in percent, rounded down to tens.
    pub percent: i32,
}

/// A revision that has been active.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// The revision: 16 hexadecimal digits.
    pub revision: String,
    /// The digest of its bytes.
    pub digest: String,
    /// Its configuration.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "crd::any_object")]
    pub config: Map<String, Value>,
    /// The time at which it became active.
    pub served_from: Time,
    /// The time at which it stopped being active; absent for the active revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_until: Option<Time>,
    /// The result of its rollout.
    pub verdict: HistoryVerdict,
    /// The reason of the rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// The generation of the spec at the rollback. The revision is not tried again until the generation changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}

/// The result of a revision's rollout.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryVerdict {
    /// It is active, and the host still counts the faults of its first passes.
    Trial,
    /// Its first passes succeeded, so it is a target for rollback.
    Good,
    /// Too many of its first passes ended in a fault.
    RolledBack,
}
