//! The command `inspect`.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use innkeeper_command::{ResultFormat, examples, exit_codes};

use super::LoadArgs;

/// The prefix of a reference to an artifact.
const SCHEME: &str = "oci://";

/// Flags of `inspect`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper inspect plugin.wasm", "innkeeper inspect oci://registry.example/plugins/memcached:1.4.0 --output json"), exit_codes!("the file is no plugin that this host can run; standard output has its known properties")))]
pub struct InspectArgs {
    /// A .wasm file of at most 32 MiB, or an artifact in a registry.
    #[arg(value_name = "FILE|oci://REFERENCE", value_parser = PathBufValueParser::new().map(Inspected::from))]
    pub target: Inspected,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = ResultFormat::Text)]
    pub output: ResultFormat,
    /// The registry and the cache.
    #[command(flatten)]
    pub load: LoadArgs,
}

/// A file, or an artifact in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspected {
    /// A file.
    File(PathBuf),
    /// An artifact, by its reference.
    Artifact(String),
}

impl std::fmt::Display for Inspected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Artifact(reference) => write!(f, "{SCHEME}{reference}"),
        }
    }
}

impl From<PathBuf> for Inspected {
    fn from(target: PathBuf) -> Self {
        match target.to_str().and_then(|text| text.strip_prefix(SCHEME)) {
            Some(reference) => Self::Artifact(reference.to_owned()),
            None => Self::File(target),
        }
    }
}
