//! The state that the handles and the tasks share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};

use super::{options::Options, state::CacheState, wire::Wire};

pub(super) struct CacheShared {
    pub(super) options: Options,
    pub(super) wire: Wire,
    pub(super) state: Mutex<CacheState>,
    /// Wakes the driver: the set of wanted watches changed.
    pub(super) rearrange: Notify,
    /// Wakes discovery: the served kinds may have changed.
    pub(super) rediscover: Notify,
    /// Counts the answers of discovery.
    pub(super) discovered: watch::Sender<u64>,
    /// The last failure of discovery, until it answers again.
    pub(super) discovery_error: Mutex<Option<String>>,
    /// True if that failure is a refusal of the credentials.
    pub(super) unauthorized: AtomicBool,
    /// The number of callers that wait for a kind to be served.
    expectant: AtomicUsize,
    /// Bounds the pages that are in memory at the same time.
    pub(super) pages: Semaphore,
}

impl CacheShared {
    pub(super) fn new(wire: Wire, options: Options) -> Self {
        Self {
            pages: Semaphore::new(options.pages_at_once_max.max(1)),
            state: Mutex::new(CacheState::within(options.namespaces.clone())),
            options,
            wire,
            rearrange: Notify::new(),
            rediscover: Notify::new(),
            discovered: watch::Sender::new(0),
            discovery_error: Mutex::new(None),
            unauthorized: AtomicBool::new(false),
            expectant: AtomicUsize::new(0),
        }
    }

    /// Counts the caller as one that waits for a kind, until the returned guard is dropped.
    pub(super) fn expect_kind(&self) -> Expectant<'_> {
        self.expectant.fetch_add(1, Ordering::Relaxed);
        self.rediscover.notify_one();
        Expectant(self)
    }

    /// Returns true if a caller waits for a kind.
    pub(super) fn expects_kind(&self) -> bool {
        self.expectant.load(Ordering::Relaxed) > 0
    }
}

/// A caller that waits for a kind.
pub(super) struct Expectant<'a>(&'a CacheShared);

impl Drop for Expectant<'_> {
    fn drop(&mut self) {
        self.0.expectant.fetch_sub(1, Ordering::Relaxed);
    }
}
