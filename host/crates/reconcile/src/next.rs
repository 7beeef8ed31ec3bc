//! The time of a parent's next pass, and the facts that it gets from the last one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// The facts about a parent's earlier passes that its next pass gets.
#[derive(Clone, Debug, Default)]
pub struct Attempt {
    /// The time that passes have been parked; none if the last one was not.
    pub parked: Option<Duration>,
    /// The time of the first change that the pass is for; none if only a timer triggered it.
    pub changed: Option<Instant>,
    /// The edits that wait for a place.
    pub edits: WaitingEdits,
}

/// Tells running passes if an edit of a user waits for a place.
#[derive(Clone, Debug, Default)]
pub struct WaitingEdits(Arc<AtomicBool>);

impl WaitingEdits {
    /// Returns true if an edit waits.
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, any: bool) {
        self.0.store(any, Ordering::Relaxed);
    }
}

/// The time of the next pass of a parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The pass succeeded: with the next change.
    Settled,
    /// The pass succeeded: after this time, or with an earlier change.
    RequeueAfter(Duration),
    /// The pass failed: after the back-off of the parent.
    Backoff,
    /// The pass failed, and the API server asked for a pause: after the longer of the pause and the back-off.
    BackoffAtLeast(Duration),
    /// The pass stopped: only with the next change.
    UntilChanged,
    /// The cache must show the host's last writes first: after this time, without counting as a failure.
    Again(Duration),
    /// The cache does not hold everything that the pass needs: with the trigger that follows, and after this time in any
    /// case.
    Parked(Duration),
    /// The parent is gone: never; the host forgets everything about it.
    Forget,
}

impl Next {
    /// Returns the same time, but at most `most` after a pass that succeeded.
    pub(super) fn within(self, most: Duration) -> Self {
        match self {
            Self::Settled => Self::RequeueAfter(most),
            Self::RequeueAfter(after) => Self::RequeueAfter(after.min(most)),
            other => other,
        }
    }

    /// Returns exactly `wait`, unless the pass failed or waits for the cache.
    pub(super) fn again_after(self, wait: Duration) -> Self {
        match self {
            Self::Settled | Self::RequeueAfter(_) | Self::UntilChanged => Self::RequeueAfter(wait),
            other => other,
        }
    }

    /// Returns the result of the pass in one word for users.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::RequeueAfter(_) => "requeue",
            Self::Backoff | Self::BackoffAtLeast(_) => "failed",
            Self::UntilChanged => "stopped",
            Self::Again(_) => "behind",
            Self::Parked(_) => "parked",
            Self::Forget => "gone",
        }
    }
}
