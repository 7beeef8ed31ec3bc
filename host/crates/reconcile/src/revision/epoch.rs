//! The active revision behind one pointer, so that a switch takes effect between two passes, never within one.
//!
//! The plugin controller checks the candidate and decides on the switch.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use innkeeper_model::{Condition, Object, ObjectId, Uid};
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::{Revision, analysis::Analysis, predictions::Predictions};
use crate::memory::{Memory, ledger::Generation};

/// The period in which passes begin with the same [`Revision`]; each pass holds the epoch until the end.
pub(crate) struct Epoch {
    pub(crate) revision: Revision,
    /// The time of the change that caused the switch; `None` once a pass has begun.
    change: Mutex<Option<Instant>>,
    /// The number of passes that ended with a guest fault.
    pub(crate) faults: AtomicU64,
    pub(crate) analysis: Mutex<Analysis>,
    /// The passes that would write nothing.
    pub(crate) memory: Memory,
    pub(crate) given_up: GivenUp,
    pub(crate) predictions: Predictions,
}

impl Epoch {
    fn new(
        revision: Revision,
        change: Option<Instant>,
        analysis: Analysis,
        faults: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            revision,
            change: Mutex::new(change),
            faults: AtomicU64::new(faults),
            analysis: Mutex::new(analysis),
            memory: Memory::default(),
            given_up: GivenUp::default(),
            predictions: Predictions::default(),
        })
    }

    /// Returns an epoch for a candidate's dry runs.
    pub(crate) fn for_candidate(revision: Revision) -> Arc<Self> {
        Self::new(revision, None, Analysis::default(), 0)
    }

    /// Returns the time of the change that caused the switch, to the first pass only.
    pub(crate) fn take_change(&self) -> Option<Instant> {
        self.change.lock().take()
    }

    /// Starts the rollout analysis if it still waits for parents. Callers do this before they call the guest.
    pub(crate) fn begin_analysis(&self, parents: impl FnOnce() -> Vec<(ObjectId, Generation)>) {
        let mut analysis = self.analysis.lock();
        if !analysis.is_open() {
            analysis.open(parents());
        }
    }
}

/// Holds the active revision.
pub(crate) struct RevisionSlot(RwLock<Epochs>);

struct Epochs {
    current: Arc<Epoch>,
    /// The earlier epochs whose passes may still run.
    earlier: Vec<Weak<Epoch>>,
}

impl RevisionSlot {
    pub(crate) fn new(revision: Revision) -> Self {
        Self(RwLock::new(Epochs {
            current: Epoch::new(revision, None, Analysis::default(), 0),
            earlier: Vec::new(),
        }))
    }

    /// Returns the epoch for a pass that begins now.
    pub(crate) fn current(&self) -> Arc<Epoch> {
        Arc::clone(&self.0.read().current)
    }

    /// Returns true if this epoch is the current one.
    pub(crate) fn is_current(&self, epoch: &Arc<Epoch>) -> bool {
        Arc::ptr_eq(&self.0.read().current, epoch)
    }

    /// Makes `revision` active for every pass that begins from now on.
    ///
    /// `change` is when the host saw the cause of the switch, if there was one.
    /// Before such a pass begins, `watch` gets the new revision and the earlier epochs with running passes, newest first.
    pub(crate) fn switch(
        &self,
        revision: Revision,
        change: Option<Instant>,
        analysis: Analysis,
        watch: impl FnOnce(&Revision, &[Arc<Epoch>]),
    ) {
        let mut state = self.0.write();
        let last = &state.current;
        // With other grants or limits, the plugin is still the same and its faults count.
        let is_same = last.revision.plugin.revision() == revision.plugin.revision();
        let faults = if is_same {
            last.faults.load(Ordering::Relaxed)
        } else {
            0
        };
        let next = Epoch::new(revision, change, analysis, faults);
        let last = std::mem::replace(&mut state.current, next);
        state.earlier.push(Arc::downgrade(&last));
        // Drop this reference first: without running passes, the last epoch ends here and needs no watches.
        drop(last);
        state.earlier.retain(|epoch| epoch.strong_count() > 0);
        // Still under the lock, so that no pass begins with the new revision before its kinds are watched.
        state.notify(watch);
    }

    /// Drops earlier epochs whose last pass has ended, and then calls `watch` with the others. Callers do this after each
    /// pass.
    pub(crate) fn drop_ended(&self, watch: impl FnOnce(&Revision, &[Arc<Epoch>])) {
        let has_ended = |epoch: &Weak<Epoch>| epoch.strong_count() == 0;
        // A read lock first: after nearly every pass nothing has ended, and a write lock would delay passes that begin.
        if !self.0.read().earlier.iter().any(has_ended) {
            return;
        }
        let mut state = self.0.write();
        let before = state.earlier.len();
        state.earlier.retain(|epoch| !has_ended(epoch));
        // Another pass may have dropped them between the two locks.
        if state.earlier.len() < before {
            state.notify(watch);
        }
    }

    /// Calls `watch` with the epochs in use; no switch can happen meanwhile.
    pub(crate) fn with_epochs(&self, watch: impl FnOnce(&Revision, &[Arc<Epoch>])) {
        // With the write lock: `notify` holds references, which a concurrent `drop_ended` would count as passes.
        self.0.write().notify(watch);
    }
}

impl Epochs {
    fn notify(&self, watch: impl FnOnce(&Revision, &[Arc<Epoch>])) {
        let earlier: Vec<_> = self
            .earlier
            .iter()
            .rev()
            .filter_map(Weak::upgrade)
            .collect();
        watch(&self.current.revision, &earlier);
    }
}

/// Parents whose plugin reported a fatal fault, so that only another revision or configuration can help: the condition
/// `Synced` and the UID of each.
///
/// In memory only: after a restart, each of these parents costs one call.
#[derive(Default)]
pub(crate) struct GivenUp(Mutex<BTreeMap<ObjectId, (Uid, Condition)>>);

impl GivenUp {
    pub(crate) fn add(&self, parent: &Object, synced: Condition) {
        let mut parents = self.0.lock();
        parents.insert(parent.id(), (parent.uid.clone(), synced));
    }

    /// Returns a parent's condition. A new parent with the same name has another UID.
    pub(crate) fn condition_of(&self, parent: &Object) -> Option<Condition> {
        let parents = self.0.lock();
        let (uid, synced) = parents.get(&parent.id())?;
        (*uid == parent.uid).then(|| synced.clone())
    }

    pub(crate) fn forget(&self, parent: &ObjectId) {
        self.0.lock().remove(parent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{revision_of, saying};

    #[test]
    fn an_earlier_epoch_is_watched_until_its_last_pass_has_ended() {
        let new = revision_of(saying("new"));
        let slot = RevisionSlot::new(revision_of(saying("old")));
        let counts = Mutex::new(Vec::new());
        let watch = |_: &Revision, others: &[Arc<Epoch>]| counts.lock().push(others.len());
        let passes = [slot.current(), slot.current()];
        slot.switch(new.clone(), None, Analysis::default(), watch);
        assert!(!slot.is_current(&passes[0]));
        assert_eq!(
            slot.current().revision.plugin.revision(),
            new.plugin.revision()
        );
        for pass in passes {
            slot.drop_ended(watch);
            drop(pass);
        }
        slot.drop_ended(watch);
        slot.drop_ended(watch);
        // No pass runs with the earlier epoch now.
        slot.switch(new, None, Analysis::default(), watch);
        slot.drop_ended(watch);
        assert_eq!(*counts.lock(), [1, 0, 0]);
    }
}
