//! Trigger urgency.

use std::time::Duration;

/// A trigger's urgency, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The parent was created, changed beyond its status, or is gone. Ends the back-off.
    User,
    /// A child or related object changed, a kind became readable or unreadable, or the cache shows the host's own writes.
    Child,
    /// Another revision became active. Ends the back-off, because the new revision may succeed; not urgent, because no user
    /// waits for the pass.
    Swapped,
    /// A retry or a requeue came due, or only the parent's status changed.
    Retry,
    /// A watch's first list, or a resync.
    Initial,
}

impl Class {
    /// Returns true if an input changed, so that a failed pass may succeed now.
    pub(super) fn is_change(self) -> bool {
        self <= Self::Swapped
    }

    /// Returns true if the next pass may succeed after earlier failures.
    pub(super) fn ends_backoff(self) -> bool {
        matches!(self, Self::User | Self::Swapped)
    }

    /// Returns how much later than a user's edit this class ranks.
    ///
    /// A namespace's keys run in the order of their ranks: arrival time plus this delay. So one class is first in, first
    /// out; urgent classes go first; and keys age, because one that has waited longer than the delay goes before an edit.
    /// Among the keys whose rank has passed, the namespaces take turns: an edit waits for at most one such key from each
    /// other namespace.
    /// In a burst of edits, each edit has a pass that writes children and then passes, triggered by these writes, that
    /// write status. The delay lets all edits write their children before the first ones write their status.
    ///
    /// With steps of 5 s, all edits in a burst of up to 5 s go first, and no edit overtakes a key in its namespace that was
    /// queued more than 15 s earlier.
    pub(super) const fn added_rank(self) -> Duration {
        match self {
            Self::User => Duration::ZERO,
            Self::Child => Duration::from_secs(5),
            Self::Retry => Duration::from_secs(10),
            Self::Swapped | Self::Initial => Duration::from_secs(15),
        }
    }
}
