//! Decides which sections of each kind are listed and watched: the whole, the namespaces that the host is limited to, or
//! the shards that it holds.

use std::{mem, sync::Arc};

use innkeeper_model::{ObjectId, Scope, ShardSet};
use tokio::time::Instant;

use super::{
    CacheState, Cause, Reader, SlotId, WatchSlot, WatchTable,
    section_watch::{Health, SectionWatch},
    table::{Role, SubscriberWatches},
};
use crate::section::Section;

/// The objects of a kind that a user needs, fewest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Demand {
    None,
    /// Those in the held shards.
    Held,
    /// All that the host may see.
    All,
}

impl WatchTable {
    /// Returns true if the shard of the parents in a namespace is held; without a namespace, cluster-scoped parents.
    pub(crate) fn is_held(&self, namespace: Option<&str>) -> bool {
        self.shards.is_one() || self.held.contains(&self.shards.of(namespace))
    }

    /// Returns true if a registration has passes for the parents in a namespace.
    pub(super) fn sees(&self, watches: &SubscriberWatches, namespace: Option<&str>) -> bool {
        watches.interest.all_shards || self.is_held(namespace)
    }

    /// Returns true if the host has the objects of all shards.
    pub(super) fn holds_all(&self) -> bool {
        self.shards.is_one() || self.held.len() == usize::from(self.shards.get())
    }

    /// Records whether the API server selects objects by shard.
    pub(crate) fn set_selects(&mut self, selects: bool) {
        if self.selects.replace(selects) != Some(selects) {
            let by = if selects {
                "the API server"
            } else {
                "this host"
            };
            tracing::info!(by, "objects are selected by shard");
        }
    }

    /// Adapts a watch's requests to its users, and returns the sections of new ones, unless there was none before. What
    /// no request covers leaves the cache without a trigger: only parents of other shards could see it.
    ///
    /// A new request lists from a quorum, so it also shows the last writes of another process that held the shards.
    pub(super) fn arrange(&mut self, id: SlotId, now: Instant) -> Vec<Section> {
        let Some(slot) = self.get(id) else {
            return Vec::new();
        };
        let sections = self.sections(slot);
        let is_same = slot
            .section_watches
            .iter()
            .map(|watch| &watch.section)
            .eq(&sections);
        if is_same {
            return Vec::new();
        }
        let Some(slot) = self.slots.get_mut(&id) else {
            return Vec::new();
        };
        let mut former = mem::take(&mut slot.section_watches);
        let is_first = former.is_empty();
        let mut new = Vec::new();
        for section in sections {
            let kept = former
                .iter()
                .position(|watch| watch.section.includes(&section));
            let watch = if let Some(kept) = kept {
                let watch = former.swap_remove(kept);
                SectionWatch { section, ..watch }
            } else {
                self.count += 1;
                let has_objects = slot.store.size_in(&section).all().objects > 0;
                new.push(section.clone());
                SectionWatch::new(section, self.count, has_objects, now)
            };
            slot.section_watches.push(watch);
        }
        let watches = &slot.section_watches;
        slot.store
            .retain(|namespace| watches.iter().any(|watch| watch.section.covers(namespace)));
        if is_first { Vec::new() } else { new }
    }

    /// The sections that a watch's users need together.
    fn sections(&self, slot: &WatchSlot) -> Vec<Section> {
        let Some(served) = &slot.served else {
            // One request that never runs, so that passes wait for the kind.
            return vec![Section::Whole];
        };
        let demand = self.demand(slot);
        if demand == Demand::None {
            return Vec::new();
        }
        if served.scope == Scope::Cluster {
            return vec![Section::Whole];
        }
        if let Some(names) = self.namespaces.as_deref() {
            let is_needed = |name: &&Arc<str>| demand == Demand::All || self.is_held(Some(name));
            let needed = names.iter().filter(is_needed).cloned();
            return needed.map(Section::Namespace).collect();
        }
        if demand == Demand::All {
            return vec![Section::Whole];
        }
        self.shard_sections(slot)
            .into_iter()
            .map(|set| Section::Shards(self.shards, set))
            .collect()
    }

    /// Keeps the requests for shards that are still held, and adds one for all others.
    fn shard_sections(&self, slot: &WatchSlot) -> Vec<ShardSet> {
        let mut sets: Vec<ShardSet> = slot
            .section_watches
            .iter()
            .filter_map(|watch| Some(watch.section.shards()? & &self.held))
            .collect();
        let missing = sets.iter().fold(self.held.clone(), |rest, set| &rest - set);
        sets.push(missing);
        sets.retain(|set| !set.is_empty());
        sets
    }

    /// Goes on with one request for all shards if the API server does not select by shard, because it sends everything
    /// to each. Returns true if a task has to start for it.
    ///
    /// Only once all requests have shown the same changes: after an earlier version, deleted objects would come back.
    pub(crate) fn merge(&mut self, id: SlotId) -> bool {
        let Some(slot) = self.slots.get_mut(&id) else {
            return false;
        };
        let watches = &mut slot.section_watches;
        if watches.len() < 2 || self.selects != Some(false) {
            return false;
        }
        let version = watches.first().map(|watch| watch.version);
        let is_mergeable = |watch: &SectionWatch| {
            watch.section.shards().is_some()
                && watch.health == Health::Synced
                && watch.unchecked.is_none()
                && Some(watch.version) == version
        };
        if !watches.iter().all(is_mergeable) {
            return false;
        }
        self.count += 1;
        let merged = watches.drain(..).reduce(|one, other| SectionWatch {
            section: one.section.and(other.section),
            generation: self.count,
            ..one
        });
        watches.extend(merged);
        true
    }

    fn demand(&self, slot: &WatchSlot) -> Demand {
        let demands = slot.users().map(|(subscriber_id, role)| {
            // The host's own watches have no interest.
            let Some(watches) = self.by_subscriber.get(&subscriber_id) else {
                return Demand::All;
            };
            let parent = &watches.interest.parent;
            let parent = self.kinds().and_then(|kinds| kinds.get(parent));
            let is_in_cluster = parent.is_some_and(|parent| parent.scope == Scope::Cluster);
            if is_in_cluster && !self.sees(watches, None) {
                Demand::None
            } else if self.shards.is_one()
                || watches.interest.all_shards
                || is_in_cluster
                || role == Role::Read
            {
                // A pass may read any namespace, and cluster-scoped parents have children in any.
                Demand::All
            } else {
                Demand::Held
            }
        });
        demands.max().unwrap_or(Demand::None)
    }

    /// The parents of some shards, for each registration that has passes for held shards only.
    fn shard_parents(&self, shards: &ShardSet) -> Vec<Reader> {
        let is_in_shards =
            |parent: &ObjectId| shards.contains(&self.shards.of(parent.namespace.as_deref()));
        let mut readers = Vec::new();
        for (subscriber_id, watches) in &self.by_subscriber {
            if !watches.interest.all_shards && !shards.is_empty() {
                let parents = self.parents(*subscriber_id).into_iter();
                let parents = parents.filter(is_in_shards);
                readers.extend(parents.map(|parent| Reader::new(*subscriber_id, parent)));
            }
        }
        readers
    }
}

impl CacheState {
    /// Adapts the requests of watches after their users, the served kinds or the held shards have changed.
    pub(super) fn arrange(&mut self, ids: impl IntoIterator<Item = SlotId>, now: Instant) {
        let mut replaced = Vec::new();
        for id in ids {
            let sections = self.table.arrange(id, now).into_iter();
            replaced.extend(sections.map(|section| (id, section)));
        }
        // After all, because a registration is ready or not by all its watches.
        for (id, section) in replaced {
            self.kind_changed(id, &section);
        }
    }

    /// Sets the held shards.
    pub(crate) fn hold(&mut self, held: ShardSet, now: Instant) {
        if self.table.shards.is_one() || held == self.table.held {
            return;
        }
        let lost = &self.table.held - &held;
        let gained = &held - &self.table.held;
        // While the cache still shows them.
        for reader in self.table.shard_parents(&lost) {
            self.forget(&reader);
            self.subscribers.trigger(&reader, Cause::ParentGone);
        }
        self.table.held = held;
        self.arrange(self.table.ids(), now);
        if !gained.is_empty() {
            // A watch in whole has shown these parents all along, but may be behind their last writer.
            let section = Section::Shards(self.table.shards, gained);
            self.table.require_freshness_checks(&section, now);
        }
        let subscribers: Vec<_> = self.table.by_subscriber.keys().copied().collect();
        for subscriber_id in subscribers {
            self.recheck(subscriber_id);
        }
    }
}
