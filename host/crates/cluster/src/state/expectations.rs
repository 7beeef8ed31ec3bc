//! Expectations: own writes that the cache has not shown yet. Until it does, the parent has no pass, because the pass
//! would repeat the writes. The same holds for a write that was refused as stale: the next pass would act on the same
//! outdated state.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_model::{ObjectId, Resource, ResourceVersion, Uid};
use tokio::time::Instant;

use super::{CacheState, Reader, SlotId, Subscriber, WatchSlot, key_of};
use crate::{
    stored::{Shape, Stored},
    triggers::{Cause, Trigger},
};

/// The state that the cache must show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedState {
    /// This version or a later one.
    Version(ResourceVersion),
    /// A version later than this outdated one, or the end of the object.
    After(ResourceVersion),
    /// The end or the deletion timestamp of the object.
    Deleted(Uid),
    /// Unknown: only a live read can tell.
    Unknown,
}

/// One expectation.
#[derive(Clone, Debug)]
pub(super) struct WriteExpectation {
    expected: ExpectedState,
    /// The time at which the object is read live instead.
    due: Instant,
}

/// The expectations of one parent, by object.
pub(super) type WriteExpectations = BTreeMap<ObjectId, WriteExpectation>;

/// The step that must come before a parent is observed.
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
    pub(super) slot: SlotId,
    pub(crate) served: Resource,
    pub(crate) shape: Shape,
    /// The cached version before the read.
    version: Option<ResourceVersion>,
}

impl Subscriber {
    /// The watch in which a written object of a parent must appear.
    fn slot_of(&self, parent: &ObjectId, id: &ObjectId) -> Option<SlotId> {
        if id == parent {
            return Some(self.held.parent);
        }
        self.held.child(&id.kind)
    }

    fn is_met(
        &self,
        slots: &BTreeMap<SlotId, WatchSlot>,
        parent: &ObjectId,
        (id, expectation): (&ObjectId, &WriteExpectation),
    ) -> bool {
        let expected = &expectation.expected;
        let slot = self.slot_of(parent, id);
        let Some(slot) = slot.and_then(|slot| slots.get(&slot)) else {
            // A kind that is no longer watched shows no event, so waiting for one would never end.
            return *expected != ExpectedState::Unknown;
        };
        let stored = slot.store.get(&key_of(id));
        match expected {
            ExpectedState::Version(version) => {
                let watch = slot.namespace_watch_at(id.namespace.as_deref());
                watch.is_some_and(|watch| watch.version >= *version)
                    || stored.is_some_and(|stored| stored.version >= *version)
            }
            ExpectedState::After(version) => stored.is_none_or(|stored| stored.version > *version),
            ExpectedState::Deleted(uid) => {
                stored.is_none_or(|stored| stored.uid != *uid || stored.deleting)
            }
            ExpectedState::Unknown => false,
        }
    }

    /// Drops the expectations of a parent that are met.
    fn drop_met(&mut self, slots: &BTreeMap<SlotId, WatchSlot>, parent: &ObjectId) {
        let Some(mut open) = self.expectations.remove(parent) else {
            return;
        };
        open.retain(|id, expectation| !self.is_met(slots, parent, (id, expectation)));
        if !open.is_empty() {
            self.expectations.insert(parent.clone(), open);
        }
    }
}

impl CacheState {
    /// Adds an expectation.
    pub(crate) fn expect(
        &mut self,
        reader: &Reader,
        id: &ObjectId,
        expected: ExpectedState,
        due: Instant,
    ) {
        let Some(subscriber) = self.subscribers.get_mut(&reader.subscriber_id) else {
            return;
        };
        let parent = reader.parent.clone();
        let expectations = subscriber.expectations.entry(parent).or_default();
        // A write with an unknown outcome stays unknown until a live read: a later write of the same object says
        // nothing about it.
        let unknown = expectations
            .get(id)
            .is_some_and(|expectation| expectation.expected == ExpectedState::Unknown);
        if !unknown {
            expectations.insert(id.clone(), WriteExpectation { expected, due });
        }
    }

    /// Returns the step that is needed before a parent can be observed, and remembers a parent that has to wait.
    pub(crate) fn expectation_status(
        &mut self,
        Reader {
            subscriber_id,
            parent,
        }: &Reader,
        now: Instant,
    ) -> ExpectationStatus {
        let Some(subscriber) = self.subscribers.get_mut(subscriber_id) else {
            return ExpectationStatus::None;
        };
        subscriber.drop_met(&self.slots, parent);
        let open = subscriber.expectations.get(parent);
        let Some(first) = open.and_then(|open| open.values().map(|one| one.due).min()) else {
            subscriber.behind.remove(parent);
            return ExpectationStatus::None;
        };
        if first <= now {
            let due = open.into_iter().flatten().filter(|(_, one)| one.due <= now);
            return ExpectationStatus::Read(due.map(|(id, _)| id.clone()).collect());
        }
        subscriber.behind.insert(parent.clone());
        ExpectationStatus::Until(first)
    }

    /// Returns true if a parent has open expectations. Unlike [`expectation_status`](Self::expectation_status) it registers no wait.
    pub(crate) fn is_behind(&self, reader: &Reader) -> bool {
        let subscriber = self.subscribers.get(&reader.subscriber_id);
        subscriber.is_some_and(|subscriber| {
            let mut expectations = subscriber
                .expectations
                .get(&reader.parent)
                .into_iter()
                .flatten();
            expectations.any(|one| !subscriber.is_met(&self.slots, &reader.parent, one))
        })
    }

    /// Prepares a live read; none if the kind cannot be read, so that there is nothing to wait for.
    pub(crate) fn live_read(&mut self, reader: &Reader, id: &ObjectId) -> Option<LiveRead> {
        let read = self.readable(reader, id);
        if read.is_none() {
            self.drop_expectation(reader, id);
        }
        read
    }

    /// Returns the form in which the cache holds an object; none if its kind cannot be read.
    pub(crate) fn readable(&self, reader: &Reader, id: &ObjectId) -> Option<LiveRead> {
        let subscriber = self.subscribers.get(&reader.subscriber_id)?;
        let slot_id = subscriber.slot_of(&reader.parent, id)?;
        let slot = self.slots.get(&slot_id)?;
        if self.why(slot, id.namespace.as_deref()).is_some() {
            return None;
        }
        Some(LiveRead {
            slot: slot_id,
            served: slot.served.clone()?,
            shape: self.shape(slot, slot.form()),
            version: slot.store.get(&key_of(id)).map(|stored| stored.version),
        })
    }

    /// Applies the result of a live read.
    pub(crate) fn live(
        &mut self,
        reader: &Reader,
        id: &ObjectId,
        read: &LiveRead,
        found: Option<Stored>,
    ) {
        self.drop_expectation(reader, id);
        let Some(slot) = self.slots.get_mut(&read.slot) else {
            return;
        };
        let found = found.filter(|stored| slot.covers(stored));
        // The object is missing, or older than its cached version was before the read: then that version never existed,
        // and no event would replace it. A version that arrived during the read is newer than this answer and stays.
        let wrong = read.version.filter(|version| {
            let found = found.as_ref();
            found.is_none_or(|found| found.version < *version)
        });
        let removed = wrong.and_then(|version| slot.store.remove(&key_of(id), version));
        let mut changes = Vec::from_iter(removed);
        changes.extend(
            found
                .into_iter()
                .flat_map(|stored| self.store(read.slot, stored)),
        );
        self.dispatch(read.slot, &changes, false);
    }

    /// Postpones a live read that failed.
    pub(crate) fn live_failed(&mut self, reader: &Reader, id: &ObjectId, now: Instant) {
        // The API server has just failed to answer, so the next read is not sent at once.
        const PAUSE: Duration = Duration::from_secs(1);
        let subscriber = self.subscribers.get_mut(&reader.subscriber_id);
        let open =
            subscriber.and_then(|subscriber| subscriber.expectations.get_mut(&reader.parent));
        if let Some(expectation) = open.and_then(|open| open.get_mut(id)) {
            expectation.due = now + PAUSE;
        }
    }

    /// Ends the wait of a parent whose expectations are met, and triggers it.
    pub(super) fn catch_up(&mut self, reader: &Reader, object: Option<&ObjectId>) {
        let Some(subscriber) = self.subscribers.get_mut(&reader.subscriber_id) else {
            return;
        };
        if !subscriber.behind.contains(&reader.parent) {
            return;
        }
        subscriber.drop_met(&self.slots, &reader.parent);
        if !subscriber.expectations.contains_key(&reader.parent) {
            subscriber.behind.remove(&reader.parent);
            let trigger = Trigger {
                object: object.cloned(),
                ..Cause::CaughtUp.into()
            };
            subscriber.trigger(reader.parent.clone(), trigger);
        }
    }

    /// Ends waits after a watch has advanced without a change of an object.
    pub(super) fn moved_on(&mut self, id: SlotId) {
        let users = self.slots.get(&id).into_iter().flat_map(WatchSlot::users);
        let mut behind = Vec::new();
        for (subscriber_id, _) in users {
            let subscriber = self.subscribers.get(&subscriber_id).into_iter();
            let parents = subscriber.flat_map(|subscriber| subscriber.behind.iter().cloned());
            behind.extend(parents.map(|parent| Reader {
                subscriber_id,
                parent,
            }));
        }
        for reader in behind {
            self.catch_up(&reader, None);
        }
    }

    fn drop_expectation(&mut self, reader: &Reader, id: &ObjectId) {
        let Some(subscriber) = self.subscribers.get_mut(&reader.subscriber_id) else {
            return;
        };
        if let Some(open) = subscriber.expectations.get_mut(&reader.parent) {
            open.remove(id);
            if open.is_empty() {
                subscriber.expectations.remove(&reader.parent);
            }
        }
    }
}
