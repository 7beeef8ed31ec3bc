//! The admin server.

use std::{net::SocketAddr, path::PathBuf};

use innkeeper_command::{Exit, Failure};

/// The name of this machine, without a request to a name server.
const LOCALHOST: &str = "localhost:";

/// Flags of health, metrics and debugging.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Health, metrics and debugging")]
pub struct AdminArgs {
    /// Serve health (/livez, /readyz) and metrics (/metrics) at ADDRESS:PORT; port 0 selects a free port [default: none].
    ///
    /// Without --admin-tls, everyone who can connect can read them. They name plugins and kinds, but no objects.
    #[arg(
        long = "admin-address",
        value_name = "ADDRESS",
        value_parser = address,
        env = "INNKEEPER_ADMIN_ADDRESS"
    )]
    pub address: Option<SocketAddr>,
    /// Serve --admin-address by HTTPS, and metrics and debug endpoints only to callers whose bearer token the API server
    /// accepts and permits to use the path (TokenReview, SubjectAccessReview). Health needs no token.
    #[arg(long = "admin-tls", requires = "address")]
    pub tls: bool,
    /// Certificate chain of --admin-tls as PEM; read again when it changes [default: one that the host makes at its
    /// start].
    #[arg(long = "admin-tls-cert", value_name = "FILE", requires_all = ["tls", "key"])]
    pub certificate: Option<PathBuf>,
    /// Private key of --admin-tls-cert as PEM; read again when it changes.
    #[arg(long = "admin-tls-key", value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Also serve /debug/state and /debug/plans, which name parents, /debug/log, which changes the log filter, and
    /// /debug/recordings, which shows parents and their children. Needs --admin-tls, or an --admin-address that only this machine reaches.
    #[arg(long = "debug-endpoints", requires = "address")]
    pub debug: bool,
}

/// The files of a certificate, in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by those of intermediate authorities.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl AdminArgs {
    /// Checks the flags together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let is_local = |address: SocketAddr| address.ip().to_canonical().is_loopback();
        if self.debug && !self.tls && !self.address.is_some_and(is_local) {
            const OPEN: &str = "--debug-endpoints would be open to the network: add --admin-tls, or listen on localhost only, as in --admin-address localhost:8080";
            return Err(Failure::new(Exit::Usage, OPEN));
        }
        Ok(())
    }

    /// The files of the certificate; none if the host makes its own.
    pub fn certificate(&self) -> Option<CertificateFiles> {
        let (certificate, key) = (self.certificate.clone()?, self.key.clone()?);
        Some(CertificateFiles { certificate, key })
    }
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
