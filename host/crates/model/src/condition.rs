//! Conditions, and the reasons that the host uses in them.

use jiff::Timestamp;
use serde::Serialize;

/// Truncates a time to whole seconds, the precision in which the API server stores the times of conditions.
///
/// Without this, a time that was written would differ from the time that is read back.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// A condition of a parent, as the host or the guest states it.
///
/// The plan adds `observedGeneration` and `lastTransitionTime`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// The type in CamelCase.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status of the condition.
    pub status: ConditionStatus,
    /// One word in CamelCase.
    pub reason: String,
    /// A sentence for the user.
    pub message: String,
}

/// The status of a condition.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, strum::IntoStaticStr,
)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The host does not know yet.
    Unknown,
}

/// The types and reasons of the host's own conditions.
pub mod reason {
    /// Condition type: all operations of the last pass are done.
    pub const SYNCED: &str = "Synced";
    /// Condition type: all children are ready.
    pub const READY: &str = "Ready";

    /// `Synced=True`: the cluster matches the guest's answer.
    pub const APPLIED: &str = "Applied";
    /// The guest trapped or panicked.
    pub const GUEST_TRAPPED: &str = "GuestTrapped";
    /// The guest used up its time.
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
    /// The guest asked for more memory than its limit.
    pub const MEMORY_EXCEEDED: &str = "MemoryExceeded";
    /// The answer breaks a rule of the contract.
    pub const OUTPUT_REJECTED: &str = "OutputRejected";
    /// The answer holds a child that the plugin may not create or adopt.
    pub const CHILD_FORBIDDEN: &str = "ChildForbidden";
    /// An object with the child's name exists and does not belong to this parent.
    pub const CHILD_NOT_OWNED: &str = "ChildNotOwned";
    /// The API server rejected a child.
    pub const CHILD_REJECTED: &str = "ChildRejected";
    /// A child is being deleted, and the host can create it again only after it is gone.
    pub const CHILD_DELETING: &str = "ChildDeleting";
    /// The cluster does not serve an optional kind; everything else is applied.
    pub const KIND_NOT_SERVED: &str = "KindNotServed";
    /// The parent cannot be finalized, because its namespace is being deleted and nothing can be created there.
    pub const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";
    /// A write failed; the host retries it.
    pub const APPLY_FAILED: &str = "ApplyFailed";
    /// The API server rejected the guest's status.
    pub const STATUS_REJECTED: &str = "StatusRejected";
    /// The guest reports that the parent is invalid.
    pub const INVALID: &str = "Invalid";
    /// The guest requests a retry.
    pub const RETRYING: &str = "Retrying";
    /// The guest reports that it cannot work at all.
    pub const FATAL: &str = "Fatal";
    /// The cache does not hold a kind that the pass needs yet.
    pub const WAITING_FOR_CACHE: &str = "WaitingForCache";
    /// The parent is outside the plugin's selection.
    pub const NOT_SELECTED: &str = "NotSelected";
    /// The Plugin of the parent does not serve, so no pass keeps the parent's children as desired.
    pub const PLUGIN_NOT_SERVING: &str = "PluginNotServing";
    /// An annotation on the parent pauses it.
    pub const PAUSED: &str = "Paused";
    /// A limit on answers, reads or output was exceeded.
    pub const LIMIT_EXCEEDED: &str = "LimitExceeded";
    /// A rate limit delays the writes.
    pub const THROTTLED: &str = "Throttled";
    /// The plugin has made as many objects, or as many bytes, as it may.
    pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
    /// Another field manager keeps changing a field that the plugin owns.
    pub const FIELD_CONFLICT: &str = "FieldConflict";
    /// Objects could be adopted, but the parent or the grants do not allow adoption.
    pub const ADOPTION_PENDING: &str = "AdoptionPending";
    /// The Secret with the cluster's hash key is missing.
    pub const HASH_KEY_MISSING: &str = "HashKeyMissing";

    /// `Ready=False`: at least one child is not ready.
    pub const CHILDREN_NOT_READY: &str = "ChildrenNotReady";
    /// `Ready=Unknown`: the host has not accepted any answer of the guest yet.
    pub const NO_ANSWER_YET: &str = "NoAnswerYet";
}
