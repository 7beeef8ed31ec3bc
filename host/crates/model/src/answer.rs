//! What a guest answers.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Condition, Gvk};

/// Why a pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// The parent is to be brought to what it declares.
    Reconcile,
    /// The parent is being deleted and carries our finalizer.
    Finalize,
}

/// A guest's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Bring the children to this set.
    Desired(Desired),
    /// Leave the children as they are.
    Keep(Report),
    /// The parent may go; phase finalize only.
    Finalized(Report),
}

/// The whole desired set, and the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// Every child that is to exist.
    pub children: Vec<Child>,
    /// What is to be said about the parent.
    pub report: Report,
}

/// What is to be said about a parent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The status without conditions; none: no status is stated.
    pub status: Option<Map<String, Value>>,
    /// The plugin's conditions.
    pub conditions: Vec<Condition>,
    /// Events about the parent.
    pub events: Vec<Event>,
    /// Asks for another pass after so many milliseconds.
    pub requeue_after_ms: Option<u64>,
}

/// A Kubernetes Event about a parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Whether somebody should worry.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// One word in CamelCase.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

/// The type of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum EventType {
    /// For information.
    Normal,
    /// Something may need attention.
    Warning,
}

/// One desired child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// The key, unique within the answer.
    pub key: String,
    /// The kind as stated.
    pub kind: Gvk,
    /// The namespace as stated; the parent's is filled in where it is left out.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The fields that the plugin cares about, as stated.
    pub object: Map<String, Value>,
    /// Secret keys to generate at creation.
    pub generate: Vec<Generated>,
    /// When the child is written.
    pub apply: ApplyPolicy,
    /// What becomes of it when the parent goes.
    pub removal: RemovalPolicy,
    /// Who decides whether it is ready.
    pub readiness: Readiness,
    /// Keys that must be ready before it is created.
    pub after: Vec<String>,
}

/// A generated value of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Generated {
    /// The key below `data`.
    pub key: String,
    /// How many characters.
    pub length: u32,
    /// The characters to draw from.
    pub alphabet: String,
}

/// When a child is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApplyPolicy {
    /// Created when missing and kept as stated.
    Always,
    /// Created when missing, never written again.
    Once,
    /// Never created, written or pruned.
    Hold,
}

/// What becomes of a child when its parent goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemovalPolicy {
    /// Owned by the parent and collected with it.
    Delete,
    /// Kept, never deleted by the host.
    Retain,
}

/// Who decides whether a child is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Readiness {
    /// The host, from the object.
    Derive,
    /// The guest says that it is.
    Ready,
    /// The guest says that it is not.
    NotReady,
}

/// The guest answered that it could not do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind of failure.
    pub kind: FaultKind,
    /// A sentence for people.
    pub message: String,
    /// Status and conditions; none leaves them as they are.
    pub report: Option<Report>,
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// Passes by itself: tried again with back-off.
    Retry,
    /// The parent is wrong: tried again when an input changes.
    Invalid,
    /// The plugin is wrong: tried again with another revision or configuration.
    Fatal,
}
