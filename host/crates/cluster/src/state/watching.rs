//! Input from discovery and the watch tasks, and the set of tasks that should run.

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_model::{Access, ResourceVersion, error_chain};
use tokio::time::Instant;

use super::{
    CacheState, SlotId,
    namespace_watch::{Health, NamespaceWatch},
};
use crate::{
    discovery::ServedKinds,
    machine::{Since, WatchStep},
    store::{ObjectKey, Store},
    stored::{Shape, Stored},
    wire::{WatchTarget, WireFailure},
};

/// The identity of a watch task: the watch, and the generation that may write to it.
pub(crate) type TaskId = (SlotId, u64);

/// A watch task that should run.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) target: WatchTarget,
    pub(crate) shape: Shape,
    /// Its first step.
    pub(crate) first: WatchStep,
}

/// The reason why an update by a task was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stale {
    /// It is older than the known state.
    WentBack,
    /// Another task has taken over.
    Superseded,
}

impl CacheState {
    /// Applies newly discovered kinds and returns true if a watch is affected.
    pub(crate) fn serve(&mut self, kinds: ServedKinds, now: Instant) -> bool {
        let first = self.kinds.is_none();
        let mut affected = Vec::new();
        for (id, slot) in &self.slots {
            let served = kinds.get(&slot.key.kind).cloned();
            if first || served != slot.served {
                affected.push((*id, served));
            }
        }
        self.kinds = Some(kinds);
        let any = !affected.is_empty();
        for (id, served) in affected {
            let watches = self.namespace_watches(served.as_ref(), now);
            let Some(slot) = self.slots.get_mut(&id) else {
                continue;
            };
            let places = |watches: &[NamespaceWatch]| -> Vec<Option<Arc<str>>> {
                watches.iter().map(|one| one.namespace.clone()).collect()
            };
            let is_elsewhere = places(&slot.namespace_watches) != places(&watches);
            slot.served = served;
            // Versions and objects of other namespaces say nothing about the new requests.
            if slot.served.is_none() || is_elsewhere {
                slot.namespace_watches = watches;
                let changes = slot.store.clear();
                // Dispatched although a list follows: a parent must learn that its children are out of sight.
                self.dispatch(id, &changes, false);
                self.kind_changed(id, None);
            } else {
                self.restart(id, now);
            }
        }
        any
    }

    /// Returns every task that should run, by watch and generation.
    pub(crate) fn orders(&self) -> BTreeMap<TaskId, Order> {
        let mut orders = BTreeMap::new();
        for (id, slot) in &self.slots {
            if slot.form() == Access::Hash && self.hash_key.is_none() {
                continue;
            }
            for watch in &slot.namespace_watches {
                let Some(target) = slot.target(watch, slot.form()) else {
                    continue;
                };
                if self.awaits_parents(slot, watch) {
                    continue;
                }
                let since = if watch.version == ResourceVersion::default() {
                    Since::Now
                } else {
                    Since::NotOlderThan(watch.version)
                };
                let order = Order {
                    target,
                    shape: self.shape(slot, slot.form()),
                    first: WatchStep::List { since, paged: true },
                };
                orders.insert((*id, watch.generation), order);
            }
        }
        orders
    }

    /// The last version that a task has seen.
    pub(crate) fn version(&mut self, task: TaskId) -> ResourceVersion {
        let found = self.of_task(task);
        found.map(|(watch, _)| watch.version).unwrap_or_default()
    }

    /// Begins a list that shows the state at `version`.
    ///
    /// A list of the present state from a quorum is the truth, even if older. Any other list older than the known state
    /// is refused.
    pub(crate) fn begin_list(
        &mut self,
        task: TaskId,
        since: Since,
        version: ResourceVersion,
    ) -> Result<(), Stale> {
        let (watch, store) = self.of_task(task)?;
        let older = version < watch.version;
        if older && since != Since::Now {
            return Err(Stale::WentBack);
        }
        let reset = older || watch.reshaped;
        store.begin_list(watch.namespace.as_ref(), reset);
        Ok(())
    }

    /// Applies a page of a list.
    pub(crate) fn page(&mut self, task: TaskId, objects: Vec<Stored>) -> Result<(), Stale> {
        let (watch, _) = self.of_task(task)?;
        // Every object of the first list is new, but it did not change: its trigger must not count as a change.
        let first = watch.lists == 0;
        let changes: Vec<_> = objects
            .into_iter()
            .flat_map(|stored| self.store(task.0, stored))
            .collect();
        self.dispatch(task.0, &changes, first);
        Ok(())
    }

    /// Ends a list: objects that it did not show are gone.
    pub(crate) fn end_list(
        &mut self,
        task: TaskId,
        version: ResourceVersion,
        now: Instant,
    ) -> Result<(), Stale> {
        let (watch, store) = self.of_task(task)?;
        let changes = store.end_list(watch.namespace.as_ref(), version);
        let synced = watch.health == Health::Synced;
        watch.version = version;
        watch.reshaped = false;
        watch.last_event = Some(now);
        watch.last_error = None;
        watch.failing_since = None;
        let is_first = watch.lists == 0;
        watch.lists += 1;
        watch.set_health(Health::Synced, now);
        // Dispatched after the new health is set: under this lock no pass can begin in between, and the readiness of the
        // scopes is computed from it.
        let namespace = watch.namespace.clone();
        self.dispatch(task.0, &changes, false);
        self.moved_on(task.0);
        if is_first {
            // Children that came before their parents are without their texts.
            self.refit_children(task.0, now);
        }
        if !synced {
            self.kind_changed(task.0, namespace.as_ref());
        }
        Ok(())
    }

    /// Applies an added or modified object.
    pub(crate) fn put(&mut self, task: TaskId, stored: Stored, now: Instant) -> Result<(), Stale> {
        // The version first: an event that is older than the known state must not reach the store.
        self.advance(task, stored.version, now)?;
        let changes = self.store(task.0, stored);
        self.dispatch(task.0, &changes, false);
        Ok(())
    }

    /// Applies a deletion.
    pub(crate) fn remove(
        &mut self,
        task: TaskId,
        stored: &Stored,
        now: Instant,
    ) -> Result<(), Stale> {
        let store = self.advance(task, stored.version, now)?;
        let change = store.remove(&ObjectKey::of(stored), stored.version);
        self.dispatch(task.0, change.as_slice(), false);
        Ok(())
    }

    /// Applies a bookmark: every event up to this version has been seen.
    pub(crate) fn bookmark(
        &mut self,
        task: TaskId,
        version: ResourceVersion,
        now: Instant,
    ) -> Result<(), Stale> {
        self.advance(task, version, now)?;
        self.moved_on(task.0);
        Ok(())
    }

    /// Records a failure.
    pub(crate) fn failed(
        &mut self,
        task: TaskId,
        failure: &WireFailure,
        now: Instant,
    ) -> Result<(), Stale> {
        let (watch, _) = self.of_task(task)?;
        let message = error_chain(failure).to_string();
        let before = std::mem::discriminant(&watch.health);
        // Only a refusal makes objects unusable. After other failures the cache is merely late, and passes continue.
        if failure.is_forbidden() {
            watch.set_health(Health::Refused(message.clone()), now);
        } else if failure.is_not_found() || matches!(watch.health, Health::Listing(_)) {
            watch.set_health(Health::Listing(Some(message.clone())), now);
            watch.failing_since.get_or_insert(now);
        }
        watch.last_error = Some(message);
        if before == std::mem::discriminant(&watch.health) {
            // The message is read on demand. But passes may go on without an optional kind now.
            self.recheck_users(task.0);
        } else {
            let namespace = watch.namespace.clone();
            self.kind_changed(task.0, namespace.as_ref());
        }
        Ok(())
    }

    /// Returns the watch and store that a task may write to.
    fn of_task(
        &mut self,
        (id, generation): TaskId,
    ) -> Result<(&mut NamespaceWatch, &mut Store), Stale> {
        // An aborted task may still be about to write its last result.
        let found = self.watch_where(id, |watch| watch.generation == generation);
        found.ok_or(Stale::Superseded)
    }

    /// Returns a watch of a kind with the store of its objects.
    pub(super) fn watch_where(
        &mut self,
        id: SlotId,
        is_wanted: impl Fn(&NamespaceWatch) -> bool,
    ) -> Option<(&mut NamespaceWatch, &mut Store)> {
        let slot = self.slots.get_mut(&id)?;
        let mut watches = slot.namespace_watches.iter_mut();
        let watch = watches.find(|watch| is_wanted(watch))?;
        Some((watch, &mut slot.store))
    }

    /// Advances the version of a watch, never back, and returns the store of its objects.
    fn advance(
        &mut self,
        task: TaskId,
        version: ResourceVersion,
        now: Instant,
    ) -> Result<&mut Store, Stale> {
        let (watch, store) = self.of_task(task)?;
        if version < watch.version {
            return Err(Stale::WentBack);
        }
        watch.version = version;
        watch.last_event = Some(now);
        Ok(store)
    }
}
