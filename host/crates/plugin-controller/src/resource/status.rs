//! `status`: the host's report about a plugin. Only the host writes it.

use innkeeper_model::{self as model, Digest, ObjectId};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{LimitsSpec, crd};

/// Returns a revision's name in resources: the first 16 hexadecimal digits of its digest. 64 bits are enough to
/// distinguish one Plugin's few revisions.
pub fn revision_name(revision: &Digest) -> String {
    revision.to_hex().chars().take(16).collect()
}

/// Maximum number of faults in the status.
pub const LAST_FAULTS_MAX: usize = 10;

/// Converts a time to whole seconds, the API server's precision.
pub fn whole_seconds(time: Timestamp) -> Time {
    Time(model::whole_seconds(time))
}

/// Converts a number for the status; a number above the field's range becomes its maximum.
pub fn number<N: TryInto<i32>>(number: N) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

/// The observed state of a plugin, written by the host.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PluginStatus {
    /// The spec generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The active revision: 16 hexadecimal digits that identify component and configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The active component's digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The active component's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The revision that is about to replace the active one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<CandidateStatus>,
    /// Kinds of the plugin's children. A kind stays listed until the plugin no longer creates it and no child is left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["group".to_owned(), "kind".to_owned()]))]
    pub child_kinds: Vec<ChildKindStatus>,
    /// The number of parents in each state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parents: Option<Parents>,
    /// The plugin's faults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<Faults>,
    /// The effective limits: those of the spec, with memory reduced to at most half of the host's guest memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd::limits_in_force")]
    pub limits: Option<LimitsSpec>,
    /// Per-namespace limits with at least 10 % used, each with the namespace that uses most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["limit".to_owned()]))]
    pub usage: Vec<LimitUsage>,
    /// Revisions that have been active, latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub history: Vec<HistoryEntry>,
    /// Keyed hash of the Plugin's UID and history. A starting host uses the history only if its own key gives this hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 67))]
    pub history_seal: Option<String>,
    /// Conditions. Types: Fetched, Verified, Compiled, Described, Granted, Serving, Ready, Degraded, RolledBack and
    /// CacheFull.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    #[schemars(schema_with = "crd::conditions")]
    pub conditions: Vec<Condition>,
}

/// A revision that is about to replace the active one.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CandidateStatus {
    /// The revision: 16 hexadecimal digits. To approve it, copy it to spec.rollout.approve.
    pub revision: String,
    /// The component's digest.
    pub digest: String,
    /// The candidate's state.
    pub verdict: CandidateVerdict,
    /// The result of the dry run for all live parents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<CandidateCounts>,
    /// The first 20 objects it would delete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub deletes: Vec<ObjectName>,
    /// The first 10 faults in the dry run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub faults: Vec<CandidateFault>,
    /// The path of the full plan as JSON, on the serving host's admin address. Present if that host has
    /// --debug-endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 300))]
    pub plan: Option<String>,
}

/// The state of a candidate.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateVerdict {
    /// Deletes more than spec.rollout.maxPrunes allows.
    TooManyPrunes,
    /// Fails for more than a fifth of the parents.
    TooManyFaults,
    /// Waits for spec.rollout.approve.
    AwaitingApproval,
    /// May serve.
    Accepted,
}

/// The result of a candidate's dry run.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CandidateCounts {
    /// Parents in the dry run, except those that fail and never succeeded with the active revision.
    pub parents: i32,
    /// Children it would create.
    pub creates: i32,
    /// Children it would change.
    pub updates: i32,
    /// Children it would delete.
    pub deletes: i32,
    /// Parents that fail or are invalid with the candidate, but succeeded with the active revision.
    pub faults: i32,
}

/// A fault in a candidate's dry run.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct CandidateFault {
    /// The reason that a pass would set in the parent's Synced condition.
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
    /// Returns an object's name.
    pub fn from_id(id: &ObjectId) -> Self {
        Self {
            group: id.kind.group.to_string(),
            kind: id.kind.kind.to_string(),
            namespace: id.namespace.as_deref().map(str::to_owned),
            name: id.name.to_string(),
        }
    }
}

/// A kind of existing children.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildKindStatus {
    /// The API group; empty for the core group.
    #[serde(default)]
    pub group: String,
    /// The API version of these children.
    pub version: String,
    /// The kind.
    pub kind: String,
}

/// The number of a plugin's parents in each state.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Parents {
    /// Selected parents.
    pub total: i32,
    /// Parents with Synced=True for the current generation.
    pub synced: i32,
    /// Parents with Ready=True and Synced=True for the current generation.
    pub ready: i32,
    /// Parents with the annotation innkeeper.dev/paused.
    pub paused: i32,
}

/// A plugin's faults.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Failed passes of the active revision.
    pub count: i64,
    /// The last faults, including earlier revisions'; latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = LAST_FAULTS_MAX))]
    pub last: Vec<FaultReason>,
}

/// One fault.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct FaultReason {
    /// The reason in the parent's Synced condition.
    pub reason: String,
    /// The error message.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// The parent.
    pub parent: ObjectName,
    /// When the fault happened.
    pub time: Time,
}

/// The usage of a limit.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LimitUsage {
    /// The field in spec.limits.
    pub limit: String,
    /// The namespace; absent for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Usage in percent, rounded down to tens.
    pub percent: i32,
}

/// A revision that has been active.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// The revision: 16 hexadecimal digits.
    pub revision: String,
    /// The component's digest.
    pub digest: String,
    /// The configuration.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "crd::any_object")]
    pub config: Map<String, Value>,
    /// When it became active.
    pub served_from: Time,
    /// When it stopped being active; absent for the active revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_until: Option<Time>,
    /// The result of the rollout.
    pub verdict: HistoryVerdict,
    /// Why it was rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// The spec generation at the rollback. The host does not retry the revision until the generation changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}

/// The result of a revision's rollout.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryVerdict {
    /// Active; the host still counts faults in first passes.
    Trial,
    /// The first passes succeeded, so a rollback may return to it.
    Good,
    /// Too many first passes failed.
    RolledBack,
}
