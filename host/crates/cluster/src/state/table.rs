//! One watch for each kind and selector, shared by all registrations that need it.
//!
//! A watch has one request for the whole cluster, or one for each section of it: a namespace that the host is limited to,
//! or shards that it holds. Their objects are in one store, but version, health and freshness belong to the request: an
//! unreadable namespace blocks only the parents in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use innkeeper_model::{
    Access, Expression, GroupKind, Gvk, HashKey, LABEL_PLUGIN, ReadKind, Resource, ResourceVersion,
    Selector, ShardSet, Shards,
};
use tokio::time::Instant;

use super::{Reader, SubscriberId, section_watch::SectionWatch};
use crate::{
    discovery::ServedKinds,
    interest::{ChildInterest, Interest},
    section::Section,
    store::{ObjectKey, Store},
    stored::{Shape, Stored},
    subscriptions::Subscriptions,
    wire::WatchTarget,
};

/// The number of a watch, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlotId(u64);

/// The reason why a registration uses a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Parent,
    Child,
    Read,
}

/// The kind and selector of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchKey {
    pub(super) kind: Gvk,
    pub(super) selector: Selector,
}

/// The object parts that one user needs.
#[derive(Debug)]
struct Need {
    access: Access,
    /// Field managers whose entries are cached.
    managers: BTreeSet<Arc<str>>,
}

/// One watch: objects, users and requests.
#[derive(Debug)]
pub(crate) struct WatchSlot {
    pub(super) key: WatchKey,
    users: BTreeMap<(SubscriberId, Role), Vec<Need>>,
    form: Access,
    managers: Arc<BTreeSet<Arc<str>>>,
    /// The watches of the parents, if all users need only the children of these.
    pub(super) parents: Option<BTreeSet<SlotId>>,
    pub(super) served: Option<Resource>,
    /// Empty if no user needs an object, because the host does not hold the parents' shards.
    pub(super) section_watches: Vec<SectionWatch>,
    pub(super) store: Store,
    pub(super) subscriptions: Subscriptions,
}

impl WatchSlot {
    /// The richest form that any user needs.
    pub(super) const fn form(&self) -> Access {
        self.form
    }

    /// Returns true if the selector matches an object. No event would ever remove another one from the cache.
    pub(super) fn covers(&self, stored: &Stored) -> bool {
        stored.is_selected(&self.key.selector)
    }

    /// The registrations that use the watch.
    pub(super) fn users(&self) -> impl Iterator<Item = (SubscriberId, Role)> {
        self.users.keys().copied()
    }

    /// The request that covers a namespace; without a namespace, the one for cluster-scoped objects.
    pub(super) fn watch_at(&self, namespace: Option<&str>) -> Option<&SectionWatch> {
        let namespace = namespace.unwrap_or_default();
        self.section_watches
            .iter()
            .find(|watch| watch.section.covers(namespace))
    }

    /// The requests that may show objects in a section.
    pub(super) fn watches_in(&self, section: &Section) -> impl Iterator<Item = &SectionWatch> {
        self.section_watches
            .iter()
            .filter(|watch| watch.section.overlaps(section))
    }

    /// The target of a request in a form; none while the kind is not served.
    pub(super) fn target(&self, watch: &SectionWatch, form: Access) -> Option<WatchTarget> {
        Some(WatchTarget {
            served: self.served.clone()?,
            section: watch.section.clone(),
            selector: self.key.selector.clone(),
            form,
        })
    }

    /// Changes to the form that satisfies all users, and returns true if it differs.
    fn reshape(&mut self) -> bool {
        let needs = || self.users.values().flatten();
        // Richer forms are smaller in the order.
        let form = needs().map(|need| need.access).min().unwrap_or(self.form);
        let managers: BTreeSet<Arc<str>> = needs()
            .flat_map(|need| need.managers.iter().cloned())
            .collect();
        // Entries that no user needs any more are not worth a new list.
        let is_same = form == self.form && managers.is_subset(&self.managers);
        if !is_same {
            self.form = form;
            self.managers = Arc::new(managers);
        }
        !is_same
    }
}

/// The result of [`WatchTable::settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// The watch continues, or had no users and is dropped.
    Unchanged,
    /// The cached objects have the wrong form: the watch must restart.
    Reshaped,
    /// Other parents own the children: the watch must be refitted.
    OtherParents,
}

/// One registration's interest and watches.
#[derive(Debug)]
pub(super) struct SubscriberWatches {
    pub(super) interest: Interest,
    pub(super) parent: SlotId,
    pub(super) children: Vec<(ChildInterest, SlotId)>,
    pub(super) reads: Vec<(ReadKind, SlotId)>,
}

impl SubscriberWatches {
    /// The watch for a child kind.
    pub(super) fn child(&self, kind: &GroupKind) -> Option<SlotId> {
        self.children
            .iter()
            .find(|(child, _)| child.kind.group_kind() == *kind)
            .map(|(_, slot)| *slot)
    }

    fn slots(&self) -> BTreeSet<SlotId> {
        let children = self.children.iter().map(|(_, slot)| *slot);
        let reads = self.reads.iter().map(|(_, slot)| *slot);
        children.chain(reads).chain([self.parent]).collect()
    }
}

/// All watches, and the interests that they serve.
#[derive(Debug, Default)]
pub(crate) struct WatchTable {
    pub(super) kinds: Option<ServedKinds>,
    /// The namespaces that the host is limited to.
    pub(super) namespaces: Option<Arc<[Arc<str>]>>,
    pub(super) shards: Shards,
    /// The shards whose parents the host serves; a single one needs no entry.
    pub(super) held: ShardSet,
    /// True if the API server selects objects by shard; none before the first list of a shard.
    pub(crate) selects: Option<bool>,
    pub(super) hash_key: Option<HashKey>,
    pub(super) slots: BTreeMap<SlotId, WatchSlot>,
    pub(super) by_subscriber: BTreeMap<SubscriberId, SubscriberWatches>,
    pub(super) count: u64,
}

impl WatchTable {
    pub(super) fn new(namespaces: Option<Arc<[Arc<str>]>>, shards: Shards) -> Self {
        Self {
            namespaces,
            shards,
            ..Self::default()
        }
    }

    /// The served kinds; none before discovery has answered.
    pub(crate) const fn kinds(&self) -> Option<&ServedKinds> {
        self.kinds.as_ref()
    }

    /// The hash key, if it is set.
    pub(crate) const fn hash_key(&self) -> Option<&HashKey> {
        self.hash_key.as_ref()
    }

    pub(super) fn get(&self, id: SlotId) -> Option<&WatchSlot> {
        self.slots.get(&id)
    }

    pub(super) fn ids(&self) -> Vec<SlotId> {
        self.slots.keys().copied().collect()
    }

    /// A registration's watches.
    pub(super) fn slots_of(&self, subscriber_id: SubscriberId) -> BTreeSet<SlotId> {
        self.by_subscriber
            .get(&subscriber_id)
            .map(SubscriberWatches::slots)
            .unwrap_or_default()
    }

    /// Adds a registration; [`settle`](Self::settle) must follow for the watches.
    pub(super) fn add_interest(&mut self, interest: Interest) -> SubscriberId {
        let subscriber_id = SubscriberId(self.next_number());
        self.acquire(subscriber_id, interest);
        subscriber_id
    }

    /// Acquires every watch that an interest needs; [`settle`](Self::settle) must follow.
    pub(super) fn acquire(&mut self, subscriber_id: SubscriberId, interest: Interest) {
        let mut acquire = |kind: &Gvk, selector: &Selector, role, access| {
            let managers = match role {
                Role::Child => interest.field_managers.clone(),
                // Field managers write only children.
                Role::Parent | Role::Read => BTreeSet::new(),
            };
            let need = Need { access, managers };
            self.acquire_slot(kind, selector, (subscriber_id, role), need)
        };
        let parent = acquire(
            &interest.parent,
            &interest.selector,
            Role::Parent,
            Access::Full,
        );
        let plugin = interest.plugin.as_str().to_owned();
        let labelled = Expression::Equal(LABEL_PLUGIN.to_owned(), plugin).into();
        let mut kinds = BTreeSet::new();
        let children = interest
            .children
            .iter()
            .filter(|child| kinds.insert(child.kind.group_kind()))
            .map(|child| {
                let slot = acquire(&child.kind, &labelled, Role::Child, child.access);
                (child.clone(), slot)
            })
            .collect();
        let reads = interest
            .reads
            .iter()
            .map(|read| {
                let slot = acquire(&read.kind, &read.label_selector, Role::Read, read.access);
                (read.clone(), slot)
            })
            .collect();
        let watches = SubscriberWatches {
            interest,
            parent,
            children,
            reads,
        };
        self.by_subscriber.insert(subscriber_id, watches);
    }

    /// Releases a registration's watches and returns them; [`settle`](Self::settle) must follow.
    pub(super) fn release(&mut self, subscriber_id: SubscriberId) -> BTreeSet<SlotId> {
        let released = self.slots_of(subscriber_id);
        self.by_subscriber.remove(&subscriber_id);
        for id in &released {
            if let Some(slot) = self.slots.get_mut(id) {
                slot.users.retain(|(user, _), _| *user != subscriber_id);
            }
        }
        released
    }

    /// Acquires a metadata watch for the host itself; [`settle`](Self::settle) must follow.
    pub(super) fn acquire_metadata(&mut self, kind: &Gvk) -> SlotId {
        let user = (SubscriberId(self.next_number()), Role::Read);
        let need = Need {
            access: Access::Metadata,
            managers: BTreeSet::new(),
        };
        self.acquire_slot(kind, &Selector::default(), user, need)
    }

    fn acquire_slot(
        &mut self,
        kind: &Gvk,
        selector: &Selector,
        user: (SubscriberId, Role),
        need: Need,
    ) -> SlotId {
        let key = WatchKey {
            kind: kind.clone(),
            selector: selector.clone(),
        };
        if let Some((id, slot)) = self.slots.iter_mut().find(|(_, slot)| slot.key == key) {
            slot.users.entry(user).or_default().push(need);
            return *id;
        }
        let served = self.kinds().and_then(|kinds| kinds.get(kind)).cloned();
        let slot = WatchSlot {
            key,
            form: need.access,
            managers: Arc::new(need.managers.clone()),
            users: BTreeMap::from([(user, vec![need])]),
            parents: None,
            section_watches: Vec::new(),
            served,
            store: Store::default(),
            subscriptions: Subscriptions::default(),
        };
        let id = SlotId(self.next_number());
        self.slots.insert(id, slot);
        id
    }

    /// Adapts a watch after its users have changed: drops it without users, or chooses the form and the parents that
    /// they need.
    ///
    /// Separate from acquiring and releasing: a watch that is needed before and after an update must continue
    /// undisturbed.
    pub(super) fn settle(&mut self, id: SlotId) -> Settled {
        let Some(slot) = self.slots.get_mut(&id) else {
            return Settled::Unchanged;
        };
        if slot.users.is_empty() {
            self.slots.remove(&id);
            return Settled::Unchanged;
        }
        // A registration that no longer reads the kind never commits reads of it, which would remove its subscriptions.
        let is_user = |id| slot.users.contains_key(&(id, Role::Read));
        let former: Vec<Reader> = slot
            .subscriptions
            .readers()
            .filter(|reader| !is_user(reader.subscriber_id))
            .cloned()
            .collect();
        for reader in former {
            slot.subscriptions.retain(&reader, &BTreeSet::new());
        }
        let is_reshaped = slot.reshape();
        let parents = self.get(id).and_then(|slot| self.parents_of(slot));
        let Some(slot) = self.slots.get_mut(&id) else {
            return Settled::Unchanged;
        };
        let has_other_parents = parents != slot.parents;
        slot.parents = parents;
        if is_reshaped {
            Settled::Reshaped
        } else if has_other_parents {
            Settled::OtherParents
        } else {
            Settled::Unchanged
        }
    }

    /// Starts over with new tasks for all requests.
    pub(super) fn restart(&mut self, id: SlotId, now: Instant) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        let is_reshaped = slot.store.len() > 0;
        for watch in &mut slot.section_watches {
            self.count += 1;
            watch.restart(self.count, is_reshaped, now);
        }
    }

    /// Returns the last seen version of a cluster-scoped object whose kind is watched without a selector.
    pub(crate) fn version_of(&self, kind: &Gvk, name: &str) -> Option<ResourceVersion> {
        let slot = self
            .slots
            .values()
            .find(|slot| slot.key.kind == *kind && slot.key.selector == Selector::default())?;
        let stored = slot.store.get(&ObjectKey::new("", name))?;
        Some(stored.version)
    }

    /// The shape in which a user with `access` sees the cached objects.
    pub(super) fn shape(&self, slot: &WatchSlot, access: Access) -> Shape {
        Shape {
            kind: slot.key.kind.clone(),
            form: access,
            managers: Some(Arc::clone(&slot.managers)),
            hash_key: self.hash_key.clone(),
        }
    }

    fn next_number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
}
