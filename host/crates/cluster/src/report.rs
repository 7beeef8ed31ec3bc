//! How reading is going, for people and metrics.

use innkeeper_model::{Access, Gvk, ResourceVersion};
use tokio::time::Instant;

use super::interest::Why;

/// How reading is going.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// How many kinds the cluster serves; none before it has said so.
    pub kinds: Option<usize>,
    /// Why discovery fails now.
    pub discovery_error: Option<String>,
    /// Whether it fails because the API server refuses the credentials.
    pub unauthorized: bool,
    /// Every watch.
    pub watches: Vec<WatchStatus>,
}

/// How one watch is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchStatus {
    /// The kind.
    pub kind: Gvk,
    /// The namespace; none: everywhere, or a cluster-scoped kind.
    pub namespace: Option<String>,
    /// The label selector; none: all objects.
    pub selector: Option<String>,
    /// How much of each object is kept.
    pub form: Access,
    /// How many share it.
    pub users: usize,
    /// Why it cannot be used; none: it is synced.
    pub why: Option<Why>,
    /// Since when.
    pub since: Instant,
    /// Objects in the cache.
    pub objects: usize,
    /// Bytes of their texts.
    pub bytes: usize,
    /// The version up to which everything was seen.
    pub version: ResourceVersion,
    /// When the last event or bookmark came.
    pub last_event: Option<Instant>,
    /// The last failure.
    pub last_error: Option<String>,
    /// Complete lists so far: more than one says that a watch had to begin anew.
    pub lists: u64,
}
