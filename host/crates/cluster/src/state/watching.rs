//! Input from discovery and the watch tasks, and the set of tasks that should run.

use std::collections::BTreeMap;

use innkeeper_model::{Access, ResourceVersion};
use tokio::time::Instant;

use super::{Slot, SlotId, State, lanes::Lane, slots::Health};
use crate::{
    discovery::Kinds,
    error::chain,
    machine::{Since, Step},
    store::{Key, Store},
    stored::{Shape, Stored},
    wire::{Failure, Target},
};

/// A watch task that should run.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) target: Target,
    pub(crate) shape: Shape,
    /// Its first step.
    pub(crate) first: Step,
}

/// The outcome of an update by a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// Applied.
    Current,
    /// Ignored: older than the known state.
    WentBack,
    /// Ignored: another task has taken over.
    Superseded,
}

impl State {
    /// Applies newly discovered kinds and returns true if a watch is affected.
    pub(crate) fn serve(&mut self, kinds: Kinds, now: Instant) -> bool {
        let first = self.kinds.is_none();
        self.kinds = Some(kinds);
        let mut affected = Vec::new();
        for (id, slot) in &self.slots {
            let kinds = self.kinds.as_ref();
            let served = kinds.and_then(|kinds| kinds.get(&slot.key.kind)).cloned();
            if first || served != slot.served {
                affected.push((*id, served));
            }
        }
        for (id, served) in &affected {
            let lanes = self.lanes(served.as_ref(), now);
            let Some(slot) = self.slots.get_mut(id) else {
                continue;
            };
            slot.served.clone_from(served);
            let places = |lanes: &[Lane]| -> Vec<_> {
                lanes.iter().map(|lane| lane.namespace.clone()).collect()
            };
            // Versions and objects of other namespaces say nothing about the new requests.
            if served.is_none() || places(&slot.lanes) != places(&lanes) {
                slot.lanes = lanes;
                let changes = slot.store.clear();
                self.dispatch(*id, &changes, false);
            } else {
                self.restart(*id, now);
            }
            self.kind_changed(*id, None);
        }
        !affected.is_empty()
    }

    /// Returns every task that should run, by watch and generation.
    pub(crate) fn orders(&self) -> BTreeMap<(SlotId, u64), Order> {
        let mut orders = BTreeMap::new();
        for (id, slot) in &self.slots {
            if slot.form() == Access::Hash && self.hash_key.is_none() {
                continue;
            }
            for lane in &slot.lanes {
                let Some(target) = slot.target(lane, slot.form()) else {
                    continue;
                };
                let since = if lane.version == ResourceVersion::default() {
                    Since::Now
                } else {
                    Since::NotOlderThan(lane.version)
                };
                let order = Order {
                    target,
                    shape: self.shape(slot, slot.form()),
                    first: Step::List { since, paged: true },
                };
                orders.insert((*id, lane.generation), order);
            }
        }
        orders
    }

    /// The last version that a task has seen.
    pub(crate) fn version(&mut self, task: (SlotId, u64)) -> ResourceVersion {
        let found = self.of_task(task);
        found.map_or_else(ResourceVersion::default, |(lane, _)| lane.version)
    }

    /// Begins a list that shows the state at `version`.
    ///
    /// A list of the present state from a quorum is the truth, even if older. Any other list older than the known state
    /// is refused.
    pub(crate) fn begin_list(
        &mut self,
        task: (SlotId, u64),
        since: Since,
        version: ResourceVersion,
    ) -> Applied {
        let Some((lane, store)) = self.of_task(task) else {
            return Applied::Superseded;
        };
        let older = version < lane.version;
        if older && since != Since::Now {
            return Applied::WentBack;
        }
        store.begin_list(lane.namespace.as_ref(), older || lane.reshaped);
        Applied::Current
    }

    /// Applies a page of a list.
    pub(crate) fn page(&mut self, task: (SlotId, u64), objects: Vec<Stored>) -> Applied {
        let Some((lane, store)) = self.of_task(task) else {
            return Applied::Superseded;
        };
        let first = lane.lists == 0;
        let changes: Vec<_> = objects
            .into_iter()
            .flat_map(|stored| store.put(stored))
            .collect();
        self.dispatch(task.0, &changes, first);
        Applied::Current
    }

    /// Ends a list: objects that it did not show are gone.
    pub(crate) fn end_list(
        &mut self,
        task: (SlotId, u64),
        version: ResourceVersion,
        now: Instant,
    ) -> Applied {
        let Some((lane, store)) = self.of_task(task) else {
            return Applied::Superseded;
        };
        let changes = store.end_list(lane.namespace.as_ref(), version);
        let synced = lane.health == Health::Synced;
        lane.version = version;
        lane.reshaped = false;
        lane.last_event = Some(now);
        lane.last_error = None;
        lane.lists += 1;
        lane.set_health(Health::Synced, now);
        let namespace = lane.namespace.clone();
        self.dispatch(task.0, &changes, false);
        self.moved_on(task.0);
        if !synced {
            self.kind_changed(task.0, namespace.as_ref());
        }
        Applied::Current
    }

    /// Applies an added or modified object.
    pub(crate) fn put(&mut self, task: (SlotId, u64), stored: Stored, now: Instant) -> Applied {
        let applied = self.advance(task, stored.version, now);
        if applied == Applied::Current
            && let Some(slot) = self.slots.get_mut(&task.0)
        {
            let changes = slot.store.put(stored);
            self.dispatch(task.0, &changes, false);
        }
        applied
    }

    /// Applies a deletion.
    pub(crate) fn remove(&mut self, task: (SlotId, u64), stored: &Stored, now: Instant) -> Applied {
        let applied = self.advance(task, stored.version, now);
        if applied == Applied::Current
            && let Some(slot) = self.slots.get_mut(&task.0)
            && let Some(change) = slot.store.remove(&Key::of(stored), stored.version)
        {
            self.dispatch(task.0, &[change], false);
        }
        applied
    }

    /// Applies a bookmark: every event up to this version has been seen.
    pub(crate) fn bookmark(
        &mut self,
        task: (SlotId, u64),
        version: ResourceVersion,
        now: Instant,
    ) -> Applied {
        let applied = self.advance(task, version, now);
        if applied == Applied::Current {
            self.moved_on(task.0);
        }
        applied
    }

    /// Records a failure.
    pub(crate) fn failed(
        &mut self,
        task: (SlotId, u64),
        failure: &Failure,
        now: Instant,
    ) -> Applied {
        let Some((lane, _)) = self.of_task(task) else {
            return Applied::Superseded;
        };
        let message = chain(failure);
        let before = lane.health.clone();
        if failure.is_forbidden() {
            lane.set_health(Health::Refused(message.clone()), now);
        } else if failure.is_not_found() || matches!(lane.health, Health::Listing(_)) {
            lane.set_health(Health::Listing(Some(message.clone())), now);
        }
        lane.last_error = Some(message);
        // Between "being listed" and "failing" no parent is triggered: neither can be used, and the message is read on
        // demand.
        let usable = |health: &Health| std::mem::discriminant(health);
        if usable(&before) != usable(&lane.health) {
            let namespace = lane.namespace.clone();
            self.kind_changed(task.0, namespace.as_ref());
        }
        Applied::Current
    }

    /// Returns the watch and store that a task may write to; none if another task has taken over.
    fn of_task(&mut self, (id, generation): (SlotId, u64)) -> Option<(&mut Lane, &mut Store)> {
        let Slot { lanes, store, .. } = self.slots.get_mut(&id)?;
        let lane = lanes
            .iter_mut()
            .find(|lane| lane.generation == generation)?;
        Some((lane, store))
    }

    /// Advances the version of a watch, never back.
    fn advance(&mut self, task: (SlotId, u64), version: ResourceVersion, now: Instant) -> Applied {
        let Some((lane, _)) = self.of_task(task) else {
            return Applied::Superseded;
        };
        if version < lane.version {
            return Applied::WentBack;
        }
        lane.version = version;
        lane.last_event = Some(now);
        Applied::Current
    }
}
