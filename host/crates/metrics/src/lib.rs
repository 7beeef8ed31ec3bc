//! All metrics with names, labels and units.
//!
//! Other modules report events through handles; `admin` serves the text.
//! Metrics that controller-runtime and client-go also have use the same names, so that existing dashboards and alerts work
//! unchanged.
//! Values that another module has anyway, such as watch status, are read from a [`SampleSource`] at each scrape.

mod controller;
mod plugin;
mod scrape;
mod shards;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};

pub use controller::{ControllerMetrics, PassResult, RunningPass};
pub use plugin::PluginMetrics;
pub use scrape::{PluginSample, ProcessSample, Sample, SampleSource, WatchSample};
pub use shards::ShardMove;

use controller::ControllerFamilies;
use plugin::PluginFamilies;
use shards::ShardFamilies;

/// The content type for [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Histogram buckets for passes and waits, in seconds: those in controller-runtime, without durations that this host cannot
/// have.
const SECONDS: [f64; 17] = [
    0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 600.0,
];

/// Label names and values.
type Labels<const N: usize> = [(&'static str, String); N];
// Read by `get_or_create_owned`: the guard from `get_or_create` locks the family, and two in one expression deadlock.
type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Gauges<const N: usize> = Family<Labels<N>, Gauge>;
type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

/// All metrics.
pub struct Metrics {
    registry: Mutex<Registry>,
    controllers: ControllerFamilies,
    plugins: PluginFamilies,
    requests: Counters<2>,
    leader: Gauges<1>,
    shards: ShardFamilies,
    conditions: Gauges<2>,
    spans: Counters<1>,
    /// The condition types with a gauge, by plugin.
    condition_types: Mutex<BTreeMap<String, BTreeSet<String>>>,
    ungranted: Gauge,
    /// The Plugin resources without granted parents.
    ungranted_names: Mutex<BTreeSet<String>>,
}

/// The result of sending a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum SpanResult {
    /// The collector accepted it.
    Sent,
    /// The collector did not take it.
    Failed,
}

/// Registers families with a common name prefix.
struct Registrar<'a>(&'a mut Registry);

impl<'a> Registrar<'a> {
    fn new(registry: &'a mut Registry, prefix: &str) -> Self {
        Self(registry.sub_registry_with_prefix(prefix))
    }

    /// Registers an empty family of counters or gauges. Clones share the values.
    fn family<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.register(name, help, M::default())
    }

    /// Registers an empty histogram family with the buckets [`SECONDS`].
    fn seconds<const N: usize>(&mut self, name: &str, help: &str) -> Histograms<N> {
        let seconds: fn() -> Histogram = || Histogram::new(SECONDS);
        self.register(name, help, Family::new_with_constructor(seconds))
    }

    fn register<M: Metric + Clone>(&mut self, name: &str, help: &str, family: M) -> M {
        self.0.register(name, help, family.clone());
        family
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers all families, without values.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        Self {
            controllers: ControllerFamilies::new(&mut registry),
            plugins: PluginFamilies::new(&mut registry),
            requests: Registrar::new(&mut registry, "rest_client").family(
                "requests",
                "Requests to the API server; the code is `<error>` if there was no answer",
            ),
            leader: Registrar::new(&mut registry, "leader_election").family(
                "master_status",
                "1 if this process holds the lease and may write, otherwise 0",
            ),
            shards: ShardFamilies::new(&mut registry),
            conditions: Registrar::new(&mut registry, "innkeeper_plugin").family(
                "condition",
                "1 if the condition of the Plugin resource is true, otherwise 0",
            ),
            spans: Registrar::new(&mut registry, "innkeeper_trace").family(
                "spans",
                "Spans of passes by result: sent, or failed because the collector did not take them",
            ),
            ungranted: Registrar::new(&mut registry, "innkeeper").family(
                "plugins_without_grants",
                "Plugin resources without granted parents, which have no other metrics",
            ),
            registry: Mutex::new(registry),
            condition_types: Mutex::default(),
            ungranted_names: Mutex::default(),
        }
    }

    /// Adds a source that is read at each scrape.
    pub fn add_source(&self, source: Arc<dyn SampleSource>) {
        let collector = Box::new(scrape::Collector(source));
        self.registry.lock().register_collector(collector);
    }

    /// Returns all metrics as OpenMetrics text. Fails only if a source's value cannot be encoded.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }

    /// Returns one controller's handle; `name` is plugin and kind.
    pub fn controller(&self, name: &str, workers_max: usize) -> ControllerMetrics {
        ControllerMetrics::new(&self.controllers, name, workers_max)
    }

    /// Returns one plugin's handle.
    pub fn plugin(&self, name: &str) -> PluginMetrics {
        PluginMetrics::new(&self.plugins, name)
    }

    /// Counts a request to the API server; `code` is `<error>` if there was no response.
    pub fn request(&self, method: &str, code: &str) {
        let labels = [("code", code.to_owned()), ("method", method.to_owned())];
        self.requests.get_or_create_owned(&labels).inc();
    }

    /// Counts trace spans.
    pub fn spans(&self, result: SpanResult, count: usize) {
        let labels = [("result", result.to_string())];
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.spans.get_or_create_owned(&labels).inc_by(count);
    }

    /// Sets a Plugin's conditions, if parents are granted.
    pub fn plugin_conditions<'a>(
        &self,
        plugin: &str,
        conditions: impl IntoIterator<Item = (&'a str, bool)>,
    ) {
        self.count_ungranted(|names| names.remove(plugin));
        let mut condition_types = self.condition_types.lock();
        let condition_types = condition_types.entry(plugin.to_owned()).or_default();
        for (condition, is_true) in conditions {
            // Remembered, because a family removes a series only by all labels.
            condition_types.insert(condition.to_owned());
            let labels = condition_labels(plugin, condition.to_owned());
            self.conditions
                .get_or_create_owned(&labels)
                .set(i64::from(is_true));
        }
    }

    /// Counts a Plugin without granted parents, instead of its conditions: otherwise users without the verb `grant` could create
    /// any number of series.
    pub fn plugin_without_grants(&self, plugin: &str) {
        self.remove_conditions(plugin);
        self.count_ungranted(|names| names.insert(plugin.to_owned()));
    }

    /// Forgets a deleted Plugin resource.
    pub fn plugin_gone(&self, plugin: &str) {
        self.remove_conditions(plugin);
        self.count_ungranted(|names| names.remove(plugin));
    }

    fn count_ungranted(&self, change: impl FnOnce(&mut BTreeSet<String>) -> bool) {
        // By name, because every pass of a Plugin reports it again.
        let mut names = self.ungranted_names.lock();
        if change(&mut names) {
            // Still under the lock, so that no older count is set last.
            let count = i64::try_from(names.len()).unwrap_or(i64::MAX);
            self.ungranted.set(count);
        }
    }

    fn remove_conditions(&self, plugin: &str) {
        let condition_types = self.condition_types.lock().remove(plugin);
        for condition in condition_types.into_iter().flatten() {
            self.conditions.remove(&condition_labels(plugin, condition));
        }
    }

    /// Sets whether this process holds the lease.
    pub fn leads(&self, lease: &str, leads: bool) {
        let labels = [("name", lease.to_owned())];
        self.leader
            .get_or_create_owned(&labels)
            .set(i64::from(leads));
    }
}

fn condition_labels(plugin: &str, condition: String) -> Labels<2> {
    [("plugin", plugin.to_owned()), ("condition", condition)]
}

#[cfg(test)]
mod tests;
