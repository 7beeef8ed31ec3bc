//! The command `status`.

use std::time::Duration;

use innkeeper_command::{Failure, ResultFormat, examples, exit_codes, values::seconds};
use innkeeper_server::{AdminAddress, AdminClientArgs, ConnectionArgs};

/// Flags of `status`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(examples!("innkeeper status", "innkeeper status --watch", "innkeeper status --admin-address 127.0.0.1:8080 --output json"), exit_codes!("the lease of a host is missing or not renewed, a plugin is not active as declared, or a parent is not Ready; never with --watch")))]
pub struct StatusArgs {
    /// Ask the host with this --admin-address, which must run with --debug-endpoints, as HOST:PORT, or as
    /// https://HOST:PORT if it runs with --admin-tls [default: ask the cluster, which does not know the faults of plugin
    /// files].
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "INNKEEPER_ADMIN_ADDRESS",
        conflicts_with_all = ["kubeconfig", "context"]
    )]
    pub admin_address: Option<AdminAddress>,
    /// The connection to the host.
    #[command(flatten)]
    pub client: AdminClientArgs,
    /// The cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Show every change until Ctrl-C.
    #[arg(long, short)]
    pub watch: bool,
    /// With --watch: time between two requests, in seconds, 1 to 3600.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds(1..=3600), requires = "watch")]
    pub interval: Duration,
    /// Output format; with --watch, JSON is one line per change.
    #[arg(long, short, value_enum, default_value_t = ResultFormat::Text)]
    pub output: ResultFormat,
}

impl StatusArgs {
    /// Checks the flags together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.client.check(self.admin_address.as_ref())
    }
}
