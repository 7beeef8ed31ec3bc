//! Decides which children are cached with texts.
//!
//! Watches of children select by a label that any user may set. So the cache holds an object's text only if a known
//! parent owns it or it carries the host's proof, and only while the namespace has room. For all other objects it holds
//! identity and owner: enough to notice that a new parent already has children, which the pass then reads live.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use innkeeper_model::{Gvk, ObjectId, Uid};

use super::{
    SlotId, SubscriberId, TaskId, WatchSlot, WatchTable, id_of,
    section_watch::{Health, SectionWatch},
    table::Role,
};
use crate::{
    interest::NamespaceFull,
    store::{CacheSize, Change, NamespaceSize, ObjectKey},
    stored::{Extent, Stored},
};

/// The most children that one observation reads live: less than half of a parent's default number of children, so that
/// a parent with many does not hold a permit for passes for seconds.
const LIVE_READS_MAX: usize = 100;

/// Why a parent's children cannot be observed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MissingTexts {
    /// The first children that must be read live.
    pub(crate) unread: Vec<ObjectId>,
    /// The namespace that has no room for a child's text.
    pub(crate) full: Option<NamespaceFull>,
}

impl MissingTexts {
    /// Adds a child without a cached text.
    pub(super) fn add(
        &mut self,
        table: &WatchTable,
        slot: &WatchSlot,
        kind: &Gvk,
        stored: &Stored,
    ) {
        let is_readable = match stored.extent {
            Extent::Whole => return,
            Extent::Unowned => true,
            Extent::OverBound(bytes) => table.has_room(slot, &stored.namespace, bytes, None),
        };
        if !is_readable {
            let full = self.full.take();
            self.full = full.or_else(|| table.namespace_full(slot, &stored.namespace));
        } else if self.unread.len() < LIVE_READS_MAX {
            self.unread.push(id_of(&kind.group_kind(), stored));
        }
    }
}

impl WatchTable {
    /// Stores as much of an object as owner and bound allow.
    pub(super) fn store(&mut self, id: SlotId, stored: Stored) -> Vec<Change> {
        let Some(slot) = self.get(id) else {
            return Vec::new();
        };
        let watch = slot.watch_at(Some(&stored.namespace));
        // The request still sends objects of a shard that is no longer held.
        if watch.is_none() && !self.shards.is_one() {
            return Vec::new();
        }
        let listing = watch.map(|watch| watch.listing).unwrap_or_default();
        let stored = self.fit(slot, stored);
        self.slots
            .get_mut(&id)
            .map_or_else(Vec::new, |slot| slot.store.put(stored, listing))
    }

    /// Drops a listed object's text if it would not be cached now.
    pub(crate) fn fitted(&self, (id, _): TaskId, stored: Stored) -> Stored {
        match self.get(id) {
            Some(slot) => self.fit(slot, stored),
            None => stored,
        }
    }

    fn fit(&self, slot: &WatchSlot, stored: Stored) -> Stored {
        let is_whole = stored.extent == Extent::Whole;
        let Some(parents) = slot.parents.as_ref().filter(|_| is_whole) else {
            return stored;
        };
        if !self.is_proven_child(parents, &stored) {
            return stored.reduced(Extent::Unowned);
        }
        let bytes = stored.bytes();
        let cached_bytes = slot
            .store
            .get(&ObjectKey::for_object(&stored))
            .filter(|cached| cached.extent == Extent::Whole)
            .map(Stored::bytes);
        // A lowered bound takes no text from a parent that has it.
        let is_growing = cached_bytes.is_none_or(|cached| bytes > cached);
        if is_growing && !self.has_room(slot, &stored.namespace, bytes, cached_bytes) {
            return stored.reduced(Extent::OverBound(bytes));
        }
        stored
    }

    /// Returns true if one of these parents owns an object, or if the host retains it.
    fn is_proven_child(&self, parents: &BTreeSet<SlotId>, stored: &Stored) -> bool {
        let has_owner = |uid: &Uid| {
            parents
                .iter()
                .filter_map(|parent| self.get(*parent))
                .any(|parent| parent.store.by_uid(uid).is_some())
        };
        stored.retained_for.is_some() || stored.controller.as_ref().is_some_and(has_owner)
    }

    /// Returns true if a namespace has room for one more text, or for a text that grows from `cached_bytes`.
    fn has_room(
        &self,
        slot: &WatchSlot,
        namespace: &str,
        bytes: usize,
        cached_bytes: Option<usize>,
    ) -> bool {
        let max = self.namespace_max(slot);
        let cached = self.namespace_size(slot, namespace).whole;
        cached.objects + usize::from(cached_bytes.is_none()) <= max.objects
            && cached.bytes - cached_bytes.unwrap_or_default() + bytes <= max.bytes
    }

    /// The bound for each namespace: a plugin's registrations share all children, so the highest counts.
    fn namespace_max(&self, slot: &WatchSlot) -> CacheSize {
        slot.users()
            .filter_map(|(id, _)| self.by_subscriber.get(&id))
            .map(|watches| watches.interest.namespace_max)
            .fold(CacheSize::default(), |max, bound| CacheSize {
                objects: max.objects.max(bound.objects),
                bytes: max.bytes.max(bound.bytes),
            })
    }

    /// The size of a plugin's children in a namespace, all kinds together.
    fn namespace_size(&self, slot: &WatchSlot, namespace: &str) -> NamespaceSize {
        self.siblings(slot)
            .map(|sibling| sibling.store.size_of(Some(namespace)))
            .fold(NamespaceSize::default(), NamespaceSize::and)
    }

    /// The watches for all children that the same plugin has.
    fn siblings(&self, slot: &WatchSlot) -> impl Iterator<Item = &WatchSlot> {
        let ids: BTreeSet<SlotId> = slot
            .users()
            .filter(|(_, role)| *role == Role::Child)
            .filter_map(|(id, _)| self.by_subscriber.get(&id))
            .flat_map(|watches| &watches.children)
            .map(|(_, id)| *id)
            .collect();
        ids.into_iter().filter_map(|id| self.get(id))
    }

    /// Returns a namespace's exceeded bound, if there is one.
    fn namespace_full(&self, slot: &WatchSlot, namespace: &Arc<str>) -> Option<NamespaceFull> {
        let size = self.namespace_size(slot, namespace);
        let max = self.namespace_max(slot);
        let total = size.whole.and(size.over);
        if size.over.objects == 0 || total.objects <= max.objects && total.bytes <= max.bytes {
            return None;
        }
        let by_objects = total.objects > max.objects;
        let usage = |sibling: &&WatchSlot| {
            let size = sibling.store.size_of(Some(namespace)).all();
            if by_objects { size.objects } else { size.bytes }
        };
        let largest = self.siblings(slot).max_by_key(usage)?;
        Some(NamespaceFull {
            namespace: Arc::clone(namespace),
            by_objects,
            max,
            largest: largest.key.kind.clone(),
        })
    }

    /// Returns the namespaces in which a plugin's children are cached without texts, because there is no room.
    pub(crate) fn full_namespaces(&self, subscriber_id: SubscriberId) -> Vec<NamespaceFull> {
        let children = self
            .by_subscriber
            .get(&subscriber_id)
            .into_iter()
            .flat_map(|watches| &watches.children)
            .filter_map(|(_, slot)| self.get(*slot));
        let mut full_namespaces = BTreeMap::new();
        for slot in children {
            let sizes = slot.store.sizes().iter();
            for (namespace, _) in sizes.filter(|(_, size)| size.over.objects > 0) {
                if !full_namespaces.contains_key(namespace)
                    && let Some(full) = self.namespace_full(slot, namespace)
                {
                    full_namespaces.insert(Arc::clone(namespace), full);
                }
            }
        }
        full_namespaces.into_values().collect()
    }

    /// The parents' watches, if all users need only their children.
    pub(super) fn parents_of(&self, slot: &WatchSlot) -> Option<BTreeSet<SlotId>> {
        slot.users()
            .map(|(id, role)| match role {
                Role::Child => self.by_subscriber.get(&id).map(|watches| watches.parent),
                // One such user is enough: it needs objects that no parent owns.
                Role::Parent | Role::Read => None,
            })
            .collect()
    }

    /// Returns true if a watch's first list has to wait for the parents' list: without them, every child would be
    /// listed a second time.
    pub(super) fn awaits_parents(&self, slot: &WatchSlot, watch: &SectionWatch) -> bool {
        let is_listing = |parents: &WatchSlot| {
            parents.served.is_some()
                && parents.section_watches.iter().any(|parent| {
                    // Not for parents that cannot be listed: another parent kind may share the children.
                    parent.lists == 0
                        && parent.health == Health::Listing(None)
                        && parent.section.overlaps(&watch.section)
                })
        };
        let mut parents = slot.parents.iter().flatten();
        watch.lists == 0 && parents.any(|id| self.get(*id).is_some_and(is_listing))
    }

    /// Drops the texts of former children. Returns true if texts are missing, so that the watch has to restart: one
    /// list costs less than a read for each.
    pub(super) fn refit(&mut self, id: SlotId) -> bool {
        let Some(slot) = self.get(id) else {
            return false;
        };
        let Some(parents) = &slot.parents else {
            // A user that needs all objects has joined.
            let size = slot.store.size_of(None);
            return size.unowned + size.over.objects > 0;
        };
        // Until all parents are listed, an object without a known owner may still belong to one of them.
        let is_complete = parents
            .iter()
            .filter_map(|parent| self.get(*parent))
            .flat_map(|parent| &parent.section_watches)
            .all(|watch| watch.lists > 0);
        let mut has_missing = false;
        let mut unowned = Vec::new();
        for stored in slot.store.all(None) {
            match (stored.extent, self.is_proven_child(parents, stored)) {
                (Extent::Unowned, true) => has_missing = true,
                (Extent::Whole | Extent::OverBound(_), false) if is_complete => {
                    unowned.push(ObjectKey::for_object(stored));
                }
                _ => {}
            }
        }
        self.drop_texts(id, &unowned);
        has_missing
    }

    /// Drops all texts of a deleted parent's children.
    pub(super) fn drop_children_of(&mut self, parents: SlotId, uid: &Uid) {
        for id in self.child_slots(parents) {
            let Some(slot) = self.get(id) else {
                continue;
            };
            let is_unowned = |stored: &&Stored| {
                let is_child = |parents| self.is_proven_child(parents, stored);
                stored.extent != Extent::Unowned && !slot.parents.as_ref().is_none_or(is_child)
            };
            let unowned: Vec<ObjectKey> = slot
                .store
                .controlled_by(uid)
                .filter(is_unowned)
                .map(ObjectKey::for_object)
                .collect();
            self.drop_texts(id, &unowned);
        }
    }

    fn drop_texts(&mut self, id: SlotId, keys: &[ObjectKey]) {
        if let Some(slot) = self.slots.get_mut(&id) {
            for key in keys {
                slot.store.reduce(key, Extent::Unowned);
            }
        }
    }

    /// The watches for children that these parents may have.
    pub(super) fn child_slots(&self, parents: SlotId) -> Vec<SlotId> {
        self.slots
            .iter()
            .filter(|(_, slot)| slot.parents.iter().any(|ids| ids.contains(&parents)))
            .map(|(id, _)| *id)
            .collect()
    }
}
