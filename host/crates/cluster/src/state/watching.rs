//! Input from discovery and the watch tasks, and the set of tasks that should run.

use std::collections::BTreeMap;

use innkeeper_model::{Access, ResourceVersion};
use tokio::time::Instant;

use super::{CacheState, SlotId, WatchSlot, namespaces::NamespaceWatch, slots::Health};
use crate::{
    discovery::ServedKinds,
    error::chain,
    machine::{Since, WatchStep},
    store::{ObjectKey, Store},
    stored::{Shape, Stored},
    wire::{WatchTarget, WireFailure},
};

/// A watch task that should run.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) target: WatchTarget,
    pub(crate) shape: Shape,
    /// Its first step.
    pub(crate) first: WatchStep,
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

impl CacheState {
    /// Applies newly discovered kinds and returns true if a watch is affected.
    pub(crate) fn serve(&mut self, kinds: ServedKinds, now: Instant) -> bool {
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
            let namespace_watches = self.namespace_watches(served.as_ref(), now);
            let Some(slot) = self.slots.get_mut(id) else {
                continue;
            };
            slot.served.clone_from(served);
            let places = |namespace_watches: &[NamespaceWatch]| -> Vec<_> {
                namespace_watches
                    .iter()
                    .map(|namespace_watch| namespace_watch.namespace.clone())
                    .collect()
            };
            // Versions and objects of other namespaces say nothing about the new requests.
            if served.is_none() || places(&slot.namespace_watches) != places(&namespace_watches) {
                slot.namespace_watches = namespace_watches;
                let changes = slot.store.clear();
                // Dispatched although a list follows: a parent must learn that its children are out of sight.
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
            for namespace_watch in &slot.namespace_watches {
                let Some(target) = slot.target(namespace_watch, slot.form()) else {
                    continue;
                };
                let since = if namespace_watch.version == ResourceVersion::default() {
                    Since::Now
                } else {
                    Since::NotOlderThan(namespace_watch.version)
                };
                let order = Order {
                    target,
                    shape: self.shape(slot, slot.form()),
                    first: WatchStep::List { since, paged: true },
                };
                orders.insert((*id, namespace_watch.generation), order);
            }
        }
        orders
    }

    /// The last version that a task has seen.
    pub(crate) fn version(&mut self, task: (SlotId, u64)) -> ResourceVersion {
        let found = self.of_task(task);
        found.map_or_else(ResourceVersion::default, |(namespace_watch, _)| {
            namespace_watch.version
        })
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
        let Some((namespace_watch, store)) = self.of_task(task) else {
            return Applied::Superseded;
        };
        let older = version < namespace_watch.version;
        if older && since != Since::Now {
            return Applied::WentBack;
        }
        store.begin_list(
            namespace_watch.namespace.as_ref(),
            older || namespace_watch.reshaped,
        );
        Applied::Current
    }

    /// Applies a page of a list.
    pub(crate) fn page(&mut self, task: (SlotId, u64), objects: Vec<Stored>) -> Applied {
        let Some((namespace_watch, store)) = self.of_task(task) else {
            return Applied::Superseded;
        };
        // Every object of the first list is new, but it did not change: its trigger must not count as a change.
        let first = namespace_watch.lists == 0;
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
        let Some((namespace_watch, store)) = self.of_task(task) else {
            return Applied::Superseded;
        };
        let changes = store.end_list(namespace_watch.namespace.as_ref(), version);
        let synced = namespace_watch.health == Health::Synced;
        namespace_watch.version = version;
        namespace_watch.reshaped = false;
        namespace_watch.last_event = Some(now);
        namespace_watch.last_error = None;
        namespace_watch.lists += 1;
        namespace_watch.set_health(Health::Synced, now);
        // Dispatched after the new health is set: under this lock no pass can begin in between, and the readiness of the
        // scopes is computed from it.
        let namespace = namespace_watch.namespace.clone();
        self.dispatch(task.0, &changes, false);
        self.moved_on(task.0);
        if !synced {
            self.kind_changed(task.0, namespace.as_ref());
        }
        Applied::Current
    }

    /// Applies an added or modified object.
    pub(crate) fn put(&mut self, task: (SlotId, u64), stored: Stored, now: Instant) -> Applied {
        // The version first: an event that is older than the known state must not reach the store.
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
            && let Some(change) = slot.store.remove(&ObjectKey::of(stored), stored.version)
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
        failure: &WireFailure,
        now: Instant,
    ) -> Applied {
        let Some((namespace_watch, _)) = self.of_task(task) else {
            return Applied::Superseded;
        };
        let message = chain(failure);
        let before = namespace_watch.health.clone();
        // Only a refusal makes objects unusable. After other failures the cache is merely late, and passes continue.
        if failure.is_forbidden() {
            namespace_watch.set_health(Health::Refused(message.clone()), now);
        } else if failure.is_not_found() || matches!(namespace_watch.health, Health::Listing(_)) {
            namespace_watch.set_health(Health::Listing(Some(message.clone())), now);
        }
        namespace_watch.last_error = Some(message);
        // Between "being listed" and "failing" no parent is triggered: neither can be used, and the message is read on
        // demand.
        let usable = |health: &Health| std::mem::discriminant(health);
        if usable(&before) != usable(&namespace_watch.health) {
            let namespace = namespace_watch.namespace.clone();
            self.kind_changed(task.0, namespace.as_ref());
        }
        Applied::Current
    }

    /// Returns the watch and store that a task may write to; none if another task has taken over.
    fn of_task(
        &mut self,
        (id, generation): (SlotId, u64),
    ) -> Option<(&mut NamespaceWatch, &mut Store)> {
        let WatchSlot {
            namespace_watches,
            store,
            ..
        } = self.slots.get_mut(&id)?;
        let namespace_watch = namespace_watches
            .iter_mut()
            // An aborted task may still be about to write its last result.
            .find(|namespace_watch| namespace_watch.generation == generation)?;
        Some((namespace_watch, store))
    }

    /// Advances the version of a watch, never back.
    fn advance(&mut self, task: (SlotId, u64), version: ResourceVersion, now: Instant) -> Applied {
        let Some((namespace_watch, _)) = self.of_task(task) else {
            return Applied::Superseded;
        };
        if version < namespace_watch.version {
            return Applied::WentBack;
        }
        namespace_watch.version = version;
        namespace_watch.last_event = Some(now);
        Applied::Current
    }
}
