//! Freshness checks: a watch may be behind another process's writes. Until the check passes, it counts as not listed.

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_model::{Access, ResourceVersion, Uid};
use tokio::time::Instant;

use super::{
    CacheState, SlotId, WatchTable,
    namespace_watch::{Health, NamespaceWatch},
};
use crate::{
    store::{ObjectKey, Store},
    wire::WatchTarget,
};

/// A kind's objects with their versions, as a quorum shows them.
pub(crate) type Contents = BTreeMap<ObjectKey, (Uid, ResourceVersion)>;

/// A watch of one namespace, whichever task writes to it.
pub(crate) type UncheckedWatch = (SlotId, Option<Arc<str>>);

/// The next step of a freshness check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FreshnessCheck {
    /// None: it passed, or is not needed.
    Passed,
    /// Wait: the watch has no complete list yet to compare with.
    NotListed,
    /// Compare with this request, in metadata form.
    Compare(WatchTarget),
}

impl WatchTable {
    fn require_freshness_checks(&mut self, now: Instant) {
        for slot in self.slots.values_mut() {
            let is_reshaped = slot.store.len() > 0;
            for watch in &mut slot.namespace_watches {
                // A first list in progress may have begun before the other process's last write.
                if watch.version == ResourceVersion::default() {
                    self.count += 1;
                    watch.restart(self.count, is_reshaped, now);
                } else {
                    watch.is_unchecked = true;
                    watch.since = now;
                }
            }
        }
    }

    /// The watches whose freshness check has not passed.
    pub(crate) fn unchecked(&self) -> Vec<UncheckedWatch> {
        let mut unchecked = Vec::new();
        for (id, slot) in &self.slots {
            for watch in &slot.namespace_watches {
                if watch.is_unchecked {
                    unchecked.push((*id, watch.namespace.clone()));
                }
            }
        }
        unchecked
    }

    /// The next step of a watch's freshness check.
    pub(crate) fn freshness_check(&self, (id, namespace): &UncheckedWatch) -> FreshnessCheck {
        let Some(slot) = self.get(*id) else {
            return FreshnessCheck::Passed;
        };
        let mut watches = slot.namespace_watches.iter();
        match watches.find(|watch| watch.namespace == *namespace) {
            Some(watch) if watch.is_unchecked => match slot.target(watch, Access::Metadata) {
                Some(target) if watch.health == Health::Synced => FreshnessCheck::Compare(target),
                _ => FreshnessCheck::NotListed,
            },
            _ => FreshnessCheck::Passed,
        }
    }
}

impl CacheState {
    /// Requires a freshness check of every watch. A watch without any version restarts instead: the first list comes
    /// from a quorum, so it needs no check. The same holds for later watches.
    pub(crate) fn require_freshness_checks(&mut self, now: Instant) {
        self.table.require_freshness_checks(now);
        for id in self.table.ids() {
            self.kind_changed(id, None);
        }
    }

    /// Passes the check if the watch has reached a version, and returns true if it has.
    pub(crate) fn check_by_version(
        &mut self,
        unchecked: &UncheckedWatch,
        version: ResourceVersion,
    ) -> bool {
        self.pass_check(unchecked, |watch, _| watch.version >= version)
    }

    /// Passes the check if the watch holds exactly these objects in these versions, and returns true if it does.
    pub(crate) fn check_by_contents(
        &mut self,
        unchecked: &UncheckedWatch,
        contents: &Contents,
    ) -> bool {
        self.pass_check(unchecked, |watch, store| {
            let mut objects = contents.iter();
            store.size_of(watch.namespace.as_deref()).all().objects == contents.len()
                && objects.all(|(key, (uid, version))| {
                    store
                        .get(key)
                        .is_some_and(|stored| stored.uid == *uid && stored.version == *version)
                })
        })
    }

    /// Passes the check if the watch is synced and current; a watch that is gone needs no check.
    fn pass_check(
        &mut self,
        (id, namespace): &UncheckedWatch,
        is_current: impl FnOnce(&NamespaceWatch, &Store) -> bool,
    ) -> bool {
        let is_checked = |watch: &NamespaceWatch| watch.namespace == *namespace;
        let Some((watch, store)) = self.table.watch_where(*id, is_checked) else {
            return true;
        };
        let has_passed = watch.health == Health::Synced && is_current(watch, store);
        if has_passed && std::mem::take(&mut watch.is_unchecked) {
            self.kind_changed(*id, namespace.as_ref());
        }
        has_passed
    }
}
