//! A kubeconfig's proxy, as in `kubectl`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, Uri, uri::Authority};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use percent_encoding::percent_decode_str;

/// The default port for SOCKS.
const SOCKS_PORT: u16 = 1080;

/// A proxy.
#[derive(Clone, Debug)]
pub(super) enum Proxy {
    /// HTTP CONNECT.
    Http(ProxyAddress),
    /// HTTP CONNECT over TLS, verified like the cluster.
    Https(ProxyAddress),
    /// SOCKS 5, which resolves host names itself.
    Socks(SocksAddress),
}

/// An HTTP proxy's address.
#[derive(Clone)]
pub(super) struct ProxyAddress {
    uri: Uri,
    authorization: Option<HeaderValue>,
}

/// A SOCKS proxy's address.
#[derive(Clone)]
pub(super) struct SocksAddress {
    uri: Uri,
    user: Option<(String, String)>,
}

/// Why `proxy-url` is unusable. Never quotes the address, which may have a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// `proxy-url` does not parse.
    #[error("it is not an address such as http://HOST:PORT")]
    Malformed,
    /// `kubectl` does not know the scheme either.
    #[error("it has the scheme \"{0}\": use http, https or socks5")]
    Scheme(String),
}

impl Proxy {
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let (scheme, rest) = text.split_once("://").ok_or(Error::Malformed)?;
        let scheme = scheme.to_ascii_lowercase();
        if !["http", "https", "socks5"].contains(&&*scheme) {
            return Err(Error::Scheme(scheme));
        }
        let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // The last one: a password may contain others.
        let (user, address) = match rest.rsplit_once('@') {
            Some((user, address)) => (Some(user_and_password(user)), address),
            None => (None, rest),
        };
        let mut authority: Authority = address.parse().map_err(|_| Error::Malformed)?;
        // `Authority` also accepts ports that are not numbers. A last colon before `]` is part of an IPv6 address.
        let port = address.rsplit_once(':').map(|(_, port)| port);
        if port.is_some_and(|port| !port.ends_with(']')) && authority.port_u16().is_none() {
            return Err(Error::Malformed);
        }
        if scheme == "socks5" && authority.port().is_none() {
            let with_port = format!("{authority}:{SOCKS_PORT}");
            authority = with_port.parse().map_err(|_| Error::Malformed)?;
        }
        let uri = Uri::builder()
            .scheme(&*scheme)
            .authority(authority)
            // A URI with a scheme needs a path.
            .path_and_query("/")
            .build()
            .map_err(|_| Error::Malformed)?;
        Ok(match &*scheme {
            "socks5" => Self::Socks(SocksAddress { uri, user }),
            "https" => Self::Https(ProxyAddress::new(uri, user)?),
            _ => Self::Http(ProxyAddress::new(uri, user)?),
        })
    }
}

impl ProxyAddress {
    fn new(uri: Uri, user: Option<(String, String)>) -> Result<Self, Error> {
        let authorization = user.map(|(user, password)| {
            let text = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
            HeaderValue::try_from(text).map_err(|_| Error::Malformed)
        });
        let mut authorization = authorization.transpose()?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        Ok(Self { uri, authorization })
    }

    pub(super) fn connector<C>(&self, connector: C) -> Tunnel<C> {
        let tunnel = Tunnel::new(self.uri.clone(), connector);
        match &self.authorization {
            Some(value) => tunnel.with_auth(value.clone()),
            None => tunnel,
        }
    }
}

impl SocksAddress {
    pub(super) fn connector<C>(&self, connector: C) -> SocksV5<C> {
        let socks = SocksV5::new(self.uri.clone(), connector);
        match self.user.clone() {
            Some((user, password)) => socks.with_auth(user, password),
            None => socks,
        }
    }
}

// Without the password.
impl std::fmt::Debug for ProxyAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.uri)
    }
}

impl std::fmt::Debug for SocksAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.uri)
    }
}

fn user_and_password(text: &str) -> (String, String) {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    (decoded(user), decoded(password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_has_one_of_three_schemes_and_perhaps_a_user() {
        let shown = |text: &str| match Proxy::parse(text) {
            Ok(Proxy::Http(proxy) | Proxy::Https(proxy)) => {
                let user = proxy
                    .authorization
                    .as_ref()
                    .map_or("", |value| value.to_str().unwrap());
                format!("{} {user}", proxy.uri)
            }
            Ok(Proxy::Socks(proxy)) => format!("{} {:?}", proxy.uri, proxy.user),
            Err(error) => error.to_string(),
        };
        for (text, expected) in [
            ("http://h:1", "http://h:1/ "),
            ("HTTPS://h", "https://h/ "),
            ("http://u:p%40ss@h:1/", "http://h:1/ Basic dTpwQHNz"),
            ("http://u@h:1", "http://h:1/ Basic dTo="),
            ("http://[::1]:3128", "http://[::1]:3128/ "),
            ("socks5://h", "socks5://h:1080/ None"),
            ("socks5://u:p@h:1", "socks5://h:1/ Some((\"u\", \"p\"))"),
            (
                "socks4://h:1",
                "it has the scheme \"socks4\": use http, https or socks5",
            ),
            ("h:3128", "it is not an address such as http://HOST:PORT"),
            ("http://", "it is not an address such as http://HOST:PORT"),
            (
                "http://h:x",
                "it is not an address such as http://HOST:PORT",
            ),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }
}
