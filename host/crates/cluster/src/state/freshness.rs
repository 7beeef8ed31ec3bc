//! Freshness checks: a watch may be behind another process's writes. Until the check passes, it counts as not listed.

use std::collections::BTreeMap;

use innkeeper_model::{Access, ResourceVersion, Uid};
use tokio::time::Instant;

use super::{
    CacheState, SlotId, WatchTable,
    section_watch::{Health, SectionWatch},
};
use crate::{
    section::Section,
    store::{ObjectKey, Store},
    wire::WatchTarget,
};

/// A kind's objects with their versions, as a quorum shows them.
pub(crate) type Contents = BTreeMap<ObjectKey, (Uid, ResourceVersion)>;

/// The watch of one section, whichever task writes to it.
pub(crate) type UncheckedWatch = (SlotId, u64);

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
    pub(super) fn require_freshness_checks(&mut self, section: &Section, now: Instant) {
        for slot in self.slots.values_mut() {
            let is_reshaped = slot.store.len() > 0;
            let watches = slot.section_watches.iter_mut();
            for watch in watches.filter(|watch| watch.section.overlaps(section)) {
                // A first list in progress may have begun before the other process's last write.
                if watch.version == ResourceVersion::default() {
                    self.count += 1;
                    watch.restart(self.count, is_reshaped, now);
                } else {
                    let unchecked = watch.unchecked.take();
                    watch.unchecked = Some(match unchecked {
                        Some(unchecked) => unchecked.and(section.clone()),
                        None => section.clone(),
                    });
                    watch.since = now;
                }
            }
        }
    }

    /// The watches whose freshness check has not passed.
    pub(crate) fn unchecked(&self) -> Vec<UncheckedWatch> {
        let mut unchecked = Vec::new();
        for (id, slot) in &self.slots {
            for watch in &slot.section_watches {
                if watch.unchecked.is_some() {
                    unchecked.push((*id, watch.id));
                }
            }
        }
        unchecked
    }

    /// The next step of a watch's freshness check.
    pub(crate) fn freshness_check(&self, (id, number): &UncheckedWatch) -> FreshnessCheck {
        let Some(slot) = self.get(*id) else {
            return FreshnessCheck::Passed;
        };
        let mut watches = slot.section_watches.iter();
        match watches.find(|watch| watch.id == *number) {
            Some(watch) if watch.unchecked.is_some() => {
                match slot.target(watch, Access::Metadata) {
                    Some(target) if watch.health == Health::Synced => {
                        FreshnessCheck::Compare(target)
                    }
                    _ => FreshnessCheck::NotListed,
                }
            }
            _ => FreshnessCheck::Passed,
        }
    }
}

impl CacheState {
    /// Requires a freshness check of every watch in a section. A watch without any version restarts instead: the first list comes
    /// from a quorum, so it needs no check. The same holds for later watches.
    pub(crate) fn require_freshness_checks(&mut self, section: &Section, now: Instant) {
        self.table.require_freshness_checks(section, now);
        for id in self.table.ids() {
            self.kind_changed(id, section);
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
            store.size_in(&watch.section).all().objects == contents.len()
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
        (id, number): &UncheckedWatch,
        is_current: impl FnOnce(&SectionWatch, &Store) -> bool,
    ) -> bool {
        let is_checked = |watch: &SectionWatch| watch.id == *number;
        let Some((watch, store)) = self.table.watch_where(*id, is_checked) else {
            return true;
        };
        let has_passed = watch.health == Health::Synced && is_current(watch, store);
        if has_passed && let Some(section) = watch.unchecked.take() {
            self.kind_changed(*id, &section);
        }
        has_passed
    }
}
