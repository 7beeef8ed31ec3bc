//! The reconciler for one plugin and parent kind: the active revision, the passes, and their state for the admin server.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::Stream;
use innkeeper_cluster::{Cause, Interest, Registration};
use innkeeper_model::{Gvk, Object, ObjectId, PluginName};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{Instrument, Span, debug, error_span};

use crate::{
    controller::{self, Triggered, Work},
    inventory::Role,
    limits::{
        exceeded::LimitExceeded,
        usage::{Usage, usage},
    },
    next::{Attempt, Next},
    pass::{
        self,
        context::Context,
        dry_run::{self, Candidate, DryRunOutcome},
        events::EventQueue,
        rollout, selection,
        trace::Trace,
    },
    revision::{
        Revision,
        analysis::Analysis,
        epoch::{Epoch, RevisionSlot},
        faults::{RecentFault, RecentFaults},
        interest::interest,
    },
    shared::Shared,
};

/// The pause before a parent whose shard may be given up gets another pass.
const CLAIM_RECHECK: Duration = Duration::from_secs(1);

/// Reconciles the parents of one kind with a plugin's active revision.
pub struct Reconciler {
    parent: Gvk,
    context: Context,
}

impl Reconciler {
    /// Starts the watches for a parent kind.
    ///
    /// `name` is the Plugin's name, which labels, field managers, finalizer and inventory contain, not the component's own.
    pub fn new(name: PluginName, parent: Gvk, revision: Revision, shared: Arc<Shared>) -> Self {
        let recorded_kinds = shared.inventory.kinds(&name, Role::Child);
        let interest = interest(&name, &parent, &revision, [], &recorded_kinds);
        let remembered = shared
            .pass_files
            .as_ref()
            .map(|files| files.read(&name, &parent, &revision.terms()))
            .unwrap_or_default();
        let slot = RevisionSlot::new(revision);
        slot.current().memory.restore(remembered);
        Self {
            parent,
            context: Context {
                registration: shared.cluster.register(interest),
                metrics: shared.metrics.plugin(name.as_str()),
                plugin: name,
                slot,
                ledger: Mutex::default(),
                skipped: AtomicU64::new(0),
                recent_faults: RecentFaults::default(),
                event_queue: EventQueue::default(),
                shared,
            },
        }
    }

    /// Returns the Plugin's name.
    pub fn plugin(&self) -> &PluginName {
        &self.context.plugin
    }

    /// Returns the parent kind.
    pub fn parent(&self) -> &Gvk {
        &self.parent
    }

    /// Returns the plugin's registration for this parent kind.
    pub fn registration(&self) -> &Registration {
        &self.context.registration
    }

    /// Returns the active revision.
    pub fn revision(&self) -> Revision {
        self.context.slot.current().revision.clone()
    }

    /// Returns true if a running pass, even one from before the last swap, may create children of this kind.
    pub fn may_make(&self, kind: &Gvk) -> bool {
        let mut may_make = false;
        self.context.slot.with_epochs(|newest, others| {
            may_make = others
                .iter()
                .map(|epoch| &epoch.revision)
                .chain([newest])
                .any(|revision| revision.declares_child(kind));
        });
        may_make
    }

    /// Returns the rollout analysis since the last swap or restart of the analysis.
    pub fn analysis(&self) -> Analysis {
        self.context.slot.current().analysis.lock().clone()
    }

    /// Restarts the active revision's rollout analysis: each parent's next pass counts as its first.
    pub fn restart_analysis(&self) {
        *self.context.slot.current().analysis.lock() = Analysis::unopened();
    }

    /// Activates another revision for every pass that begins from now on, and triggers all parents, the one with the
    /// oldest last pass first.
    ///
    /// `change` is when the change came that led to the swap: the swap metric measures from it to the first pass.
    /// Running passes end as they began, and their reads stay watched until then.
    /// All triggers wait in the same queue, so none is lost and a parent never has two passes at a time.
    pub fn swap(&self, revision: Revision, change: Option<Instant>) {
        self.context.metrics.swapped();
        // Before the switch: afterwards, first passes may have changed the facts about their parents already.
        let analysis = self.new_analysis(&revision);
        self.context
            .slot
            .switch(revision, change, analysis, |newest, others| {
                self.watch(newest, others);
            });
        // Lists the parents again: one that appeared in between may have had its pass before the switch.
        self.trigger_all(Cause::Swapped);
    }

    /// Triggers all parents, the one with the oldest last pass first.
    fn trigger_all(&self, cause: Cause) {
        let registration = self.registration();
        let mut parents = registration.parents();
        self.context
            .ledger
            .lock()
            .sort_longest_ago_first(&mut parents);
        registration.trigger(parents, cause);
    }

    /// Starts the rollout analysis for a revision that is about to become active.
    fn new_analysis(&self, revision: &Revision) -> Analysis {
        // Before the lists are complete, the cache lacks parents: the first pass that can run starts the analysis.
        if !self.registration().waiting().is_empty() {
            return Analysis::unopened();
        }
        let digest = revision.plugin.revision();
        Analysis::new(rollout::analysed_parents(&self.context, digest))
    }

    /// Updates the watches after the inventory has changed.
    pub fn watch_anew(&self) {
        self.context
            .slot
            .with_epochs(|newest, others| self.watch(newest, others));
    }

    fn watch(&self, newest: &Revision, others: &[Arc<Epoch>]) {
        let others = others.iter().map(|epoch| &epoch.revision);
        let interest = self.interest(newest, others);
        self.context.registration.update(interest);
    }

    fn interest<'a>(
        &self,
        newest: &Revision,
        others: impl IntoIterator<Item = &'a Revision>,
    ) -> Interest {
        let plugin = &self.context.plugin;
        let recorded_kinds = self.context.shared.inventory.kinds(plugin, Role::Child);
        interest(plugin, &self.parent, newest, others, &recorded_kinds)
    }

    /// Runs one pass for a parent and returns the time of the next one.
    ///
    /// Never fails: every problem becomes a condition of the parent and decides the next pass.
    pub async fn pass(&self, parent: &ObjectId, attempt: Attempt) -> Next {
        let context = &self.context;
        let trace = Trace::begin(context.shared.tracer.as_ref(), &context.plugin, parent);
        let span = pass_span(&context.plugin, parent, &trace);
        let begin = Instant::now();
        context.ledger.lock().begin(parent, attempt.changed);
        let running = context.registration.begin(parent);
        let next = pass::run(context, &running, parent, attempt, &trace)
            .instrument(span.clone())
            .await;
        let next = self.without_claim(parent, next);
        drop(running);
        span.in_scope(|| debug!(?next, elapsed = ?begin.elapsed(), "pass ended"));
        trace.end(&next);
        let mut ledger = context.ledger.lock();
        if next == Next::Forget {
            ledger.forget(parent);
        } else {
            ledger.passed(parent, Instant::now(), next.word());
        }
        drop(ledger);
        context
            .slot
            .drop_ended(|newest, others| self.watch(newest, others));
        next
    }

    /// A pass that failed because its shard is given up is no failure: the cache drops the parent and triggers a last
    /// pass. The recheck is for a claim that is only renewed late.
    fn without_claim(&self, parent: &ObjectId, next: Next) -> Next {
        let is_failure = matches!(next, Next::Backoff | Next::BackoffAtLeast(_));
        if is_failure && !self.context.shared.writer_for(parent).may_begin() {
            return Next::RequeueAfter(CLAIM_RECHECK);
        }
        next
    }

    /// Stores the remembered passes in the cache directory if they have changed since the last success. Blocks.
    pub fn keep_passes(&self) -> io::Result<()> {
        let context = &self.context;
        let Some(files) = &context.shared.pass_files else {
            return Ok(());
        };
        let epoch = context.slot.current();
        // From the same epoch as the passes: a swap may come in between.
        let terms = epoch.revision.terms();
        epoch
            .memory
            .store(|passes| files.write(&context.plugin, &self.parent, &terms, passes))
    }

    /// Writes the events of passes that begin after this call, until [`end_events`](Self::end_events) and an empty queue.
    pub fn write_events(&self) -> impl Future<Output = ()> {
        let context = &self.context;
        context.event_queue.write(&context.shared)
    }

    /// Closes the event queue, after all passes have ended.
    pub fn end_events(&self) {
        self.context.event_queue.close();
    }

    /// Starts the watches for a candidate revision.
    pub fn candidate(&self, revision: Revision) -> Candidate {
        let interest = self.interest(&revision, []);
        let registration = self.context.shared.cluster.register(interest);
        Candidate::new(revision, registration)
    }

    /// Runs a candidate's pass up to its plan for each of these parents, and retries until the time limit while a parent
    /// waits for a list.
    ///
    /// The dry run writes nothing, keeps no subscription and changes no counter of the plugin; it logs the guest's lines
    /// at the level debug.
    /// Many parents in one call cost less than single calls, because each group goes to a guest thread at once.
    pub fn dry_run<'a>(
        &'a self,
        candidate: &'a Candidate,
        parents: Vec<ObjectId>,
        until: Instant,
    ) -> impl Stream<Item = (ObjectId, DryRunOutcome)> + 'a {
        dry_run::run_all(&self.context, candidate, parents, until)
    }

    /// Returns true if the parent's generation has passed, so that a failure is the candidate's fault.
    pub fn has_passed(&self, parent: &ObjectId, candidate: &Candidate) -> bool {
        let digest = candidate.revision().plugin.revision();
        rollout::has_passed(&self.context, parent, digest)
    }

    /// Returns whether the plugin selects a parent, `None` while that is unknown; subscribes to nothing.
    pub fn selects(&self, parent: &Object) -> Option<bool> {
        let epoch = self.context.slot.current();
        let host_namespaces = &self.context.shared.host_namespaces;
        let registration = &self.context.registration;
        selection::selects(&epoch.revision, host_namespaces, registration, parent)
    }

    /// Returns how many passes with the active revision ended with a guest fault.
    pub fn faults(&self) -> u64 {
        let epoch = self.context.slot.current();
        epoch.faults.load(Ordering::Relaxed)
    }

    /// Returns the guest's last faults with any revision, latest first.
    pub fn recent_faults(&self) -> Vec<RecentFault> {
        self.context.recent_faults.all()
    }

    /// Returns the result of a parent's last pass in a word, and how long ago it ended.
    pub fn last_pass(&self, parent: &ObjectId) -> Option<(&'static str, Duration)> {
        let (at, outcome) = self.context.ledger.lock().last(parent)?;
        Some((outcome, at.elapsed()))
    }

    /// Returns the number of parents, except those that the plugin certainly does not select.
    pub fn parent_count(&self) -> usize {
        let registration = self.registration();
        let revision = &self.context.slot.current().revision;
        let host_namespaces = &self.context.shared.host_namespaces;
        let is_counted = |id: &ObjectId| {
            selection::is_allowed(revision, host_namespaces, id.namespace.as_deref())
                && (revision.selection.is_all()
                    || registration
                        .parent(id)
                        .is_some_and(|parent| self.selects(&parent) != Some(false)))
        };
        registration
            .parents()
            .iter()
            .filter(|id| is_counted(id))
            .count()
    }

    /// Returns the use of the plugin's limits in the namespaces that have used most of them.
    pub fn usage(&self) -> Vec<Usage> {
        let context = &self.context;
        let revision = &context.slot.current().revision;
        usage(
            &context.plugin,
            revision.plugin.manifest(),
            &revision.limits,
            &context.shared.namespace_budgets,
            &context.registration,
        )
    }

    /// Returns a sentence for each namespace whose children exceed the plugin's share of the cache.
    pub fn full_namespaces(&self) -> Vec<String> {
        self.registration()
            .full_namespaces()
            .iter()
            .map(|full| LimitExceeded::cache(self.plugin(), full).sentence())
            .collect()
    }

    /// Returns how many passes were skipped because their inputs had not changed.
    pub fn passes_skipped(&self) -> u64 {
        self.context.skipped.load(Ordering::Relaxed)
    }
}

/// Returns a pass's span, whose fields are on all log lines.
///
/// A log filter that drops a span's level drops the fields too, so the span has the level that every filter keeps.
fn pass_span(plugin: &PluginName, parent: &ObjectId, trace: &Trace<'_>) -> Span {
    error_span!("pass", %plugin, %parent, trace_id = trace.id())
}

impl Work for Reconciler {
    async fn triggers(&self) -> Vec<Triggered> {
        controller::triggers(self.registration()).await
    }

    async fn pass(&self, parent: ObjectId, attempt: Attempt) -> Next {
        Self::pass(self, &parent, attempt).await
    }

    fn resync(&self) {
        self.trigger_all(Cause::Resync);
    }
}

#[cfg(test)]
mod tests {
    use innkeeper_model::GroupKind;
    use tracing::Level;

    use super::*;

    #[test]
    fn log_lines_of_every_level_name_plugin_and_parent() {
        let plugin = PluginName::new("web").unwrap();
        let parent = ObjectId::new(GroupKind::new("example.com", "Web"), Some("demo"), "a");
        let span = pass_span(&plugin, &parent, &Trace::default());
        let metadata = span.metadata().unwrap();
        assert_eq!(*metadata.level(), Level::ERROR);
        let fields: Vec<_> = metadata.fields().iter().map(|field| field.name()).collect();
        assert_eq!(fields, ["plugin", "parent", "trace_id"]);
    }
}
