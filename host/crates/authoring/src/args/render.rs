//! The command `render`.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser as _};
use innkeeper_command::{examples, exit_codes};

use super::{Inspected, LoadArgs};

/// Flags of `render`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper render --plugin plugin.wasm --parent parent.yaml", "innkeeper render --plugin plugin.wasm --parent parent.yaml --observed children/ --output json"), exit_codes!("the parent is rejected, or the plugin failed or broke a rule")))]
pub struct RenderArgs {
    /// Plugin: a .wasm file, or an artifact in a registry; it gets the default limits
    #[arg(long, value_name = "FILE|oci://REFERENCE", value_parser = PathBufValueParser::new().map(Inspected::from))]
    pub plugin: Inspected,
    /// Parent: a file with one object as YAML or JSON; - reads standard input
    #[arg(value_name = "PARENT", required_unless_present = "parent")]
    pub parent_file: Option<PathBuf>,
    /// Parent, as the argument PARENT
    #[arg(long, value_name = "FILE", conflicts_with = "parent_file")]
    pub parent: Option<PathBuf>,
    /// Existing objects: a file, or all .yaml, .yml and .json files of a directory; - reads standard input
    ///
    /// Those that belong to the parent are its children, and all of them answer the plugin's reads.
    /// May be given more than once [default: none].
    #[arg(long, value_name = "FILE|DIR")]
    pub observed: Vec<PathBuf>,
    /// Configuration: a YAML or JSON file with one object [default: an empty object]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Grants: a YAML or JSON file in the form of `spec.grants` of a Plugin [default: those of `manifests --print-grants`]
    #[arg(long, value_name = "FILE")]
    pub grants: Option<PathBuf>,
    /// Phase of the pass
    #[arg(long, value_enum, default_value_t = RenderPhase::Reconcile)]
    pub phase: RenderPhase,
    /// Time of the pass, as 2030-01-31T08:00:00Z (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME")]
    pub now: Option<jiff::Timestamp>,
    /// Seed of random bytes and generated values, 0 to 2^64-1
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Key for the hashes of Secrets and ConfigMaps: the bytes of this file [default: a fixed key]
    #[arg(long, value_name = "FILE")]
    pub hash_key: Option<PathBuf>,
    /// The registry and the cache.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = OutputFormat::Yaml)]
    pub output: OutputFormat,
}

/// The phase of a rendered pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RenderPhase {
    /// The parent is reconciled.
    Reconcile,
    /// The parent is being deleted.
    Finalize,
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OutputFormat {
    /// The children as YAML documents, ready for kubectl apply.
    Yaml,
    /// The outcome as one JSON object: fault, children, status, conditions, events, reads.
    Json,
}
