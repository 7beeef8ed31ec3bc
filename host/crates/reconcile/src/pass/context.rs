//! The values that passes share: [`Context`], with all others of the same plugin and parent kind, and [`Pass`], among
//! their own steps.

use std::sync::{Arc, atomic::AtomicU64};

use innkeeper_apply::Target;
use innkeeper_cluster::Registration;
use innkeeper_metrics::PluginMetrics;
use innkeeper_model::{Object, ObjectId, PluginName};
use parking_lot::Mutex;

use super::{events::EventQueue, skip::Skip, trace::Trace};
use crate::{
    memory::ledger::Ledger,
    revision::{
        epoch::{Epoch, RevisionSlot},
        faults::RecentFaults,
    },
    shared::Shared,
};

/// The state that all passes for one plugin and parent kind share.
///
/// Lock order: the revision slot before the inventory and the cache state, because a swap updates the watches before the
/// new revision's first pass begins; an epoch's analysis before the cache state, which lists its parents; the namespaces'
/// write limits before the ledger.
/// The ledger is locked last, and only for moments, because all parents' passes share it.
pub(crate) struct Context {
    pub(crate) plugin: PluginName,
    pub(crate) slot: RevisionSlot,
    pub(crate) registration: Registration,
    pub(crate) ledger: Mutex<Ledger>,
    /// The number of passes that were skipped because the inputs had not changed.
    pub(crate) skipped: AtomicU64,
    pub(crate) recent_faults: RecentFaults,
    pub(crate) metrics: PluginMetrics,
    pub(crate) event_queue: EventQueue,
    pub(crate) shared: Arc<Shared>,
}

impl Context {
    /// Returns the target for writes to a parent.
    pub(crate) fn target(&self, parent: &Object) -> Target {
        Target::new(parent, &self.shared.resource_of(parent))
    }
}

/// The pass, as all steps share it.
pub(crate) struct Pass<'a> {
    pub(crate) context: &'a Context,
    /// The plugin's own registration, or the candidate's in a dry run.
    pub(crate) registration: &'a Registration,
    /// The revision, which stays the same until the pass ends.
    pub(crate) epoch: Arc<Epoch>,
    pub(crate) id: &'a ObjectId,
    pub(crate) trace: &'a Trace<'a>,
}

/// The value of a step, or the reason to skip all later steps.
pub(crate) type Step<T> = Result<T, Box<Skip>>;
