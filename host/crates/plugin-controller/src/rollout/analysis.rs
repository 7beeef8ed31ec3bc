//! Rollout analysis: decides by a new revision's first passes whether it stays or is rolled back. Pure.

use std::time::Duration;

/// The tolerated percentage of first passes with a fault: a few parents that no revision can serve must not stop a
/// rollout.
const FAULTS_PERCENT_MAX: usize = 20;

/// Timeout for pending first passes. A parent whose passes are parked or retried stays pending
/// forever, and only a good revision is a rollback target.
const PENDING_MAX: Duration = Duration::from_mins(10);

/// First-pass results so far, one for each parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnalysisCounts {
    /// Unfinished passes.
    pub(crate) pending: usize,
    /// Passes without a fault.
    pub(crate) well: usize,
    /// Passes with a guest fault, or an invalid parent.
    pub(crate) faulted: usize,
}

/// The active revision's analysis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RolloutAnalysis {
    /// The verdict so far.
    pub(crate) verdict: AnalysisVerdict,
    /// Describes the faults, if there are any.
    pub(crate) faults: Option<String>,
}

/// The verdict after a revision's first passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AnalysisVerdict {
    /// The pending passes decide.
    #[default]
    Open,
    /// It stays.
    Good,
    /// Too many passes ended in a fault, whatever the pending ones do.
    Faulty,
}

/// Returns true if a revision with this many failed parents may not stay active.
pub(crate) const fn are_too_many(faults: usize, parents: usize) -> bool {
    faults * 100 > parents * FAULTS_PERCENT_MAX
}

impl AnalysisCounts {
    /// Returns the verdict on a revision that has had passes for this long.
    pub(crate) fn verdict(self, waited: Duration) -> AnalysisVerdict {
        // Both verdicts hold however the pending passes end: none fails for Faulty, all fail for Good.
        let total = self.pending + self.well + self.faulted;
        if are_too_many(self.faulted, total) {
            AnalysisVerdict::Faulty
        } else if !are_too_many(self.faulted + self.pending, total) || waited >= PENDING_MAX {
            AnalysisVerdict::Good
        } else {
            AnalysisVerdict::Open
        }
    }

    /// Describes the faults, to complete a sentence.
    pub(crate) fn describe(self, first_fault: &str) -> String {
        let faulted = self.faulted;
        let finished = self.well + self.faulted;
        let pending = match self.pending {
            0 => String::new(),
            pending => format!(", {pending} were still pending"),
        };
        format!(
            "{faulted} of the {finished} first passes ended in a fault{pending}; the first fault was {first_fault}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_fifth_is_too_much_and_a_rest_that_cannot_make_it_so_is_good() {
        for (pending, well, faulted, expected) in [
            (0, 0, 0, AnalysisVerdict::Good),
            (1, 0, 0, AnalysisVerdict::Open),
            (0, 1, 0, AnalysisVerdict::Good),
            (0, 0, 1, AnalysisVerdict::Faulty),
            (0, 4, 1, AnalysisVerdict::Good),
            (0, 3, 1, AnalysisVerdict::Faulty),
            (98, 1, 1, AnalysisVerdict::Open),
            (79, 0, 21, AnalysisVerdict::Faulty),
            (80, 0, 20, AnalysisVerdict::Open),
            (19, 80, 1, AnalysisVerdict::Good),
            (20, 79, 1, AnalysisVerdict::Open),
            (20, 80, 0, AnalysisVerdict::Good),
        ] {
            let passes = AnalysisCounts {
                pending,
                well,
                faulted,
            };
            assert_eq!(passes.verdict(Duration::ZERO), expected, "{passes:?}");
            let waited = match expected {
                AnalysisVerdict::Open => AnalysisVerdict::Good,
                expected => expected,
            };
            assert_eq!(passes.verdict(PENDING_MAX), waited, "{passes:?}");
        }
    }

    #[test]
    fn the_faults_are_described() {
        let passes = AnalysisCounts {
            pending: 7,
            well: 1,
            faulted: 2,
        };
        let expected = "2 of the 3 first passes ended in a fault, 7 were still pending; the first fault was GuestTrapped for K a/b: x";
        assert_eq!(passes.describe("GuestTrapped for K a/b: x"), expected);
    }
}
