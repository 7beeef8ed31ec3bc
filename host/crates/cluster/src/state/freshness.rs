//! Freshness checks: a watch may be behind the writes of another process. Until its check passes, it counts as not
//! listed.

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_model::{Access, ResourceVersion, Uid};
use tokio::time::Instant;

use super::{
    CacheState, SlotId,
    namespace_watch::{Health, NamespaceWatch},
};
use crate::{
    store::{ObjectKey, Store},
    wire::WatchTarget,
};

/// The objects of a kind and their versions, as a quorum shows them.
pub(crate) type Contents = BTreeMap<ObjectKey, (Uid, ResourceVersion)>;

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
            for watch in &mut slot.namespace_watches {
                if watch.version == ResourceVersion::default() {
                    self.count += 1;
                    watch.restart(self.count, reshaped, now);
                } else {
                    watch.unchecked = true;
                    watch.since = now;
                }
            }
        }
        for id in ids {
            self.kind_changed(id, None);
        }
    }

    /// The watches whose freshness check has not passed.
    pub(crate) fn unchecked(&self) -> Vec<UncheckedWatch> {
        let mut unchecked = Vec::new();
        for (id, slot) in &self.slots {
            let watches = slot.namespace_watches.iter().filter(|one| one.unchecked);
            unchecked.extend(watches.map(|watch| (*id, watch.namespace.clone())));
        }
        unchecked
    }

    /// The state of the freshness check of a watch.
    pub(crate) fn freshness_check(&self, (id, namespace): &UncheckedWatch) -> FreshnessCheck {
        let Some(slot) = self.slots.get(id) else {
            return FreshnessCheck::None;
        };
        let mut watches = slot.namespace_watches.iter();
        match watches.find(|watch| watch.namespace == *namespace) {
            Some(watch) if watch.unchecked => match slot.target(watch, Access::Metadata) {
                Some(target) if watch.health == Health::Synced => FreshnessCheck::Of(target),
                _ => FreshnessCheck::NotListed,
            },
            _ => FreshnessCheck::None,
        }
    }

    /// Passes the check if the watch has reached a version, and returns true if it has.
    pub(crate) fn check_by_version(
        &mut self,
        unchecked: &UncheckedWatch,
        version: ResourceVersion,
    ) -> bool {
        self.check(unchecked, |watch, _| watch.version >= version)
    }

    /// Passes the check if the watch holds exactly these objects in these versions, and returns true if it does.
    pub(crate) fn check_by_contents(
        &mut self,
        unchecked: &UncheckedWatch,
        contents: &Contents,
    ) -> bool {
        self.check(unchecked, |watch, store| {
            let mut objects = contents.iter();
            store.size_of(watch.namespace.as_deref()).all().objects == contents.len()
                && objects.all(|(key, (uid, version))| {
                    let stored = store.get(key);
                    stored.is_some_and(|stored| stored.uid == *uid && stored.version == *version)
                })
        })
    }

    /// Passes the check if the watch is synced and current; a watch that is gone needs no check.
    fn check(
        &mut self,
        (id, namespace): &UncheckedWatch,
        is_current: impl FnOnce(&NamespaceWatch, &Store) -> bool,
    ) -> bool {
        let found = self.watch_where(*id, |watch| watch.namespace == *namespace);
        let Some((watch, store)) = found else {
            return true;
        };
        let passed = watch.health == Health::Synced && is_current(watch, store);
        if passed && std::mem::take(&mut watch.unchecked) {
            self.kind_changed(*id, namespace.as_ref());
        }
        passed
    }
}
