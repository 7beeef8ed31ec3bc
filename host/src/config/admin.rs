//! The admin server.

use std::net::SocketAddr;

/// Flags of health, metrics and debugging.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Health, metrics and debugging")]
pub struct AdminArgs {
    /// Serve health (/livez, /readyz) and metrics (/metrics) at ADDRESS:PORT; port 0 selects a free port [default: none].
    ///
    /// Everyone who can connect can read them. They name plugins and kinds, but no objects.
    #[arg(
        long = "admin-address",
        value_name = "ADDRESS",
        env = "INNKEEPER_ADMIN_ADDRESS"
    )]
    pub address: Option<SocketAddr>,
    /// Also serve /debug/state, which names parents, and /debug/log, which changes the log filter, to clients on the same
    /// machine.
    #[arg(long = "debug-endpoints", requires = "address")]
    pub debug: bool,
}
