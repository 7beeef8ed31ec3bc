//! Conditions as in the Kubernetes API conventions: stated by a reconciler, or stored in the parent's status.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::schema;

/// A condition's status: `True`, `False` or `Unknown` on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The status is not known yet.
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// A condition stated by the reconciler.
///
/// The host adds `observedGeneration` and keeps `lastTransitionTime`.
///
/// ```
/// use innkeeper_sdk::condition::{Condition, ConditionStatus};
///
/// let ready = Condition::new("Ready", 2 == 3, "NotReady", "2 of 3 replicas are ready");
/// assert_eq!(ready.status, ConditionStatus::False);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// The type in CamelCase, at most 316 characters; `Synced` belongs to the host.
    #[serde(rename = "type")]
    pub type_: String,
    /// The status.
    pub status: ConditionStatus,
    /// One word in CamelCase, not empty, at most 1024 characters.
    pub reason: String,
    /// A sentence for users, at most 32768 characters; may be empty.
    pub message: String,
}

impl Condition {
    /// A condition; the status is a `bool` or a [`ConditionStatus`].
    pub fn new(
        type_: impl Into<String>,
        status: impl Into<ConditionStatus>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            type_: type_.into(),
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// Returns whether the status is true.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
}

/// A condition stored in the parent's status.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredCondition {
    /// The type in CamelCase.
    #[serde(rename = "type")]
    pub type_: String,
    /// The stored status.
    pub status: ConditionStatus,
    /// One word in CamelCase.
    #[serde(default)]
    pub reason: String,
    /// A sentence for users.
    #[serde(default)]
    pub message: String,
    /// The parent's `metadata.generation` for which it was stated; set by the host.
    #[serde(default)]
    pub observed_generation: Option<i64>,
    /// When `status` last changed, in RFC 3339; set by the host.
    #[serde(default)]
    pub last_transition_time: Option<String>,
}

impl StoredCondition {
    /// Returns whether the stored status is true.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
}

/// Returns a status's stored conditions in order, without those that do not parse.
pub(crate) fn stored_conditions(status: &Value) -> Vec<StoredCondition> {
    status
        .get("conditions")
        .and_then(Value::as_array)
        .map(|items| {
            items
                .iter()
                .filter_map(|value| StoredCondition::deserialize(value).ok())
                .collect()
        })
        .unwrap_or_default()
}

/// A field for status structs that reads the stored conditions and never writes them.
///
/// A reconciler states conditions beside the status, and [`Crd::for_kind`](crate::crd::Crd::for_kind) adds their
/// schema. A status struct needs the field only if the reconciler reads it:
/// `#[serde(default, skip_serializing)] conditions: Conditions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Conditions(pub Vec<StoredCondition>);

impl Conditions {
    /// The condition of this type.
    pub fn get(&self, type_: &str) -> Option<&StoredCondition> {
        self.0.iter().find(|condition| condition.type_ == type_)
    }
}

impl Serialize for Conditions {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_none()
    }
}

impl JsonSchema for Conditions {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Conditions".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        schema::conditions(generator)
    }
}
