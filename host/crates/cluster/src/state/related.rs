//! Answers the reads of a pass and subscribes its parent to each answer under the same lock, so that no change is lost
//! between the two.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use innkeeper_model::{
    Access, Gvk, ListSelector, ObjectRef, Reach, ReadFailure, ReadKind, Scope, parse_selector,
};

use super::{CacheState, Reader, SlotId, SubscriberId, WatchSlot};
use crate::{
    store::ObjectKey,
    stored::{Stored, project},
    subscriptions::{ListKey, Subscription},
};

/// The answers and subscriptions of one pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    /// The reads that are granted to the pass; none: all.
    within: Option<Arc<[ReadKind]>>,
    /// The first shown text of each object; none: shown as absent. A second read in the same pass returns the same
    /// text.
    shown: BTreeMap<(Gvk, ObjectKey), Option<Arc<str>>>,
    subscriptions: BTreeMap<SlotId, BTreeSet<Subscription>>,
}

impl Made {
    /// Creates an empty record for a pass that is limited to these grants.
    pub(crate) fn within(granted: Arc<[ReadKind]>) -> Self {
        Self {
            within: Some(granted),
            ..Self::default()
        }
    }

    /// Adds the subscriptions of another pass of the same parent.
    pub(crate) fn subscribe_to(&mut self, other: &Self) {
        for (watch, subscriptions) in &other.subscriptions {
            let known = self.subscriptions.entry(*watch).or_default();
            known.extend(subscriptions.iter().cloned());
        }
    }

    fn may(&self, read: &ReadKind) -> bool {
        self.within
            .as_ref()
            .is_none_or(|granted| granted.contains(read))
    }
}

/// One place from which a read is answered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CachePlace {
    /// The richest form comes first in the order.
    access: Access,
    watch: SlotId,
    /// None: everywhere, or a cluster-scoped kind.
    namespace: Option<Arc<str>>,
}

impl CacheState {
    /// One object as guests see it.
    pub(crate) fn read_object(
        &mut self,
        reader: &Reader,
        reference: &ObjectRef,
        made: &mut Made,
    ) -> Result<Option<Arc<str>>, ReadFailure> {
        let ObjectRef {
            kind,
            namespace,
            name,
        } = reference;
        let granted = self.granted(reader, kind, made)?;
        let is_namespaced = granted.0 == Scope::Namespaced;
        let namespace = namespace
            .clone()
            .or_else(|| reader.parent.namespace.clone())
            .filter(|_| is_namespaced);
        if is_namespaced && namespace.is_none() {
            return Err(ReadFailure::NotGranted(kind.clone()));
        }
        let places = self.places(reader, kind, granted, namespace.as_ref(), made)?;
        let key = ObjectKey {
            namespace: namespace.unwrap_or_else(|| "".into()),
            name: Arc::clone(name),
        };
        let subscription = Subscription::Object(key.clone());
        for CachePlace { watch, access, .. } in &places {
            self.subscribe(reader, *watch, &subscription, *access, made);
        }
        let shown = (kind.clone(), key);
        if let Some(text) = made.shown.get(&shown) {
            return Ok(text.clone());
        }
        let mut held = places.iter().filter_map(|place| {
            let slot = self.slots.get(&place.watch)?;
            Some((slot, slot.store.get(&shown.1)?, place.access))
        });
        let found = held
            .next()
            .map(|(slot, stored, access)| self.show(slot, stored, access))
            .transpose()?;
        made.shown.insert(shown, found.clone());
        Ok(found)
    }

    /// The chosen objects as guests see them, sorted by namespace and name.
    pub(crate) fn read_list(
        &mut self,
        reader: &Reader,
        list: &ListSelector,
        made: &mut Made,
    ) -> Result<Vec<Arc<str>>, ReadFailure> {
        let ListSelector { kind, .. } = list;
        let text = list.label_selector.as_deref().unwrap_or_default();
        let selector = parse_selector(text).map_err(|_| ReadFailure::InvalidSelector {
            selector: text.to_owned(),
        })?;
        let granted = self.granted(reader, kind, made)?;
        let places = self.places(reader, kind, granted, list.namespace.as_ref(), made)?;
        let mut chosen: BTreeMap<ObjectKey, Arc<str>> = BTreeMap::new();
        for place in &places {
            let Some(slot) = self.slots.get(&place.watch) else {
                continue;
            };
            let namespace = place.namespace.as_deref();
            let key = ListKey::new(namespace, &selector, &slot.store);
            let within = |stored: &&Stored| {
                namespace.is_none_or(|name| *stored.namespace == *name)
                    && stored.is_selected(&selector)
            };
            let found: Vec<&Stored> = match key.label() {
                Some(label) => slot.store.labelled(label).filter(within).collect(),
                None => slot.store.all(namespace).filter(within).collect(),
            };
            for stored in found {
                let shown = (kind.clone(), ObjectKey::of(stored));
                let text = match made.shown.get(&shown) {
                    Some(text) => text.clone(),
                    None => Some(self.show(slot, stored, place.access)?),
                };
                if let Some(text) = &text {
                    chosen
                        .entry(shown.1.clone())
                        .or_insert_with(|| Arc::clone(text));
                }
                made.shown.entry(shown).or_insert(text);
            }
            let subscription = Subscription::List(key);
            self.subscribe(reader, place.watch, &subscription, place.access, made);
        }
        Ok(chosen.into_values().collect())
    }

    /// The metadata of one object of a cluster-scoped kind, as it was last seen.
    pub(crate) fn related(
        &self,
        subscriber_id: SubscriberId,
        kind: &Gvk,
        name: &str,
    ) -> Option<Arc<str>> {
        let held = &self.subscribers.get(&subscriber_id)?.held;
        let shows_all = |read: &ReadKind| read.kind == *kind && read.label_selector.selects_all();
        let (_, slot) = held.reads.iter().find(|(read, _)| shows_all(read))?;
        let slot = self.slots.get(slot)?;
        let stored = slot.store.get(&ObjectKey::new("", name))?;
        self.show(slot, stored, Access::Metadata).ok()
    }

    /// Replaces the subscriptions of a parent by those of its last pass.
    pub(crate) fn commit(&mut self, reader: &Reader, made: &Made) {
        let Some(subscriber) = self.subscribers.get(&reader.subscriber_id) else {
            return;
        };
        let none = BTreeSet::new();
        for (_, id) in &subscriber.held.reads {
            if let Some(slot) = self.slots.get_mut(id) {
                let keep = made.subscriptions.get(id).unwrap_or(&none);
                slot.subscriptions.retain(reader, keep);
            }
        }
    }

    /// Returns the scope of a kind that is granted and served, and the grants with their watches.
    fn granted(
        &mut self,
        reader: &Reader,
        kind: &Gvk,
        made: &mut Made,
    ) -> Result<(Scope, Vec<(ReadKind, SlotId)>), ReadFailure> {
        let subscriber = self.subscribers.get(&reader.subscriber_id).into_iter();
        let reads = subscriber.flat_map(|subscriber| &subscriber.held.reads);
        let granted: Vec<(ReadKind, SlotId)> = reads
            .filter(|(read, _)| read.kind == *kind && made.may(read))
            .cloned()
            .collect();
        let Some((_, first)) = granted.first() else {
            return Err(ReadFailure::NotGranted(kind.clone()));
        };
        let slot = self.slots.get(first);
        if let Some(served) = slot.and_then(|slot| slot.served.as_ref()) {
            return Ok((served.scope, granted));
        }
        for (read, id) in &granted {
            self.subscribe(reader, *id, &Subscription::Kind, read.access, made);
        }
        if self.kinds.is_none() {
            return Err(ReadFailure::NotSynced(kind.clone()));
        }
        Err(ReadFailure::NotServed(kind.clone()))
    }

    /// Returns the places from which a read is answered, the richest form first. Only granted places are included, and
    /// all of them can be used.
    fn places(
        &mut self,
        reader: &Reader,
        kind: &Gvk,
        (scope, granted): (Scope, Vec<(ReadKind, SlotId)>),
        asked: Option<&Arc<str>>,
        made: &mut Made,
    ) -> Result<Vec<CachePlace>, ReadFailure> {
        let own = reader.parent.namespace.as_ref();
        let mut places = Vec::new();
        for (read, watch) in granted {
            let place = |namespace| CachePlace {
                access: read.access,
                watch,
                namespace,
            };
            match read.scope.reach(scope, own, asked) {
                Reach::Everywhere => places.push(place(None)),
                Reach::Within(names) => places.extend(names.into_iter().map(Some).map(place)),
            }
        }
        if places.is_empty() {
            return Err(ReadFailure::NotGranted(kind.clone()));
        }
        let names = places.iter().filter_map(|place| place.namespace.as_ref());
        // Leaving the namespace out would show an incomplete list as if it were complete.
        if let Some(unseen) = names.clone().find(|name| !self.is_seen_at_all(name)) {
            return Err(ReadFailure::OutOfSight {
                kind: kind.clone(),
                namespace: Arc::clone(unseen),
            });
        }
        places.sort();
        let is_lacking = |place: &&CachePlace| {
            let slot = self.slots.get(&place.watch);
            let usable =
                slot.is_some_and(|slot| self.why(slot, place.namespace.as_deref()).is_none());
            // A full object, too, can be shown as a hash only with a key.
            !usable || (place.access == Access::Hash && self.hash_key.is_none())
        };
        let lacking: Vec<CachePlace> = places.iter().filter(is_lacking).cloned().collect();
        for CachePlace { watch, access, .. } in &lacking {
            self.subscribe(reader, *watch, &Subscription::Kind, *access, made);
        }
        if lacking.is_empty() {
            Ok(places)
        } else {
            Err(ReadFailure::NotSynced(kind.clone()))
        }
    }

    /// Returns the text of a kept object as a user with `access` sees it.
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
        to: &Subscription,
        access: Access,
        made: &mut Made,
    ) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.subscriptions.add(reader, to, access);
            let subscriptions = made.subscriptions.entry(id).or_default();
            subscriptions.insert(to.clone());
        }
    }
}
