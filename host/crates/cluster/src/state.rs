//! The whole known state under one lock: the watches with their objects, and the registrations that use them.
//!
//! No code here waits or makes requests. Watch tasks deliver the objects that they read, controllers take the parents
//! that are queued, and this module maps one to the other.
//! One lock, because an event must reach the store, the expectations and the triggers in one step: a pass between two
//! of them would act on a state that never existed.

mod dispatch;
mod expectations;
mod extents;
mod freshness;
mod made;
mod namespace_watch;
mod namespaces;
mod related;
mod running;
mod slots;
mod waiting;
mod watching;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

pub(super) use self::{
    expectations::{ExpectationStatus, ExpectedState},
    extents::MissingTexts,
    freshness::{Contents, FreshnessCheck, UncheckedWatch},
    related::Made,
    slots::{SlotId, WatchSlot},
    watching::{Order, Stale, TaskId},
};
use innkeeper_model::{
    Access, Expression, GroupKind, Gvk, HashKey, LABEL_PLUGIN, Object, ObjectId, ReadKind,
    ResourceVersion, Selector, child_order,
};

use self::{
    expectations::WriteExpectations,
    namespaces::NamespaceScope,
    slots::{Need, WatchKey},
};
use super::{
    discovery::ServedKinds,
    interest::{ChildInterest, Interest, Why},
    present::object_of,
    reader::{Reader, SubscriberId},
    store::ObjectKey,
    stored::Stored,
    triggers::{Cause, HeldTriggers, Trigger, Triggers},
};

/// The longest time that the first triggers wait for the first lists.
///
/// Without this wait, a host that started with nothing to do ran 1.5 to 3.5 passes for each parent, because every list that
/// came after the first pass triggered another one. The value is chosen, not measured: lists of a healthy cluster take less,
/// and a kind whose list does not come must not hold up parents that do not need it for long. Parents that need it wait on
/// their own.
const FIRST_LISTS_WAIT: Duration = Duration::from_secs(5);

/// The purpose for which a registration uses a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Parent,
    Child,
    Read,
}

/// One registration.
#[derive(Debug)]
struct Subscriber {
    interest: Interest,
    held: HeldWatches,
    triggers: Triggers,
    /// The parents that have a pass.
    running: BTreeMap<ObjectId, HeldTriggers>,
    wake: Arc<Notify>,
    expectations: BTreeMap<ObjectId, WriteExpectations>,
    /// Parents that wait for their own writes.
    behind: BTreeSet<ObjectId>,
    /// The scopes in which passes have all that they need.
    ready: BTreeSet<NamespaceScope>,
    /// The end of the wait for the first lists; none once they are complete or the time has passed.
    held_until: Option<Instant>,
}

impl Subscriber {
    fn trigger(&mut self, parent: ObjectId, trigger: Trigger) {
        if let Some(held) = self.running.get_mut(&parent) {
            held.hold(trigger, Instant::now());
            return;
        }
        self.triggers.add(parent, trigger);
        self.wake.notify_one();
    }
}

/// The watches of one registration.
#[derive(Debug)]
struct HeldWatches {
    parent: SlotId,
    children: Vec<(ChildInterest, SlotId)>,
    reads: Vec<(ReadKind, SlotId)>,
}

impl HeldWatches {
    /// The watch of a kind of child.
    fn child(&self, kind: &GroupKind) -> Option<SlotId> {
        let mut children = self.children.iter();
        let child = children.find(|(child, _)| child.kind.group_kind() == *kind);
        child.map(|(_, slot)| *slot)
    }

    /// The interest in a kind of child.
    fn child_interest(&self, kind: &Gvk) -> Option<&ChildInterest> {
        let mut children = self.children.iter().map(|(child, _)| child);
        children.find(|child| child.kind == *kind)
    }
}

/// The known state of the cluster and its registrations.
#[derive(Debug, Default)]
pub(super) struct CacheState {
    kinds: Option<ServedKinds>,
    /// The namespaces that the host is limited to.
    namespaces: Option<Arc<[Arc<str>]>>,
    hash_key: Option<HashKey>,
    slots: BTreeMap<SlotId, WatchSlot>,
    subscribers: BTreeMap<SubscriberId, Subscriber>,
    count: u64,
}

impl CacheState {
    /// Creates a state without knowledge, limited to these namespaces if there are any.
    pub(super) fn within(namespaces: Option<Arc<[Arc<str>]>>) -> Self {
        Self {
            namespaces,
            ..Self::default()
        }
    }

    /// Adds a registration and triggers all parents that are already known.
    pub(super) fn add_subscriber(
        &mut self,
        interest: Interest,
        wake: Arc<Notify>,
        now: Instant,
    ) -> SubscriberId {
        let subscriber_id = SubscriberId(self.number());
        let held = self.acquire(subscriber_id, &interest, now);
        let subscriber = Subscriber {
            interest,
            held,
            triggers: Triggers::default(),
            running: BTreeMap::new(),
            wake,
            expectations: BTreeMap::new(),
            behind: BTreeSet::new(),
            ready: BTreeSet::new(),
            held_until: Some(now + FIRST_LISTS_WAIT),
        };
        self.subscribers.insert(subscriber_id, subscriber);
        // Settled before the scopes are computed: a watch that changes its form is not ready.
        self.settle_all(&self.held_by(subscriber_id), now);
        let ready = self.ready_scopes(subscriber_id);
        let parents = self.parents(subscriber_id);
        if let Some(subscriber) = self.subscribers.get_mut(&subscriber_id) {
            subscriber.ready = ready;
            for parent in parents {
                subscriber.trigger(parent, Cause::Listed.into());
            }
        }
        subscriber_id
    }

    /// Changes the interest of a registration; the subscriptions of its parents stay.
    pub(super) fn change(&mut self, subscriber_id: SubscriberId, interest: Interest, now: Instant) {
        let before = self.held_by(subscriber_id);
        // Released and acquired first, settled at the end: a watch that is wanted before and after is without users in
        // between, and must not be dropped for that.
        self.release(subscriber_id, &before);
        let held = self.acquire(subscriber_id, &interest, now);
        let Some(subscriber) = self.subscribers.get_mut(&subscriber_id) else {
            return;
        };
        subscriber.interest = interest;
        subscriber.held = held;
        let after = self.held_by(subscriber_id);
        self.settle_all(&before, now);
        self.settle_all(&after, now);
        self.recheck(subscriber_id);
    }

    /// Watches the metadata of a kind for the host itself.
    pub(super) fn watch_metadata(&mut self, kind: &Gvk, now: Instant) {
        let user = (SubscriberId(self.number()), Role::Read);
        let key = WatchKey {
            kind: kind.clone(),
            selector: Selector::default(),
        };
        let need = Need {
            access: Access::Metadata,
            managers: BTreeSet::new(),
        };
        let slot = self.acquire_slot(key, user, need, now);
        self.settle(slot, now);
    }

    /// Returns the last seen version of a cluster-scoped object of a kind that is watched without a selector.
    pub(super) fn version_of(&self, kind: &Gvk, name: &str) -> Option<ResourceVersion> {
        let mut slots = self.slots.values();
        let slot = slots
            .find(|slot| slot.key.kind == *kind && slot.key.selector == Selector::default())?;
        let stored = slot.store.get(&ObjectKey::new("", name))?;
        Some(stored.version)
    }

    /// Removes a registration.
    pub(super) fn remove_subscriber(&mut self, subscriber_id: SubscriberId, now: Instant) {
        let held = self.held_by(subscriber_id);
        // Removed before its watches settle, which may trigger the parents of every registration that is left.
        self.subscribers.remove(&subscriber_id);
        self.release(subscriber_id, &held);
        self.settle_all(&held, now);
    }

    /// Takes the most urgent triggers; while the first lists are in progress, returns the end of that wait instead.
    ///
    /// A parent that a list has just shown would have a useless pass, and another one for every list that completes
    /// later.
    pub(super) fn take(
        &mut self,
        subscriber_id: SubscriberId,
        max: usize,
        now: Instant,
    ) -> Result<Vec<(ObjectId, Trigger)>, Instant> {
        let subscriber = self.subscribers.get(&subscriber_id);
        if let Some(until) = subscriber.and_then(|subscriber| subscriber.held_until)
            && now < until
            && self.is_listing(subscriber_id)
        {
            return Err(until);
        }
        let Some(subscriber) = self.subscribers.get_mut(&subscriber_id) else {
            return Ok(Vec::new());
        };
        subscriber.held_until = None;
        Ok(subscriber.triggers.take(max))
    }

    /// Returns true if the first list of any watch of the registration is still expected soon, required or not.
    fn is_listing(&self, subscriber_id: SubscriberId) -> bool {
        let held = self.held_by(subscriber_id);
        let mut slots = held.iter().filter_map(|(slot, _)| self.slots.get(slot));
        slots.any(|slot| {
            let why = self.why(slot, None);
            matches!(why, Some(Why::Discovering | Why::Listing | Why::Unchecked))
        })
    }

    /// The key of hashes, if it is known.
    pub(super) const fn hash_key(&self) -> Option<&HashKey> {
        self.hash_key.as_ref()
    }

    /// Sets or removes the key of hashes.
    pub(super) fn set_hash_key(&mut self, key: Option<HashKey>, now: Instant) {
        if self.hash_key != key {
            self.hash_key = key;
            // All: children may be retained, which only the key proves, and any watch may get children later.
            let ids: Vec<SlotId> = self.slots.keys().copied().collect();
            for id in ids {
                self.restart(id, now);
            }
        }
    }

    /// The served kinds; none before discovery has answered.
    pub(super) const fn kinds(&self) -> Option<&ServedKinds> {
        self.kinds.as_ref()
    }

    /// Returns true if a registration has parents of this kind.
    pub(super) fn has_parents(&self, kind: &GroupKind) -> bool {
        let mut parents = self.subscribers.values().map(|it| &it.interest.parent);
        parents.any(|parent| parent.group == kind.group && parent.kind == kind.kind)
    }

    /// All known parents.
    pub(super) fn parents(&self, subscriber_id: SubscriberId) -> Vec<ObjectId> {
        let Some(subscriber) = self.subscribers.get(&subscriber_id) else {
            return Vec::new();
        };
        let kind = subscriber.interest.parent.group_kind();
        let slot = self.slots.get(&subscriber.held.parent).into_iter();
        slot.flat_map(|slot| slot.store.all(None))
            .map(|stored| id_of(&kind, stored))
            .collect()
    }

    /// One parent.
    pub(super) fn parent(&self, subscriber_id: SubscriberId, id: &ObjectId) -> Option<Object> {
        let subscriber = self.subscribers.get(&subscriber_id)?;
        let slot = self.slots.get(&subscriber.held.parent)?;
        let stored = slot.store.get(&key_of(id))?;
        object_of(stored, &subscriber.interest.parent, Access::Full).ok()
    }

    /// Returns the number of children of a kind; none if it is unknown.
    pub(super) fn child_count(
        &self,
        subscriber_id: SubscriberId,
        kind: &GroupKind,
    ) -> Option<usize> {
        let subscriber = self.subscribers.get(&subscriber_id)?;
        let slot = self.slots.get(&subscriber.held.child(kind)?)?;
        self.why(slot, None).is_none().then(|| slot.store.len())
    }

    /// Returns the children of a parent, controlled or retained; fails if the text of any is missing, because a child
    /// without it would seem to be absent.
    ///
    /// Retained ones may have another controller, such as the StatefulSet of a claim, but no other parent.
    pub(super) fn children(
        &self,
        subscriber_id: SubscriberId,
        parent: &Object,
    ) -> Result<Vec<Object>, MissingTexts> {
        let Some(subscriber) = self.subscribers.get(&subscriber_id) else {
            return Ok(Vec::new());
        };
        let mut missing = MissingTexts::default();
        let identity = parent.id().identity();
        let namespace = parent.namespace.as_deref();
        let mut children = Vec::new();
        for (child, slot) in &subscriber.held.children {
            let usable = |slot: &&WatchSlot| self.why(slot, namespace).is_none();
            let Some(slot) = self.slots.get(slot).filter(usable) else {
                continue;
            };
            let parents = self.slots.get(&subscriber.held.parent);
            let is_parent = |uid| parents.is_some_and(|slot| slot.store.by_uid(uid).is_some());
            let retained = slot.store.retained_for(&identity);
            let belonging = slot.store.controlled_by(&parent.uid).chain(
                retained.filter(|stored| !stored.controller.as_ref().is_some_and(is_parent)),
            );
            children.extend(belonging.filter_map(|stored| {
                self.note_missing(&mut missing, (slot, &child.kind), stored);
                let json = self.show(slot, stored, child.access).ok()?;
                let object = object_of(stored, &child.kind, child.access).ok()?;
                Some(Object { json, ..object })
            }));
        }
        if missing != MissingTexts::default() {
            return Err(missing);
        }
        children.sort_by(|left, right| child_order(&left.id(), &right.id()));
        Ok(children)
    }

    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Acquires every watch that an interest needs.
    fn acquire(
        &mut self,
        subscriber_id: SubscriberId,
        interest: &Interest,
        now: Instant,
    ) -> HeldWatches {
        let mut take = |kind: &Gvk, selector: &Selector, role, access| {
            // Field managers write children only, so their entries matter for children only.
            let managers = match role {
                Role::Child => interest.field_managers.clone(),
                Role::Parent | Role::Read => BTreeSet::new(),
            };
            let key = WatchKey {
                kind: kind.clone(),
                selector: selector.clone(),
            };
            let need = Need { access, managers };
            self.acquire_slot(key, (subscriber_id, role), need, now)
        };
        let chosen = &interest.selector;
        let parent = take(&interest.parent, chosen, Role::Parent, Access::Full);
        let plugin = interest.plugin.as_str().to_owned();
        let labelled = Expression::Equal(LABEL_PLUGIN.to_owned(), plugin).into();
        let mut seen = BTreeSet::new();
        let children = interest
            .children
            .iter()
            .filter(|child| seen.insert(child.kind.group_kind()))
            .map(|child| {
                let slot = take(&child.kind, &labelled, Role::Child, child.access);
                (child.clone(), slot)
            })
            .collect();
        let reads = interest
            .reads
            .iter()
            .map(|read| {
                let slot = take(&read.kind, &read.label_selector, Role::Read, read.access);
                (read.clone(), slot)
            })
            .collect();
        HeldWatches {
            parent,
            children,
            reads,
        }
    }

    fn settle_all(&mut self, held: &BTreeSet<(SlotId, Role)>, now: Instant) {
        for (slot, _) in held {
            self.settle(*slot, now);
        }
    }

    fn held_by(&self, subscriber_id: SubscriberId) -> BTreeSet<(SlotId, Role)> {
        let Some(Subscriber { held, .. }) = self.subscribers.get(&subscriber_id) else {
            return BTreeSet::new();
        };
        let children = held.children.iter().map(|(_, slot)| (*slot, Role::Child));
        let reads = held.reads.iter().map(|(_, slot)| (*slot, Role::Read));
        children
            .chain(reads)
            .chain([(held.parent, Role::Parent)])
            .collect()
    }
}

/// The identity of a stored object.
fn id_of(kind: &GroupKind, stored: &Stored) -> ObjectId {
    ObjectId {
        kind: kind.clone(),
        namespace: Some(Arc::clone(&stored.namespace)).filter(|name| !name.is_empty()),
        name: Arc::clone(&stored.name),
    }
}

/// The key of an object in the store of its kind.
fn key_of(id: &ObjectId) -> ObjectKey {
    ObjectKey {
        namespace: id.namespace.clone().unwrap_or_else(|| "".into()),
        name: Arc::clone(&id.name),
    }
}

#[cfg(test)]
mod tests;
