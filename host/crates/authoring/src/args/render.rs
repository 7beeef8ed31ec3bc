//! The command `render`.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser as _};
use innkeeper_command::{examples, exit_codes};

use super::{Inspected, LoadArgs};

/// Flags of `render`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper render --plugin plugin.wasm --parent parent.yaml", "innkeeper render --plugin plugin.wasm --parent parent.yaml --observed children/ --output json"), exit_codes!("the parent is rejected, or the plugin failed or broke a rule")))]
pub struct RenderArgs {
    /// Plugin: a .wasm file, or an artifact in a registry; it gets the default limits.
    #[arg(long, value_name = "FILE|oci://REFERENCE", value_parser = PathBufValueParser::new().map(Inspected::from))]
    pub plugin: Inspected,
    /// Parent: a YAML or JSON file with one object; - reads standard input.
    #[arg(value_name = "PARENT", required_unless_present = "parent")]
    pub parent_file: Option<PathBuf>,
    /// Same as PARENT.
    #[arg(long, value_name = "FILE", conflicts_with = "parent_file")]
    pub parent: Option<PathBuf>,
    /// Existing objects: files, or directories of .yaml, .yml and .json files; - reads standard input.
    ///
    /// The parent's own are its children; all of them answer the plugin's reads.
    #[arg(long, value_name = "FILE|DIR")]
    pub observed: Vec<PathBuf>,
    /// Configuration as YAML or JSON [default: an empty object].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Grants (`spec.grants`) as YAML or JSON [default: those of `manifests --print-grants`].
    #[arg(long, value_name = "FILE")]
    pub grants: Option<PathBuf>,
    /// Phase of the pass.
    #[arg(long, value_enum, default_value_t = RenderPhase::Reconcile)]
    pub phase: RenderPhase,
    /// Time of the pass, as 2030-01-31T08:00:00Z [default: now].
    #[arg(long, value_name = "TIME")]
    pub now: Option<jiff::Timestamp>,
    /// Seed of random bytes and generated values, 0 to 2^64-1.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Hash key for Secrets and ConfigMaps: this file's bytes [default: a fixed key].
    #[arg(long, value_name = "FILE")]
    pub hash_key: Option<PathBuf>,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = OutputFormat::Yaml)]
    pub output: OutputFormat,
    /// The registry and the cache.
    #[command(flatten)]
    pub load: LoadArgs,
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
