//! The parts that all passes of one plugin and kind of parent share.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use innkeeper_apply::{self as apply, Target, Written};
use innkeeper_cluster::{CacheSize, ParentConditions, Registration};
use innkeeper_metrics::PluginMetrics;
use innkeeper_model::{Digest, Limits, Object, ObjectId, Operation, PluginName, ResourceVersion};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    limits::budget::{Allowance, Share, namespace_rate, to_u64},
    limits::exceeded::{
        BYTES_PER_NAMESPACE, Bound, NESTED_PARENTS_PER_NAMESPACE, OBJECTS_PER_NAMESPACE, RETAINED,
        Usage, WRITES_PER_SECOND,
    },
    limits::first_writes::ParentLimits,
    limits::throttled::Permit,
    memory::ledger::Ledger,
    pass::events::EventQueue,
    revision::analysis::{Generation, ParentFacts},
    revision::epoch::{Active, Epoch},
    revision::faults::RecentFaults,
    shared::Shared,
};

/// The parts that all passes of one plugin and kind of parent share.
///
/// Lock order: the active revision before the inventory and the state of the cache, because a swap updates the watches
/// before the first pass of the new revision begins; the analysis of an epoch before the state of the cache, whose parents
/// it starts with; the write limits of the namespaces before the ledger. The ledger is locked last, and only for moments:
/// passes of all parents share it.
pub(crate) struct Context {
    pub(crate) plugin: PluginName,
    pub(crate) active: Active,
    pub(crate) registration: Registration,
    pub(crate) ledger: Mutex<Ledger>,
    /// The number of passes that were skipped because their inputs had not changed.
    pub(crate) skipped: AtomicU64,
    pub(crate) recent_faults: RecentFaults,
    pub(crate) metrics: PluginMetrics,
    pub(crate) event_queue: EventQueue,
    pub(crate) shared: Arc<Shared>,
}

impl Context {
    /// Returns the target of the writes to a parent.
    pub(crate) fn target(&self, parent: &Object) -> Target {
        Target::new(parent, &self.shared.resource_of(parent))
    }

    /// Takes writes of a parent, as far as the present limits allow.
    pub(crate) fn take_writes(&self, parent: &ObjectId, wanted: usize) -> Permit {
        self.take(parent, wanted, |own, wanted, limits, now| {
            own.take(wanted, limits, now)
        })
    }

    /// Takes the permit for the first operations of a plan, up to the first one that has to wait.
    pub(crate) fn take_operations(&self, parent: &Object, operations: &[Operation]) -> Permit {
        let epoch = self.active.current();
        let cause = (parent.generation, epoch.serving.plugin.revision().clone());
        let mut by_first_writes = false;
        let mut permit = self.take(
            &parent.id(),
            operations.len(),
            |own, wanted, limits, now| {
                let operations = operations.get(..wanted).unwrap_or(operations);
                let (allowance, by_firsts) = own.take_operations(operations, &cause, limits, now);
                by_first_writes = by_firsts;
                allowance
            },
        );
        if by_first_writes && let Some((_, bound)) = &mut permit.held {
            *bound = Bound::first_writes(&epoch.serving.limits);
        }
        permit
    }

    fn take(
        &self,
        parent: &ObjectId,
        wanted: usize,
        from_own: impl FnOnce(&mut ParentLimits, usize, &Limits, Instant) -> Allowance,
    ) -> Permit {
        let (epoch, now) = (self.active.current(), Instant::now());
        let limits = &epoch.serving.limits;
        let own = |wanted| {
            let mut ledger = self.ledger.lock();
            from_own(ledger.limits(parent), wanted, limits, now)
        };
        let place = (&self.plugin, parent.namespace.as_deref());
        let budgets = &self.shared.namespace_budgets;
        let (allowance, is_namespace) =
            budgets.take(place, namespace_rate(limits), wanted, now, own);
        let bound = || {
            if is_namespace {
                Bound::namespace_writes(place, limits)
            } else {
                Bound::parent_writes(limits)
            }
        };
        Permit {
            writes: allowance.writes,
            held: allowance.wait.map(|wait| (wait, bound())),
        }
    }

    /// Returns the use of each limit in the namespace that has used most of it, for `retained` that of the parent that
    /// retains most; limits without any use are left out.
    pub(crate) fn usage(&self) -> Vec<Usage> {
        let epoch = self.active.current();
        let limits = &epoch.serving.limits;
        let budgets = &self.shared.namespace_budgets;
        let writes = budgets.fullest(&self.plugin, namespace_rate(limits), Instant::now());
        let made = self.registration.usage_by_namespace(|_| true);
        let manifest = epoch.serving.plugin.manifest();
        let nested = self
            .registration
            .usage_by_namespace(|kind| manifest.reconciles(kind));
        let retained = self.registration.retained_most();
        let all = [
            (WRITES_PER_SECOND, writes),
            (
                OBJECTS_PER_NAMESPACE,
                fullest(&made, limits.namespace_objects_max, |size| size.objects),
            ),
            (
                NESTED_PARENTS_PER_NAMESPACE,
                fullest(&nested, limits.namespace_nested_max, |size| size.objects),
            ),
            (
                BYTES_PER_NAMESPACE,
                fullest(&made, limits.namespace_bytes_max, |size| size.bytes),
            ),
            (
                RETAINED,
                retained.map(|(namespace, count)| {
                    (
                        namespace,
                        Share::of(to_u64(count), to_u64(limits.retained_max)),
                    )
                }),
            ),
        ];
        all.into_iter()
            .filter_map(|(limit, fullest)| {
                let (namespace, share) = fullest?;
                Some(Usage {
                    limit,
                    namespace,
                    share,
                })
            })
            .collect()
    }

    /// Returns the parents whose first passes say something about a revision, each with its generation.
    pub(crate) fn analysed_parents(&self, revision: &Digest) -> Vec<(ObjectId, Generation)> {
        let has_history = self.ledger.lock().has_history();
        let counted = |id: ObjectId| {
            let facts = self.facts(&id, revision)?;
            facts.counts(has_history).then_some((id, facts.generation))
        };
        let parents = self.registration.parents();
        parents.into_iter().filter_map(counted).collect()
    }

    /// Returns true if the present generation of a parent has had a good pass, and none has failed since: a failure under
    /// this revision is the fault of the revision.
    pub(crate) fn has_passed(&self, parent: &ObjectId, revision: &Digest) -> bool {
        let facts = self.facts(parent, revision);
        facts.is_some_and(|facts| facts.counts(true))
    }

    /// Returns the facts about a parent that decide if a pass of a revision counts; none if the parent is gone.
    fn facts(&self, id: &ObjectId, revision: &Digest) -> Option<ParentFacts> {
        let parent = self.registration.parent(id)?;
        let ledger = self.ledger.lock();
        let good_at = ledger.good_at(id);
        let failed_before = ledger.failed_before(id, revision);
        drop(ledger);
        // Parsed only where it decides.
        let is_synced =
            good_at.is_none() && ParentConditions::new(&parent).synced_status() == Some("True");
        Some(ParentFacts {
            generation: parent.generation,
            good_at,
            failed_before,
            is_synced,
        })
    }

    /// Leaves a parent out of the rollout analysis of an epoch: it is gone, or its passes are stopped.
    pub(crate) fn exempt(&self, epoch: &Epoch, parent: &ObjectId) {
        if epoch.analysis.lock().exempt(parent) {
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
        let changed = self.ledger.lock().take_change(parent);
        if let Some(changed) = changed {
            self.metrics.reacted(changed.elapsed());
        }
    }

    /// Counts a write, and takes its answer into the cache. Where the cache cannot show it, the write is recorded until it
    /// does, so that no pass plans from an older state.
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
            self.registration.expect_newer(parent, id, version);
        } else if !self
            .registration
            .apply_write_response(parent, id, &written.json)
        {
            self.registration.expect_version(parent, id, version);
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
            self.registration.expect_unknown(parent, id);
        } else if error.is_stale()
            && let Some(observed) = observed
        {
            self.registration.expect_newer(parent, id, observed);
        }
    }
}

/// Returns the namespace that has used most of a limit.
fn fullest(
    made: &BTreeMap<Arc<str>, CacheSize>,
    limit: usize,
    of: fn(&CacheSize) -> usize,
) -> Option<(Arc<str>, Share)> {
    let share = |size| Share::of(to_u64(of(size)), to_u64(limit));
    let all = made
        .iter()
        .map(|(name, size)| (Arc::clone(name), share(size)));
    all.max_by_key(|(_, share)| *share)
}
