//! What a pass says about the next one.

use std::time::Duration;

/// When the next pass of a parent comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// All is well: with the next change.
    Settled,
    /// All is well: after this time, if nothing changes before.
    RequeueAfter(Duration),
    /// The pass failed: after the back-off of this parent.
    Backoff,
    /// The pass failed and whoever refused it said when to come back: after the longer of this and the back-off.
    BackoffAtLeast(Duration),
    /// Only a change can help.
    UntilChanged,
    /// The pass must see its own last writes first: after this time, and it did not fail.
    Again(Duration),
    /// What the pass needs is not yet cached: with the change that says so, and after this time in any case.
    Parked(Duration),
    /// The parent is gone: never, and everything about it is forgotten.
    Forget,
}

impl Next {
    /// The same, but after this time at the latest where all is well.
    pub(super) fn within(self, most: Duration) -> Self {
        match self {
            Self::Settled => Self::RequeueAfter(most),
            Self::RequeueAfter(after) => Self::RequeueAfter(after.min(most)),
            other => other,
        }
    }

    /// The same, but after exactly this time where only a change or a time would bring the next pass.
    pub(super) fn again_after(self, wait: Duration) -> Self {
        match self {
            Self::Settled | Self::RequeueAfter(_) | Self::UntilChanged => Self::RequeueAfter(wait),
            other => other,
        }
    }

    /// What a pass came to, in a word for people.
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
