//! Decides whether a kind is usable, which kinds passes wait for, and which optional ones they run without.

use std::{collections::BTreeSet, iter, time::Duration};

use innkeeper_model::{Access, Gvk, Shard, ShardSet};
use tokio::time::Instant;

use super::{
    SlotId, SubscriberId, WatchSlot, WatchTable,
    table::{Role, SubscriberWatches},
};
use crate::{
    interest::{ChildInterest, Waiting, Why},
    report::WatchStatus,
    section::{Section, shards_text},
    wire::selector_text,
};

/// The time after the first failure for which passes wait for an optional kind if the plugin may have such children: a
/// starting API server refuses lists for some seconds.
pub(super) const OPTIONAL_KIND_WAIT: Duration = Duration::from_secs(5);

/// Returns true if passes run without an unusable kind: it is optional, and waiting does not or did not help.
fn is_left_out(child: &ChildInterest, slot: &WatchSlot, why: &Why, section: &Section) -> bool {
    // A plugin without such children has none to prune by mistake, so its passes do not wait.
    let has_waited = || {
        slot.watches_in(section)
            .filter_map(|watch| watch.failing_since)
            .min()
            .is_some_and(|since| !child.recorded || since.elapsed() >= OPTIONAL_KIND_WAIT)
    };
    !child.required && (why.is_lasting() || matches!(why, Why::Failing { .. }) && has_waited())
}

/// The time since which parents in a section are blocked.
fn blocked_since(slot: &WatchSlot, section: &Section) -> Option<Instant> {
    // The requests that block them come first.
    slot.watches_in(section)
        .map(|watch| (watch.why(section).is_none(), watch.since))
        .min()
        .map(|(_, since)| since)
}

impl WatchTable {
    /// Why a watch is not usable for a section, if it is not.
    pub(super) fn why(&self, slot: &WatchSlot, section: &Section) -> Option<Why> {
        if self.kinds.is_none() {
            return Some(Why::Discovering);
        }
        if slot.served.is_none() {
            return Some(Why::NotServed);
        }
        if slot.form() == Access::Hash && self.hash_key.is_none() {
            return Some(Why::HashKeyMissing);
        }
        let mut watches = slot.watches_in(section).peekable();
        // Nothing is known, which must not look as if nothing existed.
        if !self.shards.is_one() && watches.peek().is_none() {
            return Some(Why::NotHeld);
        }
        watches.find_map(|watch| watch.why(section))
    }

    /// Returns true if the host watches a namespace.
    pub(super) fn is_watched(&self, namespace: &str) -> bool {
        self.namespaces
            .as_ref()
            .is_none_or(|names| names.iter().any(|name| **name == *namespace))
    }

    /// Returns the kinds that block passes in a section; for the whole, those that block any.
    ///
    /// Leaves out optional kinds that the cluster does not serve or that the host cannot read, and kinds without requests.
    pub(crate) fn waiting(&self, subscriber_id: SubscriberId, section: &Section) -> Vec<Waiting> {
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
                let (slot, wait) = self.wait_for(*slot, kind, section)?;
                let is_blocking =
                    !child.is_some_and(|child| is_left_out(child, slot, &wait.why, section));
                is_blocking.then_some(wait)
            })
            .collect()
    }

    /// Returns the served child kinds that passes run without.
    pub(crate) fn unreadable(
        &self,
        subscriber_id: SubscriberId,
        section: &Section,
    ) -> Vec<Waiting> {
        self.by_subscriber
            .get(&subscriber_id)
            .into_iter()
            .flat_map(|watches| &watches.children)
            .filter_map(|(child, slot)| {
                let (slot, wait) = self.wait_for(*slot, &child.kind, section)?;
                // A kind that is not served has no objects that a pass could miss.
                let is_unreadable =
                    wait.why != Why::NotServed && is_left_out(child, slot, &wait.why, section);
                is_unreadable.then_some(wait)
            })
            .collect()
    }

    fn wait_for(
        &self,
        slot: SlotId,
        kind: &Gvk,
        section: &Section,
    ) -> Option<(&WatchSlot, Waiting)> {
        let slot = self.get(slot)?;
        let wait = Waiting {
            kind: kind.clone(),
            why: self.why(slot, section)?,
            since: blocked_since(slot, section)?,
        };
        Some((slot, wait))
    }

    /// Returns true if any watch of a registration expects the first list soon, whether required or not.
    pub(super) fn is_listing(&self, subscriber_id: SubscriberId) -> bool {
        self.slots_of(subscriber_id)
            .into_iter()
            .filter_map(|id| self.why(self.get(id)?, &Section::Whole))
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

    /// Returns the scopes whose parents may have objects in a section.
    pub(super) fn scopes_with(&self, section: &Section) -> BTreeSet<Section> {
        // Cluster-scoped parents may have objects in every namespace.
        let scopes = self.scopes().into_iter();
        scopes.filter(|scope| scope.overlaps(section)).collect()
    }

    /// The scopes in which passes have all that they need.
    pub(super) fn ready_scopes(&self, subscriber_id: SubscriberId) -> BTreeSet<Section> {
        let is_ready = |scope: &Section| self.waiting(subscriber_id, scope).is_empty();
        self.scopes().into_iter().filter(is_ready).collect()
    }

    /// The scopes: parents that are blocked together. Those of one namespace or shard, or all if the host has neither.
    fn scopes(&self) -> Vec<Section> {
        let mut scopes: Vec<Section> = if let Some(names) = self.namespaces.as_deref() {
            names.iter().cloned().map(Section::Namespace).collect()
        } else {
            let scope = |shard: &Shard| Section::Shards(self.shards, ShardSet::from([*shard]));
            self.held.iter().map(scope).collect()
        };
        // Cluster-scoped parents are in no namespace, so they have a scope to themselves.
        scopes.push(Section::Whole);
        scopes
    }

    /// Returns each request's status.
    pub(crate) fn statuses(&self) -> Vec<WatchStatus> {
        let mut statuses = Vec::new();
        for slot in self.slots.values() {
            for watch in &slot.section_watches {
                let section = &watch.section;
                let size = slot.store.size_in(section);
                statuses.push(WatchStatus {
                    kind: slot.key.kind.clone(),
                    namespace: section.namespace().map(ToString::to_string),
                    shards: section.shards().map(shards_text),
                    selector: selector_text(&slot.key.selector),
                    users: slot.users().count(),
                    why: self.why(slot, section),
                    is_awaited: self.is_awaited(slot, section),
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
    fn is_awaited(&self, slot: &WatchSlot, section: &Section) -> bool {
        let Some(why) = self.why(slot, section) else {
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
                .is_none_or(|(child, _)| !is_left_out(child, slot, &why, section))
        })
    }
}
