//! Shows parents and children to passes and metrics.

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_model::{Access, GroupKind, Object, ObjectId, child_order};

use super::{MissingTexts, SubscriberId, WatchTable, id_of, key_of, table::SubscriberWatches};
use crate::{
    present::object_of,
    section::Section,
    store::{CacheSize, ObjectKey, Store},
};

impl WatchTable {
    /// Returns true if a registration has such parents.
    pub(crate) fn has_parents(&self, kind: &GroupKind) -> bool {
        self.by_subscriber
            .values()
            .map(|watches| &watches.interest.parent)
            .any(|parent| parent.group == kind.group && parent.kind == kind.kind)
    }

    /// All cached parents that have passes.
    pub(crate) fn parents(&self, subscriber_id: SubscriberId) -> Vec<ObjectId> {
        self.parent_store(subscriber_id)
            .into_iter()
            .flat_map(|(watches, store)| {
                let kind = watches.interest.parent.group_kind();
                let parents = store.all(None).map(move |stored| id_of(&kind, stored));
                parents.filter(|parent| self.sees(watches, parent.namespace.as_deref()))
            })
            .collect()
    }

    /// The cached parents in a scope.
    pub(super) fn parents_in(&self, subscriber_id: SubscriberId, scope: &Section) -> Vec<ObjectId> {
        let mut parents = self.parents(subscriber_id);
        if self.namespaces.is_some() || !self.shards.is_one() {
            parents.retain(|parent| match &parent.namespace {
                Some(namespace) => *scope != Section::Whole && scope.covers(namespace),
                None => *scope == Section::Whole,
            });
        }
        parents
    }

    /// Returns true if a registration has passes for the parents in a namespace; without a namespace, cluster-scoped
    /// parents.
    pub(crate) fn has_passes(&self, subscriber_id: SubscriberId, namespace: Option<&str>) -> bool {
        self.by_subscriber
            .get(&subscriber_id)
            .is_none_or(|watches| self.sees(watches, namespace))
    }

    /// One parent.
    pub(crate) fn parent(&self, subscriber_id: SubscriberId, id: &ObjectId) -> Option<Object> {
        let (watches, store) = self.parent_store(subscriber_id)?;
        object_of(
            store.get(&key_of(id))?,
            &watches.interest.parent,
            Access::Full,
        )
        .ok()
    }

    /// Returns a parent's children, controlled or retained; fails if the text of any is missing, because without it a
    /// child would seem to be absent.
    pub(crate) fn children(
        &self,
        subscriber_id: SubscriberId,
        parent: &Object,
    ) -> Result<Vec<Object>, MissingTexts> {
        let Some((watches, parents)) = self.parent_store(subscriber_id) else {
            return Ok(Vec::new());
        };
        let mut missing = MissingTexts::default();
        let identity = parent.id().identity();
        let section = Section::at(parent.namespace.as_ref());
        let mut children = Vec::new();
        for (child, slot) in &watches.children {
            // The plan neither writes nor prunes children of a kind that is not readable.
            let Some(slot) = self
                .get(*slot)
                .filter(|slot| self.why(slot, &section).is_none())
            else {
                continue;
            };
            // The controller may be another one, such as a claim's StatefulSet, but not another parent.
            let retained = slot.store.retained_for(&identity).filter(|stored| {
                stored
                    .controller
                    .as_ref()
                    .is_none_or(|uid| parents.by_uid(uid).is_none())
            });
            let controlled = slot.store.controlled_by(&parent.uid);
            children.extend(controlled.chain(retained).filter_map(|stored| {
                missing.add(self, slot, &child.kind, stored);
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

    /// Counts a kind's children; none if the number is unknown.
    pub(crate) fn child_count(
        &self,
        subscriber_id: SubscriberId,
        kind: &GroupKind,
    ) -> Option<usize> {
        let watches = self.by_subscriber.get(&subscriber_id)?;
        let slot = self.get(watches.child(kind)?)?;
        let is_known = self.holds_all() && self.why(slot, &Section::Whole).is_none();
        is_known.then(|| slot.store.len())
    }

    /// Returns the size of a plugin's children in a namespace, over all counted kinds; cluster-scoped children have the
    /// empty name.
    pub(crate) fn child_usage(
        &self,
        subscriber_id: SubscriberId,
        namespace: &str,
        is_counted: impl Fn(&GroupKind) -> bool,
    ) -> CacheSize {
        self.child_stores(subscriber_id, is_counted)
            .map(|store| store.size_of(Some(namespace)).all())
            .fold(CacheSize::default(), CacheSize::and)
    }

    /// Returns the size of a plugin's children by namespace, over all counted kinds.
    pub(crate) fn usage_by_namespace(
        &self,
        subscriber_id: SubscriberId,
        is_counted: impl Fn(&GroupKind) -> bool,
    ) -> BTreeMap<Arc<str>, CacheSize> {
        let mut usage: BTreeMap<Arc<str>, CacheSize> = BTreeMap::new();
        let stores = self.child_stores(subscriber_id, is_counted);
        for (namespace, size) in stores.flat_map(Store::sizes) {
            let sum = usage.entry(Arc::clone(namespace)).or_default();
            *sum = sum.and(size.all());
        }
        usage
    }

    /// Returns the highest number of children that one parent retains, with the parent's namespace. Deleted parents do
    /// not count: they get no more.
    pub(crate) fn retained_most(&self, subscriber_id: SubscriberId) -> Option<(Arc<str>, usize)> {
        let (watches, parents) = self.parent_store(subscriber_id)?;
        let kind = watches.interest.parent.group_kind();
        let mut counts: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        let stores = self.child_stores(subscriber_id, |_| true);
        for (identity, count) in stores.flat_map(Store::retained) {
            *counts.entry(identity).or_default() += count;
        }
        counts
            .into_iter()
            .filter_map(|(identity, count)| {
                let parent = ObjectId::parse_identity(identity).filter(|id| id.kind == kind)?;
                let namespace = parent.namespace.unwrap_or_default();
                parents.get(&ObjectKey::new(&namespace, &parent.name))?;
                Some((namespace, count))
            })
            .max_by_key(|(_, count)| *count)
    }

    fn parent_store(&self, subscriber_id: SubscriberId) -> Option<(&SubscriberWatches, &Store)> {
        let watches = self.by_subscriber.get(&subscriber_id)?;
        Some((watches, &self.get(watches.parent)?.store))
    }

    fn child_stores(
        &self,
        subscriber_id: SubscriberId,
        is_counted: impl Fn(&GroupKind) -> bool,
    ) -> impl Iterator<Item = &Store> {
        self.by_subscriber
            .get(&subscriber_id)
            .into_iter()
            .flat_map(|watches| &watches.children)
            .filter(move |(child, _)| is_counted(&child.kind.group_kind()))
            .filter_map(|(_, slot)| Some(&self.get(*slot)?.store))
    }
}
