//! The time of a parent's next pass, and facts from the last one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Facts from the parent's earlier passes.
#[derive(Clone, Debug, Default)]
pub struct Attempt {
    /// The time that passes have waited for the cache; `None` if the last one did not.
    pub cache_wait: Option<Duration>,
    /// The time of the first change that the pass is for; `None` if only a timer triggered it.
    pub changed: Option<Instant>,
    /// Shows whether edits wait for a permit.
    pub edits: WaitingEdits,
}

/// Lets running passes check whether a user's edit waits for a permit.
#[derive(Clone, Debug, Default)]
pub struct WaitingEdits(Arc<AtomicBool>);

impl WaitingEdits {
    /// Returns true if an edit waits.
    pub fn any(&self) -> bool {
        // A pass that sees an edit late only runs one more round first.
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, any: bool) {
        self.0.store(any, Ordering::Relaxed);
    }
}

/// The time of a parent's next pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The pass succeeded: wait for the next change.
    Settled,
    /// The pass succeeded: wait for this time or for a change.
    RequeueAfter(Duration),
    /// The pass failed: wait for the parent's back-off.
    Backoff,
    /// The pass failed, and the API server asked for a pause: wait for this time or the back-off, whichever is longer.
    BackoffAtLeast(Duration),
    /// Only a change can help: wait for it.
    UntilChanged,
    /// The cache must show the host's last writes first: wait for this time. Not a failure.
    AwaitOwnWrites(Duration),
    /// The cache lacks something that the pass needs: wait for the trigger that follows, at most this time.
    AwaitCache(Duration),
    /// The parent is gone: no further pass, and the host forgets it.
    Forget,
}

impl Next {
    /// Shortens the wait after a successful pass to at most `most`.
    pub(super) fn within(self, most: Duration) -> Self {
        match self {
            Self::Settled => Self::RequeueAfter(most),
            Self::RequeueAfter(after) => Self::RequeueAfter(after.min(most)),
            other => other,
        }
    }

    /// Sets the wait to `wait`, unless the pass failed or waits for the cache.
    pub(super) fn again_after(self, wait: Duration) -> Self {
        match self {
            Self::Settled | Self::RequeueAfter(_) | Self::UntilChanged => Self::RequeueAfter(wait),
            other => other,
        }
    }

    /// Returns the result in one word for users.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::RequeueAfter(_) => "requeue",
            Self::Backoff | Self::BackoffAtLeast(_) => "failed",
            Self::UntilChanged => "stopped",
            Self::AwaitOwnWrites(_) => "behind",
            Self::AwaitCache(_) => "parked",
            Self::Forget => "gone",
        }
    }
}
