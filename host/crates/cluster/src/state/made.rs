//! The objects that a plugin has made, counted for its limits.

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_model::{GroupKind, ObjectId};

use super::{CacheState, SubscriberId};
use crate::store::{CacheSize, ObjectKey, Store};

impl CacheState {
    /// Returns the size of a plugin's children of these kinds in a namespace; the empty name is that of cluster-scoped
    /// children.
    pub(crate) fn made(
        &self,
        subscriber_id: SubscriberId,
        namespace: &str,
        is_counted: impl Fn(&GroupKind) -> bool,
    ) -> CacheSize {
        let stores = self.child_stores(subscriber_id, is_counted);
        let sizes = stores.map(|store| store.size_of(Some(namespace)).all());
        sizes.fold(CacheSize::default(), CacheSize::and)
    }

    /// Returns the sizes of a plugin's children of these kinds by namespace.
    pub(crate) fn made_everywhere(
        &self,
        subscriber_id: SubscriberId,
        is_counted: impl Fn(&GroupKind) -> bool,
    ) -> BTreeMap<Arc<str>, CacheSize> {
        let mut all: BTreeMap<Arc<str>, CacheSize> = BTreeMap::new();
        let stores = self.child_stores(subscriber_id, is_counted);
        for (namespace, size) in stores.flat_map(Store::sizes) {
            let sum = all.entry(Arc::clone(namespace)).or_default();
            *sum = sum.and(size.all());
        }
        all
    }

    /// Returns the number of children that the parent with the most of them retains, with the namespace of the parent.
    /// Parents that are gone do not count: they get no more.
    pub(crate) fn retained_most(&self, subscriber_id: SubscriberId) -> Option<(Arc<str>, usize)> {
        let subscriber = self.subscribers.get(&subscriber_id)?;
        let kind = subscriber.interest.parent.group_kind();
        let parents = &self.slots.get(&subscriber.held.parent)?.store;
        let mut all: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        let stores = self.child_stores(subscriber_id, |_| true);
        for (identity, count) in stores.flat_map(Store::retained) {
            *all.entry(identity).or_default() += count;
        }
        let living = all.into_iter().filter_map(|(identity, count)| {
            let parent = ObjectId::parse_identity(identity).filter(|it| it.kind == kind)?;
            let namespace = parent.namespace.unwrap_or_default();
            parents.get(&ObjectKey::new(&namespace, &parent.name))?;
            Some((namespace, count))
        });
        living.max_by_key(|(_, count)| *count)
    }

    fn child_stores(
        &self,
        subscriber_id: SubscriberId,
        is_counted: impl Fn(&GroupKind) -> bool,
    ) -> impl Iterator<Item = &Store> {
        let subscriber = self.subscribers.get(&subscriber_id);
        let children = subscriber.into_iter().flat_map(|it| &it.held.children);
        let counted = children.filter(move |(child, _)| is_counted(&child.kind.group_kind()));
        counted.filter_map(move |(_, slot)| Some(&self.slots.get(slot)?.store))
    }
}
