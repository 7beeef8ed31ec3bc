//! The reasons to end a pass before its report, as data.

use innkeeper_cluster::{NamespaceFull, ParentConditions, Recording, Waiting};
use innkeeper_model::{Condition, Fault, Gvk, Object, Phase, PluginName};
use innkeeper_plan as plan;
use innkeeper_policy::{Checked as Accepted, NotSelected};
use tokio::time::Instant;

use crate::next::Next;

/// The reason to end a pass before its report.
pub(crate) enum Stop {
    /// The parent does not exist.
    Gone,
    /// The cache does not show the host's own last writes; at this time the pass reads them live.
    Behind { until: Instant },
    /// Kinds that every pass needs are not cached.
    NotCached(Vec<Waiting>),
    /// The cache has no room for all children of the parent.
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
    /// The namespace of the parent has not been seen yet; a trigger follows when it is.
    NamespaceNotSeen,
    /// Namespaces are not cached; a trigger follows when they are.
    NamespacesNotCached(Gvk),
    /// The hash key of the cluster is missing.
    HashKeyMissing,
    /// The pass has the inputs of the last one, which wrote nothing and asked for this next pass.
    Unchanged(Next),
    /// The guest has given the parent up with this condition.
    GivenUp(Condition),
    /// The host failed to call the guest.
    NotCalled,
    /// The guest returned an error.
    Fault {
        fault: Accepted<Fault>,
        phase: Phase,
    },
    /// The guest failed or broke a limit, or its answer breaks a rule.
    Refused {
        reason: &'static str,
        message: String,
    },
    /// The guest read a kind that is not cached yet.
    ReadNotCached(Gvk),
    /// The last status of a parent could not be written, so it keeps its finalizer until this next pass.
    NotReported(Next),
}

/// Names the kinds that a pass waits for, with the reasons.
pub(crate) fn named(waiting: &[Waiting]) -> String {
    let named: Vec<String> = waiting
        .iter()
        .map(|one| format!("{}: {}", one.kind, one.why))
        .collect();
    named.join("; ")
}

/// Returns true if no other host has written the condition `Synced` of a parent.
pub(crate) fn is_unclaimed(plugin: &PluginName, parent: &Object) -> bool {
    plan::has_host_condition(plugin, parent) || ParentConditions::new(parent).synced.is_none()
}
