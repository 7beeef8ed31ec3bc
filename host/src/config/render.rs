//! The command `render`.

use std::path::PathBuf;

use super::streams::exit_codes;

/// Flags of `render`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = exit_codes!("the parent is rejected, the plugin failed or broke a rule, or the answer is not the recorded one"))]
pub struct RenderArgs {
    /// Ask the plugin in this .wasm file, with the limits that `run` would give it
    #[arg(long, value_name = "FILE")]
    pub plugin: PathBuf,
    /// Reconcile this parent: one object as YAML or JSON; - reads standard input
    #[arg(long, value_name = "FILE", required_unless_present = "recording")]
    pub parent: Option<PathBuf>,
    /// Repeat the pass of this recording, and say how the answer differs; - reads standard input
    ///
    /// A host writes one for every call of a guest to its log where the filter has recording=trace, and for the calls
    /// of one plugin where it has [pass{plugin=NAME}]=trace.
    /// It holds all that the guest was shown, with the configuration: the plugin may be another build.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["parent", "observed", "config", "grants", "phase", "now", "seed", "hash_key"]
    )]
    pub recording: Option<PathBuf>,
    /// Let these objects exist: a file, or all .yaml, .yml and .json files of a directory; - reads standard input
    ///
    /// Those that belong to the parent are its children, all of them answer the plugin's reads.
    /// May be given more than once [default: nothing exists].
    #[arg(long, value_name = "FILE|DIR")]
    pub observed: Vec<PathBuf>,
    /// Configure the plugin by a YAML or JSON file with one object [default: an empty one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Let the plugin do what this YAML or JSON file says, in the form of `spec.grants` of a Plugin [default: as `run`]
    #[arg(long, value_name = "FILE")]
    pub grants: Option<PathBuf>,
    /// Run the pass for this reason
    #[arg(long, value_enum, default_value_t = RenderPhase::Reconcile)]
    pub phase: RenderPhase,
    /// Let this be the time, as 2030-01-31T08:00:00Z (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME")]
    pub now: Option<jiff::Timestamp>,
    /// Make random bytes and generated values from this number, 0 to 2^64-1: the same number gives the same values
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Hash Secrets and ConfigMaps with the bytes of this file, as a cluster does with its key [default: a fixed key]
    #[arg(long, value_name = "FILE")]
    pub hash_key: Option<PathBuf>,
    /// Keep compiled plugins in this directory, so that the next call starts faster [default: nothing is kept]
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Print in this form
    #[arg(long, short, value_enum, default_value_t = OutputFormat::Yaml)]
    pub output: OutputFormat,
}

/// Why a rendered pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RenderPhase {
    /// The parent is to be brought to what it declares.
    Reconcile,
    /// The parent is being deleted.
    Finalize,
}

/// How a result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OutputFormat {
    /// The children as YAML documents, ready for kubectl apply.
    Yaml,
    /// The whole outcome as one JSON object: fault, children, status, conditions, events, reads.
    Json,
}
