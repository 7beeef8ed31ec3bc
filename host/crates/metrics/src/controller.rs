//! What one controller measures: its queue and its passes.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    Families,
    labels::{Controller, ControllerResult, Name},
};

/// How a pass ended, in controller-runtime's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassResult {
    /// All is well until something changes.
    Success,
    /// All is well, and another pass was asked for at a time.
    RequeueAfter,
    /// It could not run yet.
    Requeue,
    /// It failed.
    Error,
}

impl PassResult {
    const fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::RequeueAfter => "requeue_after",
            Self::Requeue => "requeue",
            Self::Error => "error",
        }
    }
}

/// The metrics of one controller; clones share them.
#[derive(Clone)]
pub struct ControllerMetrics {
    families: Families,
    name: Arc<str>,
    began: Arc<Mutex<Began>>,
}

/// When the passes that run began, by a number that is never used twice.
#[derive(Default)]
struct Began {
    next: u64,
    passes: BTreeMap<u64, Instant>,
}

/// A pass that runs; says so until it is told how it ended, or dropped.
pub struct Running {
    metrics: ControllerMetrics,
    number: u64,
    began: Instant,
}

impl ControllerMetrics {
    pub(super) fn new(families: &Families, name: &str, workers_max: usize) -> Self {
        let metrics = Self {
            families: families.clone(),
            name: Arc::from(name),
            began: Arc::default(),
        };
        let label = metrics.controller();
        let workers_max = i64::try_from(workers_max).unwrap_or(i64::MAX);
        families
            .workers_max
            .get_or_create_owned(&label)
            .set(workers_max);
        families.active_workers.get_or_create_owned(&label).set(0);
        // Shown from the start: an alert on its rate needs a zero to begin with.
        families.reconcile_errors.get_or_create_owned(&label);
        families
            .queue_depth
            .get_or_create_owned(&metrics.queue())
            .set(0);
        metrics
    }

    /// The controller's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Triggers were taken in, and so many parents wait.
    pub fn triggered(&self, count: usize, depth: usize) {
        let adds = self.families.queue_adds.get_or_create_owned(&self.queue());
        adds.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
        self.depth(depth);
    }

    /// A pass begins, after its parent waited for so long; so many others wait.
    pub fn begin(&self, waited: Duration, depth: usize) -> Running {
        let queued = self
            .families
            .queue_seconds
            .get_or_create_owned(&self.queue());
        queued.observe(waited.as_secs_f64());
        self.depth(depth);
        let active = self
            .families
            .active_workers
            .get_or_create_owned(&self.controller());
        active.inc();
        let began = Instant::now();
        let mut passes = self.began.lock();
        let number = passes.next;
        passes.next += 1;
        passes.passes.insert(number, began);
        Running {
            metrics: self.clone(),
            number,
            began,
        }
    }

    /// For how long the passes that run have been running: all together, and the longest.
    pub fn unfinished(&self) -> (Duration, Duration) {
        let now = Instant::now();
        let running = self.began.lock();
        let ages = running
            .passes
            .values()
            .map(|began| now.saturating_duration_since(*began));
        ages.fold((Duration::ZERO, Duration::ZERO), |(sum, longest), age| {
            (sum + age, longest.max(age))
        })
    }

    /// How many parents wait for a pass that is due.
    pub fn waiting(&self) -> u64 {
        let depth = self
            .families
            .queue_depth
            .get_or_create_owned(&self.queue())
            .get();
        u64::try_from(depth).unwrap_or_default()
    }

    /// How many passes run.
    pub fn running(&self) -> usize {
        self.began.lock().passes.len()
    }

    fn depth(&self, depth: usize) {
        let gauge = self.families.queue_depth.get_or_create_owned(&self.queue());
        gauge.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    fn controller(&self) -> Controller {
        Controller {
            controller: self.name.to_string(),
        }
    }

    fn queue(&self) -> Name {
        Name {
            name: self.name.to_string(),
        }
    }
}

impl Running {
    /// The pass has ended.
    pub fn end(self, result: PassResult) {
        let families = &self.metrics.families;
        let controller = self.metrics.controller();
        let queue = self.metrics.queue();
        let seconds = self.began.elapsed().as_secs_f64();
        let ended = ControllerResult {
            controller: controller.controller.clone(),
            result: result.label(),
        };
        families.reconciles.get_or_create_owned(&ended).inc();
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

impl Drop for Running {
    fn drop(&mut self) {
        self.metrics.began.lock().passes.remove(&self.number);
        let controller = self.metrics.controller();
        let active = &self.metrics.families.active_workers;
        active.get_or_create_owned(&controller).dec();
    }
}
