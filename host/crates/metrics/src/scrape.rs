//! Metrics that are read from other modules at each scrape, because these modules hold the values anyway.

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{
    collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};

use super::labels::{PluginLabels, PluginLimitLabels, QueueLabels, WatchLabels};

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
}

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
    /// True if the plugin serves.
    pub serving: bool,
    /// The number of its selected parents in the cluster.
    pub parents: usize,
    /// The number of kinds that must be synced before its passes can run.
    pub waiting: usize,
    /// The used part of each limit, from 0 to 1, in the namespace that has used most of it.
    pub limits: Vec<(&'static str, f64)>,
}

/// The adapter of a source to the registry.
pub(super) struct Collector(Arc<dyn SampleSource>);

impl Collector {
    pub(super) fn new(source: Arc<dyn SampleSource>) -> Self {
        Self(source)
    }
}

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
        } = self.0.sample();
        encode_watches(&mut encoder, &watches)?;
        encode_plugins(&mut encoder, &plugins)?;
        let family = encoder.encode_descriptor(
            "innkeeper_plugins_left_out",
            "Plugins given as files that were loaded and do not serve",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(count(left_out)).encode(family)?;
        let name = |(name, _, _): &(String, Duration, Duration)| QueueLabels { name: name.clone() };
        gauges(
            &mut encoder,
            "workqueue_unfinished_work_seconds",
            "Sum of the run times of all running passes",
            unfinished
                .iter()
                .map(|entry| (name(entry), entry.1.as_secs_f64())),
        )?;
        gauges(
            &mut encoder,
            "workqueue_longest_running_processor_seconds",
            "Run time of the longest running pass",
            unfinished
                .iter()
                .map(|entry| (name(entry), entry.2.as_secs_f64())),
        )
    }
}

fn encode_watches(encoder: &mut DescriptorEncoder<'_>, watches: &[WatchSample]) -> fmt::Result {
    let label = |watch: &WatchSample| WatchLabels {
        group: watch.group.clone(),
        version: watch.version.clone(),
        kind: watch.kind.clone(),
        in_namespace: watch.namespace.clone(),
        selector: watch.selector.clone(),
    };
    gauges(
        encoder,
        "innkeeper_watch_synced",
        "1 if the watch has all objects, else 0",
        watches
            .iter()
            .map(|watch| (label(watch), f64::from(u8::from(watch.synced)))),
    )?;
    gauges(
        encoder,
        "innkeeper_watch_objects",
        "Objects of the watch in the cache",
        watches
            .iter()
            .map(|watch| (label(watch), count(watch.objects))),
    )?;
    gauges(
        encoder,
        "innkeeper_watch_bytes",
        "Size of the watch's objects in the cache, in bytes of text",
        watches
            .iter()
            .map(|watch| (label(watch), count(watch.bytes))),
    )?;
    gauges(
        encoder,
        "innkeeper_watch_stale_seconds",
        "Seconds since the last event or bookmark of the watch",
        watches
            .iter()
            .filter_map(|watch| Some((label(watch), watch.stale?.as_secs_f64()))),
    )?;
    gauges(
        encoder,
        "innkeeper_watch_lists",
        "Complete lists of the watch; more than one means that the watch restarted",
        watches.iter().map(|watch| {
            let lists = usize::try_from(watch.lists).unwrap_or(usize::MAX);
            (label(watch), count(lists))
        }),
    )
}

fn encode_plugins(encoder: &mut DescriptorEncoder<'_>, plugins: &[PluginSample]) -> fmt::Result {
    let label = |plugin: &PluginSample| PluginLabels {
        plugin: plugin.plugin.clone(),
    };
    gauges(
        encoder,
        "innkeeper_plugin_serving",
        "1 if the plugin serves, else 0",
        plugins
            .iter()
            .map(|plugin| (label(plugin), f64::from(u8::from(plugin.serving)))),
    )?;
    gauges(
        encoder,
        "innkeeper_plugin_parents",
        "Selected parents of the plugin in the cluster",
        plugins
            .iter()
            .map(|plugin| (label(plugin), count(plugin.parents))),
    )?;
    gauges(
        encoder,
        "innkeeper_plugin_waiting",
        "Kinds that must be synced before the plugin's passes can run",
        plugins
            .iter()
            .map(|plugin| (label(plugin), count(plugin.waiting))),
    )?;
    let limits = plugins.iter().flat_map(|plugin| {
        let label = move |limit| PluginLimitLabels {
            plugin: plugin.plugin.clone(),
            limit,
        };
        let limits = plugin.limits.iter();
        limits.map(move |(limit, used)| (label(*limit), *used))
    });
    gauges(
        encoder,
        "innkeeper_plugin_limit_use_ratio",
        "Used part of a limit in the namespace that has used most of it, from 0 to 1",
        limits,
    )
}

/// Encodes one gauge with all its label sets.
///
/// Writes nothing if there are none, because a family without values would be an encoding error.
fn gauges<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (L, f64)>,
) -> fmt::Result {
    let mut values = values.peekable();
    if values.peek().is_none() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (label, value) in values {
        ConstGauge::new(value).encode(family.encode_family(&label)?)?;
    }
    Ok(())
}

/// Converts a count; larger counts are shown as 2^32 - 1, which is more than any cache holds.
fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
