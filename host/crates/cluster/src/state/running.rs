//! Running passes: the triggers that wait for their end, and the answers to their writes.

use innkeeper_model::ObjectId;
use tokio::time::Instant;

use super::{CacheState, Reader, expectations::LiveRead, key_of};
use crate::{stored::Stored, triggers::HeldTriggers};

impl CacheState {
    /// Begins a pass: from now on, the triggers of its parent wait for its end.
    pub(crate) fn begin(
        &mut self,
        Reader {
            subscriber_id,
            parent,
        }: &Reader,
    ) {
        if let Some(subscriber) = self.subscribers.get_mut(subscriber_id) {
            let held = subscriber.running.entry(parent.clone()).or_default();
            if let Some(trigger) = subscriber.triggers.remove(parent) {
                held.hold(trigger, Instant::now());
            }
        }
    }

    /// Ends a pass, and releases the triggers for whatever it has not observed.
    pub(crate) fn end(
        &mut self,
        Reader {
            subscriber_id,
            parent,
        }: &Reader,
    ) {
        let Some(subscriber) = self.subscribers.get_mut(subscriber_id) else {
            return;
        };
        let held = subscriber.running.remove(parent).unwrap_or_default();
        for trigger in held.release() {
            subscriber.trigger(parent.clone(), trigger);
        }
    }

    /// Notes that the running pass of a parent has observed everything up to now.
    pub(crate) fn observed(&mut self, reader: &Reader) {
        if let Some(held) = self.held_triggers(reader) {
            held.clear();
        }
    }

    /// The triggers that wait for the end of the running pass of a parent.
    fn held_triggers(&mut self, reader: &Reader) -> Option<&mut HeldTriggers> {
        let subscriber = self.subscribers.get_mut(&reader.subscriber_id)?;
        subscriber.running.get_mut(&reader.parent)
    }

    /// Stores the answer to a write of a running pass, ahead of its watch event; returns false if the cache cannot show it.
    ///
    /// The write was bound to the state that the pass observed, so that no change of others hides behind the answer. The
    /// pass knows its own write: only the other readers are triggered, and the event that follows is no change.
    pub(crate) fn take_in(
        &mut self,
        reader: &Reader,
        id: &ObjectId,
        read: &LiveRead,
        written: Stored,
    ) -> bool {
        let Some(slot) = self.slots.get(&read.slot) else {
            return false;
        };
        if !slot.covers(&written) {
            return false;
        }
        let version = written.version;
        let watched = slot.namespace_watch_at(id.namespace.as_deref());
        if slot.store.get(&key_of(id)).is_none()
            && watched.is_some_and(|watch| watch.version >= version)
        {
            // The watch has overtaken the answer and shown the end of the object: no event would remove it again.
            return true;
        }
        let changes = self.store(read.slot, written);
        let slot = self.slots.get(&read.slot);
        let shown = slot.and_then(|slot| slot.store.get(&key_of(id)));
        let shown = shown.map(|stored| stored.version);
        self.dispatch(read.slot, &changes, false);
        // Also drops the trigger of an event that came before the answer. A later version is a change of others, which stays
        // a trigger.
        if shown == Some(version)
            && let Some(held) = self.held_triggers(reader)
        {
            held.forget(id);
        }
        shown.is_some_and(|shown| shown >= version)
    }
}
