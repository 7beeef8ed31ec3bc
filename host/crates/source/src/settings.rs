//! What bounds a fetch, and how to reach servers.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// What bounds a fetch, and how to reach servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The directory that plugins may be read from; none: no plugin is a file.
    pub source_dir: Option<PathBuf>,
    /// The largest plugin, in bytes.
    pub bytes_max: u64,
    /// Whether servers may be in the cluster's own network, on this node or in this Pod.
    ///
    /// Whoever writes a Plugin chooses the address, and the host may reach what they may not: a cloud's metadata
    /// service, for one.
    pub allow_local: bool,
    /// Certificates of authorities that are trusted in addition to the system's, as PEM.
    pub certificates_pem: Vec<u8>,
    /// Through what to speak with servers.
    pub proxies: Proxies,
    /// Other registries that have what a registry has, by its name; asked first, in this order, for pulls only.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// For how long to wait for a connection.
    pub connect: Duration,
    /// For how long a server may be silent.
    pub silence: Duration,
    /// How long a whole fetch may take.
    pub total: Duration,
    /// The slowest that a server may send, in bytes per second, beyond one silence.
    pub rate_bytes_min: u64,
}

/// Through what to speak with servers.
///
/// A proxy resolves names itself, so the addresses behind it are its business and not checked here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    /// For `https` addresses, as in `HTTPS_PROXY`.
    pub https: Option<String>,
    /// For `http` addresses, as in `HTTP_PROXY`.
    pub http: Option<String>,
    /// Which hosts are spoken with directly, as in `NO_PROXY`.
    pub no_proxy: Option<String>,
}

impl From<[Option<String>; 3]> for Proxies {
    /// From the proxies for `https` and for `http`, and what needs none.
    fn from([https, http, no_proxy]: [Option<String>; 3]) -> Self {
        Self {
            https,
            http,
            no_proxy,
        }
    }
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
