//! The parts that all passes of one plugin and kind of parent share.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use innkeeper_apply::{self as apply, Target, Written};
use innkeeper_cluster::Registration;
use innkeeper_metrics::PluginMetrics;
use innkeeper_model::{Object, ObjectId, PluginName, ResourceVersion};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    budget::Allowance,
    epoch::{Active, Epoch},
    faults::RecentFaults,
    ledger::Ledger,
    shared::Shared,
};

/// The parts that all passes of one plugin and kind of parent share.
///
/// Lock order: the active revision before the inventory and the state of the cache, because a swap updates the watches
/// before the first pass of the new revision begins; the analysis of an epoch before the state of the cache, whose parents
/// it starts with. The ledger is locked alone, and only for moments: passes of all parents share it.
pub(crate) struct Context {
    pub(crate) plugin: PluginName,
    pub(crate) active: Active,
    pub(crate) registration: Registration,
    pub(crate) ledger: Mutex<Ledger>,
    /// The number of passes that were skipped because their inputs had not changed.
    pub(crate) skipped: AtomicU64,
    pub(crate) recent_faults: RecentFaults,
    pub(crate) metrics: PluginMetrics,
    pub(crate) shared: Arc<Shared>,
}

impl Context {
    /// Returns the target of the writes to a parent.
    pub(crate) fn target(&self, parent: &Object) -> Target {
        Target::new(parent, &self.shared.resource_of(parent))
    }

    /// Takes writes of a parent, as far as the present limit allows; returns the limit per minute, too.
    pub(crate) fn take_writes(&self, parent: &ObjectId, wanted: usize) -> (Allowance, u32) {
        let epoch = self.active.current();
        let limit = epoch.serving.limits.writes_per_minute_max;
        let mut ledger = self.ledger.lock();
        let allowance = ledger.budget(parent).take(wanted, limit, Instant::now());
        (allowance, limit)
    }

    /// Leaves a parent out of the rollout analysis of an epoch: it is gone, or its passes are stopped.
    pub(crate) fn excuse(&self, epoch: &Epoch, parent: &ObjectId) {
        if epoch.analysis.lock().excuse(parent) {
            self.shared.analyses.notify_one();
        }
    }

    /// Counts a pass that was skipped.
    pub(crate) fn count_skip(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
        self.metrics.skipped();
    }

    /// Counts a write for a parent that the API server accepted.
    pub(crate) fn count_write(&self, parent: &ObjectId, verb: &str) {
        self.metrics.wrote(verb);
        let changed = self.ledger.lock().react(parent);
        if let Some(changed) = changed {
            self.metrics.reacted(changed.elapsed());
        }
    }

    /// Counts a write, and records it until the cache shows it, so that no pass plans from an older state.
    pub(crate) fn note_written(
        &self,
        parent: &ObjectId,
        id: &ObjectId,
        verb: &str,
        written: &Written,
    ) {
        self.count_write(parent, verb);
        let version = written.resource_version;
        if written.gone {
            // The answer shows the last state of the object, so only its removal proves that the cache is current.
            self.registration.note_stale(parent, id, version);
        } else {
            self.registration.note_write(parent, id, version);
        }
    }

    /// Records the evidence of a failed write that the cache is behind.
    pub(crate) fn note_failure(
        &self,
        parent: &ObjectId,
        id: &ObjectId,
        observed: Option<ResourceVersion>,
        error: &apply::Error,
    ) {
        if error.is_ambiguous() {
            self.registration.note_unknown(parent, id);
        } else if error.is_stale()
            && let Some(observed) = observed
        {
            self.registration.note_stale(parent, id, observed);
        }
    }
}
