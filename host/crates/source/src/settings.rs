//! Fetch limits and network settings.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// Fetch limits and network settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The plugin file directory; none: files are not allowed as sources.
    pub source_dir: Option<PathBuf>,
    /// The largest plugin, in bytes.
    pub bytes_max: u64,
    /// Allows servers in the cluster's own network, on this node or in this Pod.
    ///
    /// The Plugin's author chooses the address, and the host can reach servers that the author must not reach, such as
    /// a cloud's metadata service.
    pub allow_local: bool,
    /// Certificates for authorities that are trusted in addition to the system's, as PEM.
    pub certificates_pem: Vec<u8>,
    /// The proxies.
    pub proxies: Proxies,
    /// Registry mirrors by registry name; tried first, in this order, for pulls only.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Timeout for connecting.
    pub connect: Duration,
    /// Timeout while the server sends nothing.
    pub silence: Duration,
    /// Timeout for a whole fetch.
    pub total: Duration,
    /// The slowest accepted rate in bytes per second, measured after the first allowed silence.
    pub rate_bytes_min: u64,
}

/// The proxies for requests to servers.
///
/// A proxy resolves names itself, so the addresses behind it are not checked here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    /// For `https` addresses, as in `HTTPS_PROXY`.
    pub https: Option<String>,
    /// For `http` addresses, as in `HTTP_PROXY`.
    pub http: Option<String>,
    /// The hosts that are reached without a proxy, as in `NO_PROXY`.
    pub no_proxy: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            source_dir: None,
            bytes_max: 32 * 1024 * 1024,
            allow_local: false,
            certificates_pem: Vec::new(),
            proxies: Proxies::default(),
            mirrors: BTreeMap::new(),
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            total: Duration::from_mins(5),
            rate_bytes_min: 16 * 1024,
        }
    }
}
