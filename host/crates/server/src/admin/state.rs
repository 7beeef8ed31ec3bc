//! The answer of `/debug/state`: the state of a running host, for people and for `innkeeper status`.
//!
//! The host that writes it and the `innkeeper status` that reads it may be different builds: a missing field has a
//! default, and an unknown field is ignored.

use innkeeper_cluster::ParentConditions;
use innkeeper_model::ObjectId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The state of a running host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostState {
    /// The progress of the host.
    #[serde(flatten)]
    pub progress: HostProgress,
    /// The active plugins.
    pub plugins: Vec<PluginState>,
    /// Every controller: its name, the queued parents and the running passes.
    pub controllers: Vec<Value>,
    /// Every watch: its kind, its place and the content of its cache.
    pub watches: Vec<Value>,
}

/// The progress of a running host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostProgress {
    /// True once every plugin from a file is active or was tried, and while the host stands by.
    pub started: bool,
    /// True while the host waits for the lease and another process writes.
    pub stands_by: bool,
    /// The number of plugins that were tried and are not active.
    pub plugins_not_served: usize,
}

/// An active plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginState {
    /// Its name.
    pub name: String,
    /// Its parent kinds.
    pub kinds: Vec<KindState>,
    /// The last faults over all its kinds, the latest first.
    pub last_faults: Vec<FaultState>,
}

/// A parent kind of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KindState {
    /// The kind, as `group/version Kind`.
    pub kind: String,
    /// The active revision.
    pub revision: String,
    /// The number of passes that were skipped because their inputs were unchanged.
    pub passes_skipped: u64,
    /// The number of passes of this revision that ended with a guest fault.
    pub faults: u64,
    /// The number of selected parents in the cluster.
    pub parents: usize,
    /// The number of parents of the kind that the plugin does not select.
    pub not_selected: usize,
    /// The number of selected parents whose conditions Synced and Ready are true.
    pub ready: usize,
    /// The number of selected parents whose last pass was parked to wait for the cache.
    pub parked: usize,
    /// The watches that passes wait for, with the reason.
    pub waiting_for: Vec<String>,
    /// The parents that are not Ready, up to a maximum.
    pub not_ready: Vec<ParentState>,
    /// The number of parents that are not Ready and not listed.
    pub not_ready_omitted: usize,
}

/// A parent.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParentState {
    /// The kind, as `Kind.group`.
    pub kind: String,
    /// The namespace; none for a cluster-scoped parent.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The status of the condition Ready for the current generation: `True`, `False`, `Unknown`, or empty without one.
    pub ready: String,
    /// The status of the condition Synced, in the same form.
    pub synced: String,
    /// The reason of the condition that is not true; empty if both are true or absent.
    pub reason: String,
    /// The message of the same condition.
    pub message: String,
    /// The end of the last pass; none before the end of the first one, or if it is unknown.
    pub last_pass: Option<PassState>,
}

impl ParentState {
    /// Returns the state of a parent from its conditions.
    pub fn new(id: &ObjectId, conditions: &ParentConditions, last_pass: Option<PassState>) -> Self {
        let status = |status: Option<&str>| status.unwrap_or_default().to_owned();
        let why = conditions.why().cloned().unwrap_or_default();
        Self {
            kind: id.kind.to_string(),
            namespace: id.namespace.as_deref().map(str::to_owned),
            name: id.name.to_string(),
            ready: status(conditions.ready_status()),
            synced: status(conditions.synced_status()),
            reason: why.reason,
            message: why.message,
            last_pass,
        }
    }
}

/// The end of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PassState {
    /// The outcome in one word, such as `settled` or `parked`.
    pub outcome: String,
    /// The time since the end, in whole seconds.
    pub seconds_ago: u64,
}

/// A fault of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultState {
    /// The parent, as `Kind.group namespace/name`.
    pub parent: String,
    /// The reason, as in the parent's condition Synced.
    pub reason: String,
    /// A description of the fault.
    pub message: String,
    /// The time in the form `2030-01-31T08:00:00Z`.
    pub time: String,
}
