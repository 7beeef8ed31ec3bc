//! Selects parents by their labels and their namespaces' labels.
//!
//! Every pass decides again, so no state can be out of date. The parent is subscribed to the namespace, as to the guest's
//! reads.

use innkeeper_cluster::{Recording, Registration, labels};
use innkeeper_model::{Answer, Gvk, Object, ObjectRef, ReadFailure, ReadKey};
use innkeeper_policy::NotSelected;

use super::{context::Pass, skip::is_unclaimed};
use crate::revision::{Revision, namespace_kind};

/// The plugin's choice for a parent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Selected,
    NotSelected(NotSelected),
    /// The cache does not show the parent's namespace yet; a trigger follows when it does.
    NotSeen,
    /// This kind is not cached; a trigger follows when it is.
    NotCached(Gvk),
}

/// Returns true if the plugin may serve parents in this namespace, or without one.
pub(crate) fn is_allowed(
    revision: &Revision,
    host_namespaces: &[String],
    namespace: Option<&str>,
) -> bool {
    namespace.is_none_or(|name| revision.grants.allows_namespace(name, host_namespaces))
}

/// Returns true if the plugin selects a parent, `None` while that is unknown; subscribes to nothing.
pub(crate) fn selects(
    revision: &Revision,
    host_namespaces: &[String],
    registration: &Registration,
    parent: &Object,
) -> Option<bool> {
    if !is_allowed(revision, host_namespaces, parent.namespace.as_deref()) {
        return Some(false);
    }
    let selection = &revision.selection;
    if selection.is_all() {
        return Some(true);
    }
    let own = labels(&parent.json);
    if selection.select(&own, None).is_err() {
        return Some(false);
    }
    let Some(name) = parent
        .namespace
        .as_deref()
        .filter(|_| selection.asks_for_namespaces())
    else {
        return Some(true);
    };
    let namespace = registration.related(&namespace_kind(), name)?;
    Some(selection.select(&own, Some(&labels(&namespace))).is_ok())
}

/// Decides if the plugin selects a parent, and subscribes the parent to the namespace that this depends on.
pub(super) fn choose(pass: &Pass<'_>, parent: &Object) -> (Choice, Recording) {
    let revision = &pass.epoch.revision;
    let host_namespaces = &pass.context.shared.host_namespaces;
    let unread = |choice| (choice, Recording::default());
    if !is_allowed(revision, host_namespaces, parent.namespace.as_deref()) {
        return unread(Choice::NotSelected(NotSelected::InSystemNamespace));
    }
    let selection = &revision.selection;
    if selection.is_all() {
        return unread(Choice::Selected);
    }
    let own = labels(&parent.json);
    // Before the namespace is read: a parent that its own labels exclude needs no subscription.
    if let Err(why) = selection.select(&own, None) {
        return unread(Choice::NotSelected(why));
    }
    let Some(name) = parent
        .namespace
        .as_ref()
        .filter(|_| selection.asks_for_namespaces())
    else {
        return unread(Choice::Selected);
    };
    let reference = ObjectRef {
        kind: namespace_kind(),
        namespace: None,
        name: name.clone(),
    };
    let mut reads = pass.registration.reads(parent, &revision.own_reads);
    let choice = match reads.read(&ReadKey::Get(reference)) {
        Answer::Object(Some(namespace)) => {
            match selection.select(&own, Some(&labels(&namespace))) {
                Ok(()) => Choice::Selected,
                Err(why) => Choice::NotSelected(why),
            }
        }
        Answer::Failed(ReadFailure::NotSynced(kind) | ReadFailure::NotServed(kind)) => {
            Choice::NotCached(kind)
        }
        // A namespace's event may come after its objects' events.
        Answer::Object(None) | Answer::List(_) | Answer::Offset(_) | Answer::Failed(_) => {
            Choice::NotSeen
        }
    };
    (choice, reads.into_recording())
}

/// Returns true if a condition may state the kinds that the parent's passes wait for.
///
/// The parent may belong to another host, which has other plugins and selections.
pub(super) fn may_state_wait(pass: &Pass<'_>, parent: &Object) -> bool {
    match choose(pass, parent).0 {
        Choice::Selected => true,
        Choice::NotSelected(_) | Choice::NotSeen => false,
        Choice::NotCached(_) => is_unclaimed(&pass.context.plugin, parent),
    }
}
