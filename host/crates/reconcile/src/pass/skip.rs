//! The reasons to end a pass early.

use innkeeper_cluster::{NamespaceFull, ParentConditions, Recording, Waiting};
use innkeeper_model::{Condition, Fault, Gvk, Object, Phase, PluginName};
use innkeeper_plan as plan;
use innkeeper_policy::{Checked, NotSelected};
use tokio::time::Instant;

use crate::next::Next;

/// A reason to end a pass early.
pub(crate) enum Skip {
    /// The parent does not exist.
    Gone,
    /// The cache does not show the host's own last writes; at this time the pass reads them live.
    AwaitOwnWrites { until: Instant },
    /// Kinds that every pass needs are not cached.
    NotCached(Vec<Waiting>),
    /// The cache has no room for all the parent's children.
    CacheFull(NamespaceFull),
    /// The parent is being deleted, and the plugin has no finalizer on it.
    Ignored,
    /// The parent is being deleted, and the host removes the finalizer without the guest.
    Released,
    /// An annotation pauses the parent.
    Paused,
    /// The plugin does not select the parent.
    NotSelected {
        why: NotSelected,
        /// The reads that led to the decision.
        reads: Recording,
    },
    /// The cache does not show the parent's namespace yet; a trigger follows when it does.
    NamespaceNotSeen,
    /// Namespaces are not cached; a trigger follows when they are.
    NamespacesNotCached(Gvk),
    /// The cluster's hash key is missing.
    HashKeyMissing,
    /// The inputs equal those of the last pass, which wrote nothing and asked for this next pass.
    Unchanged(Next),
    /// The guest has given the parent up with this condition.
    GivenUp(Condition),
    /// The host failed to call the guest.
    NotCalled,
    /// The guest returned an error.
    Fault { fault: Checked<Fault>, phase: Phase },
    /// The guest failed or exceeded a limit, or the answer breaks a rule.
    Refused {
        reason: &'static str,
        message: String,
    },
    /// The guest read a kind that is not cached yet.
    ReadNotCached(Gvk),
    /// The parent's last status could not be written, so the finalizer stays until this next pass.
    NotReported(Next),
}

/// A skipped pass.
pub(crate) struct Skipped {
    /// The parent, if it exists and may get a condition with the reason.
    pub(super) parent: Option<Object>,
    pub(super) reason: Box<Skip>,
}

impl Skipped {
    pub(super) fn new(parent: Option<Object>, reason: Box<Skip>) -> Box<Self> {
        Box::new(Self { parent, reason })
    }
}

/// Lists the kinds that a pass waits for, with the reasons.
pub(super) fn describe(waiting: &[Waiting]) -> String {
    waiting
        .iter()
        .map(|waiting| format!("{}: {}", waiting.kind, waiting.why))
        .collect::<Vec<_>>()
        .join("; ")
}

/// Returns true unless another host has written the parent's condition `Synced`.
pub(super) fn is_unclaimed(plugin: &PluginName, parent: &Object) -> bool {
    plan::has_host_condition(plugin, parent) || ParentConditions::new(parent).synced.is_none()
}
