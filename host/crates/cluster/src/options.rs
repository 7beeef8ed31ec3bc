//! The limits and times of reading. Every option has a default.

use std::{sync::Arc, time::Duration};

/// The options of reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The seed of all jitter; random, so that hosts that start together do not send their requests together.
    pub seed: u64,
    /// The namespaces whose objects are watched; none: all. Cluster-scoped kinds are watched either way.
    pub namespaces: Option<Arc<[Arc<str>]>>,
    /// Watches CustomResourceDefinitions, to notice at once when a kind appears or disappears.
    pub watch_definitions: bool,
    /// Objects in one page of a list.
    pub page_objects_max: u32,
    /// Objects in one page after a page had more than `page_bytes_max`.
    pub page_objects_min: u32,
    /// Bytes of one page of a list, and of a discovery document.
    pub page_bytes_max: usize,
    /// Bytes of a list in one piece.
    pub list_bytes_max: usize,
    /// Bytes of one object or line of a watch. The API server itself accepts about 1.5 MiB.
    pub object_bytes_max: usize,
    /// Pages that are fetched at the same time: bounds the memory of a start. A list in one piece counts as all of them.
    pub pages_at_once_max: u16,
    /// The timeout of a request other than a watch.
    pub request_timeout: Duration,
    /// The shortest requested duration of a watch. The duration is drawn between the two limits, so that watches that
    /// started together end apart.
    pub watch_min: Duration,
    /// The longest requested duration of a watch. With the grace it stays below 200 s: load balancers silently drop
    /// idle connections after 240 s and more.
    pub watch_max: Duration,
    /// The time after which a watch that the server should have ended is cut off.
    pub watch_grace: Duration,
    /// A watch that lasted this long was not refused, however it ended: the next failure starts with the first pause.
    pub watch_held: Duration,
    /// The first pause after a failure; doubled after each further failure.
    pub retry_min: Duration,
    /// The longest pause after a failure.
    pub retry_max: Duration,
    /// The interval of discovery without any hint, with 20 % jitter.
    pub discovery_interval: Duration,
    /// The time after which unseen own writes are read live.
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
            // The page size of client-go.
            page_objects_max: 500,
            // Few enough for the largest objects: etcd takes 1.5 MiB, which may be 2 MiB of JSON.
            page_objects_min: 32,
            // Chosen, not measured: 32 of the largest objects fit into a page, and the pages of all lists into 256 MiB.
            page_bytes_max: 64 * MIB,
            list_bytes_max: 512 * MIB,
            object_bytes_max: 32 * MIB,
            pages_at_once_max: 4,
            // The API server itself gives up on a request after 60 s.
            request_timeout: Duration::from_mins(1),
            watch_min: Duration::from_secs(100),
            watch_max: Duration::from_secs(170),
            watch_grace: Duration::from_secs(15),
            watch_held: Duration::from_secs(5),
            // Chosen, not measured: shorter than the restart of an API server.
            retry_min: Duration::from_millis(200),
            // The longest backoff of client-go's watches.
            retry_max: Duration::from_secs(30),
            discovery_interval: Duration::from_mins(1),
            // Chosen, not measured: far longer than a watch lags, and short enough for a user who waits.
            own_writes_timeout: Duration::from_secs(5),
        }
    }
}
