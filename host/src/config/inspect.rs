//! The command `inspect`.

use std::path::PathBuf;

/// How `inspect` ends.
const EXIT_CODES: &str = "\
Exit codes:
  0  the file is a plugin that this host can run
  3  the file is a plugin that failed to describe itself
  4  the file is something else, or cannot be read; what it is stands on standard output, why not on standard error";

/// Flags of `inspect`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct InspectArgs {
    /// The file to look at, at most 32 MiB
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print in this form
    #[arg(long, short, value_enum, default_value_t = InspectFormat::Text)]
    pub output: InspectFormat,
}

/// How the findings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum InspectFormat {
    /// For people.
    Text,
    /// As one JSON object.
    Json,
}
