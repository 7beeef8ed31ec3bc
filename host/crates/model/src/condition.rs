//! Conditions, and every reason that the host gives.

use jiff::Timestamp;
use serde::Serialize;

/// A time without what is below a second: so the API server gives the times of conditions back.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// A condition on a parent as the host or the guest states it.
///
/// `observedGeneration` and `lastTransitionTime` are added where it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// The type in CamelCase.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// One word in CamelCase.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nothing is known yet.
    Unknown,
}

impl ConditionStatus {
    /// The text in the API: `True`, `False` or `Unknown`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// The types and reasons of the host's own conditions.
pub mod reason {
    /// Condition type: all operations of the last pass are done.
    pub const SYNCED: &str = "Synced";
    /// Condition type: all children are ready.
    pub const READY: &str = "Ready";

    /// `Synced=True`: everything is as the guest wants it.
    pub const APPLIED: &str = "Applied";
    /// The guest trapped or panicked.
    pub const GUEST_TRAPPED: &str = "GuestTrapped";
    /// The guest used up its time.
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
    /// The guest asked for more memory than its limit.
    pub const MEMORY_EXCEEDED: &str = "MemoryExceeded";
    /// The answer breaks a rule of the contract.
    pub const OUTPUT_REJECTED: &str = "OutputRejected";
    /// The answer holds a child that the plugin may not have.
    pub const CHILD_FORBIDDEN: &str = "ChildForbidden";
    /// An object of that name exists and is not ours.
    pub const CHILD_NOT_OWNED: &str = "ChildNotOwned";
    /// The API server rejected a child.
    pub const CHILD_REJECTED: &str = "ChildRejected";
    /// A child is being deleted and has to go before it can be made again.
    pub const CHILD_DELETING: &str = "ChildDeleting";
    /// The cluster does not serve an optional kind; everything else is applied.
    pub const KIND_NOT_SERVED: &str = "KindNotServed";
    /// A write failed and will be tried again.
    pub const APPLY_FAILED: &str = "ApplyFailed";
    /// The API server rejected the guest's status.
    pub const STATUS_REJECTED: &str = "StatusRejected";
    /// The guest says that the parent is wrong.
    pub const INVALID: &str = "Invalid";
    /// The guest asks to be tried again.
    pub const RETRYING: &str = "Retrying";
    /// The guest says that it cannot work at all.
    pub const FATAL: &str = "Fatal";
    /// A kind that the pass needs is not yet cached.
    pub const WAITING_FOR_CACHE: &str = "WaitingForCache";
    /// The plugin does not serve.
    pub const PLUGIN_NOT_READY: &str = "PluginNotReady";
    /// The parent is outside the plugin's selection.
    pub const NOT_SELECTED: &str = "NotSelected";
    /// The parent is paused by annotation.
    pub const PAUSED: &str = "Paused";
    /// A limit on answers, reads or output was exceeded.
    pub const LIMIT_EXCEEDED: &str = "LimitExceeded";
    /// Writes are held back by a rate limit.
    pub const THROTTLED: &str = "Throttled";
    /// Another manager keeps changing a field that the plugin owns.
    pub const FIELD_CONFLICT: &str = "FieldConflict";
    /// Objects could be adopted, but adoption is not allowed.
    pub const ADOPTION_PENDING: &str = "AdoptionPending";
    /// The cluster's hash key is lost.
    pub const HASH_KEY_MISSING: &str = "HashKeyMissing";

    /// `Ready=False`: at least one child is not ready.
    pub const CHILDREN_NOT_READY: &str = "ChildrenNotReady";
    /// `Ready=Unknown`: no answer of the guest was accepted so far.
    pub const NO_ANSWER_YET: &str = "NoAnswerYet";
}
