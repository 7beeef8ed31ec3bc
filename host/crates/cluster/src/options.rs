//! The limits and times of reading; every field has a default.

use std::{sync::Arc, time::Duration};

/// How the cluster is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where jitter begins; random, so that hosts that start together do not stay together.
    pub seed: u64,
    /// The namespaces of which objects are seen; none: all. Kinds that live in none are seen either way.
    pub namespaces: Option<Arc<[Arc<str>]>>,
    /// Whether CustomResourceDefinitions are watched, to see at once when a kind appears or goes.
    pub watch_definitions: bool,
    /// Objects in one page of a list.
    pub page_objects_max: u32,
    /// Bytes of one page of a list, and of a discovery document.
    pub page_bytes_max: usize,
    /// Bytes of one object; the API server itself takes about 1.5 MiB.
    pub object_bytes_max: usize,
    /// Pages that are fetched at the same time, so that a start needs little memory.
    pub pages_at_once_max: usize,
    /// How long a request other than a watch may take.
    pub request_timeout: Duration,
    /// A watch is asked for at least so long.
    pub watch_min: Duration,
    /// A watch is asked for at most so long. With the grace below 200 s: load balancers drop idle connections from
    /// 240 s on and tell nobody.
    pub watch_max: Duration,
    /// A watch that the server should have ended is cut off after so long.
    pub watch_grace: Duration,
    /// A watch that held so long was not refused, whatever ended it: what comes next begins with the first pause.
    pub watch_held: Duration,
    /// The first pause after a failure; doubled each time.
    pub retry_min: Duration,
    /// The longest pause after a failure.
    pub retry_max: Duration,
    /// How often discovery is asked without a reason.
    pub discovery_interval: Duration,
    /// How long own writes may stay unseen before they are read live.
    pub own_writes_timeout: Duration,
}

impl Options {
    /// The defaults, with a seed.
    pub const fn new(seed: u64) -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            seed,
            namespaces: None,
            watch_definitions: true,
            page_objects_max: 500,
            page_bytes_max: 512 * MIB,
            object_bytes_max: 32 * MIB,
            pages_at_once_max: 4,
            request_timeout: Duration::from_mins(1),
            watch_min: Duration::from_secs(100),
            watch_max: Duration::from_secs(170),
            watch_grace: Duration::from_secs(15),
            watch_held: Duration::from_secs(5),
            retry_min: Duration::from_millis(200),
            retry_max: Duration::from_secs(30),
            discovery_interval: Duration::from_mins(1),
            own_writes_timeout: Duration::from_secs(5),
        }
    }
}
