//! Watches by what they watch: shared by all who want the same, and gone with the last of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::time::Instant;

use super::{Member, Role, State};
use crate::{
    cluster::{
        interest::Why, report::WatchStatus, state::related::Reader, store::Store, stored::Shape,
        subscriptions::Subscriptions,
    },
    config::Guard,
    model::{Access, Gvk, Resource, ResourceVersion},
};

/// A watch, by a number that is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cluster) struct SlotId(u64);

/// What is watched; one watch for each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WatchKey {
    pub(super) kind: Gvk,
    pub(super) selector: Option<Arc<str>>,
}

impl WatchKey {
    pub(super) fn new(kind: &Gvk, selector: Option<&str>) -> Self {
        Self {
            kind: kind.clone(),
            selector: selector.filter(|text| !text.is_empty()).map(Arc::from),
        }
    }
}

/// How much of the objects one user wants.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Need {
    access: Access,
    managers: BTreeSet<Arc<str>>,
}

/// How far a watch has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// The objects are complete; next: `Refused` when the API server says so, `Listing` when the watch begins anew.
    Synced,
    /// The first list is on its way, with the last failure.
    Listing(Option<String>),
    /// The API server refuses to show them, with what it said.
    Refused(String),
}

/// One watch: its objects, its users, and how it is doing.
#[derive(Debug)]
pub(in crate::cluster) struct Slot {
    pub(super) key: WatchKey,
    users: BTreeMap<(Member, Role), Vec<Need>>,
    form: Access,
    managers: BTreeSet<Arc<str>>,
    pub(super) served: Option<Resource>,
    /// Which task may write: one that was started for another form or another URL may not.
    pub(super) generation: u64,
    pub(super) store: Store,
    /// The kept texts have another form than the one wanted, so the next list replaces everything.
    pub(super) reshaped: bool,
    pub(super) health: Health,
    /// Another process may have written what it has not shown yet.
    pub(super) in_doubt: bool,
    /// Since when it is as it is.
    pub(super) since: Instant,
    pub(super) version: ResourceVersion,
    pub(super) last_event: Option<Instant>,
    pub(super) last_error: Option<String>,
    pub(super) lists: u64,
    pub(super) subscriptions: Subscriptions<Reader>,
}

impl Slot {
    /// The richest form that a user wants.
    pub(super) const fn form(&self) -> Access {
        self.form
    }

    /// Who uses it, and for what.
    pub(super) fn users(&self) -> impl Iterator<Item = (Member, Role)> {
        self.users.keys().copied()
    }

    /// How it is doing, for people.
    pub(in crate::cluster) fn status(&self) -> WatchStatus {
        WatchStatus {
            kind: self.key.kind.clone(),
            selector: self.key.selector.as_deref().map(str::to_owned),
            form: self.form,
            users: self.users.len(),
            why: None,
            since: self.since,
            objects: self.store.len(),
            bytes: self.store.bytes(),
            version: self.version,
            last_event: self.last_event,
            last_error: self.last_error.clone(),
            lists: self.lists,
        }
    }

    /// Sets the health and, if it is another one, since when.
    pub(super) fn set_health(&mut self, health: Health, now: Instant) {
        if std::mem::discriminant(&self.health) != std::mem::discriminant(&health) {
            self.since = now;
        }
        self.health = health;
    }

    /// Takes the form that all users together need; true if that is another one.
    fn settle(&mut self) -> bool {
        let needs = || self.users.values().flatten();
        // Richer forms come first in the order.
        let form = needs().map(|need| need.access).min();
        let form = form.unwrap_or(self.form);
        let managers: BTreeSet<Arc<str>> = needs()
            .flat_map(|need| need.managers.iter().cloned())
            .collect();
        let same = form == self.form && managers == self.managers;
        self.form = form;
        self.managers = managers;
        !same
    }
}

impl State {
    /// Takes a watch for a user, and makes it when there is none; [`settle`](Self::settle) must follow.
    pub(super) fn acquire_slot(
        &mut self,
        key: WatchKey,
        user: (Member, Role),
        access: Access,
        managers: &BTreeSet<Arc<str>>,
        now: Instant,
    ) -> SlotId {
        let mut slots = self.slots.iter();
        let known = slots.find(|(_, slot)| slot.key == key && Guard::SharedWatch.holds());
        let id = known.map(|(id, _)| *id);
        let id = id.unwrap_or_else(|| SlotId(self.number()));
        let generation = self.number();
        let served = self.kinds.as_ref().and_then(|kinds| kinds.get(&key.kind));
        let served = served.cloned();
        let slot = self.slots.entry(id).or_insert_with(|| Slot {
            key,
            users: BTreeMap::new(),
            form: access,
            managers: managers.clone(),
            served,
            generation,
            store: Store::default(),
            reshaped: false,
            health: Health::Listing(None),
            in_doubt: false,
            since: now,
            version: ResourceVersion::default(),
            last_event: None,
            last_error: None,
            lists: 0,
            subscriptions: Subscriptions::default(),
        });
        let managers = managers.clone();
        let needs = slot.users.entry(user).or_default();
        needs.push(Need { access, managers });
        id
    }

    /// Gives a watch back; [`settle`](Self::settle) must follow.
    pub(super) fn release_slot(&mut self, id: SlotId, user: (Member, Role)) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.users.remove(&user);
        }
    }

    /// Ends a watch that nobody uses, and begins anew with one of which another form is wanted.
    ///
    /// Separate from taking and giving back, so that what is wanted before and after a change goes on undisturbed.
    pub(super) fn settle(&mut self, id: SlotId, now: Instant) {
        let generation = self.number();
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        if slot.users.is_empty() {
            self.slots.remove(&id);
            return;
        }
        let reads = |member| slot.users.contains_key(&(member, Role::Read));
        let readers = slot.subscriptions.readers();
        let gone: Vec<Reader> = readers
            .filter(|reader| !reads(reader.member))
            .cloned()
            .collect();
        for reader in gone {
            slot.subscriptions.retain(&reader, &BTreeSet::new());
        }
        if slot.settle() {
            restart(slot, generation, now);
            self.kind_changed(id);
        }
    }

    /// Begins anew with every watch that shows hashes.
    pub(super) fn reshape_hashed(&mut self, now: Instant) {
        let generation = self.number();
        let hashed = |slot: &Slot| slot.form == Access::Hash;
        let ids: Vec<SlotId> = self
            .slots
            .iter_mut()
            .filter(|(_, slot)| hashed(slot))
            .map(|(id, slot)| {
                restart(slot, generation, now);
                *id
            })
            .collect();
        for id in ids {
            self.kind_changed(id);
        }
    }

    /// Every watch.
    pub(in crate::cluster) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.values()
    }

    /// Why the objects of a watch cannot be used; none if they can.
    pub(in crate::cluster) fn why(&self, slot: &Slot) -> Option<Why> {
        if self.kinds.is_none() {
            return Some(Why::Discovering);
        }
        if slot.served.is_none() {
            return Some(Why::NotServed);
        }
        if slot.form == Access::Hash && self.hash_key.is_none() {
            return Some(Why::HashKeyMissing);
        }
        match &slot.health {
            Health::Synced if slot.in_doubt => Some(Why::InDoubt),
            Health::Synced => None,
            Health::Listing(None) => Some(Why::Listing),
            Health::Listing(Some(message)) => Some(Why::Failing {
                message: message.clone(),
            }),
            Health::Refused(message) => Some(Why::Forbidden {
                message: message.clone(),
            }),
        }
    }

    /// How a user with `access` sees what the watch keeps.
    pub(super) fn shape(&self, slot: &Slot, access: Access) -> Shape {
        Shape {
            kind: slot.key.kind.clone(),
            form: access,
            managers: slot.managers.clone(),
            hash_key: self.hash_key.clone(),
        }
    }
}

/// Lets another task list everything anew; until then the objects cannot be used, because their form is not the one
/// that is wanted.
pub(super) fn restart(slot: &mut Slot, generation: u64, now: Instant) {
    slot.generation = generation;
    slot.reshaped = slot.store.len() > 0;
    slot.set_health(Health::Listing(None), now);
}
