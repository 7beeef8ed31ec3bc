//! Watches by kind and selector: shared by all registrations that want the same, and dropped with the last of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use innkeeper_model::{Access, Gvk, Resource, Selector};
use tokio::time::Instant;

use super::{CacheState, Role, SubscriberId, namespace_watch::NamespaceWatch};
use crate::{
    reader::Reader,
    store::Store,
    stored::{Shape, Stored},
    subscriptions::Subscriptions,
};

/// A watch, identified by a number that is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlotId(u64);

/// The kind and selector of a watch; there is one watch for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchKey {
    pub(super) kind: Gvk,
    pub(super) selector: Selector,
}

/// The part of the objects that one user wants.
#[derive(Debug)]
pub(super) struct Need {
    pub(super) access: Access,
    /// The field managers whose entries are kept.
    pub(super) managers: BTreeSet<Arc<str>>,
}

/// One watch: its objects, its users and its state.
#[derive(Debug)]
pub(crate) struct WatchSlot {
    pub(super) key: WatchKey,
    users: BTreeMap<(SubscriberId, Role), Vec<Need>>,
    form: Access,
    managers: Arc<BTreeSet<Arc<str>>>,
    /// The watches of the parents, if all users want their children only.
    pub(super) parents: Option<BTreeSet<SlotId>>,
    pub(super) served: Option<Resource>,
    /// The requests of the watch; never empty.
    pub(super) namespace_watches: Vec<NamespaceWatch>,
    pub(super) store: Store,
    pub(super) subscriptions: Subscriptions,
}

impl WatchSlot {
    /// The richest form that any user wants.
    pub(super) const fn form(&self) -> Access {
        self.form
    }

    /// Returns true if the watch shows an object. Another one would stay in the cache for ever, because no event would
    /// remove it.
    pub(super) fn covers(&self, stored: &Stored) -> bool {
        stored.is_selected(&self.key.selector)
    }

    /// The registrations that use it, and their purposes.
    pub(super) fn users(&self) -> impl Iterator<Item = (SubscriberId, Role)> {
        self.users.keys().copied()
    }

    /// Changes to the form that satisfies all users, and returns true if it differs.
    fn settle(&mut self) -> bool {
        let needs = || self.users.values().flatten();
        // Richer forms are smaller in the order.
        let form = needs().map(|need| need.access).min().unwrap_or(self.form);
        let managers: BTreeSet<Arc<str>> = needs()
            .flat_map(|need| need.managers.iter().cloned())
            .collect();
        // Dropping entries that no user needs any more is not worth a new list.
        let same = form == self.form && managers.is_subset(&self.managers);
        if !same {
            self.form = form;
            self.managers = Arc::new(managers);
        }
        !same
    }
}

impl CacheState {
    /// Acquires a watch for a user and creates it if there is none; [`settle`](Self::settle) must follow.
    pub(super) fn acquire_slot(
        &mut self,
        key: WatchKey,
        user: (SubscriberId, Role),
        need: Need,
        now: Instant,
    ) -> SlotId {
        let mut known = self.slots.iter_mut().filter(|(_, slot)| slot.key == key);
        if let Some((id, slot)) = known.next() {
            slot.users.entry(user).or_default().push(need);
            return *id;
        }
        let kinds = self.kinds.as_ref();
        let served = kinds.and_then(|kinds| kinds.get(&key.kind)).cloned();
        let slot = WatchSlot {
            key,
            form: need.access,
            managers: Arc::new(need.managers.clone()),
            users: BTreeMap::from([(user, vec![need])]),
            parents: None,
            namespace_watches: self.namespace_watches(served.as_ref(), now),
            served,
            store: Store::default(),
            subscriptions: Subscriptions::default(),
        };
        let id = SlotId(self.number());
        self.slots.insert(id, slot);
        id
    }

    /// Releases watches; [`settle`](Self::settle) must follow.
    pub(super) fn release(&mut self, subscriber_id: SubscriberId, held: &BTreeSet<(SlotId, Role)>) {
        for (slot, role) in held {
            if let Some(slot) = self.slots.get_mut(slot) {
                slot.users.remove(&(subscriber_id, *role));
            }
        }
    }

    /// Drops a watch without users, starts over with a watch whose form changed, and fits one to its parents if these
    /// changed.
    ///
    /// Separate from acquiring and releasing: a watch that is wanted before and after a change of interest must
    /// continue undisturbed.
    pub(super) fn settle(&mut self, id: SlotId, now: Instant) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        if slot.users.is_empty() {
            self.slots.remove(&id);
            return;
        }
        let reads = |subscriber_id| slot.users.contains_key(&(subscriber_id, Role::Read));
        let readers = slot.subscriptions.readers();
        let gone: Vec<Reader> = readers
            .filter(|reader| !reads(reader.subscriber_id))
            .cloned()
            .collect();
        for reader in gone {
            slot.subscriptions.retain(&reader, &BTreeSet::new());
        }
        let is_reshaped = slot.settle();
        let Some(slot) = self.slots.get(&id) else {
            return;
        };
        let parents = self.parents_of(slot);
        let has_other_parents = parents != slot.parents;
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.parents = parents;
        }
        if is_reshaped {
            self.restart(id, now);
        } else if has_other_parents {
            self.refit(id, now);
        }
    }

    /// The shape in which a user with `access` sees the kept objects.
    pub(super) fn shape(&self, slot: &WatchSlot, access: Access) -> Shape {
        Shape {
            kind: slot.key.kind.clone(),
            form: access,
            managers: Some(Arc::clone(&slot.managers)),
            hash_key: self.hash_key.clone(),
        }
    }
}
