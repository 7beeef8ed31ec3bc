//! The command `status`.

use std::time::Duration;

use innkeeper_command::{ResultFormat, examples, exit_codes, values::seconds};
use innkeeper_server::ConnectionArgs;

/// Flags of `status`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper status", "innkeeper status --watch"), exit_codes!("the lease of a host is missing or not renewed, a plugin is not active as declared, or a parent is not Ready; never with --watch")))]
pub struct StatusArgs {
    /// Show each change until Ctrl-C.
    #[arg(long, short)]
    pub watch: bool,
    /// With --watch: request interval, 1 to 3600.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds(1..=3600), requires = "watch")]
    pub interval: Duration,
    /// Output format; with --watch, JSON is one line per change.
    #[arg(long, short, value_enum, default_value_t = ResultFormat::Text)]
    pub output: ResultFormat,
    /// The cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}
