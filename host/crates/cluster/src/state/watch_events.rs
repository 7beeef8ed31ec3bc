//! Input from discovery and the watch tasks, and the tasks that should run.

use std::collections::BTreeMap;

use innkeeper_model::{Access, Resource, ResourceVersion, error_chain};
use tokio::time::Instant;

use super::{
    CacheState, SlotId, WatchTable,
    section_watch::{Health, SectionWatch},
};
use crate::{
    discovery::ServedKinds,
    machine::{Since, WatchStep},
    section::Section,
    store::{Change, ObjectKey, Store},
    stored::{Shape, Stored},
    wire::{WatchTarget, WireFailure},
};

/// Identifies a watch task: the watch, and the generation that may write to it.
pub(crate) type TaskId = (SlotId, u64);

/// A watch task that should run.
#[derive(Clone, Debug)]
pub(crate) struct TaskSpec {
    pub(crate) target: WatchTarget,
    pub(crate) shape: Shape,
    pub(crate) first: WatchStep,
}

/// The reason why a task's update was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stale {
    /// It is older than the known state.
    WentBack,
    /// Another task has replaced this one.
    Superseded,
}

impl WatchTable {
    /// Returns every task that should run.
    pub(crate) fn wanted_tasks(&self) -> BTreeMap<TaskId, TaskSpec> {
        let mut tasks = BTreeMap::new();
        for (id, slot) in &self.slots {
            // Nothing that such a task reads could be cached.
            if slot.form() == Access::Hash && self.hash_key.is_none() {
                continue;
            }
            for watch in &slot.section_watches {
                let Some(target) = slot.target(watch, slot.form()) else {
                    continue;
                };
                if self.awaits_parents(slot, watch) {
                    continue;
                }
                let from = watch.version;
                let since = Since::last_seen(from);
                let task = TaskSpec {
                    target,
                    shape: self.shape(slot, slot.form()),
                    first: match watch.health {
                        // Also the first step of a task that goes on for several others.
                        Health::Synced => WatchStep::Watch { from },
                        _ => WatchStep::List { since, paged: true },
                    },
                };
                tasks.insert((*id, watch.generation), task);
            }
        }
        tasks
    }

    /// The last version that a task has seen.
    pub(crate) fn version(&mut self, task: TaskId) -> ResourceVersion {
        self.task(task)
            .map(|(watch, _)| watch.version)
            .unwrap_or_default()
    }

    /// Begins a list that shows the state at `version`.
    ///
    /// A list from a quorum is the truth, even if older. Any other list older than the known state is
    /// refused.
    pub(crate) fn begin_list(
        &mut self,
        task: TaskId,
        since: Since,
        version: ResourceVersion,
    ) -> Result<(), Stale> {
        let (watch, store) = self.task(task)?;
        let is_older = version < watch.version;
        if is_older && since != Since::Now {
            return Err(Stale::WentBack);
        }
        watch.listing = store.begin_list(is_older || watch.is_reshaped);
        Ok(())
    }

    /// Sets how the cluster serves a watched kind. Returns the removed objects if the watch gets new requests, and none
    /// if the requests stay.
    fn serve(&mut self, id: SlotId, served: Option<Resource>, now: Instant) -> Option<Vec<Change>> {
        let scope = |served: &Option<Resource>| served.as_ref().map(|kind| kind.scope);
        let slot = self.slots.get_mut(&id)?;
        let is_moved = scope(&slot.served) != scope(&served);
        slot.served = served;
        // Versions and objects of other namespaces say nothing about the new requests.
        let removed = is_moved.then(|| {
            slot.section_watches.clear();
            slot.store.clear()
        });
        self.arrange(id, now);
        removed
    }

    /// The objects that a task requests now.
    pub(crate) fn target(&self, (id, generation): TaskId) -> Result<WatchTarget, Stale> {
        let target = || {
            let slot = self.get(id)?;
            let mut watches = slot.section_watches.iter();
            let watch = watches.find(|watch| watch.generation == generation)?;
            slot.target(watch, slot.form())
        };
        target().ok_or(Stale::Superseded)
    }

    /// Returns the watch and store that a task may write to.
    fn task(&mut self, (id, generation): TaskId) -> Result<(&mut SectionWatch, &mut Store), Stale> {
        // An aborted task may still be about to write a last result.
        self.watch_where(id, |watch| watch.generation == generation)
            .ok_or(Stale::Superseded)
    }

    /// Returns a matching request, with the store.
    pub(super) fn watch_where(
        &mut self,
        id: SlotId,
        is_wanted: impl Fn(&SectionWatch) -> bool,
    ) -> Option<(&mut SectionWatch, &mut Store)> {
        let slot = self.slots.get_mut(&id)?;
        let watch = slot
            .section_watches
            .iter_mut()
            .find(|watch| is_wanted(watch))?;
        Some((watch, &mut slot.store))
    }

    /// Advances a watch's version, never back, and returns the store.
    fn advance(
        &mut self,
        task: TaskId,
        version: ResourceVersion,
        now: Instant,
    ) -> Result<&mut Store, Stale> {
        let (watch, store) = self.task(task)?;
        if version < watch.version {
            return Err(Stale::WentBack);
        }
        watch.version = version;
        watch.last_event = Some(now);
        Ok(store)
    }
}

impl CacheState {
    /// Applies newly discovered kinds and returns true if a watch is affected.
    pub(crate) fn serve(&mut self, kinds: ServedKinds, now: Instant) -> bool {
        let is_first = self.table.kinds.is_none();
        let affected: Vec<(SlotId, Option<Resource>)> = self
            .table
            .slots
            .iter()
            .map(|(id, slot)| (*id, slot, kinds.get(&slot.key.kind)))
            .filter(|(_, slot, served)| is_first || *served != slot.served.as_ref())
            .map(|(id, _, served)| (id, served.cloned()))
            .collect();
        self.table.kinds = Some(kinds);
        let has_affected = !affected.is_empty();
        for (id, served) in affected {
            if let Some(removed) = self.table.serve(id, served, now) {
                // Although a list follows: a parent must learn that it no longer sees children.
                self.dispatch(id, &removed, false);
                self.kind_changed(id, &Section::Whole);
            } else {
                self.restart(id, now);
            }
        }
        if has_affected {
            // The scope of a parent kind may decide about its children's requests.
            self.arrange(self.table.ids(), now);
        }
        has_affected
    }

    /// Applies a list page.
    pub(crate) fn page(&mut self, task: TaskId, objects: Vec<Stored>) -> Result<(), Stale> {
        let (watch, _) = self.table.task(task)?;
        // Every object in the first list is new, but it did not change: the trigger must not count as a change.
        let is_first = watch.lists == 0;
        let changes: Vec<Change> = objects
            .into_iter()
            .flat_map(|stored| self.table.store(task.0, stored))
            .collect();
        self.dispatch(task.0, &changes, is_first);
        Ok(())
    }

    /// Ends a list: objects that it did not show are gone.
    pub(crate) fn end_list(
        &mut self,
        task: TaskId,
        version: ResourceVersion,
        now: Instant,
    ) -> Result<(), Stale> {
        let (watch, store) = self.table.task(task)?;
        let changes = store.end_list(&mut watch.listing, &watch.section, version);
        let was_synced = watch.health == Health::Synced;
        let is_first = watch.lists == 0;
        watch.version = version;
        watch.is_reshaped = false;
        watch.last_event = Some(now);
        watch.last_error = None;
        watch.failing_since = None;
        watch.lists += 1;
        watch.set_health(Health::Synced, now);
        let section = watch.section.clone();
        // After the new health is set: under this lock no pass can begin in between, and the readiness of the scopes
        // depends on it.
        self.dispatch(task.0, &changes, false);
        self.version_advanced(task.0);
        if is_first {
            // Children that came before their parents have no texts.
            for id in self.table.child_slots(task.0) {
                self.refit(id, now);
            }
        }
        if !was_synced {
            self.kind_changed(task.0, &section);
        }
        Ok(())
    }

    /// Applies an added or modified object.
    pub(crate) fn put(&mut self, task: TaskId, stored: Stored, now: Instant) -> Result<(), Stale> {
        // The version first: an event that is older than the known state must not reach the store.
        self.table.advance(task, stored.version, now)?;
        let changes = self.table.store(task.0, stored);
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
        // The event has the version of the deletion, not that of the object's last change.
        let change = self
            .table
            .advance(task, stored.version, now)?
            .remove(&ObjectKey::for_object(stored), stored.version);
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
        self.table.advance(task, version, now)?;
        self.version_advanced(task.0);
        Ok(())
    }

    /// Records a failure.
    pub(crate) fn failed(
        &mut self,
        task: TaskId,
        failure: &WireFailure,
        now: Instant,
    ) -> Result<(), Stale> {
        let (watch, _) = self.table.task(task)?;
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
            // The message is read on demand. But passes may run without an optional kind now.
            for subscriber_id in self.table.users_of_objects(task.0) {
                self.recheck(subscriber_id);
            }
        } else {
            let section = watch.section.clone();
            self.kind_changed(task.0, &section);
        }
        Ok(())
    }
}
