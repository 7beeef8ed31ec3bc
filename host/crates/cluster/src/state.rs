//! Everything that the host knows about the cluster, under one lock.
//!
//! - [`WatchTable`]: the watches with their objects, and the registrations that use them.
//! - [`Subscribers`]: the parents that are queued, that have a pass, or that wait for their own writes.
//! - `dispatch`: pure; returns the parents that a change concerns.
//! - [`CacheState`]: owns all, and applies each input.
//!
//! No code here waits or sends requests.
//! There is one lock, because an event must reach the store, the expectations and the triggers in one step: a pass
//! between two of them would act on a state that never existed.

mod availability;
mod cached_texts;
mod dispatch;
mod freshness;
mod observation;
mod own_writes;
mod reads;
mod section_watch;
mod sections;
mod subscribers;
mod table;
mod watch_events;

use std::{collections::BTreeSet, sync::Arc};

use tokio::{sync::Notify, time::Instant};

pub(super) use self::{
    cached_texts::MissingTexts,
    freshness::{Contents, FreshnessCheck, UncheckedWatch},
    own_writes::{ExpectationStatus, ExpectedState},
    reads::ReadRecord,
    subscribers::Subscribers,
    table::{SlotId, WatchSlot, WatchTable},
    watch_events::{Stale, TaskId, TaskSpec},
};
use innkeeper_model::{GroupKind, Gvk, HashKey, ObjectId, Shards};

use self::table::{Role, Settled};
use super::{
    interest::Interest,
    reader::{Reader, SubscriberId},
    section::Section,
    store::{Change, ObjectKey},
    stored::Stored,
    triggers::{Cause, Trigger},
};

/// The watches and the registrations that use them.
#[derive(Debug, Default)]
pub(super) struct CacheState {
    pub(super) table: WatchTable,
    pub(super) subscribers: Subscribers,
}

impl CacheState {
    /// Creates an empty state that is limited to these namespaces, if there are any. Of several shards, none is held.
    pub(super) fn new(namespaces: Option<Arc<[Arc<str>]>>, shards: Shards) -> Self {
        Self {
            table: WatchTable::new(namespaces, shards),
            subscribers: Subscribers::default(),
        }
    }

    /// Adds a registration and triggers all parents that are cached.
    pub(super) fn add_subscriber(
        &mut self,
        interest: Interest,
        wake: Arc<Notify>,
        now: Instant,
    ) -> SubscriberId {
        let subscriber_id = self.table.add_interest(interest);
        self.subscribers.add(subscriber_id, wake, now);
        // Before the scopes are computed: a reshaped watch is not ready.
        self.settle(&self.table.slots_of(subscriber_id), now);
        let ready = self.table.ready_scopes(subscriber_id);
        self.subscribers.set_ready(subscriber_id, ready);
        for parent in self.table.parents(subscriber_id) {
            let reader = Reader::new(subscriber_id, parent);
            self.subscribers.trigger(&reader, Cause::Listed);
        }
        subscriber_id
    }

    /// Changes a registration's interest; the parents' subscriptions stay.
    pub(super) fn change_interest(
        &mut self,
        subscriber_id: SubscriberId,
        interest: Interest,
        now: Instant,
    ) {
        // Released and acquired first, settled at the end: a watch that is needed before and after has no users in
        // between, and must not be dropped for that.
        let before = self.table.release(subscriber_id);
        self.table.acquire(subscriber_id, interest);
        let after = self.table.slots_of(subscriber_id);
        self.settle(&(&before | &after), now);
        self.recheck(subscriber_id);
    }

    /// Removes a registration.
    pub(super) fn remove_subscriber(&mut self, subscriber_id: SubscriberId, now: Instant) {
        // Removed before the watches settle, which may trigger other registrations' parents.
        self.subscribers.remove(subscriber_id);
        let slots = self.table.release(subscriber_id);
        self.settle(&slots, now);
    }

    /// Takes the most urgent triggers; while the first lists are in progress, returns the end of that wait instead.
    ///
    /// A parent that a list has just shown would have a useless pass, and one more for every later list.
    pub(super) fn take_triggers(
        &mut self,
        subscriber_id: SubscriberId,
        max: usize,
        now: Instant,
    ) -> Result<Vec<(ObjectId, Trigger)>, Instant> {
        let is_listing = || self.table.is_listing(subscriber_id);
        self.subscribers.take(subscriber_id, max, now, is_listing)
    }

    /// Watches a kind's metadata for the host itself.
    pub(super) fn watch_metadata(&mut self, kind: &Gvk, now: Instant) {
        let slot = self.table.acquire_metadata(kind);
        self.settle(&BTreeSet::from([slot]), now);
    }

    /// Sets or removes the hash key.
    pub(super) fn set_hash_key(&mut self, key: Option<HashKey>, now: Instant) {
        if self.table.hash_key != key {
            self.table.hash_key = key;
            // All: children may be retained, which only the key proves, and any watch may get children later.
            for id in self.table.ids() {
                self.restart(id, now);
            }
        }
    }

    /// Adapts watches after their users have changed.
    fn settle(&mut self, slots: &BTreeSet<SlotId>, now: Instant) {
        let settle = |id: &SlotId| (*id, self.table.settle(*id));
        let settled: Vec<(SlotId, Settled)> = slots.iter().map(settle).collect();
        self.arrange(slots.iter().copied(), now);
        for (id, settled) in settled {
            match settled {
                Settled::Unchanged => {}
                Settled::Reshaped => self.restart(id, now),
                Settled::OtherParents => self.refit(id, now),
            }
        }
    }

    /// Lists all sections of a watch again. The objects are unusable until then.
    fn restart(&mut self, id: SlotId, now: Instant) {
        self.table.restart(id, now);
        self.kind_changed(id, &Section::Whole);
    }

    /// Adapts a watch of children to the parents.
    fn refit(&mut self, id: SlotId, now: Instant) {
        if self.table.refit(id) {
            self.restart(id, now);
        }
    }

    /// Triggers the parents that these changes in one watch concern; `is_first` marks the first list.
    fn dispatch(&mut self, id: SlotId, changes: &[Change], is_first: bool) {
        for change in changes {
            let (Some(slot), Some(last)) = (self.table.get(id), change.last()) else {
                return;
            };
            let object = id_of(&slot.key.kind.group_kind(), last);
            let concerned = dispatch::concerned(&self.table, slot, &object, change, is_first);
            if let (Some(before), None) = (&change.before, &change.after) {
                self.table.drop_children_of(id, &before.uid);
            }
            for (reader, cause) in concerned {
                // A new parent with this name must not wait for the writes of this one.
                if cause == Some(Cause::ParentGone) {
                    self.forget(&reader);
                }
                if let Some(cause) = cause {
                    let trigger = Trigger::for_object(cause, Some(&object));
                    self.subscribers.trigger(&reader, trigger);
                }
                self.subscribers
                    .catch_up(&self.table, &reader, Some(&object));
            }
        }
    }

    /// Ends a parent's waits and subscriptions.
    fn forget(&mut self, reader: &Reader) {
        self.subscribers.forget(reader);
        // A record without reads ends every subscription.
        self.table.commit(reader, &ReadRecord::default());
    }

    /// Triggers the parents that depend on a kind when it becomes usable or unusable in a section.
    fn kind_changed(&mut self, id: SlotId, section: &Section) {
        let Some(slot) = self.table.get(id) else {
            return;
        };
        for (subscriber_id, _) in slot.users() {
            // Even without a trigger: the consumer may wait for first lists.
            self.subscribers.wake(subscriber_id);
        }
        for reader in dispatch::kind_readers(&self.table, slot, section) {
            self.subscribers.trigger(&reader, Cause::KindChanged);
        }
        let scopes = self.table.scopes_with(section);
        for subscriber_id in self.table.users_of_objects(id) {
            let triggered = self.recheck(subscriber_id);
            for scope in scopes.difference(&triggered) {
                // An optional kind may come or go without changing readiness.
                if self.subscribers.is_ready(subscriber_id, scope) {
                    self.trigger_scope(subscriber_id, scope);
                }
            }
        }
    }

    /// Recomputes the scopes in which passes can run, and triggers the parents in each changed scope. Returns the
    /// changed scopes.
    fn recheck(&mut self, subscriber_id: SubscriberId) -> BTreeSet<Section> {
        let ready = self.table.ready_scopes(subscriber_id);
        let changed = self.subscribers.set_ready(subscriber_id, ready);
        for scope in &changed {
            self.trigger_scope(subscriber_id, scope);
        }
        changed
    }

    fn trigger_scope(&mut self, subscriber_id: SubscriberId, scope: &Section) {
        for parent in self.table.parents_in(subscriber_id, scope) {
            let reader = Reader::new(subscriber_id, parent);
            self.subscribers.trigger(&reader, Cause::KindChanged);
        }
    }
}

/// A stored object's identity.
fn id_of(kind: &GroupKind, stored: &Stored) -> ObjectId {
    ObjectId {
        kind: kind.clone(),
        namespace: Some(Arc::clone(&stored.namespace)).filter(|name| !name.is_empty()),
        name: Arc::clone(&stored.name),
    }
}

/// An object's key in the store.
fn key_of(id: &ObjectId) -> ObjectKey {
    ObjectKey {
        namespace: id.namespace.clone().unwrap_or_else(|| "".into()),
        name: Arc::clone(&id.name),
    }
}

#[cfg(test)]
mod tests;
