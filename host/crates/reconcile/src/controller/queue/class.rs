//! The urgency of triggers.

use std::time::Duration;

/// The urgency of a trigger, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The parent was created, changed in anything but its status, or is gone.
    /// Ends the back-off.
    User,
    /// A child or a related object changed, a kind became readable or unreadable, or the cache shows the host's own
    /// writes.
    Child,
    /// Another revision of the plugin became active.
    /// Ends the back-off, because the new revision may succeed; not urgent, because no user waits for the pass.
    Swapped,
    /// A retry or a requeue came due, or only the parent's status changed.
    Retry,
    /// The first list of a watch, or a resync.
    Initial,
}

impl Class {
    /// Returns true if an input of the pass changed, so that a failed pass may succeed now.
    pub(super) fn is_change(self) -> bool {
        self <= Self::Swapped
    }

    /// Returns true if earlier failures say nothing about the next pass.
    pub(super) fn ends_backoff(self) -> bool {
        matches!(self, Self::User | Self::Swapped)
    }

    /// Returns the head start of a user's edit on a trigger of this class.
    ///
    /// The keys of a namespace run in the order of arrival time plus this head start, their rank. So keys of one class
    /// are first in, first out; an urgent class goes before the others; and keys age, because one that has waited longer
    /// than the head start goes before an edit. Among the keys whose rank has passed, the namespaces take turns: an edit
    /// waits for at most one such key of each other namespace.
    /// In a burst of edits, each edit has a pass that writes children and then passes, triggered by these writes, that
    /// write status. The head start lets the children of all edits go before the status of the first ones.
    ///
    /// The steps of 5 s are chosen: all edits of a burst of up to 5 s go first, and no edit goes before a key of its namespace
    /// that was queued more than 15 s earlier.
    pub(super) const fn added_rank(self) -> Duration {
        match self {
            Self::User => Duration::ZERO,
            Self::Child => Duration::from_secs(5),
            Self::Retry => Duration::from_secs(10),
            Self::Swapped | Self::Initial => Duration::from_secs(15),
        }
    }
}
