//! Queued parents, parents with a pass, and parents that wait for their own writes, by registration.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use innkeeper_model::ObjectId;
use tokio::{sync::Notify, time::Instant};

use super::{Reader, SubscriberId, own_writes::WriteExpectations};
use crate::{
    section::Section,
    triggers::{HeldTriggers, Trigger, Triggers},
};

/// The longest time that the first triggers wait for the first lists.
///
/// Without this wait, a host that started with nothing to do ran 1.5 to 3.5 passes for each parent, because every list
/// after the first pass triggered another one. A healthy cluster sends lists sooner, and a missing list must not block
/// parents that do not need it for long. Parents that need it wait on their own.
pub(super) const FIRST_LISTS_WAIT: Duration = Duration::from_secs(5);

/// One registration.
#[derive(Debug)]
pub(super) struct Subscriber {
    triggers: Triggers,
    /// The parents that have a pass.
    running: BTreeMap<ObjectId, HeldTriggers>,
    wake: Arc<Notify>,
    pub(super) expectations: BTreeMap<ObjectId, WriteExpectations>,
    /// Parents that wait for their own writes.
    pub(super) behind: BTreeSet<ObjectId>,
    /// The scopes in which passes have all that they need.
    ready: BTreeSet<Section>,
    /// The end of the wait for the first lists; none when they are complete or the time has passed.
    held_until: Option<Instant>,
}

impl Subscriber {
    pub(super) fn trigger(&mut self, parent: &ObjectId, trigger: Trigger) {
        if let Some(held) = self.running.get_mut(parent) {
            held.hold(trigger, Instant::now());
            return;
        }
        self.triggers.add(parent.clone(), trigger);
        self.wake.notify_one();
    }
}

/// All registrations.
#[derive(Debug, Default)]
pub(crate) struct Subscribers(BTreeMap<SubscriberId, Subscriber>);

impl Subscribers {
    pub(super) fn add(&mut self, subscriber_id: SubscriberId, wake: Arc<Notify>, now: Instant) {
        let subscriber = Subscriber {
            triggers: Triggers::default(),
            running: BTreeMap::new(),
            wake,
            expectations: BTreeMap::new(),
            behind: BTreeSet::new(),
            ready: BTreeSet::new(),
            held_until: Some(now + FIRST_LISTS_WAIT),
        };
        self.0.insert(subscriber_id, subscriber);
    }

    pub(super) fn remove(&mut self, subscriber_id: SubscriberId) {
        self.0.remove(&subscriber_id);
    }

    pub(super) fn get(&self, subscriber_id: SubscriberId) -> Option<&Subscriber> {
        self.0.get(&subscriber_id)
    }

    pub(super) fn get_mut(&mut self, subscriber_id: SubscriberId) -> Option<&mut Subscriber> {
        self.0.get_mut(&subscriber_id)
    }

    /// Queues a parent; while the parent has a pass, holds the trigger until the pass ends.
    pub(crate) fn trigger(&mut self, reader: &Reader, trigger: impl Into<Trigger>) {
        if let Some(subscriber) = self.get_mut(reader.subscriber_id) {
            subscriber.trigger(&reader.parent, trigger.into());
        }
    }

    /// Wakes the consumer of a registration's triggers.
    pub(super) fn wake(&self, subscriber_id: SubscriberId) {
        if let Some(subscriber) = self.get(subscriber_id) {
            subscriber.wake.notify_one();
        }
    }

    /// Takes the most urgent triggers; returns the end of the wait for the first lists if they are in progress.
    pub(super) fn take(
        &mut self,
        subscriber_id: SubscriberId,
        max: usize,
        now: Instant,
        is_listing: impl FnOnce() -> bool,
    ) -> Result<Vec<(ObjectId, Trigger)>, Instant> {
        let Some(subscriber) = self.get_mut(subscriber_id) else {
            return Ok(Vec::new());
        };
        if let Some(until) = subscriber.held_until
            && now < until
            && is_listing()
        {
            return Err(until);
        }
        // Only the start is held up: a kind that is listed later does not delay the other parents.
        subscriber.held_until = None;
        Ok(subscriber.triggers.take(max))
    }

    /// Sets the scopes in which passes have all that they need, and returns those that changed.
    pub(super) fn set_ready(
        &mut self,
        subscriber_id: SubscriberId,
        ready: BTreeSet<Section>,
    ) -> BTreeSet<Section> {
        let Some(subscriber) = self.get_mut(subscriber_id) else {
            return BTreeSet::new();
        };
        let changed = &ready ^ &subscriber.ready;
        subscriber.ready = ready;
        changed
    }

    /// Returns true if passes in a scope have all that they need.
    pub(super) fn is_ready(&self, subscriber_id: SubscriberId, scope: &Section) -> bool {
        self.get(subscriber_id)
            .is_some_and(|subscriber| subscriber.ready.contains(scope))
    }

    /// Begins a pass.
    pub(crate) fn begin(&mut self, reader: &Reader) {
        if let Some(subscriber) = self.get_mut(reader.subscriber_id) {
            let triggers = subscriber.running.entry(reader.parent.clone()).or_default();
            // Queued after the parent was taken; the pass is about to observe that change too.
            if let Some(trigger) = subscriber.triggers.remove(&reader.parent) {
                triggers.hold(trigger, Instant::now());
            }
        }
    }

    /// Ends a pass, and queues the triggers that it has not observed.
    pub(crate) fn end(&mut self, reader: &Reader) {
        let Some(subscriber) = self.get_mut(reader.subscriber_id) else {
            return;
        };
        let triggers = subscriber.running.remove(&reader.parent);
        for trigger in triggers.unwrap_or_default().release() {
            subscriber.trigger(&reader.parent, trigger);
        }
    }

    /// Records that the parent's running pass has observed everything up to now.
    pub(crate) fn observed(&mut self, reader: &Reader) {
        if let Some(held) = self.held_triggers(reader) {
            held.clear();
        }
    }

    /// The triggers that wait for the end of a parent's pass.
    pub(super) fn held_triggers(&mut self, reader: &Reader) -> Option<&mut HeldTriggers> {
        let subscriber = self.get_mut(reader.subscriber_id)?;
        subscriber.running.get_mut(&reader.parent)
    }

    /// Drops a deleted parent's expectations.
    pub(super) fn forget(&mut self, reader: &Reader) {
        if let Some(subscriber) = self.get_mut(reader.subscriber_id) {
            subscriber.expectations.remove(&reader.parent);
            subscriber.behind.remove(&reader.parent);
        }
    }
}
