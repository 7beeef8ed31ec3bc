//! Limits and times for reads. Every option has a default.

use std::{sync::Arc, time::Duration};

use innkeeper_model::Shards;

/// Limits and times for reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The seed for all jitter; random, so that hosts that start together do not send requests together.
    pub seed: u64,
    /// The watched namespaces; none: all. Cluster-scoped kinds are watched either way.
    pub namespaces: Option<Arc<[Arc<str>]>>,
    /// The number of shards that hosts share; one: the host serves all parents.
    pub shards: Shards,
    /// Watches CustomResourceDefinitions, to notice at once when a kind appears or disappears.
    pub watch_definitions: bool,
    /// Objects in one list page.
    pub page_objects_max: u32,
    /// Objects in one page after a page had more than `page_bytes_max`.
    pub page_objects_min: u32,
    /// Bytes in one list page or discovery document.
    pub page_bytes_max: usize,
    /// Bytes in an unpaged list.
    pub list_bytes_max: usize,
    /// Bytes in one object or watch line. The API server itself accepts about 1.5 MiB.
    pub object_bytes_max: usize,
    /// Pages that are fetched at the same time, which bounds memory at the start. An unpaged list counts as all.
    pub pages_at_once_max: u16,
    /// The timeout for requests other than watches.
    pub request_timeout: Duration,
    /// The shortest requested watch duration. Durations are random between the two limits, so that watches that start
    /// together end apart.
    pub watch_min: Duration,
    /// The longest requested watch duration. With the grace it stays below 200 s: load balancers silently drop idle
    /// connections after 240 s and more.
    pub watch_max: Duration,
    /// The extra time for the server to end a watch, before the host cuts it off.
    pub watch_grace: Duration,
    /// A watch that lasted this long was not refused, however it ended: backoff restarts.
    pub watch_held: Duration,
    /// The first pause after a failure; doubled after each further failure.
    pub retry_min: Duration,
    /// The longest pause after a failure.
    pub retry_max: Duration,
    /// The discovery interval without hints, with 20 % jitter.
    pub discovery_interval: Duration,
    /// The time for own writes to appear in the cache, before passes read them live.
    pub own_writes_timeout: Duration,
}

impl Options {
    /// The defaults, with a seed.
    pub const fn new(seed: u64) -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            seed,
            namespaces: None,
            shards: Shards::ONE,
            watch_definitions: true,
            // The page size in client-go.
            page_objects_max: 500,
            // Few enough for the largest objects: etcd accepts 1.5 MiB, which may be 2 MiB of JSON.
            page_objects_min: 32,
            // 32 of the largest objects fit into a page, and the pages of all lists into 256 MiB.
            page_bytes_max: 64 * MIB,
            list_bytes_max: 512 * MIB,
            object_bytes_max: 32 * MIB,
            pages_at_once_max: 4,
            // The API server itself ends a request after 60 s.
            request_timeout: Duration::from_mins(1),
            watch_min: Duration::from_secs(100),
            watch_max: Duration::from_secs(170),
            watch_grace: Duration::from_secs(15),
            watch_held: Duration::from_secs(5),
            // Shorter than an API server's restart.
            retry_min: Duration::from_millis(200),
            // The longest backoff for watches in client-go.
            retry_max: Duration::from_secs(30),
            discovery_interval: Duration::from_mins(1),
            // Far longer than a watch lags, and short enough for a waiting user.
            own_writes_timeout: Duration::from_secs(5),
        }
    }
}
