//! What `/debug/state` answers: a running host, for people and for `innkeeper status`.
//!
//! Written by whoever is shown and read by whoever asks, which may be another build: what is missing has a default, and
//! what is new is passed over.

use serde::{Deserialize, Serialize};

/// A running host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct State {
    /// Whether every plugin serves, or was tried and does not.
    pub started: bool,
    /// Whether it waits for the lease while another process writes.
    pub stands_by: bool,
    /// How many plugins were tried and do not serve.
    pub plugins_not_served: usize,
    /// The plugins that serve.
    pub plugins: Vec<PluginState>,
    /// Every controller.
    pub controllers: Vec<ControllerState>,
    /// Every watch.
    pub watches: Vec<WatchState>,
}

/// A plugin that serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginState {
    /// Its name.
    pub name: String,
    /// Its kinds of parents.
    pub kinds: Vec<KindState>,
    /// The last faults over all its kinds, the latest first.
    pub last_faults: Vec<FaultState>,
}

/// A kind of parents of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KindState {
    /// The kind, as `group/version Kind`.
    pub kind: String,
    /// The revision that passes run with.
    pub revision: String,
    /// Passes that were left out, because they would have done nothing.
    pub passes_skipped: u64,
    /// Passes of this revision that ended with a fault of the guest.
    pub faults: u64,
    /// Parents in the cluster, as far as they are selected.
    pub parents: usize,
    /// The others of their kind.
    pub not_selected: usize,
    /// Those of them whose conditions Synced and Ready hold.
    pub ready: usize,
    /// Those of them whose last pass was parked.
    pub parked: usize,
    /// What keeps passes from running.
    pub waiting_for: Vec<String>,
    /// Parents that are not Ready, by name; no more than there is room for.
    pub not_ready: Vec<ParentState>,
    /// How many more there are.
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
    /// The condition Ready of the present generation: `True`, `False`, `Unknown`, or empty where nothing is said.
    pub ready: String,
    /// The condition Synced in the same form.
    pub synced: String,
    /// The reason of the one of them that does not hold; empty where both do or nothing is said.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// How the last pass ended; none before the first one has, or where nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_pass: Option<PassState>,
}

/// The end of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PassState {
    /// What it said about the next one.
    pub outcome: String,
    /// How long ago, in whole seconds.
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
    /// What happened.
    pub message: String,
    /// When, as in `2030-01-31T08:00:00Z`.
    pub time: String,
}

/// A controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerState {
    /// The plugin and the kind.
    pub name: String,
    /// Parents that wait for a pass that is due.
    pub waiting: u64,
    /// Passes that run.
    pub running: usize,
    /// For how long the longest of them has been running.
    pub longest_running_pass_seconds: f64,
}

/// A watch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WatchState {
    /// The kind, as `group/version Kind`.
    pub kind: String,
    /// The namespace; none: everywhere, or a cluster-scoped kind.
    pub namespace: Option<String>,
    /// The label selector; none: all objects.
    pub selector: Option<String>,
    /// How many share it.
    pub users: usize,
    /// Why it cannot be used; none: it is synced.
    pub problem: Option<String>,
    /// Objects in the cache.
    pub objects: usize,
    /// Bytes of their texts.
    pub bytes: usize,
    /// The version up to which everything was seen.
    pub resource_version: u64,
    /// Since the last event or bookmark.
    pub seconds_since_last_event: Option<u64>,
    /// The last failure.
    pub last_error: Option<String>,
    /// Complete lists so far.
    pub lists: u64,
}
