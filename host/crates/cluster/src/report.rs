//! Watch status for users and metrics.

use innkeeper_model::{Gvk, ResourceVersion};
use tokio::time::Instant;

use super::interest::Why;

/// The status of one watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchStatus {
    /// The kind.
    pub kind: Gvk,
    /// The namespace; none: everywhere, or a cluster-scoped kind.
    pub namespace: Option<String>,
    /// The shards, such as `0,2`; none: all, or the watch is not divided by shards.
    pub shards: Option<String>,
    /// The label selector; none: all objects.
    pub selector: Option<String>,
    /// Registrations that share the watch.
    pub users: usize,
    /// Why the watch is not usable; none: it is synced.
    pub why: Option<Why>,
    /// True if a registration waits for the watch.
    pub is_awaited: bool,
    /// Objects in the cache.
    pub objects: usize,
    /// Size of the JSON texts, in bytes.
    pub bytes: usize,
    /// The version up to which every event is cached.
    pub version: ResourceVersion,
    /// Time of the last event or bookmark.
    pub last_event: Option<Instant>,
    /// The last failure.
    pub last_error: Option<String>,
    /// Complete lists so far: more than one means that the watch restarted.
    pub lists: usize,
}
