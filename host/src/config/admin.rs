//! The admin server.

use std::net::SocketAddr;

/// The name of this machine, without a request to a name server.
const LOCALHOST: &str = "localhost:";

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
        value_parser = address,
        env = "INNKEEPER_ADMIN_ADDRESS"
    )]
    pub address: Option<SocketAddr>,
    /// Also serve /debug/state, which names parents, /debug/log, which changes the log filter, and /debug/recordings, which
    /// shows parents and their children, to clients on the same machine.
    #[arg(long = "debug-endpoints", requires = "address")]
    pub debug: bool,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let numeric = text
        .strip_prefix(LOCALHOST)
        .map(|port| format!("127.0.0.1:{port}"));
    let parsed = numeric.as_deref().unwrap_or(text).parse();
    parsed.map_err(|_| {
        "write it as ADDRESS:PORT with an IP address or localhost, for example localhost:8080"
            .to_owned()
    })
}
