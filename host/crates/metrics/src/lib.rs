//! All metrics of the process and their labels.
//!
//! Other modules report events through the handles of this crate, which alone knows names, labels and units.
//! This crate serves nothing: `admin` serves the text.
//! Metrics that controller-runtime and client-go also have use the same names, so that existing dashboards and alerts
//! work unchanged.
//! Values that another module holds anyway, such as the state of watches, are read from a [`SampleSource`] at each scrape.

mod controller;
mod labels;
mod scrape;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

pub use controller::{ControllerMetrics, PassResult, RunningPass};
pub use scrape::{PluginSample, Sample, SampleSource, WatchSample};

use labels::{
    ControllerLabels, ControllerResultLabels, LeaseLabels, PluginConditionLabels, PluginLabels,
    PluginReasonLabels, PluginVerbLabels, QueueLabels, RequestLabels,
};

/// The content type of the text of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Histogram buckets for passes and waits, in seconds.
///
/// The range follows the buckets of controller-runtime, reduced to the durations that this host can show.
const SECONDS: [f64; 17] = [
    0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 600.0,
];

/// Histogram buckets for guest calls, in seconds: from well below a usual call to the longest deadline.
const CALL_SECONDS: [f64; 13] = [
    0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0,
    10.0,
];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// All metrics of the process.
pub struct Metrics {
    registry: Mutex<Registry>,
    families: Families,
    /// The condition types with a gauge, by plugin.
    conditions: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

/// The metric families; a clone shares the values.
#[derive(Clone)]
struct Families {
    reconciles: Family<ControllerResultLabels, Counter>,
    reconcile_errors: Family<ControllerLabels, Counter>,
    reconcile_seconds: Histograms<ControllerLabels>,
    active_workers: Family<ControllerLabels, Gauge>,
    workers_max: Family<ControllerLabels, Gauge>,
    queue_depth: Family<QueueLabels, Gauge>,
    queue_adds: Family<QueueLabels, Counter>,
    queue_retries: Family<QueueLabels, Counter>,
    queue_seconds: Histograms<QueueLabels>,
    work_seconds: Histograms<QueueLabels>,
    requests: Family<RequestLabels, Counter>,
    leader: Family<LeaseLabels, Gauge>,
    faults: Family<PluginReasonLabels, Counter>,
    skips: Family<PluginLabels, Counter>,
    writes: Family<PluginVerbLabels, Counter>,
    call_seconds: Histograms<PluginLabels>,
    event_to_write: Histograms<PluginLabels>,
    swaps: Family<PluginLabels, Counter>,
    swap_seconds: Histograms<PluginLabels>,
    conflicts: Family<PluginLabels, Counter>,
    conditions: Family<PluginConditionLabels, Gauge>,
    memory_peak: Family<PluginLabels, Gauge>,
    memory_waits: Family<PluginLabels, Counter>,
    log_dropped: Family<PluginLabels, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers all families, without values.
    pub fn new() -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(SECONDS);
        let families = Families {
            reconciles: Family::default(),
            reconcile_errors: Family::default(),
            reconcile_seconds: Family::new_with_constructor(seconds),
            active_workers: Family::default(),
            workers_max: Family::default(),
            queue_depth: Family::default(),
            queue_adds: Family::default(),
            queue_retries: Family::default(),
            queue_seconds: Family::new_with_constructor(seconds),
            work_seconds: Family::new_with_constructor(seconds),
            requests: Family::default(),
            leader: Family::default(),
            faults: Family::default(),
            skips: Family::default(),
            writes: Family::default(),
            call_seconds: Family::new_with_constructor(|| Histogram::new(CALL_SECONDS)),
            event_to_write: Family::new_with_constructor(seconds),
            swaps: Family::default(),
            swap_seconds: Family::new_with_constructor(seconds),
            conflicts: Family::default(),
            conditions: Family::default(),
            memory_peak: Family::default(),
            memory_waits: Family::default(),
            log_dropped: Family::default(),
        };
        let mut registry = Registry::default();
        families.register(&mut registry);
        Self {
            registry: Mutex::new(registry),
            families,
            conditions: Mutex::default(),
        }
    }

    /// Adds a source that is read at each scrape.
    pub fn add_source(&self, source: Arc<dyn SampleSource>) {
        let collector = scrape::Collector::new(source);
        self.registry.lock().register_collector(Box::new(collector));
    }

    /// Returns all metrics as OpenMetrics text.
    /// Fails only if a value of a source cannot be encoded.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }

    /// Returns the handle of one controller; `name` is plugin and kind.
    pub fn controller(&self, name: &str, workers_max: usize) -> ControllerMetrics {
        ControllerMetrics::new(&self.families, name, workers_max)
    }

    /// Returns the handle of one plugin.
    pub fn plugin(&self, name: &str) -> PluginMetrics {
        PluginMetrics {
            families: self.families.clone(),
            plugin: PluginLabels {
                plugin: name.to_owned(),
            },
        }
    }

    /// Counts a request to the API server; `code` is `<error>` if there was no response.
    pub fn request(&self, method: &str, code: &str) {
        let label = RequestLabels {
            code: code.to_owned(),
            method: method.to_owned(),
        };
        self.families.requests.get_or_create_owned(&label).inc();
    }

    /// Sets the conditions of a Plugin resource.
    pub fn plugin_conditions<'a>(
        &self,
        plugin: &str,
        conditions: impl IntoIterator<Item = (&'a str, bool)>,
    ) {
        let mut shown = self.conditions.lock();
        let shown = shown.entry(plugin.to_owned()).or_default();
        for (condition, holds) in conditions {
            shown.insert(condition.to_owned());
            let label = PluginConditionLabels {
                plugin: plugin.to_owned(),
                condition: condition.to_owned(),
            };
            let gauge = self.families.conditions.get_or_create_owned(&label);
            gauge.set(i64::from(holds));
        }
    }

    /// Removes the conditions of a deleted Plugin resource.
    pub fn plugin_gone(&self, plugin: &str) {
        let shown = self.conditions.lock().remove(plugin);
        for condition in shown.into_iter().flatten() {
            self.families.conditions.remove(&PluginConditionLabels {
                plugin: plugin.to_owned(),
                condition,
            });
        }
    }

    /// Sets whether this process holds the lease.
    pub fn leads(&self, lease: &str, leads: bool) {
        let label = LeaseLabels {
            name: lease.to_owned(),
        };
        let gauge = self.families.leader.get_or_create_owned(&label);
        gauge.set(i64::from(leads));
    }
}

/// The metrics of one plugin, over all its kinds and revisions.
#[derive(Clone)]
pub struct PluginMetrics {
    families: Families,
    plugin: PluginLabels,
}

impl PluginMetrics {
    /// Counts a finished guest call, successful or not; `waited_for_memory` is true if it waited for guest memory.
    pub fn called(&self, cpu: Duration, memory_peak_bytes: usize, waited_for_memory: bool) {
        let seconds = self.families.call_seconds.get_or_create_owned(&self.plugin);
        seconds.observe(cpu.as_secs_f64());
        let peak = self.families.memory_peak.get_or_create_owned(&self.plugin);
        let bytes = i64::try_from(memory_peak_bytes).unwrap_or(i64::MAX);
        // Race: another call may raise the gauge between `get` and `set`, and this lower value then overwrites it.
        // A later call with a higher peak corrects the gauge, so no lock is needed.
        if bytes > peak.get() {
            peak.set(bytes);
        }
        if waited_for_memory {
            let waits = self.families.memory_waits.get_or_create_owned(&self.plugin);
            waits.inc();
        }
    }

    /// Counts a fault by the reason in the parent's condition.
    pub fn fault(&self, reason: &str) {
        let label = PluginReasonLabels {
            plugin: self.plugin.plugin.clone(),
            reason: reason.to_owned(),
        };
        self.families.faults.get_or_create_owned(&label).inc();
    }

    /// Counts a pass without a guest call, because its inputs were those of the previous pass.
    pub fn skipped(&self) {
        self.families.skips.get_or_create_owned(&self.plugin).inc();
    }

    /// Counts a write for one of its parents that the API server accepted.
    pub fn wrote(&self, verb: &str) {
        let label = PluginVerbLabels {
            plugin: self.plugin.plugin.clone(),
            verb: verb.to_owned(),
        };
        self.families.writes.get_or_create_owned(&label).inc();
    }

    /// Records the time from the observation of a change (of a parent, a child or a related object) to the first write
    /// for it that the API server accepted.
    pub fn reacted(&self, after: Duration) {
        let seconds = self
            .families
            .event_to_write
            .get_or_create_owned(&self.plugin);
        seconds.observe(after.as_secs_f64());
    }

    /// Counts a swap of the active revision, or of its grants or limits.
    pub fn swapped(&self) {
        self.families.swaps.get_or_create_owned(&self.plugin).inc();
    }

    /// Records the time from the observation of a change of the Plugin to the first pass with its result.
    pub fn took_over(&self, after: Duration) {
        let seconds = self.families.swap_seconds.get_or_create_owned(&self.plugin);
        seconds.observe(after.as_secs_f64());
    }

    /// Counts a child that another field manager keeps changing, and that the host restores less often from now on.
    pub fn contested(&self) {
        let conflicts = self.families.conflicts.get_or_create_owned(&self.plugin);
        conflicts.inc();
    }

    /// Counts dropped log lines of the guest.
    pub fn log_dropped(&self, lines: u64) {
        let dropped = self.families.log_dropped.get_or_create_owned(&self.plugin);
        dropped.inc_by(lines);
    }
}

impl Families {
    fn register(&self, registry: &mut Registry) {
        self.register_controllers(registry);
        self.register_plugins(registry);
    }

    fn register_controllers(&self, registry: &mut Registry) {
        let reconciles = registry.sub_registry_with_prefix("controller_runtime");
        reconciles.register(
            "reconcile",
            "Passes per controller, by result",
            self.reconciles.clone(),
        );
        reconciles.register(
            "reconcile_errors",
            "Failed passes per controller",
            self.reconcile_errors.clone(),
        );
        reconciles.register(
            "reconcile_time_seconds",
            "Duration of passes",
            self.reconcile_seconds.clone(),
        );
        reconciles.register(
            "active_workers",
            "Running passes",
            self.active_workers.clone(),
        );
        reconciles.register(
            "max_concurrent_reconciles",
            "Maximum number of concurrent passes",
            self.workers_max.clone(),
        );
        let queue = registry.sub_registry_with_prefix("workqueue");
        queue.register("depth", "Queued parents", self.queue_depth.clone());
        queue.register("adds", "Accepted triggers", self.queue_adds.clone());
        queue.register(
            "retries",
            "Passes queued again after a failure",
            self.queue_retries.clone(),
        );
        queue.register(
            "queue_duration_seconds",
            "Time of parents in the queue until their pass starts",
            self.queue_seconds.clone(),
        );
        queue.register(
            "work_duration_seconds",
            "Duration of passes",
            self.work_seconds.clone(),
        );
        registry.register(
            "rest_client_requests",
            "Requests to the API server, by method and status",
            self.requests.clone(),
        );
        registry.register(
            "leader_election_master_status",
            "1 if this process holds the lease, else 0",
            self.leader.clone(),
        );
    }

    fn register_plugins(&self, registry: &mut Registry) {
        let plugins = registry.sub_registry_with_prefix("innkeeper_plugin");
        plugins.register(
            "faults",
            "Faults of the plugin, by reason",
            self.faults.clone(),
        );
        plugins.register(
            "passes_skipped",
            "Passes without a guest call, because the inputs were unchanged",
            self.skips.clone(),
        );
        plugins.register(
            "writes",
            "Writes for the plugin's parents, by verb",
            self.writes.clone(),
        );
        plugins.register(
            "call_cpu_seconds",
            "CPU time of the guest per call",
            self.call_seconds.clone(),
        );
        plugins.register(
            "event_to_write_seconds",
            "Time from the observation of a change to the first write of the pass for it",
            self.event_to_write.clone(),
        );
        plugins.register(
            "swaps",
            "Swaps of revision, grants or limits while the plugin served, per parent kind",
            self.swaps.clone(),
        );
        plugins.register(
            "swap_seconds",
            "Time from the observation of a change of the Plugin to the first pass with its result, per parent kind",
            self.swap_seconds.clone(),
        );
        plugins.register(
            "conflicts",
            "Children that another field manager keeps changing and that the host restores less often",
            self.conflicts.clone(),
        );
        plugins.register(
            "condition",
            "1 if the condition of the Plugin resource is True, else 0",
            self.conditions.clone(),
        );
        plugins.register(
            "memory_peak_bytes",
            "Peak memory of a single guest call, in bytes",
            self.memory_peak.clone(),
        );
        plugins.register(
            "memory_waits",
            "Guest calls that waited for guest memory",
            self.memory_waits.clone(),
        );
        plugins.register(
            "log_lines_dropped",
            "Log lines of the guest dropped because of its limits",
            self.log_dropped.clone(),
        );
    }
}

#[cfg(test)]
mod tests;
