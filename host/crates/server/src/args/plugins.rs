//! Plugin files, their configuration, and their shared resources.

use std::{
    collections::BTreeMap, ffi::OsString, num::NonZeroUsize, path::PathBuf, thread, time::Duration,
};

use clap::{
    ArgGroup,
    builder::{OsStringValueParser, TypedValueParser as _},
};
use innkeeper_command::{
    Failure, PluginObject, PluginValue, by_plugin, plugin_object,
    values::{default_cache_dir, seconds, wasm_files},
};
use innkeeper_model::Manifest;
use innkeeper_policy::Grants;
use serde_json::{Map, Value};

/// The smallest number of guest worker threads: one for slow plugins and one for the others.
const WORKERS_MIN: u16 = 2;
/// The largest number of guest worker threads.
const WORKERS_MAX: u16 = 1024;

/// A flag's files.
type Paths = Vec<PathBuf>;

/// The flags that name plugin files.
pub fn plugin_files() -> ArgGroup {
    ArgGroup::new("plugin-files")
        .multiple(true)
        .args(["files", "directory"])
}

/// Flags that name plugins and limit their resources.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Plugins")]
pub struct PluginArgs {
    /// Run these .wasm files. If two claim the same parent kind, the first is active.
    #[arg(long = "plugin", value_name = "FILE", num_args = 1..)]
    files: Vec<PathBuf>,
    /// Run every .wasm file in this directory, sorted by name, after those of --plugin.
    #[arg(long = "plugin-dir", value_name = "DIR", value_parser = wasm_files())]
    directory: Option<Paths>,
    /// Configuration as YAML or JSON; once per plugin [default: an empty object].
    #[arg(long = "config", value_name = "PLUGIN=FILE", value_parser = plugin_object)]
    configs: Vec<PluginObject>,
    /// Grants (`spec.grants`) as YAML or JSON, from `innkeeper manifests --print-grants`; once per plugin.
    ///
    /// Without it, a plugin may create ConfigMaps, Secrets, ClusterIP Services and claims in its parents' namespaces,
    /// and read objects there except Secret values. It may not create Pods or custom objects, and serves only kinds
    /// whose CRD it installed itself.
    #[arg(long = "grants", value_name = "PLUGIN=FILE", value_parser = plugin_object)]
    grants: Vec<PluginObject>,
    /// Grants the other plugins everything that they request.
    #[arg(skip)]
    pub grants_requests: bool,
    /// Directory for compiled plugins and remembered passes; created if missing, safe to delete at any time [default:
    /// $XDG_CACHE_HOME/innkeeper, or ~/.cache/innkeeper].
    #[arg(
        long,
        value_name = "DIR",
        env = "INNKEEPER_CACHE_DIR",
        default_value_os_t = default_cache_dir(),
        hide_default_value = true,
        value_parser = OsStringValueParser::new().try_map(cache_dir)
    )]
    pub cache_dir: PathBuf,
    /// Size limit of the cache directory, 16 to 1048576. Beyond it, the host removes the least recently used
    /// components, except active and last good revisions.
    // Half of the chart's volume, because a component that is being compiled needs space too.
    #[arg(
        long = "cache-size",
        value_name = "MIB",
        env = "INNKEEPER_CACHE_SIZE",
        default_value = "512",
        value_parser = clap::value_parser!(u32).range(16..=1_048_576).map(|count| u64::from(count) << 20)
    )]
    pub cache_bytes_max: u64,
    /// Guest worker threads, 2 to 1024. One plugin uses at most half; plugins with a deadline over 1 s leave one free
    /// [default: one per processor, at least 2].
    #[arg(
        long,
        value_name = "N",
        env = "INNKEEPER_WORKERS",
        default_value_t = processors(),
        hide_default_value = true,
        value_parser = clap::value_parser!(u16).range(i64::from(WORKERS_MIN)..=i64::from(WORKERS_MAX)).map(threads)
    )]
    pub workers: NonZeroUsize,
    /// Total memory for running guests, 16 to 1048576. A call that might exceed it waits; no call gets more
    /// than half [default: half the container's memory limit, or without one the sum of the plugins' limits].
    #[arg(
        long = "guest-memory",
        value_name = "MIB",
        env = "INNKEEPER_GUEST_MEMORY",
        value_parser = clap::value_parser!(u32).range(16..=1_048_576).map(mebibytes)
    )]
    pub guest_memory_bytes_max: Option<usize>,
    /// Maximum wait for running passes after the first signal, 0 to 3600.
    #[arg(long = "drain-timeout", value_name = "SECONDS", default_value = "25", value_parser = seconds(0..=3600))]
    pub drain: Duration,
    /// Call the guest in every pass, even with unchanged inputs, and remember no passes.
    #[arg(long, env = "INNKEEPER_FORGET_PASSES")]
    pub forget_passes: bool,
    /// For tests: also call the guest where its prediction saves a call, and abort if the answers differ.
    #[arg(long, env = "INNKEEPER_CHECK_PREDICTIONS", hide = true)]
    pub check_predictions: bool,
    /// Resync interval per parent, with 10 % jitter, 1 to 2592000, or as 10h. A resync only writes repairs.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "INNKEEPER_RESYNC_PERIOD",
        default_value = "36000",
        value_parser = seconds(1..=2_592_000)
    )]
    pub resync_period: Duration,
}

impl PluginArgs {
    /// The plugin files. If two have the same parent kind, the first is active.
    pub fn files(&self) -> Vec<PathBuf> {
        let directory = self.directory.iter().flatten();
        self.files.iter().chain(directory).cloned().collect()
    }

    /// Configurations by plugin.
    pub fn configs(&self) -> BTreeMap<String, Map<String, Value>> {
        by_plugin(&self.configs)
    }

    /// Grants by plugin, in the form of `spec.grants`.
    pub fn grants(&self) -> BTreeMap<String, Map<String, Value>> {
        by_plugin(&self.grants)
    }

    /// The default grants for a plugin without `--grants`.
    pub fn default_grants(&self) -> fn(&Manifest) -> Grants {
        if self.grants_requests {
            Grants::requested
        } else {
            Grants::for_file
        }
    }

    /// Checks that no plugin has two configurations or two grants.
    pub fn check(&self) -> Result<(), Failure> {
        PluginValue::check_unique("--config", &self.configs)?;
        PluginValue::check_unique("--grants", &self.grants)
    }
}

fn processors() -> NonZeroUsize {
    let count = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let count = u16::try_from(count).unwrap_or(WORKERS_MAX);
    threads(count.clamp(WORKERS_MIN, WORKERS_MAX))
}

fn threads(count: u16) -> NonZeroUsize {
    NonZeroUsize::new(count.into()).unwrap_or(NonZeroUsize::MIN)
}

fn mebibytes(count: u32) -> usize {
    usize::try_from(count).map_or(usize::MAX, |count| count.saturating_mul(1024 * 1024))
}

/// Rejects the empty path, which is the default without a home directory.
fn cache_dir(path: OsString) -> Result<PathBuf, &'static str> {
    if path.is_empty() {
        return Err(
            "there is no default directory for compiled plugins, because HOME is not set: name a directory",
        );
    }
    Ok(path.into())
}
