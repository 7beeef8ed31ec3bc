//! One pass for one parent: observe, call, check, plan, apply, report, and say when the next one comes.
//!
//! Read [`Reconciler::pass`] from top to bottom.
//! A pass does not know what triggered it and needs nothing from earlier passes; what is remembered between passes
//! (subscriptions, own writes not yet seen, parents that the guest has given up) only saves work.
//! It carries `model` values between the sandbox, the cache and the writer, which do not know each other.

mod answer;
mod budget;
mod conflicts;
pub mod controller;
mod entry;
mod faults;
mod given_up;
mod guest;
mod interest;
mod inventory;
pub mod lease;
mod ledger;
mod memory;
mod next;
mod quarrel;
mod rehearse;
mod report;
mod seen;
mod selection;
mod serving;
mod shared;
#[cfg(test)]
mod tests;
mod throttle;
mod trial;
mod write;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{Instrument, debug, info_span, warn};

pub use faults::RecentFault;
pub use inventory::{CONFIG_MAP as INVENTORY, Error as InventoryError, Inventory};
pub use next::Next;
pub use rehearse::{Candidate, Changes, Rehearsal};
pub use serving::Serving;
pub use shared::{HashKeySlot, Shared};
pub use trial::{Fault as TrialFault, Trial};

use innkeeper_apply::Target;
use innkeeper_cluster::{Cause, Observation, Observed, Recording, Registration};
use innkeeper_metrics::PluginMetrics;
use innkeeper_model::{
    Condition, ConditionStatus, Fault, FaultKind, Gvk, HashKey, Object, ObjectId, Outcome, Phase,
    PluginName, Report, error_chain, reason,
};
use innkeeper_plan as plan;
use innkeeper_policy::Checked;

use answer::Answer;
use faults::RecentFaults;
use guest::{Called, ReadsMade};
use ledger::Ledger;
use report::{Ended, Verdict};
use serving::{Slot, Stint};
use trial::FirstPass;

/// The shortest requeue; a guest that asks for less does not get a loop.
const REQUEUE_MIN: Duration = Duration::from_millis(100);

/// What the controller knows of a parent's earlier passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    /// How many failed in a row.
    pub failures: u32,
    /// For how long they have been parked; none if the last one was not.
    pub parked: Option<Duration>,
    /// When the first change was seen that the pass is for; none if only its time has come.
    pub changed: Option<Instant>,
}

/// Reconciles the parents of one kind with what serves at the moment.
pub struct Reconciler {
    name: PluginName,
    parent: Gvk,
    slot: Slot,
    registration: Registration,
    ledger: Mutex<Ledger>,
    skipped: AtomicU64,
    recent_faults: RecentFaults,
    metrics: PluginMetrics,
    shared: Arc<Shared>,
}

impl Reconciler {
    /// Starts the watches for a kind of parents of what serves first.
    ///
    /// `name` is the one under which the plugin serves; what the component calls itself does not matter: labels, field
    /// managers, finalizer and inventory have `name`.
    pub fn new(name: PluginName, parent: Gvk, serving: Serving, shared: Arc<Shared>) -> Self {
        let once_made = shared.inventory.of(&name);
        let interest = serving.interest(&name, &parent, &once_made);
        Self {
            registration: shared.cluster.register(interest),
            metrics: shared.metrics.plugin(name.as_str()),
            name,
            parent,
            slot: Slot::new(serving),
            ledger: Mutex::default(),
            skipped: AtomicU64::new(0),
            recent_faults: RecentFaults::default(),
            shared,
        }
    }

    /// The name under which the plugin serves.
    pub fn plugin(&self) -> &PluginName {
        &self.name
    }

    /// The kind of parent.
    pub fn parent(&self) -> &Gvk {
        &self.parent
    }

    /// What the plugin sees of this kind of parents.
    pub fn registration(&self) -> &Registration {
        &self.registration
    }

    /// What passes that begin now run with.
    pub fn serving(&self) -> Serving {
        self.slot.current().serving.clone()
    }

    /// Returns true if a running pass may make children of this kind, also one that began before the last swap.
    pub fn may_make(&self, kind: &Gvk) -> bool {
        let mut may_make = false;
        self.slot.look(|newest, others| {
            let mut all = others.iter().map(|stint| &stint.serving).chain([newest]);
            may_make = all.any(|serving| serving.declares_child(kind));
        });
        may_make
    }

    /// How the first passes since the last swap ended, or since it was put on trial.
    pub fn trial(&self) -> Trial {
        self.slot.current().trial.lock().clone()
    }

    /// Has the first passes of what serves counted as if it had just taken over, from the first pass on that begins.
    pub fn put_on_trial(&self) {
        *self.slot.current().trial.lock() = Trial::unopened();
    }

    /// Lets every pass that begins from now on run with something else, and makes every parent due for one, the one
    /// whose last pass is the longest ago first.
    ///
    /// `change` is when was seen what asks for it, if anything does: from then on the time to the first pass is taken.
    /// Passes that run end as they began, and what they read stays watched until then.
    /// A parent has at most one pass at a time all along, and no trigger is lost: they wait in the same queue.
    pub fn swap(&self, serving: Serving, change: Option<Instant>) {
        self.metrics.swapped();
        let trial = self.trial_of(&serving);
        self.slot.switch(serving, change, trial, |newest, others| {
            self.watch(newest, others);
        });
        // Listed again: the pass of a parent that came meanwhile may have begun before the switch.
        self.trigger_all(Cause::Swapped);
    }

    /// Makes every parent due for a pass, the one whose last pass is the longest ago first: what was missed without
    /// anybody's notice is found by it.
    pub fn resync(&self) {
        self.trigger_all(Cause::Resync);
    }

    fn trigger_all(&self, cause: Cause) {
        let parents = self.registration.parents();
        let parents = self.ledger.lock().longest_ago_first(parents);
        self.registration.trigger(parents, cause);
    }

    /// The trial of a revision that is about to take over.
    ///
    /// A parent for which the one before broke down, too, says nothing about it.
    fn trial_of(&self, serving: &Serving) -> Trial {
        if !self.registration.waiting().is_empty() {
            return Trial::unopened();
        }
        let mut parents = self.registration.parents();
        let revision = serving.plugin.revision();
        let ledger = self.ledger.lock();
        parents.retain(|parent| !ledger.faulted_before(parent, revision));
        Trial::of(parents)
    }

    /// Leaves a parent out of the trial.
    fn excuse(&self, stint: &Stint, parent: &ObjectId) {
        if stint.trial.lock().excuse(parent) {
            self.shared.trials.notify_one();
        }
    }

    /// Watches what is needed now that the inventory is another.
    pub fn watch_anew(&self) {
        self.slot.look(|newest, others| self.watch(newest, others));
    }

    fn watch(&self, newest: &Serving, others: &[Arc<Stint>]) {
        let once_made = self.shared.inventory.of(&self.name);
        let others = others.iter().map(|stint| &stint.serving);
        let interest = interest::interest(&self.name, &self.parent, newest, others, &once_made);
        self.registration.update(interest);
    }

    /// Runs one pass for a parent and says when the next one comes.
    ///
    /// Never fails: whatever goes wrong is a condition on the parent, and in the answer.
    pub async fn pass(&self, parent: &ObjectId, turn: Turn) -> Next {
        let span = info_span!("pass", plugin = %self.name, %parent);
        let begin = Instant::now();
        self.ledger.lock().begin(parent, turn.changed);
        let next = self.run(parent, turn).instrument(span.clone()).await;
        span.in_scope(|| debug!(?next, elapsed = ?begin.elapsed(), "pass ended"));
        if next == Next::Forget {
            self.ledger.lock().forget(parent);
        } else {
            self.ledger
                .lock()
                .passed(parent, Instant::now(), next.word());
        }
        self.slot
            .settle(|newest, others| self.watch(newest, others));
        next
    }

    async fn run(&self, id: &ObjectId, turn: Turn) -> Next {
        // Observe.
        let (stint, observed) = self.observe(id).await;
        let observation = match observed {
            Observed::Ready(observation) => observation,
            Observed::Gone => {
                self.excuse(&stint, id);
                stint.memory.forget(id);
                stint.given_up.forget(id);
                return Next::Forget;
            }
            Observed::Behind { until } => {
                return Next::Again(until.saturating_duration_since(Instant::now()));
            }
            Observed::NotReady { parent, waiting } => {
                let parent = parent.filter(|parent| self.may_be_told(&stint.serving, parent));
                return self.wait(parent.as_ref(), &waiting, turn).await;
            }
        };
        if let Some(change) = stint.begin_pass() {
            self.metrics.took_over(change.elapsed());
        }
        stint.begin_trial(|| self.registration.parents());
        let serving = &stint.serving;
        let (phase, own_reads) = match self.enter(&stint, &observation, turn).await {
            Ok(entered) => entered,
            Err(next) => return next,
        };
        let Some(hash_key) = self.shared.hash_key.get() else {
            return self
                .stop(&observation, hash_key_missing(), Next::Backoff)
                .await;
        };

        let inputs = self.inputs(serving, &hash_key, &observation, phase);
        if let Some(inputs) = &inputs
            && let Some(next) = self.recall(&stint, &observation, inputs, &own_reads)
        {
            return next;
        }

        // Call, check.
        let asked = self.ask(&stint, &observation, phase, &own_reads, turn);
        let (outcome, reads) = match asked.await {
            Ok(answer) => answer,
            Err(next) => return next,
        };

        // Plan, apply, report, requeue.
        let manager = serving.manager(&self.name);
        let context = self.context(serving, &manager, &observation.parent, phase, &hash_key);
        let ended = match &*outcome {
            Outcome::Desired(desired) => {
                self.converge(&observation, &context, &outcome, &desired.report)
                    .await
            }
            Outcome::Keep(report) => self.keep(&observation, phase, report).await,
            Outcome::Finalized(report) => {
                self.finalize(&observation, &context, &outcome, report)
                    .await
            }
        };
        if let (Some(inputs), Some(reads)) = (inputs, reads)
            && ended.is_repeatable()
        {
            let next = ended.next.clone();
            stint.memory.remember(id, inputs, &reads, next);
        }
        ended.next
    }

    /// What a plan is made for.
    fn context<'a>(
        &'a self,
        serving: &'a Serving,
        manager: &'a str,
        parent: &'a Object,
        phase: Phase,
        hash_key: &'a HashKey,
    ) -> plan::Context<'a> {
        plan::Context {
            plugin: &self.name,
            manager,
            manifest: serving.plugin.manifest(),
            hash_key,
            parent,
            phase,
            resources: &*self.shared.resources,
            adoptable: &serving.adoptable,
        }
    }

    /// What a pass runs with, and what it observes with it.
    async fn observe(&self, id: &ObjectId) -> (Arc<Stint>, Observed) {
        loop {
            let stint = self.slot.current();
            let observed = self.registration.observe(id).await;
            // Otherwise it was switched meanwhile, and this may be what another revision needs to see.
            if self.slot.is_current(&stint) {
                return (stint, observed);
            }
        }
    }

    /// Calls the guest and checks its answer; when there is none to act on, says so on the parent and when the next
    /// pass comes.
    async fn ask(
        &self,
        stint: &Stint,
        observation: &Observation,
        phase: Phase,
        own_reads: &Recording,
        turn: Turn,
    ) -> Result<(Checked<Outcome>, Option<ReadsMade>), Next> {
        let Stint {
            serving,
            faults,
            trial,
            given_up,
            ..
        } = stint;
        if phase == Phase::Reconcile
            && let Some(synced) = given_up.said_of(&observation.parent)
        {
            return Err(self.stop(observation, synced, Next::UntilChanged).await);
        }
        let called = self.call(serving, observation, phase, own_reads).await;
        let Called { end, reads } = called.map_err(|error| {
            // An error of the host, such as code that it cannot map again: the guest has not run, so that nothing is
            // counted against the parent or the revision. If a guest thread is gone, the owner of the pool ends the
            // process.
            warn!(error = %error_chain(&error), "failed to call the plugin");
            Next::Backoff
        })?;
        let parent = observation.parent.id();
        let answer = self.check(serving, &parent, phase, end);
        if let Some(ended) = answer.first_pass() {
            let faulted = matches!(ended, FirstPass::Faulted { .. });
            if let FirstPass::Faulted { reason, message } = &ended {
                faults.fetch_add(1, Ordering::Relaxed);
                let now = (self.shared.now)();
                self.recent_faults.add(&parent, reason, message, now);
            }
            let revision = serving.plugin.revision();
            self.ledger.lock().answered(&parent, revision, faulted);
            if trial.lock().record(&parent, ended) {
                self.shared.trials.notify_one();
            }
        }
        match answer {
            Answer::Outcome(outcome) => Ok((outcome, reads)),
            Answer::Fault(fault) => {
                self.metrics.fault(&plan::fault_condition(&fault).reason);
                if (fault.kind, phase) == (FaultKind::Fatal, Phase::Reconcile) {
                    given_up.add(&observation.parent, plan::fault_condition(&fault));
                }
                Err(self.stop_by_guest(observation, &fault, phase).await)
            }
            Answer::Refused { reason, message } => {
                self.metrics.fault(reason);
                let synced = not_synced(reason, message);
                Err(self.stop(observation, synced, Next::Backoff).await)
            }
            Answer::Parked(kind) => {
                let parent = Some(&observation.parent);
                Err(self.park(parent, &kind.to_string(), turn).await)
            }
        }
    }

    /// The guest leaves the children as they are.
    async fn keep(&self, observation: &Observation, phase: Phase, report: &Report) -> Ended {
        let next = match (phase, asked(report)) {
            // A finalizer that stays without a date is looked at again.
            (Phase::Finalize, None) => Next::Backoff,
            (_, next) => next.unwrap_or(Next::Settled),
        };
        let parent = &observation.parent;
        let applied = plan::synced(ConditionStatus::True, reason::APPLIED, "");
        let verdict = Verdict::of_report(report, applied, next);
        self.report(&mut self.target(parent), parent, verdict).await
    }

    /// Ends a pass without touching children, status or `Ready`.
    async fn stop(&self, observation: &Observation, synced: Condition, next: Next) -> Next {
        self.say_of_host(&observation.parent, synced, next).await
    }

    /// Says what the host has to say of a parent, and nothing else.
    async fn say_of_host(&self, parent: &Object, synced: Condition, next: Next) -> Next {
        let verdict = Verdict::of_host(synced, next);
        let mut target = self.target(parent);
        self.report(&mut target, parent, verdict).await.next
    }

    /// The guest said that it could not answer.
    async fn stop_by_guest(&self, observation: &Observation, fault: &Fault, phase: Phase) -> Next {
        let next = match (fault.kind, phase) {
            (FaultKind::Retry, _) | (_, Phase::Finalize) => Next::Backoff,
            (FaultKind::Invalid | FaultKind::Fatal, Phase::Reconcile) => Next::UntilChanged,
        };
        let synced = plan::fault_condition(fault);
        let verdict = match &fault.report {
            Some(report) => Verdict::of_report(report, synced, next),
            None => Verdict::of_host(synced, next),
        };
        let parent = &observation.parent;
        let mut target = self.target(parent);
        self.report(&mut target, parent, verdict).await.next
    }

    fn target(&self, parent: &Object) -> Target {
        Target::new(parent, &self.shared.resource_of(parent))
    }
}

/// When the guest asked for the next pass, if it did.
fn asked(report: &Report) -> Option<Next> {
    let after = Duration::from_millis(report.requeue_after_ms?);
    Some(Next::RequeueAfter(after.max(REQUEUE_MIN)))
}

fn not_synced(reason: &'static str, message: impl Into<String>) -> Condition {
    plan::synced(ConditionStatus::False, reason, message)
}

fn hash_key_missing() -> Condition {
    not_synced(
        reason::HASH_KEY_MISSING,
        "the Secret with the cluster's hash key is gone: restore it; a new key would change every hash, see the host's log",
    )
}
