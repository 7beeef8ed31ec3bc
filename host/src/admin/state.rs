//! The answer of `/debug/state`: the state of a running host, for people and for `innkeeper status`.
//!
//! The host that writes it and the `innkeeper status` that reads it may be different builds: a missing field has a
//! default, and an unknown field is ignored.

use serde::{Deserialize, Serialize};

/// The state of a running host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostState {
    /// True once every plugin from a file is active or was tried, and while the host stands by.
    pub started: bool,
    /// True while the host waits for the lease and another process writes.
    pub stands_by: bool,
    /// The number of plugins that were tried and are not active.
    pub plugins_not_served: usize,
    /// The active plugins.
    pub plugins: Vec<PluginState>,
    /// Every controller.
    pub controllers: Vec<ControllerState>,
    /// Every watch.
    pub watches: Vec<WatchState>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_pass: Option<PassState>,
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

/// A controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerState {
    /// The plugin and the kind.
    pub name: String,
    /// The number of queued parents.
    pub waiting: u64,
    /// The number of running passes.
    pub running: usize,
    /// The running time of the longest of them, in seconds.
    pub longest_running_pass_seconds: f64,
}

/// A watch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WatchState {
    /// The kind, as `group/version Kind`.
    pub kind: String,
    /// The namespace; none for all namespaces or a cluster-scoped kind.
    pub namespace: Option<String>,
    /// The label selector; none for all objects.
    pub selector: Option<String>,
    /// The number of subscribers that share the watch.
    pub users: usize,
    /// The reason for which it cannot be used; none if it is synced.
    pub problem: Option<String>,
    /// The number of objects in the cache.
    pub objects: usize,
    /// The size of their JSON texts in bytes.
    pub bytes: usize,
    /// The resource version up to which all events were received.
    pub resource_version: u64,
    /// The time since the last event or bookmark, in seconds.
    pub seconds_since_last_event: Option<u64>,
    /// The last error of the watch.
    pub last_error: Option<String>,
    /// The number of complete lists since the start.
    pub lists: u64,
}
