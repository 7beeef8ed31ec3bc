//! The metrics of one controller: its queue and its passes.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use prometheus_client::registry::Registry;

use super::{Counters, Gauges, Histograms, Labels, Registrar};

/// The metric families of controllers; a clone shares the values.
#[derive(Clone)]
pub(super) struct ControllerFamilies {
    reconciles: Counters<2>,
    reconcile_errors: Counters<1>,
    reconcile_seconds: Histograms<1>,
    active_workers: Gauges<1>,
    workers_max: Gauges<1>,
    queue_depth: Gauges<1>,
    queue_adds: Counters<1>,
    queue_retries: Counters<1>,
    queue_seconds: Histograms<1>,
    work_seconds: Histograms<1>,
}

impl ControllerFamilies {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let mut passes = Registrar::new(registry, "controller_runtime");
        let reconciles = passes.family(
            "reconcile",
            "Passes by result: success, requeue_after, requeue or error",
        );
        let reconcile_errors = passes.family("reconcile_errors", "Failed passes");
        let reconcile_seconds = passes.seconds("reconcile_time_seconds", "Duration of a pass");
        let active_workers = passes.family("active_workers", "Running passes");
        let workers_max = passes.family(
            "max_concurrent_reconciles",
            "Most passes that run at the same time",
        );
        let mut queue = Registrar::new(registry, "workqueue");
        Self {
            reconciles,
            reconcile_errors,
            reconcile_seconds,
            active_workers,
            workers_max,
            queue_depth: queue.family("depth", "Parents that wait for their pass"),
            queue_adds: queue.family("adds", "Received triggers"),
            queue_retries: queue.family("retries", "Passes that were requested after a failure"),
            queue_seconds: queue.seconds(
                "queue_duration_seconds",
                "Time that a queued parent waits for its pass",
            ),
            work_seconds: queue.seconds("work_duration_seconds", "Duration of a pass"),
        }
    }
}

/// The result of a pass, with the label values of controller-runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum PassResult {
    /// The pass succeeded; the next one runs after a change.
    Success,
    /// The pass succeeded, and the guest requested another one after a delay.
    RequeueAfter,
    /// The pass could not run yet.
    Requeue,
    /// The pass failed.
    Error,
}

/// The metrics of one controller; clones share them.
#[derive(Clone)]
pub struct ControllerMetrics {
    families: ControllerFamilies,
    name: Arc<str>,
    began: Arc<Mutex<Began>>,
}

/// The start times of the running passes, by a number that is never reused.
#[derive(Default)]
struct Began {
    next: u64,
    passes: BTreeMap<u64, Instant>,
}

/// A running pass.
///
/// It counts as running until [`end`](Self::end) is called or it is dropped; only `end` counts it as a finished pass.
pub struct RunningPass {
    metrics: ControllerMetrics,
    number: u64,
    began: Instant,
}

impl ControllerMetrics {
    pub(super) fn new(families: &ControllerFamilies, name: &str, workers_max: usize) -> Self {
        let metrics = Self {
            families: families.clone(),
            name: Arc::from(name),
            began: Arc::default(),
        };
        let label = metrics.controller();
        let workers = families.workers_max.get_or_create_owned(&label);
        workers.set(i64::try_from(workers_max).unwrap_or(i64::MAX));
        families.active_workers.get_or_create_owned(&label).set(0);
        // Created at zero: without a first value, the rate over the first error would be unknown to an alert.
        families.reconcile_errors.get_or_create_owned(&label);
        metrics.depth(0);
        metrics
    }

    /// Returns the controller's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts accepted triggers, and sets the number of waiting parents.
    pub fn triggered(&self, count: usize, depth: usize) {
        let adds = self.families.queue_adds.get_or_create_owned(&self.queue());
        adds.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
        self.depth(depth);
    }

    /// Counts the start of a pass: `waited` is the time of its parent in the queue, `depth` the number of parents that
    /// still wait.
    pub fn begin(&self, waited: Duration, depth: usize) -> RunningPass {
        let families = &self.families;
        let queued = families.queue_seconds.get_or_create_owned(&self.queue());
        queued.observe(waited.as_secs_f64());
        self.depth(depth);
        let controller = self.controller();
        let active = families.active_workers.get_or_create_owned(&controller);
        active.inc();
        let began = Instant::now();
        let mut passes = self.began.lock();
        let number = passes.next;
        passes.next += 1;
        passes.passes.insert(number, began);
        RunningPass {
            metrics: self.clone(),
            number,
            began,
        }
    }

    /// Returns the run time of the running passes so far: the sum, and that of the longest.
    pub fn unfinished(&self) -> (Duration, Duration) {
        let now = Instant::now();
        let running = self.began.lock();
        let began = running.passes.values();
        let ages = began.map(|began| now.saturating_duration_since(*began));
        ages.fold((Duration::ZERO, Duration::ZERO), |(sum, longest), age| {
            (sum + age, longest.max(age))
        })
    }

    /// Returns the number of queued parents.
    pub fn waiting(&self) -> u64 {
        let gauge = self.families.queue_depth.get_or_create_owned(&self.queue());
        u64::try_from(gauge.get()).unwrap_or_default()
    }

    /// Returns the number of running passes.
    pub fn running(&self) -> usize {
        self.began.lock().passes.len()
    }

    fn depth(&self, depth: usize) {
        let gauge = self.families.queue_depth.get_or_create_owned(&self.queue());
        gauge.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    fn controller(&self) -> Labels<1> {
        [("controller", self.name.to_string())]
    }

    fn queue(&self) -> Labels<1> {
        [("name", self.name.to_string())]
    }
}

impl RunningPass {
    /// Counts the pass as finished.
    pub fn end(self, result: PassResult) {
        let families = &self.metrics.families;
        let controller = self.metrics.controller();
        let queue = self.metrics.queue();
        let seconds = self.began.elapsed().as_secs_f64();
        let [name] = controller.clone();
        let ended = [name, ("result", result.to_string())];
        families.reconciles.get_or_create_owned(&ended).inc();
        let pass = families.reconcile_seconds.get_or_create_owned(&controller);
        pass.observe(seconds);
        let work = families.work_seconds.get_or_create_owned(&queue);
        work.observe(seconds);
        if result == PassResult::Error {
            let errors = families.reconcile_errors.get_or_create_owned(&controller);
            errors.inc();
            families.queue_retries.get_or_create_owned(&queue).inc();
        }
    }
}

impl Drop for RunningPass {
    fn drop(&mut self) {
        self.metrics.began.lock().passes.remove(&self.number);
        let controller = self.metrics.controller();
        let active = &self.metrics.families.active_workers;
        active.get_or_create_owned(&controller).dec();
    }
}
