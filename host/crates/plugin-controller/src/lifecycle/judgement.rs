//! The decision about a new active revision: it stays or is rolled back. Pure.

use std::time::Duration;

/// The percentage of first passes that may end in a fault.
const FAULTS_PERCENT_MAX: usize = 20;

/// The time after which the judgement no longer waits for pending first passes.
const PATIENCE: Duration = Duration::from_mins(10);

/// The results of the first passes of a revision so far, one for each parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstPasses {
    /// Those that have not come to an end.
    pub pending: usize,
    /// Those that went well.
    pub well: usize,
    /// Those that ended in a fault of the guest.
    pub faulted: usize,
}

/// The result of the first passes of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing yet.
    Open,
    /// It is good.
    Good,
    /// It faults too often, whatever comes.
    Faulty,
}

impl FirstPasses {
    /// Judges a revision that has had its passes for so long.
    pub fn judge(self, waited: Duration) -> Judgement {
        let Self {
            pending,
            well,
            faulted,
        } = self;
        let total = pending + well + faulted;
        let is_too_much = |faults: usize| faults * 100 > total * FAULTS_PERCENT_MAX;
        if is_too_much(faulted) {
            Judgement::Faulty
        } else if !is_too_much(faulted + pending) || waited >= PATIENCE {
            Judgement::Good
        } else {
            Judgement::Open
        }
    }

    /// Describes the faults for people, as the rest of a sentence.
    pub fn describe(self, first_fault: &str) -> String {
        let Self {
            pending,
            well,
            faulted,
        } = self;
        let ended = well + faulted;
        let waiting = match pending {
            0 => String::new(),
            pending => format!(", {pending} more were to come"),
        };
        format!(
            "{faulted} of the {ended} first passes ended in a fault{waiting}; the first one was {first_fault}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_fifth_is_too_much_and_what_cannot_become_too_much_is_good() {
        for (pending, well, faulted, expected) in [
            (0, 0, 0, Judgement::Good),
            (1, 0, 0, Judgement::Open),
            (0, 1, 0, Judgement::Good),
            (0, 0, 1, Judgement::Faulty),
            (0, 4, 1, Judgement::Good),
            (0, 3, 1, Judgement::Faulty),
            (98, 1, 1, Judgement::Open),
            (79, 0, 21, Judgement::Faulty),
            (80, 0, 20, Judgement::Open),
            (19, 80, 1, Judgement::Good),
            (20, 79, 1, Judgement::Open),
            (20, 80, 0, Judgement::Good),
        ] {
            let passes = FirstPasses {
                pending,
                well,
                faulted,
            };
            assert_eq!(passes.judge(Duration::ZERO), expected, "{passes:?}");
            let waited = match expected {
                Judgement::Open => Judgement::Good,
                expected => expected,
            };
            assert_eq!(passes.judge(PATIENCE), waited, "{passes:?}");
        }
    }

    #[test]
    fn the_faults_are_told() {
        let passes = FirstPasses {
            pending: 7,
            well: 1,
            faulted: 2,
        };
        let expected = "2 of the 3 first passes ended in a fault, 7 more were to come; the first one was of K a/b, GuestTrapped: x";
        assert_eq!(passes.describe("of K a/b, GuestTrapped: x"), expected);
    }
}
