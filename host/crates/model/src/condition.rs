//! Conditions, and the reasons that the host uses in them.

use jiff::Timestamp;
use serde::Serialize;

/// Truncates a time to whole seconds, because the API server stores condition times in seconds.
///
/// Without this, a time that was written would differ from the time that is read back.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// A parent's condition, as the host or the guest states it.
///
/// The plan adds `observedGeneration` and `lastTransitionTime`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// The type in CamelCase.
    #[serde(rename = "type")]
    pub kind: String,
    /// The condition's status.
    pub status: ConditionStatus,
    /// One word in CamelCase.
    pub reason: String,
    /// A sentence for the user.
    pub message: String,
}

/// A condition's status.
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

/// The types and reasons of the host's own conditions. The reference of conditions has the comment of each reason, which
/// names the remedy for the user.
pub mod reason {
    /// Condition type: all operations of the last pass are done.
    pub const SYNCED: &str = "Synced";
    /// Condition type: all children are ready.
    pub const READY: &str = "Ready";
    /// Condition type: the last pass failed, and the host tries again. From kstatus, which Flux and kpt use.
    pub const RECONCILING: &str = "Reconciling";
    /// Condition type: the last pass failed, and the host tries again only after a change. From kstatus.
    pub const STALLED: &str = "Stalled";

    /// `Synced=True`: the cluster matches the guest's answer.
    ///
    /// Remedy: None is needed.
    pub const APPLIED: &str = "Applied";
    /// The guest trapped or panicked.
    ///
    /// Remedy: Report it to the author of the plugin with a recording of the pass; `innkeeper replay` repeats it. The
    /// pass is retried with back-off, and rolling back to an earlier revision helps if that did not trap.
    pub const GUEST_TRAPPED: &str = "GuestTrapped";
    /// The guest used up its time.
    ///
    /// Remedy: Raise `spec.limits.deadline` if the parent is large; otherwise the plugin loops, and its author needs
    /// a recording.
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
    /// The guest asked for more memory than its limit.
    ///
    /// Remedy: Raise `spec.limits.memory` if the parent or its reads are large; otherwise report it to the author of
    /// the plugin.
    pub const MEMORY_EXCEEDED: &str = "MemoryExceeded";
    /// The answer breaks a rule of the contract.
    ///
    /// Remedy: Report the message to the author of the plugin. If it names a limit, raise that field of
    /// `spec.limits`.
    pub const OUTPUT_REJECTED: &str = "OutputRejected";
    /// The answer holds a child that the plugin may not create or adopt.
    ///
    /// Remedy: Add the grant that the message names to `spec.grants`, or change the parent so that the plugin does
    /// not need it.
    pub const CHILD_FORBIDDEN: &str = "ChildForbidden";
    /// An object with the child's name exists and does not belong to this parent.
    ///
    /// Remedy: Rename the parent, delete the object, or let the plugin adopt it; the message names its owner.
    pub const CHILD_NOT_OWNED: &str = "ChildNotOwned";
    /// The API server rejected a child.
    ///
    /// Remedy: Correct the field of the parent that leads to the value in the message, or the policy, webhook or
    /// quota that refused it.
    pub const CHILD_REJECTED: &str = "ChildRejected";
    /// A child is being deleted, and the host can create it again only after it is gone.
    ///
    /// Remedy: Wait. If the child stays, look for the finalizer on it that is not removed.
    pub const CHILD_DELETING: &str = "ChildDeleting";
    /// The cluster does not serve an optional kind; everything else is applied.
    ///
    /// Remedy: Install the CustomResourceDefinition of the kind, or leave it as it is: the host watches the kind as
    /// soon as it appears.
    pub const KIND_NOT_SERVED: &str = "KindNotServed";
    /// The host cannot list an optional kind that the cluster serves; everything else is applied. Children of the kind are
    /// neither written nor deleted.
    ///
    /// Remedy: Follow the message: repair the conversion webhook of the kind, or give the host the rights to list and
    /// watch it.
    pub const KIND_UNREADABLE: &str = "KindUnreadable";
    /// The parent cannot be finalized, because its namespace is being deleted and nothing can be created there.
    ///
    /// Remedy: Annotate the parent with `innkeeper.dev/skip-finalize: "true"`. The cleanup of the plugin does not
    /// happen then.
    pub const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";
    /// A write failed; the host retries it.
    ///
    /// Remedy: Wait for the retry. If it persists, the message has the answer of the API server: a missing right, an
    /// overload or a webhook.
    pub const APPLY_FAILED: &str = "ApplyFailed";
    /// The API server rejected the guest's status.
    ///
    /// Remedy: Correct the status in the plugin, or install the CustomResourceDefinition of the plugin's version: the message
    /// names the field that the installed one refuses.
    pub const STATUS_REJECTED: &str = "StatusRejected";
    /// The answer of the API server to a write of the host lacks metadata that the host has written: its label, one of its
    /// annotations, the owner reference or the finalizer. The host cannot find or prune such an object.
    ///
    /// Remedy: Exempt the object in the message from the admission policy or webhook that removes the metadata.
    pub const METADATA_LOST: &str = "MetadataLost";
    /// The API server refuses to add the host's finalizer to the parent, or to remove it.
    ///
    /// Remedy: Correct the parent as the message says, or relax its definition or the policy that refuses the write. One
    /// edit may correct the parent and set `innkeeper.dev/skip-finalize: "true"`, which skips the cleanup of the plugin.
    pub const FINALIZER_REFUSED: &str = "FinalizerRefused";
    /// The guest reports that the parent is invalid.
    ///
    /// Remedy: Correct the parent as the message says.
    pub const INVALID: &str = "Invalid";
    /// The guest requests a retry.
    ///
    /// Remedy: Wait: the plugin waits for the state in the message.
    pub const RETRYING: &str = "Retrying";
    /// The guest reports that it cannot work in this revision or with this configuration.
    ///
    /// Remedy: Correct the configuration or the revision of the Plugin. The parent is tried again when an input of
    /// the pass changes, these included, and at every resync.
    pub const FATAL: &str = "Fatal";
    /// The cache does not hold a kind that the pass needs yet.
    ///
    /// Remedy: Give the host the rights to list and watch the kind in the message (`innkeeper manifests` prints
    /// them), or install its definition.
    pub const WAITING_FOR_CACHE: &str = "WaitingForCache";
    /// The parent is outside the plugin's selection.
    ///
    /// Remedy: None is needed if it is intended; otherwise change the labels or `spec.parents`.
    pub const NOT_SELECTED: &str = "NotSelected";
    /// The Plugin of the parent does not serve, so no pass keeps the parent's children as desired.
    ///
    /// Remedy: See the conditions of the Plugin; the parent is reconciled when it serves again.
    pub const PLUGIN_NOT_SERVING: &str = "PluginNotServing";
    /// The Plugin of the parent was deleted, so no pass keeps the parent's children as desired.
    ///
    /// Remedy: Create the Plugin again, or delete the parent. A parent in deletion waits for the finalizers in the
    /// message.
    pub const PLUGIN_GONE: &str = "PluginGone";
    /// An annotation on the parent pauses it.
    ///
    /// Remedy: Remove the annotation `innkeeper.dev/paused` to resume.
    pub const PAUSED: &str = "Paused";
    /// A limit on answers, reads or output was exceeded.
    ///
    /// Remedy: Raise the field of `spec.limits` in the message, or have the plugin read less.
    pub const LIMIT_EXCEEDED: &str = "LimitExceeded";
    /// The children of a large answer are being written.
    ///
    /// Remedy: None is needed: the rest follows at once.
    pub const APPLYING: &str = "Applying";
    /// A rate limit delays the writes.
    ///
    /// Remedy: Wait: the rest is written later. If it recurs, the plugin gives another answer in every pass, or
    /// `spec.limits` is too low.
    pub const THROTTLED: &str = "Throttled";
    /// The plugin has made as many objects, or as many bytes, as it may.
    ///
    /// Remedy: Delete parents, or raise the field of `spec.limits` in the message.
    pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
    /// The cache has no room for all children of the parent, because objects in its namespace exceed the plugin's bound. The
    /// children stay as they are. A Plugin has the reason in its condition `CacheFull`.
    ///
    /// Remedy: Delete objects with the plugin's label that nobody needs, or raise the field of `spec.limits` in the message.
    pub const NAMESPACE_CACHE_FULL: &str = "NamespaceCacheFull";
    /// Another field manager keeps changing a field that the plugin owns, or the status or the finalizer of the parent.
    ///
    /// Remedy: Stop the other field manager in the message from setting the field, or have the plugin leave it out. If
    /// the message names another host, stop one of the two.
    pub const FIELD_CONFLICT: &str = "FieldConflict";
    /// A child is deleted again each time after the host has created it, so the host creates it less and less often.
    ///
    /// Remedy: Stop the client that deletes it: a cleanup policy, another controller, or the
    /// `ttlSecondsAfterFinished` of a Job, which the plugin has to leave out.
    pub const CHILD_DELETED_AGAIN: &str = "ChildDeletedAgain";
    /// Objects could be adopted, but the parent or the grants do not allow adoption.
    ///
    /// Remedy: Annotate the parent with `innkeeper.dev/adopt: "true"` and set `adopt: true` in the grant of the kind,
    /// or rename the parent.
    pub const ADOPTION_PENDING: &str = "AdoptionPending";
    /// The Secret with the cluster's hash key is missing.
    ///
    /// Remedy: Restore the Secret `innkeeper-hash-key` in the host's namespace from a backup.
    pub const HASH_KEY_MISSING: &str = "HashKeyMissing";

    /// `Ready=False`: at least one child is not ready.
    ///
    /// Remedy: Look at the children in the message; the parent is Ready when they are.
    pub const CHILDREN_NOT_READY: &str = "ChildrenNotReady";
    /// `Ready=Unknown`: the host has not accepted any answer of the guest yet.
    ///
    /// Remedy: See the condition Synced, which has the reason why the plugin has not answered.
    pub const NO_ANSWER_YET: &str = "NoAnswerYet";
}
