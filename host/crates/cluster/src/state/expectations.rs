//! Expectations: own writes that the cache has not shown yet. Until it does, the parent has no pass, because the pass
//! would repeat the writes. The same holds for a write that was refused as stale: the next pass would act on the same
//! outdated state.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_model::{Gvk, ObjectId, Resource, ResourceVersion, Uid};
use tokio::time::Instant;

use super::{CacheState, SlotId, SubscriberId, key_of};
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
    slot: SlotId,
    pub(crate) served: Resource,
    pub(crate) shape: Shape,
    /// The cached version before the read.
    version: Option<ResourceVersion>,
}

impl CacheState {
    /// Adds an expectation.
    pub(crate) fn expect(
        &mut self,
        subscriber_id: SubscriberId,
        parent: &ObjectId,
        id: &ObjectId,
        expected: ExpectedState,
        due: Instant,
    ) {
        let Some(subscriber) = self.subscribers.get_mut(&subscriber_id) else {
            return;
        };
        let expectations = subscriber.expectations.entry(parent.clone()).or_default();
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
        subscriber_id: SubscriberId,
        parent: &ObjectId,
        now: Instant,
    ) -> ExpectationStatus {
        self.drop_met(subscriber_id, parent);
        let Some(subscriber) = self.subscribers.get_mut(&subscriber_id) else {
            return ExpectationStatus::None;
        };
        let Some(expectations) = subscriber.expectations.get(parent) else {
            subscriber.behind.remove(parent);
            return ExpectationStatus::None;
        };
        let due: Vec<ObjectId> = expectations
            .iter()
            .filter(|(_, expectation)| expectation.due <= now)
            .map(|(id, _)| id.clone())
            .collect();
        if !due.is_empty() {
            return ExpectationStatus::Read(due);
        }
        let first = expectations
            .values()
            .map(|expectation| expectation.due)
            .min();
        subscriber.behind.insert(parent.clone());
        first.map_or(ExpectationStatus::None, ExpectationStatus::Until)
    }

    /// Returns true if a parent has open expectations. Unlike [`expectation_status`](Self::expectation_status) it registers no wait.
    pub(crate) fn is_behind(&self, subscriber_id: SubscriberId, parent: &ObjectId) -> bool {
        self.subscribers
            .get(&subscriber_id)
            .and_then(|subscriber| subscriber.expectations.get(parent))
            .into_iter()
            .flatten()
            .any(|(id, expectation)| !self.is_met(subscriber_id, parent, id, &expectation.expected))
    }

    /// Prepares a live read; none if the kind cannot be read, so that there is nothing to wait for.
    pub(crate) fn live_read(
        &mut self,
        subscriber_id: SubscriberId,
        parent: &ObjectId,
        id: &ObjectId,
    ) -> Option<LiveRead> {
        let found = self
            .expectation_slot(subscriber_id, parent, id)
            .and_then(|(slot_id, kind)| {
                let slot = self.slots.get(&slot_id)?;
                let namespace = id.namespace.as_deref();
                let mut shape = self.shape(slot, slot.form());
                shape.kind = kind;
                Some(LiveRead {
                    slot: slot_id,
                    served: slot
                        .served
                        .clone()
                        .filter(|_| self.why(slot, namespace).is_none())?,
                    shape,
                    version: slot.store.get(&key_of(id)).map(|stored| stored.version),
                })
            });
        if found.is_none() {
            self.drop_expectation(subscriber_id, parent, id);
        }
        found
    }

    /// Applies the result of a live read.
    pub(crate) fn live(
        &mut self,
        subscriber_id: SubscriberId,
        parent: &ObjectId,
        id: &ObjectId,
        read: &LiveRead,
        found: Option<Stored>,
    ) {
        self.drop_expectation(subscriber_id, parent, id);
        let Some(slot) = self.slots.get_mut(&read.slot) else {
            return;
        };
        // An object outside the selector of the watch would stay in the cache for ever, because no event would remove
        // it.
        let changes = match found.filter(|stored| stored.is_selected(&slot.key.selector)) {
            Some(stored) => slot.store.put(stored),
            // The object is missing. A version that arrived during the read is newer than this answer and stays.
            None => read
                .version
                .and_then(|version| slot.store.remove(&key_of(id), version))
                .into_iter()
                .collect(),
        };
        self.dispatch(read.slot, &changes, false);
    }

    /// Postpones a live read that failed.
    pub(crate) fn live_failed(
        &mut self,
        subscriber_id: SubscriberId,
        parent: &ObjectId,
        id: &ObjectId,
        now: Instant,
    ) {
        // The API server has just failed to answer, so the next read is not sent at once.
        const PAUSE: Duration = Duration::from_secs(1);
        let subscriber = self.subscribers.get_mut(&subscriber_id);
        let expectations =
            subscriber.and_then(|subscriber| subscriber.expectations.get_mut(parent));
        if let Some(expectation) = expectations.and_then(|expectations| expectations.get_mut(id)) {
            expectation.due = now + PAUSE;
        }
    }

    /// Ends the wait of a parent whose expectations are met, and returns true if it did.
    pub(super) fn caught_up(&mut self, subscriber_id: SubscriberId, parent: &ObjectId) -> bool {
        let waits = |state: &Self| {
            let subscriber = state.subscribers.get(&subscriber_id)?;
            subscriber.behind.contains(parent).then_some(())
        };
        if waits(self).is_none() {
            return false;
        }
        self.drop_met(subscriber_id, parent);
        let Some(subscriber) = self.subscribers.get_mut(&subscriber_id) else {
            return false;
        };
        let done = !subscriber.expectations.contains_key(parent);
        if done {
            subscriber.behind.remove(parent);
        }
        done
    }

    /// Ends waits after a watch has advanced without a change of an object.
    pub(super) fn moved_on(&mut self, id: SlotId) {
        let Some(slot) = self.slots.get(&id) else {
            return;
        };
        let subscribers: Vec<SubscriberId> = slot
            .users()
            .map(|(subscriber_id, _)| subscriber_id)
            .collect();
        for subscriber_id in subscribers {
            let subscriber = self.subscribers.get(&subscriber_id);
            let behind: Vec<ObjectId> = subscriber
                .into_iter()
                .flat_map(|subscriber| subscriber.behind.iter().cloned())
                .collect();
            for parent in behind {
                if self.caught_up(subscriber_id, &parent) {
                    let trigger = Trigger {
                        cause: Cause::CaughtUp,
                        object: None,
                    };
                    self.trigger(subscriber_id, parent, trigger);
                }
            }
        }
    }

    fn drop_met(&mut self, subscriber_id: SubscriberId, parent: &ObjectId) {
        let seen: Vec<ObjectId> = self
            .subscribers
            .get(&subscriber_id)
            .and_then(|subscriber| subscriber.expectations.get(parent))
            .into_iter()
            .flatten()
            .filter(|(id, expectation)| {
                self.is_met(subscriber_id, parent, id, &expectation.expected)
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in seen {
            self.drop_expectation(subscriber_id, parent, &id);
        }
    }

    fn is_met(
        &self,
        subscriber_id: SubscriberId,
        parent: &ObjectId,
        id: &ObjectId,
        expected: &ExpectedState,
    ) -> bool {
        let Some((slot, _)) = self.expectation_slot(subscriber_id, parent, id) else {
            // A kind that is no longer watched shows no event, so waiting for one would never end.
            return *expected != ExpectedState::Unknown;
        };
        let Some(slot) = self.slots.get(&slot) else {
            return true;
        };
        let stored = slot.store.get(&key_of(id));
        match expected {
            ExpectedState::Version(version) => {
                let namespace_watch = slot.namespace_watch_at(id.namespace.as_deref());
                namespace_watch.is_some_and(|namespace_watch| namespace_watch.version >= *version)
                    || stored.is_some_and(|stored| stored.version >= *version)
            }
            ExpectedState::After(version) => stored.is_none_or(|stored| stored.version > *version),
            ExpectedState::Deleted(uid) => {
                stored.is_none_or(|stored| stored.uid != *uid || stored.deleting)
            }
            ExpectedState::Unknown => false,
        }
    }

    fn drop_expectation(&mut self, subscriber_id: SubscriberId, parent: &ObjectId, id: &ObjectId) {
        let Some(subscriber) = self.subscribers.get_mut(&subscriber_id) else {
            return;
        };
        if let Some(expectations) = subscriber.expectations.get_mut(parent) {
            expectations.remove(id);
            if expectations.is_empty() {
                subscriber.expectations.remove(parent);
            }
        }
    }

    /// The watch in which a written object must appear.
    fn expectation_slot(
        &self,
        subscriber_id: SubscriberId,
        parent: &ObjectId,
        id: &ObjectId,
    ) -> Option<(SlotId, Gvk)> {
        let subscriber = self.subscribers.get(&subscriber_id)?;
        if id == parent {
            return Some((subscriber.held.parent, subscriber.interest.parent.clone()));
        }
        let mut children = subscriber.held.children.iter();
        children
            .find(|(child, _)| child.kind.group_kind() == id.kind)
            .map(|(child, slot)| (*slot, child.kind.clone()))
    }
}
