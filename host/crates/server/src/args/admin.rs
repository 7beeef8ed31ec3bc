//! The admin server's flags.

use std::{net::SocketAddr, path::PathBuf};

use innkeeper_command::{Exit, Failure};

/// Resolved without a name server.
const LOCALHOST: &str = "localhost:";

/// Flags for health, metrics and debugging.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Health, metrics and debugging")]
pub struct AdminArgs {
    /// Serve /livez, /readyz and /metrics at ADDRESS:PORT; port 0 selects a free port.
    ///
    /// Without --admin-tls, anyone who can connect can read them. They name plugins and kinds, but no objects.
    #[arg(
        long = "admin-address",
        value_name = "ADDRESS",
        value_parser = address,
        env = "INNKEEPER_ADMIN_ADDRESS"
    )]
    pub address: Option<SocketAddr>,
    /// Serve --admin-address over HTTPS. Metrics and debug endpoints then need a bearer token that the API server
    /// authorizes for the path.
    #[arg(long = "admin-tls", requires = "address")]
    pub tls: bool,
    /// Certificate chain for --admin-tls as PEM; reloaded on change [default: self-signed, created at startup].
    #[arg(long = "admin-tls-cert", value_name = "FILE", requires_all = ["tls", "key"])]
    pub certificate: Option<PathBuf>,
    /// Private key for --admin-tls-cert as PEM; reloaded on change.
    #[arg(long = "admin-tls-key", value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Also serve /debug/state, /debug/plans, /debug/recordings (they show parents and children) and /debug/log (sets
    /// the log filter). Needs --admin-tls or an --admin-address on localhost.
    #[arg(long = "debug-endpoints", requires = "address")]
    pub debug: bool,
}

/// Certificate files in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by its intermediate authorities.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl AdminArgs {
    /// Checks the flags together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        // `is_loopback` alone does not know ::ffff:127.0.0.1.
        let is_local = |address: SocketAddr| address.ip().to_canonical().is_loopback();
        if self.debug && !self.tls && !self.address.is_some_and(is_local) {
            const OPEN: &str = "--debug-endpoints would be open to the network: add --admin-tls, or listen on localhost only, as in --admin-address localhost:8080";
            return Err(Failure::new(Exit::Usage, OPEN));
        }
        Ok(())
    }

    /// The certificate's files; none if the host creates its own.
    pub fn certificate(&self) -> Option<CertificateFiles> {
        Some(CertificateFiles {
            certificate: self.certificate.clone()?,
            key: self.key.clone()?,
        })
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let numeric = text
        .strip_prefix(LOCALHOST)
        .map(|port| format!("127.0.0.1:{port}"));
    numeric.as_deref().unwrap_or(text).parse().map_err(|_| {
        "write it as ADDRESS:PORT with an IP address or localhost, for example localhost:8080"
            .to_owned()
    })
}
