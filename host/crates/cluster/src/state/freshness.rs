//! Freshness checks: a watch may be behind the writes of another process. Until its check passes, it counts as not
//! listed.

use std::sync::Arc;

use innkeeper_model::{Access, ResourceVersion};
use tokio::time::Instant;

use super::{CacheState, SlotId, namespaces::NamespaceWatch, slots::Health};
use crate::{freshness::Contents, store::ObjectKey, wire::WatchTarget};

/// The identity of a namespace watch, whichever task writes to it.
pub(crate) type UncheckedWatch = (SlotId, Option<Arc<str>>);

/// The state of a freshness check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FreshnessCheck {
    /// Passed, or not needed.
    None,
    /// Needed, but the watch has no complete list yet to compare with.
    NotListed,
    /// Needed; this is the request to compare with, in metadata form.
    Of(WatchTarget),
}

impl CacheState {
    /// Requires a freshness check of every watch. A watch without any version starts over instead:
    /// its first list comes from a quorum, so it needs no check. The same holds for watches that are added later.
    pub(crate) fn require_freshness_checks(&mut self, now: Instant) {
        let ids: Vec<SlotId> = self.slots.keys().copied().collect();
        for slot in self.slots.values_mut() {
            let reshaped = slot.store.len() > 0;
            for namespace_watch in &mut slot.namespace_watches {
                if namespace_watch.version == ResourceVersion::default() {
                    self.count += 1;
                    namespace_watch.restart(self.count, reshaped, now);
                } else {
                    namespace_watch.unchecked = true;
                    namespace_watch.since = now;
                }
            }
        }
        for id in ids {
            self.kind_changed(id, None);
        }
    }

    /// The watches whose freshness check has not passed.
    pub(crate) fn unchecked(&self) -> Vec<UncheckedWatch> {
        let slots = self.slots.iter();
        let namespace_watches = slots.flat_map(|(id, slot)| {
            slot.namespace_watches
                .iter()
                .map(|namespace_watch| (*id, namespace_watch))
        });
        namespace_watches
            .filter(|(_, namespace_watch)| namespace_watch.unchecked)
            .map(|(id, namespace_watch)| (id, namespace_watch.namespace.clone()))
            .collect()
    }

    /// The state of the freshness check of a watch.
    pub(crate) fn freshness_check(&self, unchecked: &UncheckedWatch) -> FreshnessCheck {
        let slot = self.slots.get(&unchecked.0);
        let namespace_watch = self
            .unchecked_namespace_watch(unchecked)
            .filter(|namespace_watch| namespace_watch.unchecked);
        let (Some(slot), Some(namespace_watch)) = (slot, namespace_watch) else {
            return FreshnessCheck::None;
        };
        match slot.target(namespace_watch, Access::Metadata) {
            Some(target) if namespace_watch.health == Health::Synced => FreshnessCheck::Of(target),
            _ => FreshnessCheck::NotListed,
        }
    }

    /// Passes the check if the watch has reached a version, and returns true if it has.
    pub(crate) fn check_by_version(
        &mut self,
        unchecked: &UncheckedWatch,
        version: ResourceVersion,
    ) -> bool {
        let namespace_watch = self.unchecked_namespace_watch(unchecked);
        let reached = namespace_watch.is_none_or(|namespace_watch| {
            namespace_watch.health == Health::Synced && namespace_watch.version >= version
        });
        if reached {
            self.pass_freshness_check(unchecked);
        }
        reached
    }

    /// Passes the check if the watch holds exactly these objects in these versions, and returns true if it does.
    pub(crate) fn check_by_contents(
        &mut self,
        unchecked: &UncheckedWatch,
        contents: &Contents,
    ) -> bool {
        let (id, namespace) = unchecked;
        let namespace_watch = self.unchecked_namespace_watch(unchecked);
        let same = namespace_watch
            .zip(self.slots.get(id))
            .is_none_or(|(namespace_watch, slot)| {
                let is_there = |(key, (uid, version)): (&ObjectKey, &(_, _))| {
                    let stored = slot.store.get(key);
                    stored.is_some_and(|stored| stored.uid == *uid && stored.version == *version)
                };
                namespace_watch.health == Health::Synced
                    && slot.store.size_of(namespace.as_deref()).objects == contents.len()
                    && contents.iter().all(is_there)
            });
        if same {
            self.pass_freshness_check(unchecked);
        }
        same
    }

    fn unchecked_namespace_watch(
        &self,
        (id, namespace): &UncheckedWatch,
    ) -> Option<&NamespaceWatch> {
        let mut namespace_watches = self.slots.get(id)?.namespace_watches.iter();
        namespace_watches.find(|namespace_watch| namespace_watch.namespace == *namespace)
    }

    fn pass_freshness_check(&mut self, (id, namespace): &UncheckedWatch) {
        let namespace_watch = self.slots.get_mut(id).and_then(|slot| {
            slot.namespace_watches
                .iter_mut()
                .find(|namespace_watch| namespace_watch.namespace == *namespace)
        });
        if namespace_watch
            .is_some_and(|namespace_watch| std::mem::take(&mut namespace_watch.unchecked))
        {
            self.kind_changed(*id, namespace.as_ref());
        }
    }
}
