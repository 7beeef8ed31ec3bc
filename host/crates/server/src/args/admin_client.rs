//! A command's connection to a running host's admin server.

use std::{fmt, str::FromStr};

use clap::builder::{PathBufValueParser, TypedValueParser};
use http::HeaderValue;
use innkeeper_command::{
    Exit, Failure,
    values::{Pem, authorities, read_text},
};

/// The address of a host's admin server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminAddress {
    /// True if the host runs with --admin-tls.
    pub is_secure: bool,
    host_and_port: String,
}

impl AdminAddress {
    /// Returns a path's URL.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.host_and_port)
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https://" } else { "" };
        write!(f, "{scheme}{}", self.host_and_port)
    }
}

impl FromStr for AdminAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "give HOST:PORT, as in 127.0.0.1:8080, or https://HOST:PORT for a host with --admin-tls";

        let (is_secure, rest) = match text.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix("http://").unwrap_or(text)),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or(EXPECTED)?;
        // A user would be sent as credentials, and the path is the client's own.
        let is_host = !host.is_empty() && !host.contains(['/', '@', '?', '#', ' ']);
        if is_host && port.parse::<u16>().is_ok_and(|port| port > 0) {
            Ok(Self {
                is_secure,
                host_and_port: rest.to_owned(),
            })
        } else {
            Err(EXPECTED)
        }
    }
}

/// Flags for the connection to a host with --admin-tls.
///
/// The kubeconfig's token is not the default: a host that received it could act as the user.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Connection to https://HOST:PORT")]
pub struct AdminClientArgs {
    /// File with a token for the debug endpoints, as from `kubectl create token`.
    #[arg(long, value_name = "FILE", requires = "admin_address", value_parser = token())]
    pub token_file: Option<HeaderValue>,
    /// Trust the authorities in this PEM file in addition to the system's.
    #[arg(long, value_name = "FILE", requires = "admin_address", value_parser = authorities())]
    pub ca_file: Option<Pem>,
    /// Accept every certificate, for hosts without --admin-tls-cert. Any server at this address receives the token:
    /// connect through `kubectl port-forward`, which verifies the cluster.
    #[arg(long, requires = "admin_address", conflicts_with = "ca_file")]
    pub insecure_skip_tls_verify: bool,
}

impl AdminClientArgs {
    /// Checks that the flags fit the address.
    pub fn check(&self, address: Option<&AdminAddress>) -> Result<(), Failure> {
        let has_tls_flag =
            self.token_file.is_some() || self.ca_file.is_some() || self.insecure_skip_tls_verify;
        match address {
            Some(address) if has_tls_flag && !address.is_secure => {
                let secure = AdminAddress {
                    is_secure: true,
                    ..address.clone()
                };
                let message = format!(
                    "--token-file, --ca-file and --insecure-skip-tls-verify are for hosts with --admin-tls: give --admin-address {secure}"
                );
                Err(Failure::new(Exit::Usage, message))
            }
            _ => Ok(()),
        }
    }
}

/// Reads a token file into an Authorization header, which is never printed.
fn token() -> impl TypedValueParser<Value = HeaderValue> {
    const EXPECTED: &str =
        "it contains no token: give one line, as `kubectl create token ACCOUNT` prints it";

    PathBufValueParser::new().try_map(|path| {
        let text = read_text(&path)?;
        let token = text.trim();
        let is_token = !token.is_empty() && !token.contains(char::is_whitespace);
        let header = is_token.then(|| HeaderValue::try_from(format!("Bearer {token}")));
        let Some(Ok(mut header)) = header else {
            return Err(EXPECTED.to_owned());
        };
        header.set_sensitive(true);
        Ok(header)
    })
}
