//! What a watch does next.
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

/// What a watch is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Asks for everything; then `Watch`.
    List {
        /// From when.
        since: Since,
        /// In pages; a list whose continuation expired is asked for in one piece, so that it ends.
        paged: bool,
    },
    /// Asks for the version of the present state, then `Watch`, or `List` if it is before `from`: a watch from the
    /// future is answered with silence, so after a restored etcd nothing else would tell.
    Check {
        /// The version that was seen last.
        from: ResourceVersion,
    },
    /// Follows the changes until the connection ends; then `Check`.
    Watch {
        /// The version that was seen last.
        from: ResourceVersion,
    },
}

/// How old a list may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// The present state, from a quorum; the truth, whatever was seen before.
    Now,
    /// Any state that is not older than this, from the API server's cache.
    NotOlderThan(ResourceVersion),
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A list or a check is complete and shows this version.
    At(ResourceVersion),
    /// The watch ended after this version.
    Ended {
        /// The version that was seen last.
        version: ResourceVersion,
        /// Whether it brought anything or held for a while.
        progressed: bool,
    },
    /// Something was older than what had been seen before.
    WentBack,
    /// It failed; for a watch with the version that was seen last.
    Failed(Failed),
}

/// Why a step failed, as far as it decides what is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The version or the continuation is too old (410).
    Gone,
    /// The server has not reached the version that was asked for.
    Behind,
    /// The kind may not be read, or is not there.
    Refused,
    /// What came could not be read.
    Unreadable,
    /// The server asks to wait.
    Throttled(Duration),
    /// Anything else.
    Broken,
}

/// How long to wait before the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// Not at all, and forget former failures.
    None,
    /// Not at all, but remember former failures.
    Brief,
    /// The first back-off, whatever failed before.
    First,
    /// The next back-off.
    Backoff,
    /// At least so long.
    AtLeast(Duration),
}

/// Says what comes after a step; `last` is the last version that was seen by this watch.
pub(super) fn next(step: Step, outcome: Outcome, last: ResourceVersion) -> (Step, Pause) {
    let again = if last == ResourceVersion::default() {
        Since::Now
    } else {
        Since::NotOlderThan(last)
    };
    match (step, outcome) {
        (Step::List { .. }, Outcome::At(version)) => (Step::Watch { from: version }, Pause::Brief),
        (Step::Check { from }, Outcome::At(now)) if now < from => {
            (list_since(Since::Now), Pause::Brief)
        }
        (Step::Check { from }, Outcome::At(_)) => (Step::Watch { from }, Pause::Brief),
        (Step::Watch { from }, Outcome::At(_)) => (Step::Check { from }, Pause::Backoff),
        (
            _,
            Outcome::Ended {
                version,
                progressed,
            },
        ) => {
            let pause = if progressed {
                Pause::None
            } else {
                Pause::Backoff
            };
            (Step::Check { from: version }, pause)
        }
        (_, Outcome::WentBack) => (list_since(Since::Now), Pause::Backoff),
        // What a watch has brought before it failed is in the cache: from where it began, it would all come again, and
        // look as if the server had gone back.
        (Step::Watch { from }, Outcome::Failed(Failed::Broken)) if last > from => {
            (Step::Check { from: last }, Pause::First)
        }
        (Step::Watch { from }, Outcome::Failed(failed)) => {
            let from = from.max(last);
            after_failure(Step::Watch { from }, failed, again)
        }
        (step, Outcome::Failed(failed)) => after_failure(step, failed, again),
    }
}

const fn list_since(since: Since) -> Step {
    Step::List { since, paged: true }
}

fn after_failure(step: Step, failed: Failed, again: Since) -> (Step, Pause) {
    match (step, failed) {
        (_, Failed::Throttled(after)) => (step, Pause::AtLeast(after)),
        (Step::List { .. }, Failed::Gone) => {
            let whole = Step::List {
                since: Since::Now,
                paged: false,
            };
            (whole, Pause::Backoff)
        }
        (Step::List { .. }, Failed::Behind) => (list_since(Since::Now), Pause::Backoff),
        (Step::List { .. }, _) | (Step::Check { .. }, Failed::Behind | Failed::Broken) => {
            (step, Pause::Backoff)
        }
        // What a refused watch missed meanwhile is not known, and an unreadable line would come again.
        (_, Failed::Gone | Failed::Refused | Failed::Unreadable) => {
            (list_since(again), Pause::Backoff)
        }
        (Step::Watch { from }, Failed::Behind | Failed::Broken) => {
            (Step::Check { from }, Pause::Backoff)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn v(version: u64) -> ResourceVersion {
        ResourceVersion(version)
    }

    const NOW: Step = Step::List {
        since: Since::Now,
        paged: true,
    };
    const WHOLE: Step = Step::List {
        since: Since::Now,
        paged: false,
    };
    const LATER: Step = Step::List {
        since: Since::NotOlderThan(v(9)),
        paged: true,
    };
    const CHECK: Step = Step::Check { from: v(9) };
    const WATCH: Step = Step::Watch { from: v(9) };

    #[test]
    fn w4_w6_every_end_of_a_step_has_its_successor() {
        let wait = Duration::from_secs(3);
        let ended = |progressed| Outcome::Ended {
            version: v(9),
            progressed,
        };
        let failed = Outcome::Failed;
        for (step, outcome, expected) in [
            (NOW, Outcome::At(v(9)), (WATCH, Pause::Brief)),
            (LATER, Outcome::At(v(9)), (WATCH, Pause::Brief)),
            (LATER, Outcome::WentBack, (NOW, Pause::Backoff)),
            (LATER, failed(Failed::Behind), (NOW, Pause::Backoff)),
            (LATER, failed(Failed::Gone), (WHOLE, Pause::Backoff)),
            (LATER, failed(Failed::Refused), (LATER, Pause::Backoff)),
            (LATER, failed(Failed::Broken), (LATER, Pause::Backoff)),
            (
                NOW,
                failed(Failed::Throttled(wait)),
                (NOW, Pause::AtLeast(wait)),
            ),
            (WATCH, ended(true), (CHECK, Pause::None)),
            (WATCH, ended(false), (CHECK, Pause::Backoff)),
            (WATCH, Outcome::WentBack, (NOW, Pause::Backoff)),
            (WATCH, failed(Failed::Gone), (LATER, Pause::Backoff)),
            (WATCH, failed(Failed::Refused), (LATER, Pause::Backoff)),
            (WATCH, failed(Failed::Unreadable), (LATER, Pause::Backoff)),
            (WATCH, failed(Failed::Broken), (CHECK, Pause::Backoff)),
            (
                WATCH,
                failed(Failed::Throttled(wait)),
                (WATCH, Pause::AtLeast(wait)),
            ),
            (CHECK, Outcome::At(v(9)), (WATCH, Pause::Brief)),
            (CHECK, Outcome::At(v(8)), (NOW, Pause::Brief)),
            (CHECK, failed(Failed::Refused), (LATER, Pause::Backoff)),
            (CHECK, failed(Failed::Broken), (CHECK, Pause::Backoff)),
        ] {
            assert_eq!(next(step, outcome, v(9)), expected, "{step:?} {outcome:?}");
        }
        // It has brought something before.
        let early = Step::Watch { from: v(5) };
        for (failed, expected) in [
            (Failed::Broken, (CHECK, Pause::First)),
            (Failed::Behind, (CHECK, Pause::Backoff)),
            (Failed::Throttled(wait), (WATCH, Pause::AtLeast(wait))),
        ] {
            assert_eq!(next(early, Outcome::Failed(failed), v(9)), expected);
        }
        let first = next(WATCH, failed(Failed::Gone), ResourceVersion::default());
        assert_eq!(first.0, NOW, "nothing was seen so far");
    }
}
