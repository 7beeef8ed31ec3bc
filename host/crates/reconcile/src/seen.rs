//! What can be seen of a reconciler from outside: counts, the last faults, how passes ended. Nothing is decided by it.

use std::{sync::atomic::Ordering, time::Duration};

use innkeeper_model::ObjectId;

use super::{RecentFault, Reconciler};

impl Reconciler {
    /// How many passes of the revision that serves ended with a fault of the guest.
    pub fn faults(&self) -> u64 {
        self.slot.current().faults.load(Ordering::Relaxed)
    }

    /// The last passes that ended with a fault of the guest, of whatever revision, the latest first.
    pub fn recent_faults(&self) -> Vec<RecentFault> {
        self.recent_faults.all()
    }

    /// How the last pass of a parent ended, in a word, and how long ago.
    pub fn last_pass(&self, parent: &ObjectId) -> Option<(&'static str, Duration)> {
        let (at, outcome) = self.ledger.lock().last(parent)?;
        Some((outcome, at.elapsed()))
    }

    /// How many parents there are, without those that are known not to be selected.
    pub fn parent_count(&self) -> usize {
        let mut parents = self.registration.parents();
        if !self.slot.current().serving.selection.is_all() {
            let parent = |id: &ObjectId| self.registration.parent(id);
            parents.retain(|id| parent(id).is_some_and(|it| self.selects(&it) != Some(false)));
        }
        parents.len()
    }

    /// How many passes were left out so far, because they would have done nothing.
    pub fn passes_skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// Counts a write for a parent that the API server took.
    pub(super) fn wrote(&self, parent: &ObjectId, verb: &str) {
        self.metrics.wrote(verb);
        let changed = self.ledger.lock().react(parent);
        if let Some(changed) = changed {
            self.metrics.reacted(changed.elapsed());
        }
    }
}
