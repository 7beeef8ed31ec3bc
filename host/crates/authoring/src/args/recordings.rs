//! The commands of recorded passes.

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

/// Flags of `bisect`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper bisect recording.json --revisions builds", "innkeeper bisect recording.json --revisions oci://registry.example/plugins/memcached --reference recorded"), exit_codes!("a revision answers differently, or a plugin failed to describe itself")))]
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
#[command(after_help = concat!(examples!("innkeeper shrink recording.json --to small.json", "innkeeper shrink recording.json --plugin new.wasm --against old.wasm --to small.json"), exit_codes!("the plugin failed to describe itself")))]
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
