//! Answers a pass's reads and subscribes the parent to each answer under the same lock, so that no change is lost
//! between the two.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use innkeeper_model::{
    Access, Gvk, ListSelector, ObjectRef, Reach, ReadFailure, ReadKind, Scope, parse_selector,
};

use super::{Reader, SlotId, SubscriberId, WatchSlot, WatchTable};
use crate::{
    section::Section,
    store::ObjectKey,
    stored::{Stored, project},
    subscriptions::{ListKey, Subscription},
};

/// The answers and subscriptions of one pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadRecord {
    /// The reads that are granted to the pass; none: all.
    granted: Option<Arc<[ReadKind]>>,
    /// The first shown text of each object, or none if it was absent; a second read in the same pass returns it again.
    shown: BTreeMap<(Gvk, ObjectKey), Option<Arc<str>>>,
    subscriptions: BTreeMap<SlotId, BTreeSet<Subscription>>,
}

impl ReadRecord {
    /// Creates an empty record for a pass that is limited to these grants.
    pub(crate) fn for_grants(granted: Arc<[ReadKind]>) -> Self {
        Self {
            granted: Some(granted),
            ..Self::default()
        }
    }

    /// Adds the subscriptions of another pass of the same parent.
    pub(crate) fn subscribe_to(&mut self, other: &Self) {
        for (watch, subscriptions) in &other.subscriptions {
            self.subscriptions
                .entry(*watch)
                .or_default()
                .extend(subscriptions.iter().cloned());
        }
    }

    fn is_granted(&self, read: &ReadKind) -> bool {
        self.granted
            .as_ref()
            .is_none_or(|granted| granted.contains(read))
    }
}

/// One source for the answer to a read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ReadSource {
    /// The richest form comes first in the order.
    access: Access,
    watch: SlotId,
    /// None: everywhere, or a cluster-scoped kind.
    namespace: Option<Arc<str>>,
}

impl WatchTable {
    /// Returns one object as guests see it.
    pub(crate) fn read_object(
        &mut self,
        reader: &Reader,
        reference: &ObjectRef,
        record: &mut ReadRecord,
    ) -> Result<Option<Arc<str>>, ReadFailure> {
        let ObjectRef {
            kind,
            namespace,
            name,
        } = reference;
        let (scope, grants) = self.grants(reader, kind, record)?;
        let is_namespaced = scope == Scope::Namespaced;
        let namespace = namespace
            .clone()
            .or_else(|| reader.parent.namespace.clone())
            .filter(|_| is_namespaced);
        // A cluster-scoped parent has no namespace that could be meant.
        if is_namespaced && namespace.is_none() {
            return Err(ReadFailure::NotGranted(kind.clone()));
        }
        let sources = self.sources(reader, kind, (scope, grants), namespace.as_ref(), record)?;
        let key = ObjectKey {
            namespace: namespace.unwrap_or_else(|| "".into()),
            name: Arc::clone(name),
        };
        // Also to an object that does not exist: the parent gets a pass when it is created.
        let subscription = Subscription::Object(key.clone());
        for ReadSource { watch, access, .. } in &sources {
            self.subscribe(reader, *watch, &subscription, *access, record);
        }
        let shown = (kind.clone(), key);
        if let Some(text) = record.shown.get(&shown) {
            return Ok(text.clone());
        }
        let text = sources
            .iter()
            .find_map(|source| {
                let slot = self.get(source.watch)?;
                Some((slot, slot.store.get(&shown.1)?, source.access))
            })
            .map(|(slot, stored, access)| self.show(slot, stored, access))
            .transpose()?;
        record.shown.insert(shown, text.clone());
        Ok(text)
    }

    /// Returns the selected objects as guests see them, sorted by namespace and name.
    pub(crate) fn read_list(
        &mut self,
        reader: &Reader,
        list: &ListSelector,
        record: &mut ReadRecord,
    ) -> Result<Vec<Arc<str>>, ReadFailure> {
        let ListSelector { kind, .. } = list;
        let text = list.label_selector.as_deref().unwrap_or_default();
        let selector = parse_selector(text).map_err(|_| ReadFailure::InvalidSelector {
            selector: text.to_owned(),
        })?;
        let grants = self.grants(reader, kind, record)?;
        let sources = self.sources(reader, kind, grants, list.namespace.as_ref(), record)?;
        let mut texts: BTreeMap<ObjectKey, Arc<str>> = BTreeMap::new();
        for source in &sources {
            let Some(slot) = self.get(source.watch) else {
                continue;
            };
            let namespace = source.namespace.as_deref();
            let key = ListKey::new(namespace, &selector, &slot.store);
            let is_selected = |stored: &&Stored| {
                namespace.is_none_or(|name| *stored.namespace == *name)
                    && stored.is_selected(&selector)
            };
            let selected: Vec<&Stored> = match key.label() {
                Some(label) => slot.store.labelled(label).filter(is_selected).collect(),
                None => slot.store.all(namespace).filter(is_selected).collect(),
            };
            for stored in selected {
                let shown = (kind.clone(), ObjectKey::for_object(stored));
                let text = match record.shown.get(&shown) {
                    Some(text) => text.clone(),
                    None => Some(self.show(slot, stored, source.access)?),
                };
                if let Some(text) = &text {
                    // Of several sources, the first shows the most.
                    texts
                        .entry(shown.1.clone())
                        .or_insert_with(|| Arc::clone(text));
                }
                record.shown.entry(shown).or_insert(text);
            }
            let subscription = Subscription::List(key);
            self.subscribe(reader, source.watch, &subscription, source.access, record);
        }
        Ok(texts.into_values().collect())
    }

    /// Returns an object's cached metadata, for a cluster-scoped kind that the registration reads without a selector.
    pub(crate) fn related(
        &self,
        subscriber_id: SubscriberId,
        kind: &Gvk,
        name: &str,
    ) -> Option<Arc<str>> {
        let shows_all = |read: &ReadKind| read.kind == *kind && read.label_selector.selects_all();
        let watches = self.by_subscriber.get(&subscriber_id)?;
        let (_, slot) = watches.reads.iter().find(|(read, _)| shows_all(read))?;
        let slot = self.get(*slot)?;
        let stored = slot.store.get(&ObjectKey::new("", name))?;
        self.show(slot, stored, Access::Metadata).ok()
    }

    /// Replaces a parent's subscriptions by those in a record.
    pub(crate) fn commit(&mut self, reader: &Reader, record: &ReadRecord) {
        let watches = self.by_subscriber.get(&reader.subscriber_id);
        let none = BTreeSet::new();
        for (_, id) in watches.iter().flat_map(|watches| &watches.reads) {
            if let Some(slot) = self.slots.get_mut(id) {
                let subscriptions = record.subscriptions.get(id).unwrap_or(&none);
                slot.subscriptions.retain(reader, subscriptions);
            }
        }
    }

    /// Returns a granted and served kind's scope, and the grants with their watches.
    fn grants(
        &mut self,
        reader: &Reader,
        kind: &Gvk,
        record: &mut ReadRecord,
    ) -> Result<(Scope, Vec<(ReadKind, SlotId)>), ReadFailure> {
        let watches = self.by_subscriber.get(&reader.subscriber_id);
        let grants: Vec<(ReadKind, SlotId)> = watches
            .iter()
            .flat_map(|watches| &watches.reads)
            .filter(|(read, _)| read.kind == *kind && record.is_granted(read))
            .cloned()
            .collect();
        let Some((_, first)) = grants.first() else {
            return Err(ReadFailure::NotGranted(kind.clone()));
        };
        if let Some(served) = self.get(*first).and_then(|slot| slot.served.as_ref()) {
            return Ok((served.scope, grants));
        }
        // Wakes the parent when the kind appears.
        for (read, id) in &grants {
            self.subscribe(reader, *id, &Subscription::Kind, read.access, record);
        }
        if self.kinds.is_none() {
            return Err(ReadFailure::NotSynced(kind.clone()));
        }
        Err(ReadFailure::NotServed(kind.clone()))
    }

    /// Returns the granted sources for a read, the richest form first; fails unless all are usable.
    fn sources(
        &mut self,
        reader: &Reader,
        kind: &Gvk,
        (scope, grants): (Scope, Vec<(ReadKind, SlotId)>),
        namespace: Option<&Arc<str>>,
        record: &mut ReadRecord,
    ) -> Result<Vec<ReadSource>, ReadFailure> {
        let parent_namespace = reader.parent.namespace.as_ref();
        let mut sources = Vec::new();
        for (read, watch) in grants {
            let source = |namespace| ReadSource {
                access: read.access,
                watch,
                namespace,
            };
            match read.scope.reach(scope, parent_namespace, namespace) {
                Reach::Everywhere => sources.push(source(None)),
                Reach::Within(names) => sources.extend(names.into_iter().map(Some).map(source)),
            }
        }
        if sources.is_empty() {
            return Err(ReadFailure::NotGranted(kind.clone()));
        }
        // Without the namespace, an incomplete list would look complete.
        if let Some(unwatched) = sources
            .iter()
            .filter_map(|source| source.namespace.as_ref())
            .find(|name| !self.is_watched(name))
        {
            return Err(ReadFailure::OutsideWatchedNamespaces {
                kind: kind.clone(),
                namespace: Arc::clone(unwatched),
            });
        }
        sources.sort();
        let is_unusable = |source: &&ReadSource| {
            let is_usable = self.get(source.watch).is_some_and(|slot| {
                self.why(slot, &Section::at(source.namespace.as_ref()))
                    .is_none()
            });
            // Even a full object can be shown as a hash only with a key.
            !is_usable || (source.access == Access::Hash && self.hash_key.is_none())
        };
        let unusable: Vec<ReadSource> = sources.iter().filter(is_unusable).cloned().collect();
        for ReadSource { watch, access, .. } in &unusable {
            self.subscribe(reader, *watch, &Subscription::Kind, *access, record);
        }
        if unusable.is_empty() {
            Ok(sources)
        } else {
            Err(ReadFailure::NotSynced(kind.clone()))
        }
    }

    /// Returns a cached object's text as a user with `access` sees it.
    pub(super) fn show(
        &self,
        slot: &WatchSlot,
        stored: &Stored,
        access: Access,
    ) -> Result<Arc<str>, ReadFailure> {
        project(stored, slot.form(), &self.shape(slot, access))
            .map_err(|_| ReadFailure::NotSynced(slot.key.kind.clone()))
    }

    fn subscribe(
        &mut self,
        reader: &Reader,
        id: SlotId,
        subscription: &Subscription,
        access: Access,
        record: &mut ReadRecord,
    ) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.subscriptions.add(reader, subscription, access);
            record
                .subscriptions
                .entry(id)
                .or_default()
                .insert(subscription.clone());
        }
    }
}
