//! Flags of the command of recorded passes.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser as _};
use innkeeper_command::{ResultFormat, examples, exit_codes};

use super::{Inspected, LoadArgs};

/// Flags of `replay`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper replay recording.json", "innkeeper replay recording.json --plugin oci://registry.example/plugins/memcached:1.5.0 --output json"), exit_codes!("the answer is not the recorded one, or a plugin failed to describe itself")))]
pub struct ReplayArgs {
    /// Recording from `innkeeper record` or the log (filter recording=trace, or [pass{plugin=NAME}]=trace for one
    /// plugin); - reads standard input.
    ///
    /// A recording has all inputs, so the plugin may be another build.
    #[arg(value_name = "RECORDING")]
    pub recording: PathBuf,
    /// Plugin: a .wasm file, or an artifact in a registry; it gets the default limits [default: the current project's,
    /// built by `innkeeper build`].
    #[arg(long, value_name = "FILE|oci://REFERENCE", value_parser = PathBufValueParser::new().map(Inspected::from))]
    pub plugin: Option<Inspected>,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = ResultFormat::Text)]
    pub output: ResultFormat,
    /// The registry and the cache.
    #[command(flatten)]
    pub load: LoadArgs,
}
