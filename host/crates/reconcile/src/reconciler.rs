//! The reconciler of one plugin and kind of parent: its active revision, its passes, and the state that is shown of them.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::Stream;
use innkeeper_cluster::{Cause, Registration};
use innkeeper_model::{Gvk, Object, ObjectId, PluginName};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{Instrument, Span, debug, error_span};

use crate::{
    controller::{self, Triggered, Work},
    limits::exceeded::{Bound, Usage},
    next::{Attempt, Next},
    pass,
    pass::context::Context,
    pass::dry_run::{self, Candidate, DryRunOutcome},
    pass::events::EventQueue,
    pass::selection,
    pass::trace::Trace,
    revision::Serving,
    revision::analysis::Analysis,
    revision::epoch::{Active, Epoch},
    revision::faults::{RecentFault, RecentFaults},
    revision::interest::interest,
    shared::Shared,
};

/// Reconciles the parents of one kind with the active revision of a plugin.
pub struct Reconciler {
    parent: Gvk,
    context: Context,
}

impl Reconciler {
    /// Starts the watches for a kind of parent.
    ///
    /// `name` is the name of the Plugin: labels, field managers, finalizer and inventory have it. The name inside the
    /// component is not used.
    pub fn new(name: PluginName, parent: Gvk, serving: Serving, shared: Arc<Shared>) -> Self {
        let once_made = shared.inventory.of(&name);
        let interest = interest(&name, &parent, &serving, [], &once_made);
        let files = shared.pass_files.as_ref();
        let remembered = files.map(|files| files.read(&name, &parent, &serving));
        let active = Active::new(serving);
        active
            .current()
            .memory
            .restore(remembered.unwrap_or_default());
        Self {
            parent,
            context: Context {
                registration: shared.cluster.register(interest),
                metrics: shared.metrics.plugin(name.as_str()),
                plugin: name,
                active,
                ledger: Mutex::default(),
                skipped: AtomicU64::new(0),
                recent_faults: RecentFaults::default(),
                event_queue: EventQueue::default(),
                shared,
            },
        }
    }

    /// Returns the name of the Plugin.
    pub fn plugin(&self) -> &PluginName {
        &self.context.plugin
    }

    /// Returns the kind of parent.
    pub fn parent(&self) -> &Gvk {
        &self.parent
    }

    /// Returns the reader of the plugin for this kind of parent.
    pub fn registration(&self) -> &Registration {
        &self.context.registration
    }

    /// Returns the active revision.
    pub fn serving(&self) -> Serving {
        self.context.active.current().serving.clone()
    }

    /// Returns true if a running pass may make children of this kind; also a pass that began before the last swap.
    pub fn may_make(&self, kind: &Gvk) -> bool {
        let mut may_make = false;
        self.context.active.look(|newest, others| {
            let mut all = others.iter().map(|epoch| &epoch.serving).chain([newest]);
            may_make = all.any(|serving| serving.declares_child(kind));
        });
        may_make
    }

    /// Returns the results of the first passes since the last swap, or since the analysis was restarted.
    pub fn analysis(&self) -> Analysis {
        self.context.active.current().analysis.lock().clone()
    }

    /// Restarts the rollout analysis of the active revision: the next pass of each parent counts as its first.
    pub fn restart_analysis(&self) {
        *self.context.active.current().analysis.lock() = Analysis::unopened();
    }

    /// Activates another revision for every pass that begins from now on, and triggers all parents, the one with the
    /// oldest last pass first.
    ///
    /// `change` is the time of the change that led to the swap, if there is one: the metric of the swap measures from it
    /// to the first pass.
    /// Running passes end as they began, and their reads stay watched until then.
    /// A parent has at most one pass at a time throughout, and no trigger is lost: all wait in the same queue.
    pub fn swap(&self, serving: Serving, change: Option<Instant>) {
        self.context.metrics.swapped();
        let analysis = self.analysis_of(&serving);
        let active = &self.context.active;
        active.switch(serving, change, analysis, |newest, others| {
            self.watch(newest, others);
        });
        // Listed again: a parent that appeared in between may have had its pass before the switch.
        self.trigger_all(Cause::Swapped);
    }

    /// Triggers all parents, the one with the oldest last pass first.
    fn trigger_all(&self, cause: Cause) {
        let registration = self.registration();
        let parents = registration.parents();
        let parents = self.context.ledger.lock().longest_ago_first(parents);
        registration.trigger(parents, cause);
    }

    /// Returns the rollout analysis for a revision that is about to become active.
    fn analysis_of(&self, serving: &Serving) -> Analysis {
        if !self.registration().waiting().is_empty() {
            return Analysis::unopened();
        }
        let revision = serving.plugin.revision();
        Analysis::of(self.context.analysed_parents(revision))
    }

    /// Updates the watches after a change of the inventory.
    pub fn watch_anew(&self) {
        let active = &self.context.active;
        active.look(|newest, others| self.watch(newest, others));
    }

    fn watch(&self, newest: &Serving, others: &[Arc<Epoch>]) {
        let context = &self.context;
        let once_made = context.shared.inventory.of(&context.plugin);
        let others = others.iter().map(|epoch| &epoch.serving);
        let interest = interest(&context.plugin, &self.parent, newest, others, &once_made);
        context.registration.update(interest);
    }

    /// Runs one pass for a parent and returns the time of the next one.
    ///
    /// Never fails: every problem becomes a condition of the parent and decides the next pass.
    pub async fn pass(&self, parent: &ObjectId, attempt: Attempt) -> Next {
        let context = &self.context;
        let trace = Trace::begin(context.shared.tracer.as_ref(), &context.plugin, parent);
        let span = span_of(&context.plugin, parent, &trace);
        let begin = Instant::now();
        context.ledger.lock().begin(parent, attempt.changed);
        let running = context.registration.begin(parent);
        let next = pass::run(context, &running, parent, attempt, &trace)
            .instrument(span.clone())
            .await;
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
        let active = &context.active;
        active.settle(|newest, others| self.watch(newest, others));
        next
    }

    /// Writes the memory of passes into the cache directory if it has changed since the last success. Blocks.
    pub fn keep_passes(&self) -> io::Result<()> {
        let context = &self.context;
        let Some(files) = &context.shared.pass_files else {
            return Ok(());
        };
        let epoch = context.active.current();
        let write = |passes| files.write(&context.plugin, &self.parent, &epoch.serving, passes);
        epoch.memory.keep(write)
    }

    /// Writes the events of passes that begin after this call, until [`end_events`](Self::end_events) is called and all
    /// are written.
    pub fn write_events(&self) -> impl Future<Output = ()> {
        let context = &self.context;
        context.event_queue.write(&context.shared)
    }

    /// Says that all passes have ended.
    pub fn end_events(&self) {
        self.context.event_queue.close();
    }

    /// Starts the watches of a candidate revision.
    pub fn candidate(&self, serving: Serving) -> Candidate {
        let context = &self.context;
        let once_made = context.shared.inventory.of(&context.plugin);
        let interest = interest(&context.plugin, &self.parent, &serving, [], &once_made);
        Candidate::new(serving, context.shared.cluster.register(interest))
    }

    /// Runs a pass of a candidate up to its plan for each of these parents. Parents that wait for a list are tried again
    /// until the time limit.
    ///
    /// The dry run writes nothing, sets no condition, keeps no subscription and moves no counter of the plugin; the log
    /// lines of the guest get the level debug.
    /// Many parents in one call cost less than single calls: a guest thread is dispatched once for a group of them.
    pub fn dry_run<'a>(
        &'a self,
        candidate: &'a Candidate,
        parents: Vec<ObjectId>,
        until: Instant,
    ) -> impl Stream<Item = (ObjectId, DryRunOutcome)> + 'a {
        dry_run::run_all(&self.context, candidate, parents, until)
    }

    /// Returns true if a failure of a candidate for a parent is the candidate's fault: the present generation has passed.
    pub fn has_passed(&self, parent: &ObjectId, candidate: &Candidate) -> bool {
        let revision = candidate.serving().plugin.revision();
        self.context.has_passed(parent, revision)
    }

    /// Returns if the plugin selects a parent, as far as that is known; subscribes to nothing.
    pub fn selects(&self, parent: &Object) -> Option<bool> {
        let epoch = self.context.active.current();
        let host_namespaces = &*self.context.shared.host_namespaces;
        let registration = &self.context.registration;
        selection::selects(&epoch.serving, host_namespaces, registration, parent)
    }

    /// Returns the number of passes of the active revision that ended with a fault of the guest.
    pub fn faults(&self) -> u64 {
        let epoch = self.context.active.current();
        epoch.faults.load(Ordering::Relaxed)
    }

    /// Returns the last faults of the guest, of any revision, the latest first.
    pub fn recent_faults(&self) -> Vec<RecentFault> {
        self.context.recent_faults.all()
    }

    /// Returns the result of a parent's last pass in a word, and its age.
    pub fn last_pass(&self, parent: &ObjectId) -> Option<(&'static str, Duration)> {
        let (at, outcome) = self.context.ledger.lock().last(parent)?;
        Some((outcome, at.elapsed()))
    }

    /// Returns the number of parents, without those that are known not to be selected.
    pub fn parent_count(&self) -> usize {
        let registration = self.registration();
        let serving = &self.context.active.current().serving;
        let host_namespaces = &*self.context.shared.host_namespaces;
        let mut parents = registration.parents();
        parents
            .retain(|id| selection::is_allowed(serving, host_namespaces, id.namespace.as_deref()));
        if !serving.selection.is_all() {
            let parent = |id: &ObjectId| registration.parent(id);
            parents.retain(|id| parent(id).is_some_and(|it| self.selects(&it) != Some(false)));
        }
        parents.len()
    }

    /// Returns the use of the limits of the plugin in the namespaces that have used most of them.
    pub fn usage(&self) -> Vec<Usage> {
        self.context.usage()
    }

    /// Returns a sentence for each namespace that has no room in the cache for all children of the plugin.
    pub fn full_namespaces(&self) -> Vec<String> {
        let full = self.registration().full_namespaces().into_iter();
        full.map(|full| Bound::cache(self.plugin(), &full).sentence())
            .collect()
    }

    /// Returns the number of passes that were skipped because their inputs had not changed.
    pub fn passes_skipped(&self) -> u64 {
        self.context.skipped.load(Ordering::Relaxed)
    }
}

/// Returns the span of a pass, whose fields are on all log lines below it.
///
/// A filter that leaves out the level of a span leaves out its fields, so the level is the one that every filter has.
fn span_of(plugin: &PluginName, parent: &ObjectId, trace: &Trace<'_>) -> Span {
    error_span!("pass", %plugin, %parent, trace_id = trace.id())
}

impl Work for Reconciler {
    async fn triggers(&self) -> Vec<Triggered> {
        controller::triggers(self.registration()).await
    }

    async fn pass(&self, parent: ObjectId, attempt: Attempt) -> Next {
        Self::pass(self, &parent, attempt).await
    }

    /// Repairs changes that made no trigger.
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
        let span = span_of(&plugin, &parent, &Trace::default());
        let metadata = span.metadata().unwrap();
        assert_eq!(*metadata.level(), Level::ERROR);
        let fields: Vec<_> = metadata.fields().iter().map(|field| field.name()).collect();
        assert_eq!(fields, ["plugin", "parent", "trace_id"]);
    }
}
