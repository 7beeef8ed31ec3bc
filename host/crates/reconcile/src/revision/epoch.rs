//! The active revision behind one pointer: a switch takes effect between two passes of a parent, never within one.
//!
//! The plugin controller decides on a switch and checks the candidate before it.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, Ordering},
};

use innkeeper_model::ObjectId;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use crate::{
    memory::Memory,
    revision::Serving,
    revision::analysis::{Analysis, Generation},
    revision::given_up::GivenUp,
};

/// The period in which passes begin with the same [`Serving`]; each of them holds it until it has ended.
pub(crate) struct Epoch {
    pub(crate) serving: Serving,
    /// The time at which the host saw the change that caused the switch; none once a pass has begun.
    change: Mutex<Option<Instant>>,
    /// The number of passes of the revision that ended with a fault of the guest.
    pub(crate) faults: AtomicU64,
    /// The rollout analysis of the revision.
    pub(crate) analysis: Mutex<Analysis>,
    /// The passes that would do nothing.
    pub(crate) memory: Memory,
    /// The parents for which the guest is not called any more.
    pub(crate) given_up: GivenUp,
}

impl Epoch {
    fn new(
        serving: Serving,
        change: Option<Instant>,
        analysis: Analysis,
        faults: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            serving,
            change: Mutex::new(change),
            faults: AtomicU64::new(faults),
            analysis: Mutex::new(analysis),
            memory: Memory::default(),
            given_up: GivenUp::default(),
        })
    }

    /// Returns an epoch for the dry runs of a candidate, which nothing else uses.
    pub(crate) fn of_candidate(serving: Serving) -> Arc<Self> {
        Self::new(serving, None, Analysis::default(), 0)
    }

    /// Returns the time of the change that caused the switch, if there was one, for the first pass only.
    pub(crate) fn take_change(&self) -> Option<Instant> {
        self.change.lock().take()
    }

    /// Starts the rollout analysis if it still waits for the parents; callers do this before they call the guest.
    pub(crate) fn begin_analysis(&self, parents: impl FnOnce() -> Vec<(ObjectId, Generation)>) {
        let mut analysis = self.analysis.lock();
        if !analysis.is_open() {
            analysis.open(parents());
        }
    }
}

/// The active revision.
pub(crate) struct Active(RwLock<ActiveEpochs>);

struct ActiveEpochs {
    current: Arc<Epoch>,
    /// The earlier epochs whose passes may still run.
    leaving: Vec<Weak<Epoch>>,
}

impl Active {
    pub(crate) fn new(serving: Serving) -> Self {
        Self(RwLock::new(ActiveEpochs {
            current: Epoch::new(serving, None, Analysis::default(), 0),
            leaving: Vec::new(),
        }))
    }

    /// Returns the epoch of a pass that begins now.
    pub(crate) fn current(&self) -> Arc<Epoch> {
        Arc::clone(&self.0.read().current)
    }

    /// Returns true if this epoch is the current one.
    pub(crate) fn is_current(&self, epoch: &Arc<Epoch>) -> bool {
        Arc::ptr_eq(&self.0.read().current, epoch)
    }

    /// Makes `serving` the active revision of every pass that begins from now on.
    ///
    /// `change` is the time at which the host saw the cause of the switch, if there was one.
    /// Before such a pass begins, `watch` gets the new revision and the earlier epochs with running passes, the newest
    /// first.
    pub(crate) fn switch(
        &self,
        serving: Serving,
        change: Option<Instant>,
        analysis: Analysis,
        watch: impl FnOnce(&Serving, &[Arc<Epoch>]),
    ) {
        let mut state = self.0.write();
        let last = &state.current;
        // Other grants or limits make no other revision, so its faults still count.
        let is_same = last.serving.plugin.revision() == serving.plugin.revision();
        let faults = if is_same {
            last.faults.load(Ordering::Relaxed)
        } else {
            0
        };
        let next = Epoch::new(serving, change, analysis, faults);
        let last = std::mem::replace(&mut state.current, next);
        state.leaving.push(Arc::downgrade(&last));
        // This reference must go first: without running passes, the last epoch ends here and needs no watches.
        drop(last);
        state.leaving.retain(|epoch| epoch.strong_count() > 0);
        state.tell(watch);
    }

    /// Calls `watch` with the remaining epochs if the last pass of an earlier one has ended; callers do this after each
    /// pass.
    pub(crate) fn settle(&self, watch: impl FnOnce(&Serving, &[Arc<Epoch>])) {
        let ended = |epoch: &Weak<Epoch>| epoch.strong_count() == 0;
        if !self.0.read().leaving.iter().any(ended) {
            return;
        }
        let mut state = self.0.write();
        let before = state.leaving.len();
        state.leaving.retain(|epoch| !ended(epoch));
        if state.leaving.len() < before {
            state.tell(watch);
        }
    }

    /// Calls `watch` with the epochs in use; no switch can happen meanwhile.
    pub(crate) fn look(&self, watch: impl FnOnce(&Serving, &[Arc<Epoch>])) {
        // With the write lock, because `tell` holds references: a concurrent `settle` would count them as passes.
        self.0.write().tell(watch);
    }
}

impl ActiveEpochs {
    fn tell(&self, watch: impl FnOnce(&Serving, &[Arc<Epoch>])) {
        let leaving: Vec<_> = self
            .leaving
            .iter()
            .rev()
            .filter_map(Weak::upgrade)
            .collect();
        watch(&self.current.serving, &leaving);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{saying, serving_of};

    #[test]
    fn an_earlier_epoch_is_watched_until_its_last_pass_has_ended() {
        let (old, new) = (serving_of(saying("old")), serving_of(saying("new")));
        let active = Active::new(old);
        let told = Mutex::new(Vec::new());
        let watch = |_: &Serving, others: &[Arc<Epoch>]| told.lock().push(others.len());
        let passes = [active.current(), active.current()];
        active.switch(new.clone(), None, Analysis::default(), watch);
        assert!(!active.is_current(&passes[0]));
        assert_eq!(
            active.current().serving.plugin.revision(),
            new.plugin.revision()
        );
        for pass in passes {
            active.settle(watch);
            drop(pass);
        }
        active.settle(watch);
        active.settle(watch);
        // No pass runs with the earlier epoch now.
        active.switch(new, None, Analysis::default(), watch);
        active.settle(watch);
        assert_eq!(*told.lock(), [1, 0, 0]);
    }
}
