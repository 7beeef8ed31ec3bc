//! The selection of parents by their labels and those of their namespaces.
//!
//! Every pass decides it again, so no state about it can be out of date. The parent is subscribed to the namespace, as
//! to the reads of its guest.

use innkeeper_cluster::{Recording, Registration, labels};
use innkeeper_model::{Answer, Gvk, Object, ObjectRef, PluginName, ReadFailure, ReadKey};
use innkeeper_policy::NotSelected;

use crate::{
    pass::skip::is_unclaimed,
    revision::{Serving, namespace_kind},
};

/// The result of the selection of a parent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The plugin selects the parent.
    Selected,
    /// The plugin does not select it.
    NotSelected(NotSelected),
    /// Its namespace has not been seen yet; a trigger follows when it is.
    NotSeen,
    /// This kind is not cached; a trigger follows when it is.
    NotCached(Gvk),
}

/// Returns true if the plugin may serve parents in this namespace, or without one.
pub(crate) fn is_allowed(
    serving: &Serving,
    host_namespaces: &[String],
    namespace: Option<&str>,
) -> bool {
    namespace.is_none_or(|name| serving.grants.allows_namespace(name, host_namespaces))
}

/// Returns true if the plugin selects a parent, none while that is unknown; subscribes to nothing.
pub(crate) fn selects(
    serving: &Serving,
    host_namespaces: &[String],
    registration: &Registration,
    parent: &Object,
) -> Option<bool> {
    if !is_allowed(serving, host_namespaces, parent.namespace.as_deref()) {
        return Some(false);
    }
    let selection = &serving.selection;
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
pub(crate) fn choose(
    serving: &Serving,
    host_namespaces: &[String],
    registration: &Registration,
    parent: &Object,
) -> (Choice, Recording) {
    if !is_allowed(serving, host_namespaces, parent.namespace.as_deref()) {
        let why = NotSelected::InSystemNamespace;
        return (Choice::NotSelected(why), Recording::default());
    }
    let selection = &serving.selection;
    if selection.is_all() {
        return (Choice::Selected, Recording::default());
    }
    let own = labels(&parent.json);
    if let Err(why) = selection.select(&own, None) {
        return (Choice::NotSelected(why), Recording::default());
    }
    let namespace = parent.namespace.as_ref();
    let Some(name) = namespace.filter(|_| selection.asks_for_namespaces()) else {
        return (Choice::Selected, Recording::default());
    };
    let reference = ObjectRef {
        kind: namespace_kind(),
        namespace: None,
        name: name.clone(),
    };
    let mut reads = registration.reads(parent, &serving.own_reads);
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
        // The event of a namespace may come after those of the objects in it.
        Answer::Object(None) | Answer::List(_) | Answer::Offset(_) | Answer::Failed(_) => {
            Choice::NotSeen
        }
    };
    (choice, reads.into_recording())
}

/// Returns true if a condition of a parent may state the kinds that its passes wait for.
///
/// The parent may belong to another host, which has other plugins and selections.
pub(crate) fn may_be_told(
    plugin: &PluginName,
    serving: &Serving,
    host_namespaces: &[String],
    registration: &Registration,
    parent: &Object,
) -> bool {
    match choose(serving, host_namespaces, registration, parent).0 {
        Choice::Selected => true,
        Choice::NotSelected(_) | Choice::NotSeen => false,
        Choice::NotCached(_) => is_unclaimed(plugin, parent),
    }
}
