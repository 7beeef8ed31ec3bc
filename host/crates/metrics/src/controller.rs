//! One controller's metrics: queue and passes.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use prometheus_client::registry::Registry;

use super::{Counters, Gauges, Histograms, Labels, Registrar};

/// Metric families for controllers; clones share the values.
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

/// The result of a pass, with the label values from controller-runtime.
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

/// One controller's metrics; clones share the values.
#[derive(Clone)]
pub struct ControllerMetrics {
    families: ControllerFamilies,
    name: Arc<str>,
    running: Arc<Mutex<RunningPasses>>,
}

/// The running passes by a number that is never reused.
#[derive(Default)]
struct RunningPasses {
    next_number: u64,
    started: BTreeMap<u64, Instant>,
}

/// A running pass.
///
/// It counts as running until [`end`](Self::end) is called or it is dropped; only `end` counts it as a finished pass.
pub struct RunningPass {
    metrics: ControllerMetrics,
    number: u64,
    started: Instant,
}

impl ControllerMetrics {
    pub(super) fn new(families: &ControllerFamilies, name: &str, workers_max: usize) -> Self {
        let metrics = Self {
            families: families.clone(),
            name: Arc::from(name),
            running: Arc::default(),
        };
        let label = metrics.controller();
        families
            .workers_max
            .get_or_create_owned(&label)
            .set(i64::try_from(workers_max).unwrap_or(i64::MAX));
        families.active_workers.get_or_create_owned(&label).set(0);
        // Created at zero: without a first value, an alert on the rate would miss the first error.
        families.reconcile_errors.get_or_create_owned(&label);
        metrics.depth(0);
        metrics
    }

    /// Returns the controller's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts accepted triggers, and sets how many parents wait.
    pub fn triggered(&self, count: usize, depth: usize) {
        self.families
            .queue_adds
            .get_or_create_owned(&self.queue())
            .inc_by(u64::try_from(count).unwrap_or(u64::MAX));
        self.depth(depth);
    }

    /// Counts the start of a pass: `waited` is how long the parent was queued, `depth` how many parents still wait.
    pub fn begin(&self, waited: Duration, depth: usize) -> RunningPass {
        let families = &self.families;
        families
            .queue_seconds
            .get_or_create_owned(&self.queue())
            .observe(waited.as_secs_f64());
        self.depth(depth);
        let controller = self.controller();
        families
            .active_workers
            .get_or_create_owned(&controller)
            .inc();
        let started = Instant::now();
        let mut running = self.running.lock();
        // By number, because two passes may start at the same instant.
        let number = running.next_number;
        running.next_number += 1;
        running.started.insert(number, started);
        RunningPass {
            metrics: self.clone(),
            number,
            started,
        }
    }

    /// Returns how long the running passes have taken, in total and for the longest.
    pub fn unfinished(&self) -> (Duration, Duration) {
        let now = Instant::now();
        let mut sum = Duration::ZERO;
        let mut longest = Duration::ZERO;
        for started in self.running.lock().started.values() {
            // A pass may start between `now` and the lock.
            let age = now.saturating_duration_since(*started);
            sum += age;
            longest = longest.max(age);
        }
        (sum, longest)
    }

    /// Returns how many parents are queued.
    pub fn waiting(&self) -> u64 {
        let gauge = self.families.queue_depth.get_or_create_owned(&self.queue());
        u64::try_from(gauge.get()).unwrap_or_default()
    }

    /// Returns how many passes are running.
    pub fn running(&self) -> usize {
        self.running.lock().started.len()
    }

    fn depth(&self, depth: usize) {
        self.families
            .queue_depth
            .get_or_create_owned(&self.queue())
            .set(i64::try_from(depth).unwrap_or(i64::MAX));
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
        let seconds = self.started.elapsed().as_secs_f64();
        let [name] = controller.clone();
        let labels = [name, ("result", result.to_string())];
        families.reconciles.get_or_create_owned(&labels).inc();
        // Twice: dashboards for controller-runtime and for client-go's workqueue use different names.
        families
            .reconcile_seconds
            .get_or_create_owned(&controller)
            .observe(seconds);
        families
            .work_seconds
            .get_or_create_owned(&queue)
            .observe(seconds);
        if result == PassResult::Error {
            families
                .reconcile_errors
                .get_or_create_owned(&controller)
                .inc();
            families.queue_retries.get_or_create_owned(&queue).inc();
        }
    }
}

impl Drop for RunningPass {
    fn drop(&mut self) {
        // Here and not in `end`, which a cancelled or panicking pass never calls.
        self.metrics.running.lock().started.remove(&self.number);
        let controller = self.metrics.controller();
        self.metrics
            .families
            .active_workers
            .get_or_create_owned(&controller)
            .dec();
    }
}
