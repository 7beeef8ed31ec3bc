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

    documented! {
        ALL:
        /// `Synced=True`: the cluster matches the plugin's answer.
        ///
        /// Remedy: None needed.
        APPLIED = "Applied";
        /// The plugin trapped or panicked.
        ///
        /// Remedy: Report it to the plugin's author with a recording; `innkeeper replay` repeats the pass. The host retries
        /// with backoff. Roll back if an earlier revision did not trap.
        GUEST_TRAPPED = "GuestTrapped";
        /// The plugin exceeded its CPU time.
        ///
        /// Remedy: Raise `spec.limits.deadline` if the parent is large. Otherwise the plugin loops: send a recording to the
        /// author.
        DEADLINE_EXCEEDED = "DeadlineExceeded";
        /// The plugin exceeded its memory limit.
        ///
        /// Remedy: Raise `spec.limits.memory` if the parent or the reads are large. Otherwise report it to the plugin's
        /// author.
        MEMORY_EXCEEDED = "MemoryExceeded";
        /// The answer breaks a rule of the contract.
        ///
        /// Remedy: Report the message to the plugin's author. If it names a limit, raise that field in `spec.limits`.
        OUTPUT_REJECTED = "OutputRejected";
        /// The answer contains a child that the plugin may not create or adopt.
        ///
        /// Remedy: Add the grant in the message to `spec.grants`, or change the parent so that the plugin does not need it.
        CHILD_FORBIDDEN = "ChildForbidden";
        /// An object with the child's name exists and does not belong to this parent.
        ///
        /// Remedy: Rename the parent, delete the object, or let the plugin adopt it. The message names the owner.
        CHILD_NOT_OWNED = "ChildNotOwned";
        /// The API server rejected a child.
        ///
        /// Remedy: Correct the parent's field that causes the value in the message, or the policy, webhook or quota that
        /// rejected it.
        CHILD_REJECTED = "ChildRejected";
        /// A child is being deleted; the host recreates it once it is gone.
        ///
        /// Remedy: Wait. If the child stays, look for a finalizer that is not removed.
        CHILD_DELETING = "ChildDeleting";
        /// The cluster does not serve an optional kind. Everything else is applied.
        ///
        /// Remedy: Install the kind's CustomResourceDefinition, or do nothing: the host starts watching the kind once it
        /// appears.
        KIND_NOT_SERVED = "KindNotServed";
        /// The cluster serves an optional kind, but the host cannot list it. Everything else is applied; children of this
        /// kind are neither written nor deleted.
        ///
        /// Remedy: Follow the message: fix the kind's conversion webhook, or let the host list and watch it.
        KIND_UNREADABLE = "KindUnreadable";
        /// The parent cannot be finalized, because nothing can be created in its terminating namespace.
        ///
        /// Remedy: Annotate the parent with `innkeeper.dev/skip-finalize: "true"`, which skips the plugin's cleanup.
        NAMESPACE_TERMINATING = "NamespaceTerminating";
        /// A write failed; the host retries it.
        ///
        /// Remedy: Wait for the retry. If it keeps failing, the message has the API server's response: a missing
        /// permission, overload or a webhook.
        APPLY_FAILED = "ApplyFailed";
        /// The API server rejected the plugin's status.
        ///
        /// Remedy: Fix the status in the plugin, or install the CustomResourceDefinition for the plugin's version. The
        /// message names the field.
        STATUS_REJECTED = "StatusRejected";
        /// After a write, the API server's response lacks metadata that the host wrote: label, annotation, owner reference
        /// or finalizer. The host cannot find or prune such an object.
        ///
        /// Remedy: Exempt the object in the message from the admission policy or webhook that removes the metadata.
        METADATA_LOST = "MetadataLost";
        /// The API server refuses to add or remove the host's finalizer on the parent.
        ///
        /// Remedy: Correct the parent as the message says, or relax the CustomResourceDefinition or policy that refuses the
        /// write. One edit may correct the parent and set `innkeeper.dev/skip-finalize: "true"`, which skips the plugin's
        /// cleanup.
        FINALIZER_REFUSED = "FinalizerRefused";
        /// The plugin reports that the parent is invalid.
        ///
        /// Remedy: Correct the parent as the message says.
        INVALID = "Invalid";
        /// The plugin requests a retry.
        ///
        /// Remedy: Wait: the message says what the plugin waits for.
        RETRYING = "Retrying";
        /// The plugin reports that it cannot work with this revision or configuration.
        ///
        /// Remedy: Correct the Plugin's configuration or revision. The host retries when any input changes, and at every
        /// resync.
        FATAL = "Fatal";
        /// A kind that the pass needs is not in the cache yet.
        ///
        /// Remedy: Let the host list and watch the kind in the message (`innkeeper manifests` prints the role), or install
        /// its CustomResourceDefinition.
        WAITING_FOR_CACHE = "WaitingForCache";
        /// The plugin does not select this parent.
        ///
        /// Remedy: None needed if intended. Otherwise change the labels or `spec.parents`.
        NOT_SELECTED = "NotSelected";
        /// The Plugin does not serve, so the parent's children are not reconciled.
        ///
        /// Remedy: See the Plugin's conditions. The host continues once the Plugin serves.
        PLUGIN_NOT_SERVING = "PluginNotServing";
        /// The Plugin was deleted, so the parent's children are not reconciled.
        ///
        /// Remedy: Create the Plugin again, or delete the parent. If the parent is being deleted, it waits for the
        /// finalizers in the message.
        PLUGIN_GONE = "PluginGone";
        /// An annotation pauses the parent.
        ///
        /// Remedy: Remove the annotation `innkeeper.dev/paused` to resume.
        PAUSED = "Paused";
        /// The pass exceeded a limit on answers, reads or output.
        ///
        /// Remedy: Raise the `spec.limits` field in the message, or make the plugin read less.
        LIMIT_EXCEEDED = "LimitExceeded";
        /// The host is writing the children of a large answer.
        ///
        /// Remedy: None needed: the rest follows at once.
        APPLYING = "Applying";
        /// A rate limit delays the writes.
        ///
        /// Remedy: Wait: the host writes the rest later. If it recurs, the plugin gives a different answer in every pass,
        /// or `spec.limits` is too low.
        THROTTLED = "Throttled";
        /// The plugin reached its limit on objects or bytes.
        ///
        /// Remedy: Delete parents, or raise the `spec.limits` field in the message.
        QUOTA_EXCEEDED = "QuotaExceeded";
        /// The cache has no room for all the parent's children, because objects in the namespace exceed the plugin's limit.
        /// The children stay as they are. A Plugin shows it in the condition `CacheFull`.
        ///
        /// Remedy: Delete unneeded objects with the plugin's label, or raise the `spec.limits` field in the message.
        NAMESPACE_CACHE_FULL = "NamespaceCacheFull";
        /// Another field manager keeps changing a field that the plugin owns, or the parent's status or finalizer.
        ///
        /// Remedy: Stop the field manager in the message from setting the field, or make the plugin omit it. If the message
        /// names another host, stop one of the two.
        FIELD_CONFLICT = "FieldConflict";
        /// Another client deletes a child each time the host creates it, so the host creates it less and less often.
        ///
        /// Remedy: Stop that client: a cleanup policy, another controller, or a Job's `ttlSecondsAfterFinished`, which the
        /// plugin must omit.
        CHILD_DELETED_AGAIN = "ChildDeletedAgain";
        /// Objects could be adopted, but the parent or the grants do not allow it.
        ///
        /// Remedy: Annotate the parent with `innkeeper.dev/adopt: "true"` and set `adopt: true` in the grant for the kind,
        /// or rename the parent.
        ADOPTION_PENDING = "AdoptionPending";
        /// The Secret with the cluster's hash key is missing.
        ///
        /// Remedy: Restore the Secret `innkeeper-hash-key` in the host's namespace from a backup.
        HASH_KEY_MISSING = "HashKeyMissing";

        /// `Ready=False`: at least one child is not ready.
        ///
        /// Remedy: Check the children in the message. The parent becomes Ready when they do.
        CHILDREN_NOT_READY = "ChildrenNotReady";
        /// `Ready=Unknown`: the host has not accepted an answer from the plugin yet.
        ///
        /// Remedy: See the condition Synced for the reason.
        NO_ANSWER_YET = "NoAnswerYet";
    }
}
