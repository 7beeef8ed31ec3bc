//! The commands `completions` and `man`.

use std::path::PathBuf;

use clap_complete::Shell;
use innkeeper_command::{examples, exit_codes};

/// Flags of `completions`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper completions bash"), exit_codes!()))]
pub struct CompletionsArgs {
    /// Shell.
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: Shell,
}

/// Flags of `man`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper man target/man"), exit_codes!()))]
pub struct ManArgs {
    /// Directory for the pages; created if it does not exist.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}
