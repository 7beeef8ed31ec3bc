//! Flags of the command of recorded passes.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser as _};
use innkeeper_command::{ResultFormat, examples, exit_codes};

use super::{Inspected, LoadArgs};

/// Flags of `replay`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper replay recording.json", "innkeeper replay recording.json --plugin oci://registry.example/plugins/memcached:1.5.0 --output json"), exit_codes!("the answer is not the recorded one, or a plugin failed to describe itself")))]
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
