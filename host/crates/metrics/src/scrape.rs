//! Metrics that are read from other modules at each scrape, because these modules have the values anyway.

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{
    collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use super::Labels;

/// A module with current values.
pub trait SampleSource: Send + Sync + 'static {
    /// Returns the current values.
    fn sample(&self) -> Sample;
}

/// The values for one scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// All watches.
    pub watches: Vec<WatchSample>,
    /// All plugins.
    pub plugins: Vec<PluginSample>,
    /// Plugin files that were loaded and do not serve.
    pub left_out: usize,
    /// The running passes of all controllers.
    pub unfinished: Vec<Unfinished>,
    /// The process; none if the system has no data.
    pub process: Option<ProcessSample>,
}

/// Resource usage of the process, under the metric names that all Prometheus clients have.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessSample {
    /// CPU time since the start, for all threads, in seconds.
    pub cpu_seconds: f64,
    /// Memory in use, in bytes.
    pub resident_bytes: f64,
    /// Address space, in bytes.
    pub virtual_bytes: f64,
    /// Open file descriptors.
    pub open_fds: usize,
    /// The soft limit for open file descriptors; none without a limit.
    pub max_fds: Option<f64>,
    /// Start time, in seconds since 1970.
    pub start_seconds: f64,
}

/// A controller's name, and how long its running passes have taken, in total and for the longest.
type Unfinished = (String, Duration, Duration);

/// One watch's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchSample {
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty for all namespaces and for a cluster-scoped kind.
    pub namespace: String,
    /// The shards, such as `0,2`; empty if the watch is not divided by shards.
    pub shards: String,
    /// The label selector; empty for all objects.
    pub selector: String,
    /// True if the watch has all objects, so that passes can read from it.
    pub synced: bool,
    /// Objects in the cache.
    pub objects: usize,
    /// Size of the cached texts, in bytes.
    pub bytes: usize,
    /// Complete lists so far.
    pub lists: usize,
    /// Time since the last event or bookmark; `None` before the first.
    pub stale: Option<Duration>,
}

/// One plugin's values.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginSample {
    /// The plugin's name.
    pub plugin: String,
    /// Selected parents in the cluster.
    pub parents: usize,
    /// Kinds that must be synced before passes can run.
    pub waiting: usize,
    /// Namespaces that have no room in the cache for all children.
    pub full_namespaces: usize,
    /// By limit: the used part, from 0 to 1, in the namespace with the highest usage.
    pub limits: Vec<(&'static str, f64)>,
}

/// Adapts a source to the registry.
pub(super) struct Collector(pub(super) Arc<dyn SampleSource>);

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collector")
    }
}

impl collector::Collector for Collector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Sample {
            watches,
            plugins,
            left_out,
            unfinished,
            process,
        } = self.0.sample();
        let gauge = ConstGauge::new;
        table(&mut encoder, &watches, WatchSample::labels, &WATCHES, gauge)?;
        table(
            &mut encoder,
            &watches,
            WatchSample::labels,
            &WATCH_LISTS,
            ConstCounter::new,
        )?;
        table(
            &mut encoder,
            &plugins,
            PluginSample::labels,
            &PLUGINS,
            gauge,
        )?;
        let mut limits: Vec<LimitUse> = Vec::new();
        for plugin in &plugins {
            for (limit, used) in &plugin.limits {
                limits.push((plugin.plugin.clone(), *limit, *used));
            }
        }
        table(&mut encoder, &limits, limit_labels, &LIMITS, gauge)?;
        let family = encoder.encode_descriptor(
            "innkeeper_plugins_left_out",
            "Plugin files that the host tried and does not serve",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(count(left_out)).encode(family)?;
        table(&mut encoder, &unfinished, queue_labels, &UNFINISHED, gauge)?;
        let Some(process) = process else {
            return Ok(());
        };
        let cpu = encoder.encode_descriptor(
            // The encoder appends `_total` to counters.
            "process_cpu_seconds",
            "CPU time since the process started",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(process.cpu_seconds).encode(cpu)?;
        for (name, help, value) in PROCESS {
            let Some(value) = value(&process) else {
                continue;
            };
            let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(family)?;
        }
        Ok(())
    }
}

/// A metric: name, help, and the value in a sample, if it has one.
type Row<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

const WATCHES: [Row<WatchSample>; 4] = [
    (
        "innkeeper_watch_synced",
        "1 if the cache has all objects of the watch, otherwise 0",
        |watch| Some(f64::from(u8::from(watch.synced))),
    ),
    ("innkeeper_watch_objects", "Cached objects", |watch| {
        Some(count(watch.objects))
    }),
    (
        "innkeeper_watch_bytes",
        "Bytes of the cached objects",
        |watch| Some(count(watch.bytes)),
    ),
    (
        "innkeeper_watch_stale_seconds",
        "Time since the last event or bookmark",
        |watch| Some(watch.stale?.as_secs_f64()),
    ),
];

const WATCH_LISTS: [Row<WatchSample>; 1] = [(
    "innkeeper_watch_lists",
    "Complete lists; more than one means that the watch restarted",
    |watch| Some(count(watch.lists)),
)];

const PLUGINS: [Row<PluginSample>; 3] = [
    (
        "innkeeper_plugin_parents",
        "Selected parents in the cluster",
        |plugin| Some(count(plugin.parents)),
    ),
    (
        "innkeeper_plugin_waiting",
        "Kinds that the host must read before the plugin's passes can run",
        |plugin| Some(count(plugin.waiting)),
    ),
    (
        "innkeeper_plugin_full_namespaces",
        "Namespaces in which the plugin's children exceed the cache bound, so that parents there wait",
        |plugin| Some(count(plugin.full_namespaces)),
    ),
];

/// A plugin, the name of a limit, and the used part.
type LimitUse = (String, &'static str, f64);

const LIMITS: [Row<LimitUse>; 1] = [(
    "innkeeper_plugin_limit_use_ratio",
    "Used part of a limit in `spec.limits`, from 0 to 1, in the namespace with the highest usage; for `retained`, for the parent that retains most",
    |(_, _, used)| Some(*used),
)];

fn limit_labels((plugin, limit, _): &LimitUse) -> Labels<2> {
    [("plugin", plugin.clone()), ("limit", (*limit).to_owned())]
}

const UNFINISHED: [Row<Unfinished>; 2] = [
    (
        "workqueue_unfinished_work_seconds",
        "Total duration of running passes so far",
        |(_, sum, _)| Some(sum.as_secs_f64()),
    ),
    (
        "workqueue_longest_running_processor_seconds",
        "Duration of the longest running pass so far",
        |(_, _, longest)| Some(longest.as_secs_f64()),
    ),
];

const PROCESS: [Row<ProcessSample>; 5] = [
    (
        "process_resident_memory_bytes",
        "Memory in use",
        |process| Some(process.resident_bytes),
    ),
    ("process_virtual_memory_bytes", "Address space", |process| {
        Some(process.virtual_bytes)
    }),
    ("process_open_fds", "Open file descriptors", |process| {
        Some(count(process.open_fds))
    }),
    (
        "process_max_fds",
        "Limit on open file descriptors",
        |process| process.max_fds,
    ),
    (
        "process_start_time_seconds",
        "Start time, in seconds since 1970",
        |process| Some(process.start_seconds),
    ),
];

impl WatchSample {
    fn labels(&self) -> Labels<6> {
        [
            ("group", self.group.clone()),
            ("version", self.version.clone()),
            ("kind", self.kind.clone()),
            // Not named `namespace`: Prometheus sets that label to the host's namespace.
            ("in_namespace", self.namespace.clone()),
            ("selector", self.selector.clone()),
            ("shards", self.shards.clone()),
        ]
    }
}

impl PluginSample {
    fn labels(&self) -> Labels<1> {
        [("plugin", self.plugin.clone())]
    }
}

fn queue_labels((name, ..): &Unfinished) -> Labels<1> {
    [("name", name.clone())]
}

/// Encodes a table's metrics with the labels of each sample.
fn table<T, M: EncodeMetric, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    samples: &[T],
    labels: fn(&T) -> Labels<N>,
    rows: &[Row<T>],
    metric: fn(f64) -> M,
) -> fmt::Result {
    for (name, help, value) in rows {
        let row = |sample| Some((labels(sample), metric(value(sample)?)));
        let mut values = samples.iter().filter_map(row).peekable();
        // An empty family would be an encoding error.
        let Some((_, first)) = values.peek() else {
            continue;
        };
        let mut family = encoder.encode_descriptor(name, help, None, first.metric_type())?;
        for (labels, value) in values {
            value.encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Converts a count; exact up to 2^53.
fn count(number: usize) -> f64 {
    // In halves, because only 32 bits convert without loss.
    let half = |bits: usize| f64::from(u32::try_from(bits & 0xffff_ffff).unwrap_or(u32::MAX));
    half(number >> 32) * 4_294_967_296.0 + half(number)
}
