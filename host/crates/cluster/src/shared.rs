//! The state that the handles and the tasks share.

use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::{options::Options, state::CacheState, wire::Wire};

pub(super) struct CacheShared {
    pub(super) options: Options,
    pub(super) wire: Wire,
    pub(super) state: Mutex<CacheState>,
    /// Wakes the driver: the set of wanted watches changed.
    pub(super) rearrange: Notify,
    /// Wakes discovery: the served kinds may have changed.
    pub(super) rediscover: Notify,
    /// Counts discoveries; each receiver is a caller that waits for a kind.
    pub(super) discovered: watch::Sender<u64>,
    /// The last discovery failure, until discovery succeeds.
    pub(super) discovery_error: Mutex<Option<String>>,
    /// True if the API server then refused the credentials.
    pub(super) unauthorized: AtomicBool,
}

impl CacheShared {
    pub(super) fn new(wire: Wire, options: Options) -> Self {
        Self {
            state: Mutex::new(CacheState::new(options.namespaces.clone(), options.shards)),
            options,
            wire,
            rearrange: Notify::new(),
            rediscover: Notify::new(),
            discovered: watch::Sender::new(0),
            discovery_error: Mutex::new(None),
            unauthorized: AtomicBool::new(false),
        }
    }
}
