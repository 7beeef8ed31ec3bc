//! Guest answers.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Condition, Gvk, ObjectId, reason};

/// The reason for a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// The host brings the children to the state that the parent declares.
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
    /// The host may remove the finalizer, which deletes the parent; phase finalize only.
    Finalized(Report),
}

/// All desired children, and the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// Every child that must exist; the host prunes the parent's other children.
    pub children: Vec<Child>,
    /// The status, conditions and events for the parent.
    pub report: Report,
    /// The next call's report, if the guest knows it.
    pub prediction: Option<Prediction>,
}

/// The report that the next call would give, under assumptions about the children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The report.
    pub report: Report,
    /// The children that the answer creates or changes.
    pub children: Vec<PredictedChild>,
}

/// A child as a prediction assumes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredictedChild {
    /// The child's key in the answer.
    pub key: String,
    /// JSON pointers with the values that the object must have there; `None` for what the answer states there, or nothing.
    pub parts: Vec<(String, Option<Value>)>,
}

impl PredictedChild {
    /// Returns true if an object has all assumed parts; `stated` is the child in the answer.
    pub fn has_parts(&self, object: &Value, stated: &Child) -> bool {
        self.parts.iter().all(|(pointer, value)| {
            let expected = value.as_ref().or_else(|| stated_part(stated, pointer));
            object.pointer(pointer) == expected
        })
    }
}

/// Returns the part of a stated child at a JSON pointer; a null states that there is none.
fn stated_part<'a>(stated: &'a Child, pointer: &str) -> Option<&'a Value> {
    let path = pointer.strip_prefix('/')?;
    let (member, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
    let part = stated.object.get(member)?.pointer(rest)?;
    (!part.is_null()).then_some(part)
}

/// The guest's statements about a parent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The status without conditions; `None` if the guest states no status.
    pub status: Option<Map<String, Value>>,
    /// The plugin's conditions.
    pub conditions: Vec<Condition>,
    /// Events about the parent.
    pub events: Vec<Event>,
    /// Requests another pass after this time in milliseconds.
    pub requeue_after_ms: Option<u64>,
}

impl Report {
    /// Returns true if the guest states the condition `Ready` itself.
    pub fn states_ready(&self) -> bool {
        self.conditions
            .iter()
            .any(|condition| condition.kind == reason::READY)
    }
}

/// A Kubernetes Event about a parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// The type: normal or warning.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// One word in CamelCase.
    pub reason: String,
    /// A sentence for the user.
    pub message: String,
}

/// An Event's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum EventType {
    /// Information only.
    Normal,
    /// A problem that may need the user's attention.
    Warning,
}

/// One desired child. The JSON form leaves out kind, namespace and name, because the object states them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Child {
    /// The key, unique within the answer.
    pub key: String,
    /// The kind as stated.
    #[serde(skip)]
    pub kind: Gvk,
    /// The namespace as stated; `None` means the parent's namespace, which the policy check fills in.
    #[serde(skip)]
    pub namespace: Option<String>,
    /// The name.
    #[serde(skip)]
    pub name: String,
    /// The fields that the plugin owns, as stated.
    pub object: Map<String, Value>,
    /// Secret keys to generate at creation, and again when their token changes.
    pub generate: Vec<Generated>,
    /// The rule for writing the child.
    pub apply: ApplyPolicy,
    /// The child's fate when the parent is deleted.
    pub removal: RemovalPolicy,
    /// The source of the child's readiness.
    pub readiness: Readiness,
    /// Keys of children that must be ready before the host creates this one.
    pub after: Vec<String>,
}

impl Child {
    /// Returns the identity in the namespace that is stated; the policy check fills it in.
    pub fn id(&self) -> ObjectId {
        let group_kind = self.kind.group_kind();
        ObjectId::new(group_kind, self.namespace.as_deref(), &self.name)
    }
}

/// A generated Secret value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Generated {
    /// The key below `data`.
    pub key: String,
    /// The length in characters.
    pub length: u32,
    /// The characters to draw from.
    pub alphabet: String,
    /// A text whose change draws a new value; `None` if the value stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// The rule for writing a child.
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

/// A child's fate when the parent is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemovalPolicy {
    /// Owned by the parent; Kubernetes' garbage collector deletes it with the parent.
    Delete,
    /// Kept without an owner; the host never deletes it.
    Retain,
}

/// The source of a child's readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Readiness {
    /// The host derives it from the object.
    Derive,
    /// The guest says that it is.
    Ready,
    /// The guest says that it is not.
    NotReady,
}

/// A failure that the guest reports instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The failure's kind.
    pub kind: FaultKind,
    /// A sentence for the user.
    pub message: String,
    /// Status and conditions; `None` leaves them as they are.
    pub report: Option<Report>,
}

/// A fault's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "camelCase")]
pub enum FaultKind {
    /// A temporary failure; the host retries with back-off.
    Retry,
    /// The parent is invalid; the host retries when an input changes.
    Invalid,
    /// The plugin cannot work; the host retries when an input changes, the revision and the configuration included.
    Fatal,
}
