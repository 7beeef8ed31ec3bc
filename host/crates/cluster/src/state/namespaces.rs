//! The requests behind a watch: one for the whole cluster, or one for each namespace that the host is limited to.
//!
//! Their objects are merged in one store. Version, health and freshness are kept for each request. So a namespace that
//! cannot be read blocks only its own parents.

use std::{collections::BTreeSet, sync::Arc};

use innkeeper_model::{Access, Resource, Scope};
use tokio::time::Instant;

use super::{
    CacheState, Role, SlotId, SubscriberId, WatchSlot, namespace_watch::NamespaceWatch,
    waiting::is_left_out,
};
use crate::{
    interest::Why,
    report::WatchStatus,
    wire::{WatchTarget, selector_text},
};

/// The parents that are blocked together: those of one namespace, or all if the host is not limited to namespaces.
pub(super) type NamespaceScope = Option<Arc<str>>;

impl WatchSlot {
    /// The watch that covers a namespace.
    pub(super) fn namespace_watch_at(&self, namespace: Option<&str>) -> Option<&NamespaceWatch> {
        self.about(namespace).next()
    }

    /// The request of a watch in a form; none while the kind is not served.
    pub(super) fn target(&self, watch: &NamespaceWatch, form: Access) -> Option<WatchTarget> {
        Some(WatchTarget {
            served: self.served.clone()?,
            namespace: watch.namespace.clone(),
            selector: self.key.selector.clone(),
            form,
        })
    }

    /// The time since which parents in a namespace, or any parents, are blocked.
    pub(super) fn since(&self, namespace: Option<&str>) -> Option<Instant> {
        // The watches that block them come first.
        let since = |watch: &NamespaceWatch| (watch.why().is_none(), watch.since);
        let first = self.about(namespace).map(since).min();
        first.map(|(_, since)| since)
    }

    /// The time since which no list of parents in a namespace, or of any parents, succeeds.
    pub(super) fn failing_since(&self, namespace: Option<&str>) -> Option<Instant> {
        let since = self.about(namespace).map(|watch| watch.failing_since);
        since.flatten().min()
    }

    /// The watches that cover a namespace; without a namespace all of them.
    fn about(&self, namespace: Option<&str>) -> impl Iterator<Item = &NamespaceWatch> {
        let watches = self.namespace_watches.iter();
        watches.filter(move |watch| match (&watch.namespace, namespace) {
            (Some(own), Some(asked)) => **own == *asked,
            _ => true,
        })
    }
}

impl CacheState {
    /// The requests of a watch that starts.
    pub(super) fn namespace_watches(
        &mut self,
        served: Option<&Resource>,
        now: Instant,
    ) -> Vec<NamespaceWatch> {
        let is_namespaced = served.is_some_and(|kind| kind.scope == Scope::Namespaced);
        let namespaces = match self.namespaces.as_deref() {
            Some(names) if is_namespaced => names.iter().cloned().map(Some).collect(),
            _ => vec![None],
        };
        let watch = |namespace| NamespaceWatch::new(namespace, self.number(), now);
        namespaces.into_iter().map(watch).collect()
    }

    /// Returns true if the host is not limited to other namespaces.
    pub(super) fn is_seen_at_all(&self, namespace: &str) -> bool {
        let limited = self.namespaces.as_ref();
        limited.is_none_or(|names| names.iter().any(|name| **name == *namespace))
    }

    /// The reason that the objects of a watch in a namespace cannot be used; none if they can.
    pub(crate) fn why(&self, slot: &WatchSlot, namespace: Option<&str>) -> Option<Why> {
        if self.kinds.is_none() {
            return Some(Why::Discovering);
        }
        if slot.served.is_none() {
            return Some(Why::NotServed);
        }
        if slot.form() == Access::Hash && self.hash_key.is_none() {
            return Some(Why::HashKeyMissing);
        }
        slot.about(namespace).find_map(NamespaceWatch::why)
    }

    /// The state of every request, for users.
    pub(crate) fn statuses(&self) -> Vec<WatchStatus> {
        let mut statuses = Vec::new();
        for slot in self.slots.values() {
            for watch in &slot.namespace_watches {
                let namespace = watch.namespace.as_deref();
                let size = slot.store.size_of(namespace);
                statuses.push(WatchStatus {
                    kind: slot.key.kind.clone(),
                    namespace: namespace.map(str::to_owned),
                    selector: selector_text(&slot.key.selector),
                    users: slot.users().count(),
                    why: self.why(slot, namespace),
                    is_awaited: self.is_awaited(slot, namespace),
                    objects: size.all().objects,
                    bytes: size.whole.bytes,
                    version: watch.version,
                    last_event: watch.last_event,
                    last_error: watch.last_error.clone(),
                    lists: watch.lists,
                });
            }
        }
        statuses
    }

    /// Returns true if a registration waits for a watch that cannot be used.
    fn is_awaited(&self, slot: &WatchSlot, namespace: Option<&str>) -> bool {
        let Some(why) = self.why(slot, namespace) else {
            return false;
        };
        slot.users().any(|(subscriber_id, role)| {
            let subscriber = self.subscribers.get(&subscriber_id);
            let child = subscriber
                .filter(|_| role == Role::Child)
                .and_then(|subscriber| subscriber.held.child_interest(&slot.key.kind));
            child.is_none_or(|child| !is_left_out(child, slot, &why, namespace))
        })
    }

    /// Returns every scope.
    pub(super) fn namespace_scopes(&self) -> Vec<NamespaceScope> {
        // Cluster-scoped parents are in no namespace, so they have a scope of their own.
        let limited = self.namespaces.as_deref().unwrap_or_default();
        limited.iter().cloned().map(Some).chain([None]).collect()
    }

    /// The scopes in which passes have all that they need.
    pub(super) fn ready_scopes(&self, subscriber_id: SubscriberId) -> BTreeSet<NamespaceScope> {
        let is_ready =
            |scope: &NamespaceScope| self.waiting(subscriber_id, scope.as_deref()).is_empty();
        self.namespace_scopes()
            .into_iter()
            .filter(is_ready)
            .collect()
    }

    /// Starts over with every request of a watch. Until the next lists the objects cannot be used: their form is not
    /// the wanted one.
    pub(super) fn restart(&mut self, id: SlotId, now: Instant) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        let reshaped = slot.store.len() > 0;
        for watch in &mut slot.namespace_watches {
            self.count += 1;
            watch.restart(self.count, reshaped, now);
        }
        self.kind_changed(id, None);
    }
}
