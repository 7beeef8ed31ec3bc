//! The host's own writes: until the cache shows a write, the parent has no pass, because the pass would repeat it.
//!
//! The same holds for a write that the API server refused as stale: the next pass would act on the same outdated state.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_model::{ObjectId, Resource, ResourceVersion, Uid};
use tokio::time::Instant;

use super::{CacheState, Reader, SlotId, Subscribers, WatchSlot, WatchTable, key_of};
use crate::{
    section::Section,
    stored::{Shape, Stored},
    triggers::{Cause, Trigger},
};

/// The state that the cache must show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedState {
    /// This version or a later one.
    Version(ResourceVersion),
    /// A version later than this outdated one, or the object's end.
    After(ResourceVersion),
    /// The object's end, or a deletion timestamp.
    Deleted(Uid),
    /// Unknown: only a live read can tell.
    Unknown,
}

#[derive(Clone, Debug)]
pub(super) struct WriteExpectation {
    expected: ExpectedState,
    /// The time of the live read.
    due: Instant,
}

/// A parent's expectations by object.
pub(super) type WriteExpectations = BTreeMap<ObjectId, WriteExpectation>;

/// The step before a parent is observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExpectationStatus {
    /// Nothing.
    None,
    /// Wait until then at the latest.
    Until(Instant),
    /// Read these objects live.
    Read(Vec<ObjectId>),
}

/// The parameters of a live read.
#[derive(Clone, Debug)]
pub(crate) struct LiveRead {
    slot: SlotId,
    pub(crate) served: Resource,
    pub(crate) shape: Shape,
    /// The cached version before the read.
    version: Option<ResourceVersion>,
}

impl WriteExpectation {
    fn is_met(&self, table: &WatchTable, reader: &Reader, id: &ObjectId) -> bool {
        let Some(slot) = table.slot_of_write(reader, id).and_then(|id| table.get(id)) else {
            // A kind that is no longer watched shows no event, so a wait would never end.
            return self.expected != ExpectedState::Unknown;
        };
        let stored = slot.store.get(&key_of(id));
        match &self.expected {
            ExpectedState::Version(version) => {
                // The watch may be past the version without the object: deleted again, or without the label.
                slot.watch_at(id.namespace.as_deref())
                    .is_some_and(|watch| watch.version >= *version)
                    || stored.is_some_and(|stored| stored.version >= *version)
            }
            ExpectedState::After(version) => stored.is_none_or(|stored| stored.version > *version),
            // A deletion in the foreground leaves the object until everything that it owns is gone.
            ExpectedState::Deleted(uid) => {
                stored.is_none_or(|stored| stored.uid != *uid || stored.deleting)
            }
            ExpectedState::Unknown => false,
        }
    }
}

impl WatchTable {
    /// The watch that must show an object that a parent's pass has written.
    fn slot_of_write(&self, reader: &Reader, id: &ObjectId) -> Option<SlotId> {
        let watches = self.by_subscriber.get(&reader.subscriber_id)?;
        if *id == reader.parent {
            return Some(watches.parent);
        }
        watches.child(&id.kind)
    }

    /// Returns how to read an object live in the cached form; none if the kind is not readable.
    pub(crate) fn live_read(&self, reader: &Reader, id: &ObjectId) -> Option<LiveRead> {
        let slot_id = self.slot_of_write(reader, id)?;
        let slot = self.get(slot_id)?;
        if self
            .why(slot, &Section::at(id.namespace.as_ref()))
            .is_some()
        {
            return None;
        }
        Some(LiveRead {
            slot: slot_id,
            served: slot.served.clone()?,
            shape: self.shape(slot, slot.form()),
            version: slot.store.get(&key_of(id)).map(|stored| stored.version),
        })
    }
}

impl Subscribers {
    /// Adds an expectation.
    pub(crate) fn expect(
        &mut self,
        reader: &Reader,
        id: &ObjectId,
        expected: ExpectedState,
        due: Instant,
    ) {
        let Some(subscriber) = self.get_mut(reader.subscriber_id) else {
            return;
        };
        let parent = reader.parent.clone();
        let expectations = subscriber.expectations.entry(parent).or_default();
        // An unknown outcome stays unknown until a live read: a later write of the object says nothing about it.
        let is_unknown = expectations
            .get(id)
            .is_some_and(|expectation| expectation.expected == ExpectedState::Unknown);
        if !is_unknown {
            expectations.insert(id.clone(), WriteExpectation { expected, due });
        }
    }

    fn expectation_status(
        &mut self,
        table: &WatchTable,
        reader: &Reader,
        now: Instant,
    ) -> ExpectationStatus {
        self.drop_met(table, reader);
        let Some(subscriber) = self.get_mut(reader.subscriber_id) else {
            return ExpectationStatus::None;
        };
        let expectations = subscriber.expectations.get(&reader.parent);
        let Some(first) =
            expectations.and_then(|all| all.values().map(|expectation| expectation.due).min())
        else {
            subscriber.behind.remove(&reader.parent);
            return ExpectationStatus::None;
        };
        if first <= now {
            let due = expectations
                .into_iter()
                .flatten()
                .filter(|(_, expectation)| expectation.due <= now)
                .map(|(id, _)| id.clone());
            return ExpectationStatus::Read(due.collect());
        }
        subscriber.behind.insert(reader.parent.clone());
        ExpectationStatus::Until(first)
    }

    /// Returns true if a parent has unmet expectations. Unlike [`expectation_status`](Self::expectation_status),
    /// registers no wait.
    pub(crate) fn is_behind(&self, table: &WatchTable, reader: &Reader) -> bool {
        self.get(reader.subscriber_id)
            .and_then(|subscriber| subscriber.expectations.get(&reader.parent))
            .into_iter()
            .flatten()
            .any(|(id, expectation)| !expectation.is_met(table, reader, id))
    }

    /// Postpones a live read that failed.
    pub(crate) fn live_read_failed(&mut self, reader: &Reader, id: &ObjectId, now: Instant) {
        // The API server has just failed to answer, so the next read is not sent at once.
        const PAUSE: Duration = Duration::from_secs(1);
        if let Some(subscriber) = self.get_mut(reader.subscriber_id)
            && let Some(expectations) = subscriber.expectations.get_mut(&reader.parent)
            && let Some(expectation) = expectations.get_mut(id)
        {
            expectation.due = now + PAUSE;
        }
    }

    /// Triggers a waiting parent whose expectations are met.
    pub(super) fn catch_up(
        &mut self,
        table: &WatchTable,
        reader: &Reader,
        object: Option<&ObjectId>,
    ) {
        let is_waiting = |subscribers: &Self| {
            subscribers
                .get(reader.subscriber_id)
                .is_some_and(|subscriber| subscriber.behind.contains(&reader.parent))
        };
        if !is_waiting(self) {
            return;
        }
        self.drop_met(table, reader);
        if let Some(subscriber) = self.get_mut(reader.subscriber_id)
            && !subscriber.expectations.contains_key(&reader.parent)
        {
            subscriber.behind.remove(&reader.parent);
            let trigger = Trigger::for_object(Cause::CaughtUp, object);
            subscriber.trigger(&reader.parent, trigger);
        }
    }

    fn drop_met(&mut self, table: &WatchTable, reader: &Reader) {
        self.retain(reader, |id, expectation| {
            !expectation.is_met(table, reader, id)
        });
    }

    pub(crate) fn drop_expectation(&mut self, reader: &Reader, id: &ObjectId) {
        self.retain(reader, |known, _| known != id);
    }

    fn retain(&mut self, reader: &Reader, is_kept: impl Fn(&ObjectId, &WriteExpectation) -> bool) {
        if let Some(subscriber) = self.get_mut(reader.subscriber_id)
            && let Some(expectations) = subscriber.expectations.get_mut(&reader.parent)
        {
            expectations.retain(|id, expectation| is_kept(id, expectation));
            if expectations.is_empty() {
                subscriber.expectations.remove(&reader.parent);
            }
        }
    }
}

impl CacheState {
    /// Returns what must happen before a parent can be observed, and remembers a parent that has to wait.
    pub(crate) fn expectation_status(
        &mut self,
        reader: &Reader,
        now: Instant,
    ) -> ExpectationStatus {
        self.subscribers
            .expectation_status(&self.table, reader, now)
    }

    /// Stores the response to a running pass's write ahead of the watch event; returns false if the cache cannot.
    ///
    /// The write was bound to the state that the pass observed, so the response hides no change by others. The pass
    /// knows its own write: only other readers are triggered, and the following event is no change.
    pub(crate) fn apply_write_response(
        &mut self,
        reader: &Reader,
        id: &ObjectId,
        read: &LiveRead,
        response: Stored,
    ) -> bool {
        let Some(slot) = self
            .table
            .get(read.slot)
            .filter(|slot| slot.covers(&response))
        else {
            return false;
        };
        let version = response.version;
        let watch = slot.watch_at(id.namespace.as_deref());
        let is_cached = slot.store.get(&key_of(id)).is_some();
        if !is_cached && watch.is_some_and(|watch| watch.version >= version) {
            // The watch is ahead of the response and has shown the object's end: no event would remove it again.
            return true;
        }
        let changes = self.table.store(read.slot, response);
        let slot = self.table.get(read.slot);
        let cached = slot
            .and_then(|slot| slot.store.get(&key_of(id)))
            .map(|stored| stored.version);
        self.dispatch(read.slot, &changes, false);
        // Also drops the trigger for an event that came before the response. A later version is a change by others,
        // which stays a trigger.
        if cached == Some(version)
            && let Some(held) = self.subscribers.held_triggers(reader)
        {
            held.forget(id);
        }
        cached.is_some_and(|cached| cached >= version)
    }

    /// Applies the result of a live read.
    pub(crate) fn apply_live_read(
        &mut self,
        reader: &Reader,
        id: &ObjectId,
        read: &LiveRead,
        object: Option<Stored>,
    ) {
        self.subscribers.drop_expectation(reader, id);
        let Some(slot) = self.table.slots.get_mut(&read.slot) else {
            return;
        };
        let object = object.filter(|stored| slot.covers(stored));
        // The object is missing, or older than the cached version was before the read: then that version never existed,
        // and no event would replace it. A version that arrived during the read is newer than this answer and stays.
        let wrong_version = read.version.filter(|version| {
            object
                .as_ref()
                .is_none_or(|object| object.version < *version)
        });
        let removed = wrong_version.and_then(|version| slot.store.remove(&key_of(id), version));
        let mut changes = Vec::from_iter(removed);
        if let Some(stored) = object {
            changes.extend(self.table.store(read.slot, stored));
        }
        self.dispatch(read.slot, &changes, false);
    }

    /// Ends waits after a watch has advanced without changing an object.
    pub(super) fn version_advanced(&mut self, id: SlotId) {
        let users = self.table.get(id).into_iter().flat_map(WatchSlot::users);
        let waiting: Vec<Reader> = users
            .filter_map(|(id, _)| Some((id, self.subscribers.get(id)?)))
            .flat_map(|(subscriber_id, subscriber)| {
                subscriber
                    .behind
                    .iter()
                    .cloned()
                    .map(move |parent| Reader::new(subscriber_id, parent))
            })
            .collect();
        for reader in waiting {
            self.subscribers.catch_up(&self.table, &reader, None);
        }
    }
}
