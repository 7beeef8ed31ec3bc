//! Who may ask the host how it is.

use std::net::SocketAddr;

/// Flags of health, metrics and debugging.
#[derive(Debug, clap::Args)]
pub(super) struct AdminArgs {
    /// Where to answer for health (/livez, /readyz) and metrics (/metrics), as ADDRESS:PORT; by default nowhere.
    ///
    /// Whoever can connect can read them: they name plugins and kinds, and no objects.
    #[arg(
        long = "admin-address",
        value_name = "ADDRESS",
        env = "INNKEEPER_ADMIN_ADDRESS"
    )]
    address: Option<SocketAddr>,
    /// Also answer with /debug/state, which names parents, and /debug/log, by which the log's level can be changed.
    #[arg(long = "debug-endpoints", requires = "address")]
    debug: bool,
}

/// Where the host answers for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// The address; port 0 takes any that is free.
    pub address: SocketAddr,
    /// Whether parents are named, and the log can be changed.
    pub debug: bool,
}

impl AdminArgs {
    pub(super) fn into_settings(self) -> Option<AdminSettings> {
        let Self { address, debug } = self;
        address.map(|address| AdminSettings { address, debug })
    }
}
