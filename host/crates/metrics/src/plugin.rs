//! One plugin's metrics, over all kinds and revisions.

use std::time::Duration;

use prometheus_client::{
    metrics::{family::Family, histogram::Histogram},
    registry::Registry,
};

use super::{Counters, Gauges, Histograms, Labels, Registrar};

/// Histogram buckets for guest calls, in seconds: from well below a usual call to the longest deadline.
const CALL_SECONDS: [f64; 14] = [
    0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0,
    10.0, 30.0,
];

/// Metric families for plugins; clones share the values.
#[derive(Clone)]
pub(super) struct PluginFamilies {
    faults: Counters<2>,
    skips: Counters<1>,
    predictions: Counters<1>,
    writes: Counters<2>,
    call_seconds: Histograms<1>,
    event_to_write: Histograms<1>,
    swaps: Counters<1>,
    swap_seconds: Histograms<1>,
    conflicts: Counters<1>,
    memory_peak: Gauges<1>,
    memory_waits: Counters<1>,
    slow_calls: Counters<1>,
    log_dropped: Counters<1>,
    events_dropped: Counters<1>,
    conditions_refused: Counters<1>,
}

impl PluginFamilies {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let mut plugins = Registrar::new(registry, "innkeeper_plugin");
        let call_seconds: fn() -> Histogram = || Histogram::new(CALL_SECONDS);
        Self {
            faults: plugins.family("faults", "Faults by reason"),
            skips: plugins.family(
                "passes_skipped",
                "Passes without a guest call, because the inputs were unchanged",
            ),
            predictions: plugins.family(
                "predictions_used",
                "Guest calls saved, because the call before predicted the report",
            ),
            writes: plugins.family("writes", "Successful writes for parents"),
            call_seconds: plugins.register(
                "call_cpu_seconds",
                "CPU time per guest call",
                Family::new_with_constructor(call_seconds),
            ),
            event_to_write: plugins.seconds(
                "event_to_write_seconds",
                "Time from an observed change to the first write for it",
            ),
            swaps: plugins.family(
                "swaps",
                "Revisions, grants and limits that became active while the plugin served, per parent kind",
            ),
            swap_seconds: plugins.seconds(
                "swap_seconds",
                "Time from an observed Plugin change to the first pass with it, per parent kind",
            ),
            conflicts: plugins.family(
                "conflicts",
                "Children, statuses and finalizers that other clients keep changing or deleting, counted when the host starts to write them less often",
            ),
            memory_peak: plugins.family(
                "memory_peak_bytes",
                "Highest memory usage in one call",
            ),
            memory_waits: plugins.family(
                "memory_waits",
                "Calls that waited for memory which other calls might have needed",
            ),
            slow_calls: plugins.family(
                "slow_calls",
                "Calls with a deadline over 1 s, or after one that exceeded the deadline; such calls of all plugins together use all guest threads but one",
            ),
            log_dropped: plugins.family(
                "log_lines_dropped",
                "Guest log lines above the limits",
            ),
            events_dropped: plugins.family(
                "events_dropped",
                "Events about parents that were not written because 1,000 others waited",
            ),
            conditions_refused: plugins.family(
                "conditions_refused",
                "Statuses with only the host's conditions that the parent's definition refuses, so that the parent shows no reason",
            ),
        }
    }
}

/// One plugin's metrics, over all kinds and revisions.
#[derive(Clone)]
pub struct PluginMetrics {
    families: PluginFamilies,
    labels: Labels<1>,
}

impl PluginMetrics {
    pub(super) fn new(families: &PluginFamilies, name: &str) -> Self {
        Self {
            families: families.clone(),
            labels: [("plugin", name.to_owned())],
        }
    }

    /// Counts a finished guest call, successful or not; `waited_for_memory` is true if it waited for guest memory.
    pub fn called(&self, cpu: Duration, memory_peak_bytes: usize, waited_for_memory: bool) {
        self.observe(&self.families.call_seconds, cpu);
        let peak = self.families.memory_peak.get_or_create_owned(&self.labels);
        let bytes = i64::try_from(memory_peak_bytes).unwrap_or(i64::MAX);
        // Race: another call may raise the gauge between `get` and `set`, and this lower value then overwrites it. A later call
        // with a higher peak corrects the gauge, so no lock is needed.
        if bytes > peak.get() {
            peak.set(bytes);
        }
        if waited_for_memory {
            self.count(&self.families.memory_waits);
        }
    }

    /// Counts a guest call on the threads for slow calls: with a long deadline, or after one that exceeded the deadline.
    pub fn slow_call(&self) {
        self.count(&self.families.slow_calls);
    }

    /// Counts a fault by the reason in the parent's condition.
    pub fn fault(&self, reason: &str) {
        self.count_by(&self.families.faults, "reason", reason);
    }

    /// Counts a pass without a guest call, because the inputs were unchanged.
    pub fn skipped(&self) {
        self.count(&self.families.skips);
    }

    /// Counts a report that the guest predicted, in place of a call.
    pub fn predicted(&self) {
        self.count(&self.families.predictions);
    }

    /// Counts an accepted write for a parent.
    pub fn wrote(&self, verb: &str) {
        self.count_by(&self.families.writes, "verb", verb);
    }

    /// Records the time from an observed change (parent, child or related object) to the first accepted write.
    pub fn reacted(&self, after: Duration) {
        self.observe(&self.families.event_to_write, after);
    }

    /// Counts a swap of revision, grants or limits.
    pub fn swapped(&self) {
        self.count(&self.families.swaps);
    }

    /// Records the time from an observed Plugin change to the first pass with it.
    pub fn took_over(&self, after: Duration) {
        self.observe(&self.families.swap_seconds, after);
    }

    /// Counts a write that other clients keep undoing, and that the host repeats less often from now on.
    pub fn contested(&self) {
        self.count(&self.families.conflicts);
    }

    /// Counts dropped guest log lines.
    pub fn log_dropped(&self, lines: u64) {
        self.families
            .log_dropped
            .get_or_create_owned(&self.labels)
            .inc_by(lines);
    }

    /// Counts an event about a parent that is dropped, because too many wait.
    pub fn event_dropped(&self) {
        self.count(&self.families.events_dropped);
    }

    /// Counts a refused status with only the host's conditions.
    pub fn conditions_refused(&self) {
        self.count(&self.families.conditions_refused);
    }

    fn count(&self, counters: &Counters<1>) {
        counters.get_or_create_owned(&self.labels).inc();
    }

    fn count_by(&self, counters: &Counters<2>, label: &'static str, value: &str) {
        let [plugin] = self.labels.clone();
        let labels = [plugin, (label, value.to_owned())];
        counters.get_or_create_owned(&labels).inc();
    }

    fn observe(&self, seconds: &Histograms<1>, time: Duration) {
        seconds
            .get_or_create_owned(&self.labels)
            .observe(time.as_secs_f64());
    }
}
