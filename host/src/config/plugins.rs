//! Which plugins, with which configuration, and what they share.

use std::{
    collections::BTreeMap, env, fmt, fs, num::NonZeroUsize, path::PathBuf, thread, time::Duration,
};

use clap::ArgGroup;
use innkeeper_model::Limits;
use serde_json::{Map, Value};

use super::Error;

/// The flags by which plugins are given as files.
pub(super) fn plugin_files() -> ArgGroup {
    ArgGroup::new("plugin-files")
        .multiple(true)
        .args(["files", "plugin_dir"])
}

/// Flags that name plugins and bound what they use.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Plugins")]
pub(super) struct PluginArgs {
    /// Serve the plugins in these .wasm files; of two that want the same kind of parents the first one gets it.
    #[arg(long = "plugin", value_name = "FILE", num_args = 1..)]
    files: Vec<PathBuf>,
    /// Serve every .wasm file of this directory, in the order of their names and after those of --plugin.
    #[arg(long, value_name = "DIR")]
    plugin_dir: Option<PathBuf>,
    /// Configure the plugin of this name by a YAML or JSON file with one object; once per plugin [default: an empty one].
    #[arg(long = "config", value_name = "PLUGIN=FILE", value_parser = name_and_file)]
    configs: Vec<(String, PathBuf)>,
    /// Let the plugin of this name do what this YAML or JSON file says, in the form of `spec.grants` of a Plugin, and
    /// nothing else; once per plugin.
    ///
    /// Without it a plugin may do what it asks for, except for privileged kinds, parents of kinds of Kubernetes itself
    /// and the values of Secrets.
    #[arg(long = "grants", value_name = "PLUGIN=FILE", value_parser = name_and_file)]
    grants: Vec<(String, PathBuf)>,
    /// Keep compiled plugins in this directory, which is made when it is missing and may be removed at any time
    /// [default: $XDG_CACHE_HOME/innkeeper, or ~/.cache/innkeeper].
    #[arg(long, value_name = "DIR", env = "INNKEEPER_CACHE_DIR")]
    cache_dir: Option<PathBuf>,
    /// Run so many plugins at the same time, each on a thread, 1 to 1024; one plugin has at most half of them
    /// [default: one per processor].
    #[arg(
        long,
        value_name = "N",
        env = "INNKEEPER_WORKERS",
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    workers: Option<u16>,
    /// Let plugins that run at the same time have so much memory together, in MiB, 16 to 1048576; a call that might need
    /// more than is left waits [default: half of the memory that the container has; without a bound of it, what the
    /// limits of the plugins come to].
    #[arg(
        long = "guest-memory",
        value_name = "MIB",
        env = "INNKEEPER_GUEST_MEMORY",
        value_parser = clap::value_parser!(u32).range(16..=1_048_576)
    )]
    guest_memory_mib: Option<u32>,
    /// Wait so many seconds for running passes after the first signal, 0 to 3600, and then cut them off.
    #[arg(
        long = "drain-timeout",
        value_name = "SECONDS",
        default_value_t = 25,
        value_parser = clap::value_parser!(u64).range(..=3600)
    )]
    drain_seconds: u64,
    /// Call the plugin in every pass, also when nothing that the pass depends on has changed since the last one.
    #[arg(long, env = "INNKEEPER_FORGET_PASSES")]
    forget_passes: bool,
    /// Let every parent have a pass at least so often, in seconds, 1 to 2592000, a tenth more or less, also when nothing
    /// is known to have changed; such a pass writes nothing where there is nothing to repair.
    #[arg(
        long = "resync-period",
        value_name = "SECONDS",
        env = "INNKEEPER_RESYNC_PERIOD",
        default_value_t = 36_000,
        value_parser = clap::value_parser!(u32).range(1..=2_592_000)
    )]
    resync_period_seconds: u32,
}

/// One plugin as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginFile {
    /// The component.
    pub path: PathBuf,
}

/// Which plugins, and what they may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSettings {
    /// The plugins, in the order in which they compete for a kind of parent.
    pub files: Vec<PluginFile>,
    /// The configuration of plugins by name; a plugin that is not named has an empty one.
    pub configs: BTreeMap<String, Map<String, Value>>,
    /// What plugins may do, by name, in the form of `spec.grants`; one that is not named has what it asks for except
    /// what takes an explicit word.
    pub grants: BTreeMap<String, Map<String, Value>>,
    /// Where compiled plugins are kept.
    pub cache_dir: PathBuf,
    /// How many guests run at the same time.
    pub workers: NonZeroUsize,
    /// What each plugin may use.
    pub limits: Limits,
    /// Memory that all guests that run may have together, in bytes; none: what the host takes by itself.
    pub guest_memory_bytes_max: Option<usize>,
    /// How long passes may take to end after the first signal.
    pub drain: Duration,
    /// Whether a pass that would do nothing is left out.
    pub remember_passes: bool,
    /// How long it takes on average until a parent has a pass for nothing but time that has passed.
    pub resync_period: Duration,
}

impl PluginArgs {
    pub(super) fn into_settings(self) -> Result<PluginSettings, Error> {
        let Self {
            mut files,
            plugin_dir,
            configs,
            grants,
            cache_dir,
            workers,
            guest_memory_mib,
            drain_seconds,
            forget_passes,
            resync_period_seconds,
        } = self;
        if let Some(dir) = plugin_dir {
            files.extend(wasm_files(dir)?);
        }
        Ok(PluginSettings {
            files: files.into_iter().map(|path| PluginFile { path }).collect(),
            configs: by_plugin(PluginFileKind::Config, configs)?,
            grants: by_plugin(PluginFileKind::Grants, grants)?,
            cache_dir: match cache_dir {
                Some(dir) => dir,
                None => default_cache_dir()?,
            },
            workers: workers
                .and_then(|workers| NonZeroUsize::new(usize::from(workers)))
                .or_else(|| thread::available_parallelism().ok())
                .unwrap_or(NonZeroUsize::MIN),
            limits: Limits::default(),
            guest_memory_bytes_max: guest_memory_mib
                .and_then(|mib| usize::try_from(mib).ok()?.checked_mul(1024 * 1024)),
            drain: Duration::from_secs(drain_seconds),
            remember_passes: !forget_passes,
            resync_period: Duration::from_secs(resync_period_seconds.into()),
        })
    }
}

/// What a file that belongs to a plugin holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PluginFileKind {
    /// Its configuration.
    Config,
    /// What it may do.
    Grants,
}

impl fmt::Display for PluginFileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Config => "configuration",
            Self::Grants => "grants",
        })
    }
}

/// Reads files that belong to plugins, at most one for each.
pub(super) fn by_plugin(
    what: PluginFileKind,
    files: Vec<(String, PathBuf)>,
) -> Result<BTreeMap<String, Map<String, Value>>, Error> {
    let mut by_plugin = BTreeMap::new();
    for (plugin, path) in files {
        let held = read_object(what, &plugin, path)?;
        if by_plugin.insert(plugin.clone(), held).is_some() {
            return Err(Error::PluginFileTwice { what, plugin });
        }
    }
    Ok(by_plugin)
}

pub(super) fn name_and_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(file)))
        }
        _ => Err("write it as PLUGIN=FILE".to_owned()),
    }
}

/// The plugins of a directory, sorted, so that the same directory always gives the same order.
fn wasm_files(path: PathBuf) -> Result<Vec<PathBuf>, Error> {
    let read = |path: &PathBuf| -> std::io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(path)? {
            let file = entry?.path();
            if file
                .extension()
                .is_some_and(|extension| extension == "wasm")
            {
                files.push(file);
            }
        }
        files.sort();
        Ok(files)
    };
    match read(&path) {
        Ok(files) if files.is_empty() => Err(Error::EmptyPluginDir { path }),
        Ok(files) => Ok(files),
        Err(source) => Err(Error::ReadPluginDir { path, source }),
    }
}

fn read_object(
    what: PluginFileKind,
    plugin: &str,
    path: PathBuf,
) -> Result<Map<String, Value>, Error> {
    let plugin = plugin.to_owned();
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => {
            return Err(Error::ReadPluginFile {
                what,
                plugin,
                path,
                source,
            });
        }
    };
    match innkeeper_model::yaml::read(&text).map(<[Value; 1]>::try_from) {
        Ok(Ok([Value::Object(held)])) => Ok(held),
        Ok(_) => Err(Error::PluginFileShape { what, plugin, path }),
        Err(source) => Err(Error::ParsePluginFile {
            what,
            plugin,
            path,
            source,
        }),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "config is the only reader of the environment"
)]
fn default_cache_dir() -> Result<PathBuf, Error> {
    let named = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    named("XDG_CACHE_HOME")
        .or_else(|| named("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("innkeeper"))
        .ok_or(Error::NoCacheDir)
}
