//! What is read when somebody asks, because another module knows it anyway.

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{
    collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};

use super::labels::{Name, Plugin, Watch};

/// Somebody who knows how things are at the moment.
pub trait Source: Send + Sync + 'static {
    /// How things are.
    fn sample(&self) -> Sample;
}

/// How things are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Every watch.
    pub watches: Vec<WatchSample>,
    /// Every plugin.
    pub plugins: Vec<PluginSample>,
    /// Plugins that were tried and do not serve.
    pub left_out: usize,
    /// Every controller: its name, and for how long its running passes have run, together and the longest.
    pub unfinished: Vec<(String, Duration, Duration)>,
}

/// How one watch is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchSample {
    /// The kind's group; empty for the core group.
    pub group: String,
    /// The kind's version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty for all, and for a cluster-scoped kind.
    pub namespace: String,
    /// The label selector; empty for all objects.
    pub selector: String,
    /// Whether it can be used.
    pub synced: bool,
    /// Objects in the cache.
    pub objects: usize,
    /// Bytes of their texts.
    pub bytes: usize,
    /// Complete lists so far.
    pub lists: u64,
    /// Since the last event or bookmark; none: there was none.
    pub stale: Option<Duration>,
}

/// How one plugin is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSample {
    /// Its name.
    pub plugin: String,
    /// Whether it serves.
    pub serving: bool,
    /// Its parents in the cluster, as far as they are selected.
    pub parents: usize,
    /// Kinds without which its passes cannot run.
    pub waiting: usize,
}

/// A source as the registry wants it.
pub(super) struct Collector(Arc<dyn Source>);

impl Collector {
    pub(super) fn new(source: Arc<dyn Source>) -> Self {
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
            "Plugins that were given as files, were tried and do not serve",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(count(left_out)).encode(family)?;
        let name = |(name, _, _): &(String, Duration, Duration)| Name { name: name.clone() };
        gauges(
            &mut encoder,
            "workqueue_unfinished_work_seconds",
            "For how long the passes that run have been running, together",
            unfinished
                .iter()
                .map(|entry| (name(entry), entry.1.as_secs_f64())),
        )?;
        gauges(
            &mut encoder,
            "workqueue_longest_running_processor_seconds",
            "For how long the longest of the passes that run has been running",
            unfinished
                .iter()
                .map(|entry| (name(entry), entry.2.as_secs_f64())),
        )
    }
}

fn encode_watches(encoder: &mut DescriptorEncoder<'_>, watches: &[WatchSample]) -> fmt::Result {
    let label = |watch: &WatchSample| Watch {
        group: watch.group.clone(),
        version: watch.version.clone(),
        kind: watch.kind.clone(),
        in_namespace: watch.namespace.clone(),
        selector: watch.selector.clone(),
    };
    gauges(
        encoder,
        "innkeeper_watch_synced",
        "Whether the watch shows all objects",
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
        "Bytes of the objects' texts in the cache",
        watches
            .iter()
            .map(|watch| (label(watch), count(watch.bytes))),
    )?;
    gauges(
        encoder,
        "innkeeper_watch_stale_seconds",
        "Since the last event or bookmark of the watch",
        watches
            .iter()
            .filter_map(|watch| Some((label(watch), watch.stale?.as_secs_f64()))),
    )?;
    gauges(
        encoder,
        "innkeeper_watch_lists",
        "Complete lists of the watch: more than one says that it began anew",
        watches.iter().map(|watch| {
            let lists = usize::try_from(watch.lists).unwrap_or(usize::MAX);
            (label(watch), count(lists))
        }),
    )
}

fn encode_plugins(encoder: &mut DescriptorEncoder<'_>, plugins: &[PluginSample]) -> fmt::Result {
    let label = |plugin: &PluginSample| Plugin {
        plugin: plugin.plugin.clone(),
    };
    gauges(
        encoder,
        "innkeeper_plugin_serving",
        "Whether the plugin serves",
        plugins
            .iter()
            .map(|plugin| (label(plugin), f64::from(u8::from(plugin.serving)))),
    )?;
    gauges(
        encoder,
        "innkeeper_plugin_parents",
        "The plugin's parents in the cluster, as far as they are selected",
        plugins
            .iter()
            .map(|plugin| (label(plugin), count(plugin.parents))),
    )?;
    gauges(
        encoder,
        "innkeeper_plugin_waiting",
        "Kinds that have to be read before the plugin's passes can run",
        plugins
            .iter()
            .map(|plugin| (label(plugin), count(plugin.waiting))),
    )
}

/// One gauge with all its label sets; nothing where there are none, as an empty family would be an error of the text.
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

/// Exact up to 2^32, more than any cache holds.
fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
