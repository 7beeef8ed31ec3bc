//! How much of each child the cache holds.
//!
//! Watches of children select by a label that anybody may set. So the text of an object is cached only if a known parent
//! owns it or it carries the host's proof, and only while its namespace has room. Of all others the cache keeps identity
//! and owner: enough to notice that a new parent already has children, which its pass then reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use innkeeper_model::{Gvk, ObjectId, Uid};
use tokio::time::Instant;

use super::{
    CacheState, Role, SlotId, SubscriberId, TaskId, WatchSlot, id_of,
    namespace_watch::{Health, NamespaceWatch},
};
use crate::{
    interest::NamespaceFull,
    store::{CacheSize, Change, NamespaceSize, ObjectKey},
    stored::{Extent, Stored},
};

/// The most children that one observation reads live. Chosen: less than half of the default number of children of a
/// parent, so that a parent with many does not occupy a place for passes for seconds.
const READS_MAX: usize = 100;

/// Why the children of a parent cannot be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MissingTexts {
    /// The first children whose texts have to be read.
    pub(crate) unread: Vec<ObjectId>,
    /// The namespace that has no room for the text of a child.
    pub(crate) full: Option<NamespaceFull>,
}

impl CacheState {
    /// Stores an object, as much of it as its owner and the bound of its namespace allow.
    pub(super) fn store(&mut self, id: SlotId, stored: Stored) -> Vec<Change> {
        let Some(slot) = self.slots.get(&id) else {
            return Vec::new();
        };
        let stored = self.fit(slot, stored);
        let slot = self.slots.get_mut(&id);
        slot.map_or_else(Vec::new, |slot| slot.store.put(stored))
    }

    /// Drops the text of a listed object that would not be cached now.
    pub(crate) fn fitted(&self, (id, _): TaskId, stored: Stored) -> Stored {
        match self.slots.get(&id) {
            Some(slot) => self.fit(slot, stored),
            None => stored,
        }
    }

    fn fit(&self, slot: &WatchSlot, stored: Stored) -> Stored {
        let Some(parents) = slot
            .parents
            .as_ref()
            .filter(|_| stored.extent == Extent::Whole)
        else {
            return stored;
        };
        if !self.belongs(parents, &stored) {
            return stored.reduced(Extent::Unowned);
        }
        let bytes = stored.bytes();
        let before = slot.store.get(&ObjectKey::of(&stored));
        let before = before
            .filter(|before| before.extent == Extent::Whole)
            .map(Stored::bytes);
        // A bound that was lowered takes no text from a parent that has it.
        let grows = before.is_none_or(|before| bytes > before);
        if grows && !self.has_room(slot, &stored.namespace, bytes, before) {
            return stored.reduced(Extent::OverBound(bytes));
        }
        stored
    }

    /// Returns true if one of these parents owns an object, or if the host has made it.
    fn belongs(&self, parents: &BTreeSet<SlotId>, stored: &Stored) -> bool {
        let owns = |uid: &Uid| {
            let mut watches = parents.iter().filter_map(|parent| self.slots.get(parent));
            watches.any(|parent| parent.store.by_uid(uid).is_some())
        };
        stored.retained_for.is_some() || stored.controller.as_ref().is_some_and(owns)
    }

    /// Returns true if a namespace has room for the text of one more child, or for its growth.
    fn has_room(
        &self,
        slot: &WatchSlot,
        namespace: &str,
        bytes: usize,
        before: Option<usize>,
    ) -> bool {
        let max = self.namespace_max(slot);
        let cached = self.namespace_size(slot, namespace).whole;
        cached.objects + usize::from(before.is_none()) <= max.objects
            && cached.bytes - before.unwrap_or_default() + bytes <= max.bytes
    }

    /// The bound of each namespace: all registrations of a plugin share its children, so the highest counts.
    fn namespace_max(&self, slot: &WatchSlot) -> CacheSize {
        let users = slot.users().filter_map(|(id, _)| self.subscribers.get(&id));
        let bounds = users.map(|subscriber| subscriber.interest.namespace_max);
        bounds.fold(CacheSize::default(), |most, bound| CacheSize {
            objects: most.objects.max(bound.objects),
            bytes: most.bytes.max(bound.bytes),
        })
    }

    /// The size of a plugin's children in a namespace, of all kinds.
    fn namespace_size(&self, slot: &WatchSlot, namespace: &str) -> NamespaceSize {
        let siblings = self.siblings(slot).into_iter();
        siblings
            .map(|sibling| sibling.store.size_of(Some(namespace)))
            .fold(NamespaceSize::default(), NamespaceSize::and)
    }

    /// The watches of all children of the plugin that a watch of children belongs to.
    fn siblings(&self, slot: &WatchSlot) -> Vec<&WatchSlot> {
        let children = slot
            .users()
            .filter(|(_, role)| *role == Role::Child)
            .filter_map(|(id, _)| self.subscribers.get(&id))
            .flat_map(|subscriber| &subscriber.held.children);
        let ids: BTreeSet<SlotId> = children.map(|(_, id)| *id).collect();
        ids.iter().filter_map(|id| self.slots.get(id)).collect()
    }

    /// Returns why a namespace has no room; none if it has.
    fn full(&self, slot: &WatchSlot, namespace: &Arc<str>) -> Option<NamespaceFull> {
        let size = self.namespace_size(slot, namespace);
        let max = self.namespace_max(slot);
        let all = size.whole.and(size.over);
        if size.over.objects == 0 || all.objects <= max.objects && all.bytes <= max.bytes {
            return None;
        }
        let by_objects = all.objects > max.objects;
        let used = |sibling: &&WatchSlot| {
            let all = sibling.store.size_of(Some(namespace)).all();
            if by_objects { all.objects } else { all.bytes }
        };
        let largest = self.siblings(slot).into_iter().max_by_key(used)?;
        Some(NamespaceFull {
            namespace: Arc::clone(namespace),
            by_objects,
            max,
            largest: largest.key.kind.clone(),
        })
    }

    /// Returns the namespaces in which children of a plugin are without their texts, because there is no room.
    pub(crate) fn full_namespaces(&self, subscriber_id: SubscriberId) -> Vec<NamespaceFull> {
        let subscriber = self.subscribers.get(&subscriber_id);
        let children = subscriber
            .into_iter()
            .flat_map(|subscriber| &subscriber.held.children)
            .filter_map(|(_, slot)| self.slots.get(slot));
        let mut full = BTreeMap::new();
        for slot in children {
            for (namespace, _) in slot
                .store
                .sizes()
                .iter()
                .filter(|(_, size)| size.over.objects > 0)
            {
                if !full.contains_key(namespace)
                    && let Some(reason) = self.full(slot, namespace)
                {
                    full.insert(Arc::clone(namespace), reason);
                }
            }
        }
        full.into_values().collect()
    }

    /// Adds a child to the missing texts unless its text is cached.
    pub(super) fn note_missing(
        &self,
        missing: &mut MissingTexts,
        (slot, kind): (&WatchSlot, &Gvk),
        stored: &Stored,
    ) {
        let is_readable = match stored.extent {
            Extent::Whole => return,
            Extent::Unowned => true,
            Extent::OverBound(bytes) => self.has_room(slot, &stored.namespace, bytes, None),
        };
        if !is_readable {
            missing.full = missing
                .full
                .take()
                .or_else(|| self.full(slot, &stored.namespace));
        } else if missing.unread.len() < READS_MAX {
            missing.unread.push(id_of(&kind.group_kind(), stored));
        }
    }

    /// The watches of the parents whose children a watch shows; none if some user wants all of its objects.
    pub(super) fn parents_of(&self, slot: &WatchSlot) -> Option<BTreeSet<SlotId>> {
        let parent = |(id, role)| match role {
            Role::Child => self.subscribers.get(&id).map(|it| it.held.parent),
            Role::Parent | Role::Read => None,
        };
        slot.users().map(parent).collect()
    }

    /// Returns true if the first list of a watch has to wait for that of the parents: without them, every child would be
    /// listed a second time.
    pub(super) fn awaits_parents(&self, slot: &WatchSlot, watch: &NamespaceWatch) -> bool {
        let is_listing = |parents: &WatchSlot| {
            parents.served.is_some()
                && parents.namespace_watches.iter().any(|parent| {
                    let both = parent.namespace.as_ref().zip(watch.namespace.as_ref());
                    // Not for parents that cannot be listed: another kind of parents may share the children.
                    parent.lists == 0
                        && parent.health == Health::Listing(None)
                        && both.is_none_or(|(parent, child)| parent == child)
                })
        };
        let mut parents = slot.parents.iter().flatten();
        watch.lists == 0 && parents.any(|id| self.slots.get(id).is_some_and(is_listing))
    }

    /// Fits the watches of the children to parents that are complete now.
    pub(super) fn refit_children(&mut self, parents: SlotId, now: Instant) {
        for id in self.watches_of_children(parents) {
            self.refit(id, now);
        }
    }

    /// Fits the objects of a watch to its parents: drops the texts that belong to none, and starts over if texts are
    /// missing, because one list costs less than a read of each.
    pub(super) fn refit(&mut self, id: SlotId, now: Instant) {
        let Some(slot) = self.slots.get(&id) else {
            return;
        };
        let Some(parents) = &slot.parents else {
            let size = slot.store.size_of(None);
            if size.unowned + size.over.objects > 0 {
                self.restart(id, now);
            }
            return;
        };
        let is_listed = |parent: &SlotId| {
            let watches = self.slots.get(parent).map(|it| &it.namespace_watches);
            watches.into_iter().flatten().all(|watch| watch.lists > 0)
        };
        let is_complete = parents.iter().all(is_listed);
        let mut is_lacking = false;
        let mut foreign = Vec::new();
        for stored in slot.store.all(None) {
            match (stored.extent, self.belongs(parents, stored)) {
                (Extent::Unowned, true) => is_lacking = true,
                (Extent::Whole | Extent::OverBound(_), false) if is_complete => {
                    foreign.push(ObjectKey::of(stored));
                }
                _ => {}
            }
        }
        self.drop_texts(id, &foreign);
        if is_lacking {
            self.restart(id, now);
        }
    }

    /// Drops the texts of the children of a parent that is gone.
    pub(super) fn drop_children_of(&mut self, parents: SlotId, uid: &Uid) {
        for id in self.watches_of_children(parents) {
            let Some(slot) = self.slots.get(&id) else {
                continue;
            };
            let foreign = |stored: &&Stored| {
                let belongs = |parents| self.belongs(parents, stored);
                stored.extent != Extent::Unowned && !slot.parents.as_ref().is_none_or(belongs)
            };
            let foreign = slot.store.controlled_by(uid).filter(foreign);
            let foreign: Vec<ObjectKey> = foreign.map(ObjectKey::of).collect();
            self.drop_texts(id, &foreign);
        }
    }

    fn drop_texts(&mut self, id: SlotId, keys: &[ObjectKey]) {
        if let Some(slot) = self.slots.get_mut(&id) {
            for key in keys {
                slot.store.reduce(key, Extent::Unowned);
            }
        }
    }

    fn watches_of_children(&self, parents: SlotId) -> Vec<SlotId> {
        let has = |slot: &WatchSlot| slot.parents.iter().any(|all| all.contains(&parents));
        let children = self.slots.iter().filter(|(_, slot)| has(slot));
        children.map(|(id, _)| *id).collect()
    }
}
