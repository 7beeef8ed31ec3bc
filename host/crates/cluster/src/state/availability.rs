//! Decides whether a kind is usable, which kinds passes wait for, and which optional ones they run without.

use std::{collections::BTreeSet, iter, sync::Arc, time::Duration};

use innkeeper_model::{Access, Gvk};
use tokio::time::Instant;

use super::{
    SlotId, SubscriberId, WatchSlot, WatchTable,
    namespace_watch::NamespaceWatch,
    table::{Role, SubscriberWatches},
};
use crate::{
    interest::{ChildInterest, Waiting, Why},
    report::WatchStatus,
    wire::selector_text,
};

/// The time after the first failure for which passes wait for an optional kind if the plugin may have such children: a
/// starting API server refuses lists for some seconds.
pub(super) const OPTIONAL_KIND_WAIT: Duration = Duration::from_secs(5);

/// The parents that are blocked together: those of one namespace, or all if the host is not limited to namespaces.
pub(super) type NamespaceScope = Option<Arc<str>>;

/// Returns true if passes run without an unusable kind: it is optional, and waiting does not or did not help.
fn is_left_out(
    child: &ChildInterest,
    slot: &WatchSlot,
    why: &Why,
    namespace: Option<&str>,
) -> bool {
    // A plugin without such children has none to prune by mistake, so its passes do not wait.
    let has_waited = || {
        slot.watches_in(namespace)
            .filter_map(|watch| watch.failing_since)
            .min()
            .is_some_and(|since| !child.recorded || since.elapsed() >= OPTIONAL_KIND_WAIT)
    };
    !child.required && (why.is_lasting() || matches!(why, Why::Failing { .. }) && has_waited())
}

/// The time since which parents in a namespace, or any parents, are blocked.
fn blocked_since(slot: &WatchSlot, namespace: Option<&str>) -> Option<Instant> {
    // The requests that block them come first.
    slot.watches_in(namespace)
        .map(|watch| (watch.why().is_none(), watch.since))
        .min()
        .map(|(_, since)| since)
}

impl WatchTable {
    /// Why a watch is not usable for a namespace, if it is not.
    pub(super) fn why(&self, slot: &WatchSlot, namespace: Option<&str>) -> Option<Why> {
        if self.kinds.is_none() {
            return Some(Why::Discovering);
        }
        if slot.served.is_none() {
            return Some(Why::NotServed);
        }
        if slot.form() == Access::Hash && self.hash_key.is_none() {
            return Some(Why::HashKeyMissing);
        }
        slot.watches_in(namespace).find_map(NamespaceWatch::why)
    }

    /// Returns true if the host watches a namespace.
    pub(super) fn is_watched(&self, namespace: &str) -> bool {
        self.namespaces
            .as_ref()
            .is_none_or(|names| names.iter().any(|name| **name == *namespace))
    }

    /// Returns the kinds that block every pass; with a namespace, the passes there.
    ///
    /// Leaves out optional kinds that the cluster does not serve or that the host cannot read.
    pub(crate) fn waiting(
        &self,
        subscriber_id: SubscriberId,
        namespace: Option<&str>,
    ) -> Vec<Waiting> {
        let Some(SubscriberWatches {
            interest,
            parent,
            children,
            ..
        }) = self.by_subscriber.get(&subscriber_id)
        else {
            return Vec::new();
        };
        let children = children
            .iter()
            .map(|(child, slot)| (slot, &child.kind, Some(child)));
        iter::once((parent, &interest.parent, None))
            .chain(children)
            .filter_map(|(slot, kind, child)| {
                let (slot, wait) = self.wait_for(*slot, kind, namespace)?;
                let is_blocking =
                    !child.is_some_and(|child| is_left_out(child, slot, &wait.why, namespace));
                is_blocking.then_some(wait)
            })
            .collect()
    }

    /// Returns the served child kinds that passes run without.
    pub(crate) fn unreadable(
        &self,
        subscriber_id: SubscriberId,
        namespace: Option<&str>,
    ) -> Vec<Waiting> {
        self.by_subscriber
            .get(&subscriber_id)
            .into_iter()
            .flat_map(|watches| &watches.children)
            .filter_map(|(child, slot)| {
                let (slot, wait) = self.wait_for(*slot, &child.kind, namespace)?;
                // A kind that is not served has no objects that a pass could miss.
                let is_unreadable =
                    wait.why != Why::NotServed && is_left_out(child, slot, &wait.why, namespace);
                is_unreadable.then_some(wait)
            })
            .collect()
    }

    fn wait_for(
        &self,
        slot: SlotId,
        kind: &Gvk,
        namespace: Option<&str>,
    ) -> Option<(&WatchSlot, Waiting)> {
        let slot = self.get(slot)?;
        let wait = Waiting {
            kind: kind.clone(),
            why: self.why(slot, namespace)?,
            since: blocked_since(slot, namespace)?,
        };
        Some((slot, wait))
    }

    /// Returns true if any watch of a registration expects the first list soon, whether required or not.
    pub(super) fn is_listing(&self, subscriber_id: SubscriberId) -> bool {
        self.slots_of(subscriber_id)
            .into_iter()
            .filter_map(|id| self.why(self.get(id)?, None))
            .any(|why| matches!(why, Why::Discovering | Why::Listing | Why::Unchecked))
    }

    /// The registrations whose parents or children a watch shows.
    pub(super) fn users_of_objects(&self, id: SlotId) -> BTreeSet<SubscriberId> {
        self.get(id)
            .into_iter()
            .flat_map(WatchSlot::users)
            .filter(|(_, role)| *role != Role::Read)
            .map(|(subscriber_id, _)| subscriber_id)
            .collect()
    }

    /// Returns the scopes whose parents may have objects in a namespace.
    pub(super) fn scopes_with(&self, namespace: Option<&Arc<str>>) -> BTreeSet<NamespaceScope> {
        let is_concerned = |scope: &NamespaceScope| {
            // Cluster-scoped parents may have objects in every namespace.
            scope
                .as_ref()
                .zip(namespace)
                .is_none_or(|(scope, namespace)| scope == namespace)
        };
        self.scopes().filter(is_concerned).collect()
    }

    /// The scopes in which passes have all that they need.
    pub(super) fn ready_scopes(&self, subscriber_id: SubscriberId) -> BTreeSet<NamespaceScope> {
        self.scopes()
            .filter(|scope| self.waiting(subscriber_id, scope.as_deref()).is_empty())
            .collect()
    }

    fn scopes(&self) -> impl Iterator<Item = NamespaceScope> {
        // Cluster-scoped parents are in no namespace, so they have a scope to themselves.
        self.namespaces
            .as_deref()
            .unwrap_or_default()
            .iter()
            .cloned()
            .map(Some)
            .chain([None])
    }

    /// Returns each request's status.
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

    /// Returns true if a registration waits for an unusable watch.
    fn is_awaited(&self, slot: &WatchSlot, namespace: Option<&str>) -> bool {
        let Some(why) = self.why(slot, namespace) else {
            return false;
        };
        slot.users().any(|(subscriber_id, role)| {
            // Parents and reads are never optional, so they find no entry here.
            self.by_subscriber
                .get(&subscriber_id)
                .filter(|_| role == Role::Child)
                .into_iter()
                .flat_map(|watches| &watches.children)
                .find(|(child, _)| child.kind == slot.key.kind)
                .is_none_or(|(child, _)| !is_left_out(child, slot, &why, namespace))
        })
    }
}
