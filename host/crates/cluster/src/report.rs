//! The state of the watches, for users and metrics.

use innkeeper_model::{Gvk, ResourceVersion};
use tokio::time::Instant;

use super::interest::Why;

/// The state of one watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchStatus {
    /// The kind.
    pub kind: Gvk,
    /// The namespace; none: everywhere, or a cluster-scoped kind.
    pub namespace: Option<String>,
    /// The label selector; none: all objects.
    pub selector: Option<String>,
    /// The number of registrations that share the watch.
    pub users: usize,
    /// The reason that it cannot be used; none: it is synced.
    pub why: Option<Why>,
    /// True if it cannot be used and a registration waits for it.
    pub is_awaited: bool,
    /// Objects in the cache.
    pub objects: usize,
    /// Size of their JSON texts, in bytes.
    pub bytes: usize,
    /// The version up to which every event has been seen.
    pub version: ResourceVersion,
    /// The time of the last event or bookmark.
    pub last_event: Option<Instant>,
    /// The last failure.
    pub last_error: Option<String>,
    /// Complete lists so far: more than one means that the watch started over.
    pub lists: u64,
}
