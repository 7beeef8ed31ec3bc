//! The commands of recorded passes.

use std::{path::PathBuf, time::Duration};

use clap::builder::{PathBufValueParser, TypedValueParser as _};

use innkeeper_model::PluginName;

use super::{
    AdminAddress, AdminClientArgs, Inspected, LoadArgs, ParentName, ResultFormat,
    streams::{examples, exit_codes},
    values::seconds,
};
use crate::failure::Failure;

/// The most recordings of an order to a host.
pub const RECORDINGS_MAX: u32 = 100;

/// The longest time of an order to a host, in seconds.
pub const RECORDING_SECONDS_MAX: u64 = 3600;

/// Flags of `record`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("target").required(true).args(["parent", "plugin"]),
    after_help = concat!(examples!("innkeeper record --parent team-a/web --admin-address 127.0.0.1:8080", "innkeeper record --plugin memcached --next-faults 3 --timeout 1h --to recordings --admin-address https://127.0.0.1:8080 --insecure-skip-tls-verify --token-file debugger.token"), exit_codes!("fewer recordings than ordered in the time"))
)]
pub struct RecordArgs {
    /// Record the next call for this parent; the host calls the plugin at once, even if nothing has changed.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub parent: Option<ParentName>,
    /// Record calls of this plugin.
    #[arg(long, value_name = "NAME", value_parser = PluginName::new, requires = "next_faults")]
    pub plugin: Option<PluginName>,
    /// With --plugin: record this many calls that end with a fault of the plugin, 1 to 100.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(RECORDINGS_MAX)), requires = "plugin")]
    pub next_faults: Option<u32>,
    /// Host with this --admin-address, which must run with --debug-endpoints, as HOST:PORT, or as https://HOST:PORT if it
    /// runs with --admin-tls. `kubectl port-forward` brings the port of a Pod to this machine.
    #[arg(long, value_name = "ADDRESS", env = "INNKEEPER_ADMIN_ADDRESS")]
    pub admin_address: AdminAddress,
    /// The connection to the host.
    #[command(flatten)]
    pub client: AdminClientArgs,
    /// Time to wait for the recordings, 1 s to 1 h.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = seconds(1..=RECORDING_SECONDS_MAX))]
    pub timeout: Duration,
    /// Directory of the files PLUGIN-NAMESPACE-NAME-N.json, which are made for their owner only; created if missing.
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    pub to: PathBuf,
}

impl RecordArgs {
    /// Checks the flags together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.client.check(Some(&self.admin_address))
    }
}

/// Flags of `replay`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper replay recording.json", "innkeeper replay recording.json --plugin oci://registry.example/plugins/memcached:1.5.0 --output json"), exit_codes!("the answer is not the recorded one")))]
pub struct ReplayArgs {
    /// Recording of a pass, from `innkeeper record` or the log; - reads standard input.
    ///
    /// A host with the log filter recording=trace logs each call of a guest, and with [pass{plugin=NAME}]=trace those of
    /// one plugin. A recording has all inputs of the guest, so the plugin may be another build.
    #[arg(value_name = "RECORDING")]
    pub recording: PathBuf,
    /// Plugin: a .wasm file, or an artifact in a registry; it gets the default limits [default: the plugin of the project
    /// in the current directory, as `innkeeper build` has built it].
    #[arg(long, value_name = "FILE|oci://REFERENCE", value_parser = PathBufValueParser::new().map(Inspected::from))]
    pub plugin: Option<Inspected>,
    /// The registry and the cache.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = ResultFormat::Text)]
    pub output: ResultFormat,
}

/// Flags of `bisect`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper bisect recording.json --revisions builds", "innkeeper bisect recording.json --revisions oci://registry.example/plugins/memcached --reference recorded"), exit_codes!("a revision answers differently")))]
pub struct BisectArgs {
    /// Recording of a pass, from `innkeeper record` or the log; - reads standard input.
    #[arg(value_name = "RECORDING")]
    pub recording: PathBuf,
    /// Revisions: a directory of .wasm files, or a repository whose tags are semantic versions.
    ///
    /// Files are ordered by the version at the end of their names (memcached-1.4.0.wasm), else by that of their descriptions;
    /// if one has neither, by name. Other tags are ignored.
    #[arg(long, value_name = "DIRECTORY|oci://REPOSITORY", value_parser = PathBufValueParser::new().map(Inspected::from))]
    pub revisions: Inspected,
    /// Answer from which the first revision differs.
    #[arg(long, value_enum, default_value_t = BisectReference::Oldest)]
    pub reference: BisectReference,
    /// The registry and the cache.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = ResultFormat::Text)]
    pub output: ResultFormat,
}

/// Flags of `shrink`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper shrink recording.json --to small.json", "innkeeper shrink recording.json --plugin new.wasm --against old.wasm --to small.json"), exit_codes!()))]
pub struct ShrinkArgs {
    /// Recording of a pass, from `innkeeper record` or the log; - reads standard input.
    #[arg(value_name = "RECORDING")]
    pub recording: PathBuf,
    /// Plugin: a .wasm file, or an artifact in a registry; it gets the default limits [default: the plugin of the project
    /// in the current directory, as `innkeeper build` has built it].
    #[arg(long, value_name = "FILE|oci://REFERENCE", value_parser = PathBufValueParser::new().map(Inspected::from))]
    pub plugin: Option<Inspected>,
    /// Other build of the plugin, from whose answer the plugin's must differ; its answer becomes the recorded one
    /// [default: the plugin must end with the same fault].
    #[arg(long, value_name = "FILE|oci://REFERENCE", value_parser = PathBufValueParser::new().map(Inspected::from))]
    pub against: Option<Inspected>,
    /// File of the smaller recording, which is made for its owner only; it must not exist.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// The registry and the cache.
    #[command(flatten)]
    pub load: LoadArgs,
}

/// The answer that the revisions are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BisectReference {
    /// The answer of the oldest revision.
    Oldest,
    /// The answer in the recording.
    Recorded,
}
