//! The state machine of a watch.
//!
//! Pure: no requests, no store, no clock.
//!
//! ```text
//!            +--------------- went back ----------------+
//!            v                                          |
//!   List ---------> Watch --- ended, cut off ---> Check -+
//!    ^                | ^                          |
//!    +-- gone, 40x ---+ +------ still current -----+
//! ```

use std::time::Duration;

use innkeeper_model::ResourceVersion;

/// The current step of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchStep {
    /// Lists all objects; then `Watch`.
    List {
        /// The required age.
        since: Since,
        /// True for a list in pages.
        paged: bool,
    },
    /// Reads the present version; then `Watch`, or `List` if the version is before `from`.
    Check {
        /// The last seen version.
        from: ResourceVersion,
    },
    /// Follows the changes until the connection ends; then `Check`.
    Watch {
        /// The last seen version.
        from: ResourceVersion,
    },
}

/// The required age of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// The present state from a quorum: the truth, whatever the watch has seen before.
    Now,
    /// Any state that is at least this new, from the API server's cache.
    NotOlderThan(ResourceVersion),
}

impl Since {
    /// The required age after a watch has seen this version.
    pub(super) fn last_seen(version: ResourceVersion) -> Self {
        // At first from a quorum: a cache may lack the last writes of the previous writer, and without a version "not
        // older than" accepts any age.
        if version == ResourceVersion::default() {
            Self::Now
        } else {
            Self::NotOlderThan(version)
        }
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    /// A list or a check is complete and shows this version.
    At(ResourceVersion),
    /// The watch ended after this version.
    Ended {
        /// The last seen version.
        version: ResourceVersion,
        /// True if it brought a line or lasted for a while.
        progressed: bool,
    },
    /// The server showed an older state than before.
    WentBack,
    /// The step failed.
    Failed(StepFailure),
}

/// Why a step failed, as far as the next step depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepFailure {
    /// The version or the continuation is too old (410).
    Gone,
    /// The server has not reached the requested version.
    Behind,
    /// The host may not read the kind, or it does not exist.
    Refused,
    /// The answer is unreadable.
    Unreadable,
    /// The server requests a pause.
    Throttled(Duration),
    /// Anything else.
    Broken,
}

/// The pause before the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// None, and earlier failures are forgotten.
    None,
    /// None, but earlier failures still count.
    Brief,
    /// The first backoff, whatever failed before.
    First,
    /// The next backoff.
    Backoff,
    /// At least this long.
    AtLeast(Duration),
}

/// Returns the next step; `last` is the last version that this watch has seen.
pub(super) fn next(
    step: WatchStep,
    outcome: StepOutcome,
    last: ResourceVersion,
) -> (WatchStep, Pause) {
    let again = Since::last_seen(last);
    match (step, outcome) {
        (WatchStep::List { .. }, StepOutcome::At(version)) => {
            (WatchStep::Watch { from: version }, Pause::Brief)
        }
        // etcd was restored from a backup. Only this step notices it: a watch from a future version is not refused, but
        // stays silent.
        (WatchStep::Check { from }, StepOutcome::At(now)) if now < from => {
            (list_since(Since::Now), Pause::Brief)
        }
        (WatchStep::Check { from }, StepOutcome::At(_)) => {
            (WatchStep::Watch { from }, Pause::Brief)
        }
        // No watch ends like this; a check is right after any end.
        (WatchStep::Watch { from }, StepOutcome::At(_)) => {
            (WatchStep::Check { from }, Pause::Backoff)
        }
        (
            _,
            StepOutcome::Ended {
                version,
                progressed,
            },
        ) => {
            let pause = if progressed {
                Pause::None
            } else {
                // A server or proxy that ends every watch at once must not be asked without a pause.
                Pause::Backoff
            };
            (WatchStep::Check { from: version }, pause)
        }
        // From a quorum: the next API server behind the load balancer may be as far behind.
        (_, StepOutcome::WentBack) => (list_since(Since::Now), Pause::Backoff),
        // The events before the failure are in the cache. From the start of the watch they would all come again and
        // look as if the server had gone back.
        (WatchStep::Watch { from }, StepOutcome::Failed(StepFailure::Broken)) if last > from => {
            (WatchStep::Check { from: last }, Pause::First)
        }
        (WatchStep::Watch { from }, StepOutcome::Failed(failed)) => {
            let from = from.max(last);
            after_failure(WatchStep::Watch { from }, failed, again)
        }
        (step, StepOutcome::Failed(failed)) => after_failure(step, failed, again),
    }
}

const fn list_since(since: Since) -> WatchStep {
    WatchStep::List { since, paged: true }
}

fn after_failure(step: WatchStep, failed: StepFailure, again: Since) -> (WatchStep, Pause) {
    match (step, failed) {
        (_, StepFailure::Throttled(after)) => (step, Pause::AtLeast(after)),
        // The continuation expired during the list; another list in pages may be as slow.
        (WatchStep::List { .. }, StepFailure::Gone) => {
            let whole = WatchStep::List {
                since: Since::Now,
                paged: false,
            };
            (whole, Pause::Backoff)
        }
        // After a restored backup no server ever reaches this version.
        (WatchStep::List { .. }, StepFailure::Behind) => (list_since(Since::Now), Pause::Backoff),
        (WatchStep::List { .. }, _)
        | (WatchStep::Check { .. }, StepFailure::Behind | StepFailure::Broken) => {
            (step, Pause::Backoff)
        }
        // The events during a refusal are lost, and an unreadable line would come again.
        (_, StepFailure::Gone | StepFailure::Refused | StepFailure::Unreadable) => {
            (list_since(again), Pause::Backoff)
        }
        (WatchStep::Watch { from }, StepFailure::Behind | StepFailure::Broken) => {
            (WatchStep::Check { from }, Pause::Backoff)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn v(version: u64) -> ResourceVersion {
        ResourceVersion(version)
    }

    const NOW: WatchStep = WatchStep::List {
        since: Since::Now,
        paged: true,
    };
    const WHOLE: WatchStep = WatchStep::List {
        since: Since::Now,
        paged: false,
    };
    const LATER: WatchStep = WatchStep::List {
        since: Since::NotOlderThan(v(9)),
        paged: true,
    };
    const CHECK: WatchStep = WatchStep::Check { from: v(9) };
    const WATCH: WatchStep = WatchStep::Watch { from: v(9) };

    #[test]
    fn every_end_of_a_step_has_its_successor() {
        let wait = Duration::from_secs(3);
        let ended = |progressed| StepOutcome::Ended {
            version: v(9),
            progressed,
        };
        let failed = StepOutcome::Failed;
        for (step, outcome, expected) in [
            (NOW, StepOutcome::At(v(9)), (WATCH, Pause::Brief)),
            (LATER, StepOutcome::At(v(9)), (WATCH, Pause::Brief)),
            (LATER, StepOutcome::WentBack, (NOW, Pause::Backoff)),
            (LATER, failed(StepFailure::Behind), (NOW, Pause::Backoff)),
            (LATER, failed(StepFailure::Gone), (WHOLE, Pause::Backoff)),
            (LATER, failed(StepFailure::Refused), (LATER, Pause::Backoff)),
            (LATER, failed(StepFailure::Broken), (LATER, Pause::Backoff)),
            (
                NOW,
                failed(StepFailure::Throttled(wait)),
                (NOW, Pause::AtLeast(wait)),
            ),
            (WATCH, ended(true), (CHECK, Pause::None)),
            (WATCH, ended(false), (CHECK, Pause::Backoff)),
            (WATCH, StepOutcome::WentBack, (NOW, Pause::Backoff)),
            (WATCH, failed(StepFailure::Gone), (LATER, Pause::Backoff)),
            (WATCH, failed(StepFailure::Refused), (LATER, Pause::Backoff)),
            (
                WATCH,
                failed(StepFailure::Unreadable),
                (LATER, Pause::Backoff),
            ),
            (WATCH, failed(StepFailure::Broken), (CHECK, Pause::Backoff)),
            (
                WATCH,
                failed(StepFailure::Throttled(wait)),
                (WATCH, Pause::AtLeast(wait)),
            ),
            (CHECK, StepOutcome::At(v(9)), (WATCH, Pause::Brief)),
            (CHECK, StepOutcome::At(v(8)), (NOW, Pause::Brief)),
            (CHECK, failed(StepFailure::Refused), (LATER, Pause::Backoff)),
            (CHECK, failed(StepFailure::Broken), (CHECK, Pause::Backoff)),
        ] {
            assert_eq!(next(step, outcome, v(9)), expected, "{step:?} {outcome:?}");
        }
        // The watch had brought events.
        let early = WatchStep::Watch { from: v(5) };
        for (failed, expected) in [
            (StepFailure::Broken, (CHECK, Pause::First)),
            (StepFailure::Behind, (CHECK, Pause::Backoff)),
            (StepFailure::Throttled(wait), (WATCH, Pause::AtLeast(wait))),
        ] {
            assert_eq!(next(early, StepOutcome::Failed(failed), v(9)), expected);
        }
        let first = next(WATCH, failed(StepFailure::Gone), ResourceVersion::default());
        assert_eq!(first.0, NOW, "nothing was seen so far");
    }
}
