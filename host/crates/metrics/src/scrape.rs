//! Metrics that are read from other modules at each scrape, because these modules hold the values anyway.

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{
    collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use super::Labels;

/// A module that knows the current values.
pub trait SampleSource: Send + Sync + 'static {
    /// Returns the current values.
    fn sample(&self) -> Sample;
}

/// The values of one scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// All watches.
    pub watches: Vec<WatchSample>,
    /// All plugins.
    pub plugins: Vec<PluginSample>,
    /// The number of plugins given as files that were loaded and do not serve.
    pub left_out: usize,
    /// All controllers: the name, and the run time of its running passes, as a sum and for the longest.
    pub unfinished: Vec<(String, Duration, Duration)>,
    /// The process; none if the system does not tell.
    pub process: Option<ProcessSample>,
}

/// The use of the system by the process. The names of these metrics are those of all Prometheus clients.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessSample {
    /// The CPU time of all threads since the start, in seconds.
    pub cpu_seconds: f64,
    /// The memory that is in use, in bytes.
    pub resident_bytes: f64,
    /// The address space, in bytes.
    pub virtual_bytes: f64,
    /// The number of open file descriptors.
    pub open_fds: usize,
    /// The soft limit of open file descriptors; none without a limit.
    pub max_fds: Option<f64>,
    /// The time of the start, in seconds since 1970.
    pub start_seconds: f64,
}

type Unfinished = (String, Duration, Duration);

/// The state of one watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchSample {
    /// The kind's group; empty for the core group.
    pub group: String,
    /// The kind's version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty for all namespaces and for a cluster-scoped kind.
    pub namespace: String,
    /// The label selector; empty for all objects.
    pub selector: String,
    /// True if the watch has all objects, so that passes can read from it.
    pub synced: bool,
    /// Objects in the cache.
    pub objects: usize,
    /// Bytes of the objects' texts in the cache.
    pub bytes: usize,
    /// The number of complete lists so far.
    pub lists: u64,
    /// The time since the last event or bookmark; `None` before the first.
    pub stale: Option<Duration>,
}

/// The state of one plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginSample {
    /// The plugin's name.
    pub plugin: String,
    /// The number of its selected parents in the cluster.
    pub parents: usize,
    /// The number of kinds that must be synced before its passes can run.
    pub waiting: usize,
    /// The number of namespaces that have no room in the cache for all of its children.
    pub full_namespaces: usize,
    /// The used part of each limit, from 0 to 1, in the namespace that has used most of it.
    pub limits: Vec<(&'static str, f64)>,
}

/// The adapter of a source to the registry.
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
        table(&mut encoder, &watches, WatchSample::labels, &WATCHES)?;
        table(&mut encoder, &plugins, PluginSample::labels, &PLUGINS)?;
        let limits: Vec<LimitUse> = plugins
            .iter()
            .flat_map(|plugin| {
                let limits = plugin.limits.iter();
                limits.map(|(limit, used)| (plugin.plugin.clone(), *limit, *used))
            })
            .collect();
        table(&mut encoder, &limits, limit_labels, &LIMITS)?;
        let family = encoder.encode_descriptor(
            "innkeeper_plugins_left_out",
            "Plugin files that the host tried and does not serve",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(count(left_out)).encode(family)?;
        table(&mut encoder, &unfinished, queue_labels, &UNFINISHED)?;
        let Some(process) = process else {
            return Ok(());
        };
        let cpu = encoder.encode_descriptor(
            "process_cpu_seconds",
            "CPU time of the process since its start",
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

/// A gauge: its name, its help, and its value in a sample; none if the sample has none.
type Row<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

const WATCHES: [Row<WatchSample>; 5] = [
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
    (
        "innkeeper_watch_lists",
        "Complete lists; more than one means that the watch restarted",
        |watch| Some(count(usize::try_from(watch.lists).unwrap_or(usize::MAX))),
    ),
];

const PLUGINS: [Row<PluginSample>; 3] = [
    (
        "innkeeper_plugin_parents",
        "Selected parents in the cluster",
        |plugin| Some(count(plugin.parents)),
    ),
    (
        "innkeeper_plugin_waiting",
        "Kinds that the host must read before the passes of the plugin can run",
        |plugin| Some(count(plugin.waiting)),
    ),
    (
        "innkeeper_plugin_full_namespaces",
        "Namespaces whose children of the plugin exceed the bound of the cache, so that parents there wait",
        |plugin| Some(count(plugin.full_namespaces)),
    ),
];

/// A plugin, the name of a limit, and the used part.
type LimitUse = (String, &'static str, f64);

const LIMITS: [Row<LimitUse>; 1] = [(
    "innkeeper_plugin_limit_use_ratio",
    "Used part of a limit of `spec.limits` for one namespace, from 0 to 1, in the namespace that has used most of it; for `retained` that of the parent that retains most",
    |(_, _, used)| Some(*used),
)];

fn limit_labels((plugin, limit, _): &LimitUse) -> Labels<2> {
    [("plugin", plugin.clone()), ("limit", (*limit).to_owned())]
}

const UNFINISHED: [Row<Unfinished>; 2] = [
    (
        "workqueue_unfinished_work_seconds",
        "Total duration of the running passes so far",
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
        "Memory of the process that is in use",
        |process| Some(process.resident_bytes),
    ),
    (
        "process_virtual_memory_bytes",
        "Address space of the process",
        |process| Some(process.virtual_bytes),
    ),
    ("process_open_fds", "Open file descriptors", |process| {
        Some(count(process.open_fds))
    }),
    (
        "process_max_fds",
        "Most file descriptors that may be open",
        |process| process.max_fds,
    ),
    (
        "process_start_time_seconds",
        "Start of the process, in seconds since 1970",
        |process| Some(process.start_seconds),
    ),
];

impl WatchSample {
    fn labels(&self) -> Labels<5> {
        [
            ("group", self.group.clone()),
            ("version", self.version.clone()),
            ("kind", self.kind.clone()),
            // Not named `namespace`: Prometheus sets that label to the namespace in which the host runs.
            ("in_namespace", self.namespace.clone()),
            ("selector", self.selector.clone()),
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

/// Encodes the gauges of a table with the label sets of all samples.
///
/// Omits a gauge without values, because a family without values would be an encoding error.
fn table<T, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    samples: &[T],
    labels: fn(&T) -> Labels<N>,
    rows: &[Row<T>],
) -> fmt::Result {
    for (name, help, value) in rows {
        let row = |sample| Some((labels(sample), value(sample)?));
        let mut values = samples.iter().filter_map(row).peekable();
        if values.peek().is_none() {
            continue;
        }
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Converts a count; larger counts are shown as 2^32 - 1, which is more than any cache holds.
fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
