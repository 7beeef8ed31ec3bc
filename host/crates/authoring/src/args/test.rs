//! The command `test`.

use std::path::PathBuf;

use innkeeper_command::{examples, exit_codes};

use super::CacheArgs;

/// Flags of `test`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper test", "innkeeper test --update", "innkeeper test plugin.wasm --cases tests --output junit"), exit_codes!("a case differs, a property does not hold, or a plugin failed to describe itself")))]
pub struct TestArgs {
    /// Plugin: a .wasm file, or a project that `innkeeper build` has built.
    #[arg(value_name = "PLUGIN.wasm|DIRECTORY", default_value = ".")]
    pub plugin: PathBuf,
    /// Directory of cases: recordings (NAME.json), or directories with parent.yaml, expect.yaml, and optionally
    /// observed/*.yaml, config.yaml and grants.yaml [default: the project's tests].
    #[arg(long, value_name = "DIRECTORY")]
    pub cases: Option<PathBuf>,
    /// Rewrite budget.yaml, and expect.yaml or the recorded answer of each case that differs.
    #[arg(long)]
    pub update: bool,
    /// Configuration for the properties, as YAML or JSON [default: an empty object].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Grants (`spec.grants`) for the properties, as YAML or JSON [default: those of `manifests --print-grants`].
    #[arg(long, value_name = "FILE")]
    pub grants: Option<PathBuf>,
    /// Generated parents per kind, 0 to 100000.
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub parents: u32,
    /// The cache.
    #[command(flatten)]
    pub cache: CacheArgs,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = TestFormat::Text)]
    pub output: TestFormat,
}

/// The output format of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TestFormat {
    /// Lines for people.
    Text,
    /// One JSON object.
    Json,
    /// JUnit XML, for CI.
    Junit,
}
