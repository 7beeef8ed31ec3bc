//! The objects of one watch, with indexes.
//!
//! Pure: lists and events go in, changes come out.
//! It does not know what a change leads to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use innkeeper_model::{ResourceVersion, Uid};
use slab::Slab;

use super::{
    section::Section,
    stored::{Extent, Stored},
};

/// Namespace (empty for cluster-scoped objects) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectKey {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

impl ObjectKey {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    pub(super) fn for_object(stored: &Stored) -> Self {
        Self {
            namespace: Arc::clone(&stored.namespace),
            name: Arc::clone(&stored.name),
        }
    }
}

/// One object was added, changed or removed.
///
/// A new object with the same name as a removed one is two changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) before: Option<Stored>,
    pub(super) after: Option<Stored>,
}

impl Change {
    /// The object, or the last state before it was removed.
    pub(super) fn last(&self) -> Option<&Stored> {
        self.after.as_ref().or(self.before.as_ref())
    }

    fn has_changed<'a, T: PartialEq>(&'a self, part: impl Fn(&'a Stored) -> T) -> bool {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => part(before) != part(after),
            _ => true,
        }
    }

    /// Returns true if guests who see the whole object see a change.
    pub(super) fn json_changed(&self) -> bool {
        self.has_changed(|stored| &stored.json)
    }

    /// Returns true if guests who see only the metadata see a change.
    pub(super) fn metadata_changed(&self) -> bool {
        self.has_changed(Stored::metadata)
    }

    /// Returns true if the host sees a change, which includes field ownership.
    pub(super) fn is_relevant(&self) -> bool {
        self.json_changed() || self.has_changed(|stored| &stored.managed)
    }

    /// Returns true if only the status changed; false without a generation, which alone can tell.
    pub(super) fn is_status_only(&self) -> bool {
        let has_generation =
            |stored: &Option<Stored>| stored.as_ref().is_some_and(|s| s.has_generation);
        has_generation(&self.before) && has_generation(&self.after) && !self.metadata_changed()
    }
}

/// Handles by text.
type Index = BTreeMap<Arc<str>, BTreeSet<usize>>;

/// Objects and their indexes.
#[derive(Debug, Default)]
pub(super) struct Store {
    entries: Slab<StoreEntry>,
    by_name: BTreeMap<ObjectKey, usize>,
    by_uid: BTreeMap<Uid, usize>,
    by_controller: Index,
    by_retained: Index,
    by_label: Index,
    /// The number of the last list.
    lists: u32,
    /// The size by namespace, without empty namespaces.
    sizes: BTreeMap<Arc<str>, NamespaceSize>,
}

/// The number and size of objects in a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NamespaceSize {
    /// Objects with texts.
    pub(super) whole: CacheSize,
    /// Children without texts, because the namespace had no room; the bytes are what the texts would take.
    pub(super) over: CacheSize,
    /// Objects without a parent.
    pub(super) unowned: usize,
}

impl NamespaceSize {
    /// All objects, and the texts of all children, cached or not.
    pub(super) const fn all(self) -> CacheSize {
        let Self {
            whole,
            over,
            unowned,
        } = self;
        CacheSize {
            objects: whole.objects + over.objects + unowned,
            bytes: whole.bytes + over.bytes,
        }
    }

    /// Returns the size of both.
    pub(super) const fn and(self, other: Self) -> Self {
        Self {
            whole: self.whole.and(other.whole),
            over: self.over.and(other.over),
            unowned: self.unowned + other.unowned,
        }
    }

    /// Changes the counts for one object.
    fn count(&mut self, stored: &Stored, change: impl Fn(&mut usize, usize)) {
        let (size, bytes) = match stored.extent {
            Extent::Whole => (&mut self.whole, stored.bytes()),
            Extent::OverBound(bytes) => (&mut self.over, bytes),
            Extent::Unowned => return change(&mut self.unowned, 1),
        };
        change(&mut size.objects, 1);
        change(&mut size.bytes, bytes);
    }
}

/// A number of objects and the size of their texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheSize {
    /// The number of objects.
    pub objects: usize,
    /// The size of their texts, in bytes.
    pub bytes: usize,
}

impl CacheSize {
    /// No bound.
    pub const UNBOUNDED: Self = Self {
        objects: usize::MAX,
        bytes: usize::MAX,
    };

    /// Returns the size of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            objects: self.objects + other.objects,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// One request's list that is complete or in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Listing {
    /// Different for all lists of one watch.
    number: u32,
    /// True if the list is the truth even where it is older than the stored objects.
    reset: bool,
}

#[derive(Debug)]
struct StoreEntry {
    stored: Stored,
    /// The last list that had the object.
    list: u32,
}

impl Store {
    /// Begins a list of one section. The end removes the objects that it did not show.
    ///
    /// With `reset`, the list is the truth even if it is older than the stored objects.
    pub(super) const fn begin_list(&mut self, reset: bool) -> Listing {
        self.lists = self.lists.wrapping_add(1);
        Listing {
            number: self.lists,
            reset,
        }
    }

    /// Ends a section's list that showed the state at `version`.
    pub(super) fn end_list(
        &mut self,
        listing: &mut Listing,
        section: &Section,
        version: ResourceVersion,
    ) -> Vec<Change> {
        let Listing { number, reset } = *listing;
        listing.reset = false;
        let is_gone = |entry: &StoreEntry| {
            // A newer object came by a live read and cannot be in the list.
            entry.list != number
                && (reset || entry.stored.version <= version)
                && section.covers(&entry.stored.namespace)
        };
        self.take_where(is_gone)
            .into_iter()
            .map(Change::removed)
            .collect()
    }

    /// Stores an object from a list or an event; `listing` is the last list of its section.
    pub(super) fn put(&mut self, mut stored: Stored, listing: Listing) -> Vec<Change> {
        let Listing {
            number: list,
            reset,
        } = listing;
        let Some(&handle) = self.by_name.get(&ObjectKey::for_object(&stored)) else {
            self.share_namespace(&mut stored);
            // Counts as shown by a list in progress: a live read or a write's response may bring the object meanwhile.
            self.insert(stored.clone(), list);
            return vec![Change::added(stored)];
        };
        let Some(entry) = self.entries.get_mut(handle) else {
            return Vec::new();
        };
        // Even for an older state: the API server may serve a list from before a live read, which still shows that the
        // object exists.
        entry.list = list;
        let is_older = stored.version < entry.stored.version;
        if (is_older && !reset) || stored == entry.stored {
            return Vec::new();
        }
        if stored.has_same_keys(&entry.stored) {
            // The keys are the same, so no index changes.
            stored.share_texts(&entry.stored);
            let before = std::mem::replace(&mut entry.stored, stored.clone());
            self.count_out(&before);
            self.count_in(&stored);
            return vec![Change {
                before: Some(before),
                after: Some(stored),
            }];
        }
        stored.namespace = Arc::clone(&entry.stored.namespace);
        let before = self.take(handle);
        self.insert(stored.clone(), list);
        match before {
            Some(before) if before.uid == stored.uid => {
                vec![Change {
                    before: Some(before),
                    after: Some(stored),
                }]
            }
            // Whoever watched the first object must see it go.
            before => before
                .map(Change::removed)
                .into_iter()
                .chain([Change::added(stored)])
                .collect(),
        }
    }

    /// Removes an object unless it is newer than `version`.
    pub(super) fn remove(&mut self, key: &ObjectKey, version: ResourceVersion) -> Option<Change> {
        let handle = *self.by_name.get(key)?;
        let entry = self.entries.get(handle)?;
        if entry.stored.version > version {
            return None;
        }
        self.take(handle).map(Change::removed)
    }

    /// Drops an object's text.
    pub(super) fn reduce(&mut self, key: &ObjectKey, extent: Extent) {
        let Some(&handle) = self.by_name.get(key) else {
            return;
        };
        // The list number stays: a list in progress has not shown the object again.
        let list = self.entries.get(handle).map_or(0, |entry| entry.list);
        if let Some(stored) = self.take(handle) {
            self.insert(stored.reduced(extent), list);
        }
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) -> Vec<Change> {
        std::mem::take(self)
            .entries
            .into_iter()
            .map(|(_, entry)| Change::removed(entry.stored))
            .collect()
    }

    /// Removes the objects in all namespaces that are not kept.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        let dropped: BTreeSet<Arc<str>> = self
            .sizes
            .keys()
            .filter(|namespace| !is_kept(namespace))
            .cloned()
            .collect();
        if !dropped.is_empty() {
            self.take_where(|entry| dropped.contains(&entry.stored.namespace));
        }
    }

    /// One object by name.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Stored> {
        self.by_name.get(key).and_then(|handle| self.at(*handle))
    }

    /// One object by UID.
    pub(super) fn by_uid(&self, uid: &Uid) -> Option<&Stored> {
        self.by_uid.get(uid).and_then(|handle| self.at(*handle))
    }

    /// Returns the objects that an owner controls.
    pub(super) fn controlled_by(&self, uid: &Uid) -> impl Iterator<Item = &Stored> {
        self.indexed(&self.by_controller, &uid.0)
    }

    /// Returns the objects that are retained for an identity.
    pub(super) fn retained_for(&self, identity: &str) -> impl Iterator<Item = &Stored> {
        self.indexed(&self.by_retained, identity)
    }

    /// Returns how many objects are retained, by identity.
    pub(super) fn retained(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.by_retained
            .iter()
            .map(|(identity, all)| (identity, all.len()))
    }

    /// Returns the objects with a label, given as `key=value`.
    pub(super) fn labelled(&self, label: &str) -> impl Iterator<Item = &Stored> {
        self.indexed(&self.by_label, label)
    }

    /// Returns the number of objects with a label, given as `key=value`.
    pub(super) fn labelled_count(&self, label: &str) -> usize {
        self.by_label.get(label).map_or(0, BTreeSet::len)
    }

    /// The objects in one namespace, or all, sorted by namespace and name.
    pub(super) fn all(&self, namespace: Option<&str>) -> impl Iterator<Item = &Stored> {
        let start = ObjectKey::new(namespace.unwrap_or_default(), "");
        self.by_name
            .range(start..)
            .take_while(move |(key, _)| namespace.is_none_or(|name| *key.namespace == *name))
            .filter_map(|(_, handle)| self.at(*handle))
    }

    /// The number of objects.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The size of one namespace, or the sum.
    pub(super) fn size_of(&self, namespace: Option<&str>) -> NamespaceSize {
        match namespace {
            Some(name) => self.sizes.get(name).copied().unwrap_or_default(),
            None => self
                .sizes
                .values()
                .copied()
                .fold(NamespaceSize::default(), NamespaceSize::and),
        }
    }

    /// The size of one section.
    pub(super) fn size_in(&self, section: &Section) -> NamespaceSize {
        self.sizes
            .iter()
            .filter(|(namespace, _)| section.covers(namespace))
            .map(|(_, size)| *size)
            .fold(NamespaceSize::default(), NamespaceSize::and)
    }

    /// The sizes by namespace; cluster-scoped objects have the empty name.
    pub(super) const fn sizes(&self) -> &BTreeMap<Arc<str>, NamespaceSize> {
        &self.sizes
    }

    fn at(&self, handle: usize) -> Option<&Stored> {
        self.entries.get(handle).map(|entry| &entry.stored)
    }

    fn indexed<'a>(&'a self, index: &'a Index, text: &str) -> impl Iterator<Item = &'a Stored> {
        index
            .get(text)
            .into_iter()
            .flatten()
            .filter_map(|handle| self.at(*handle))
    }

    /// Thousands of objects share a few namespaces, so each name is stored once.
    fn share_namespace(&self, stored: &mut Stored) {
        if let Some((namespace, _)) = self.sizes.get_key_value(&stored.namespace) {
            stored.namespace = Arc::clone(namespace);
        }
    }

    fn count_in(&mut self, stored: &Stored) {
        let namespace = Arc::clone(&stored.namespace);
        self.sizes
            .entry(namespace)
            .or_default()
            .count(stored, |count, by| *count += by);
    }

    fn count_out(&mut self, stored: &Stored) {
        if let Some(size) = self.sizes.get_mut(&stored.namespace) {
            size.count(stored, |count, by| *count -= by);
            if size.all().objects == 0 {
                self.sizes.remove(&stored.namespace);
            }
        }
    }

    fn insert(&mut self, stored: Stored, list: u32) {
        self.count_in(&stored);
        let handle = self.entries.vacant_key();
        self.by_name.insert(ObjectKey::for_object(&stored), handle);
        self.by_uid.insert(stored.uid.clone(), handle);
        self.index(&stored, |index, text| {
            index.entry(Arc::clone(text)).or_default().insert(handle);
        });
        self.entries.insert(StoreEntry { stored, list });
    }

    fn take_where(&mut self, is_taken: impl Fn(&StoreEntry) -> bool) -> Vec<Stored> {
        let taken: Vec<usize> = self
            .entries
            .iter()
            .filter_map(|(handle, entry)| is_taken(entry).then_some(handle))
            .collect();
        taken
            .into_iter()
            .filter_map(|handle| self.take(handle))
            .collect()
    }

    fn take(&mut self, handle: usize) -> Option<Stored> {
        let StoreEntry { stored, .. } = self.entries.try_remove(handle)?;
        self.count_out(&stored);
        self.by_name.remove(&ObjectKey::for_object(&stored));
        // In corrupted data two objects can have one UID; the entry belongs to the later one.
        if self.by_uid.get(&stored.uid) == Some(&handle) {
            self.by_uid.remove(&stored.uid);
        }
        self.index(&stored, |index, text| {
            if let Some(handles) = index.get_mut(text) {
                handles.remove(&handle);
                if handles.is_empty() {
                    index.remove(text);
                }
            }
        });
        Some(stored)
    }

    /// Changes every index entry for an object.
    fn index(&mut self, stored: &Stored, mut change: impl FnMut(&mut Index, &Arc<str>)) {
        if let Some(Uid(uid)) = &stored.controller {
            change(&mut self.by_controller, uid);
        }
        if let Some(identity) = &stored.retained_for {
            change(&mut self.by_retained, identity);
        }
        stored.each_label(|key, value| change(&mut self.by_label, &label(key, value).into()));
    }
}

impl Change {
    fn added(stored: Stored) -> Self {
        Self {
            before: None,
            after: Some(stored),
        }
    }

    fn removed(stored: Stored) -> Self {
        Self {
            before: Some(stored),
            after: None,
        }
    }
}

/// A label as text in the index.
pub(super) fn label(key: &str, value: &str) -> String {
    format!("{key}={value}")
}

#[cfg(test)]
mod tests;
