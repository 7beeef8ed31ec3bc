//! The rollout analysis: the results of the first passes after a swap.
//!
//! Pure: it only counts. The plugin controller decides from the counts whether the revision stays.

use std::collections::BTreeMap;

use innkeeper_model::ObjectId;

use super::faults::RecentFault;
use crate::memory::ledger::Generation;

/// The facts about a parent when an analysis starts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ParentFacts {
    pub(crate) generation: Generation,
    /// The generation that last passed in this process; `None` if none has.
    pub(crate) good_at: Option<Generation>,
    /// True if the last pass of another revision failed, or found the parent invalid.
    pub(crate) failed_before: bool,
    /// True if the status reports that the generation passed, maybe in another process.
    pub(crate) is_synced: bool,
}

impl ParentFacts {
    /// Returns true if the generation passed before, so that the revision is to blame if the first pass fails.
    ///
    /// `has_history` is true if any pass has succeeded in this process. Otherwise the process has just started within a
    /// rollout: statuses may already come from the new revision, whose faults must still lead to a rollback.
    pub(crate) fn counts(self, has_history: bool) -> bool {
        !self.failed_before
            && match self.good_at {
                Some(generation) => generation == self.generation,
                None => self.is_synced || !has_history,
            }
    }
}

/// Counts the first passes.
///
/// A pass that waits for the cache or asks for a retry does not count: the parent's next pass is its first. Neither does a
/// pass for a newer generation, because tenants could force a rollback by edits that fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// The parents without a first pass, with their generations; `None` while the parents are unknown.
    pending: Option<BTreeMap<ObjectId, Generation>>,
    well: usize,
    faulted: usize,
    first_fault: Option<RecentFault>,
}

impl Analysis {
    /// Starts the analysis of a revision that takes over these parents, with their generations. Parents that are created
    /// later do not count.
    pub fn new(parents: impl IntoIterator<Item = (ObjectId, Option<i64>)>) -> Self {
        let mut analysis = Self::unopened();
        analysis.open(parents);
        analysis
    }

    /// Returns an analysis that starts with [`Analysis::open`], once the parents are known.
    pub const fn unopened() -> Self {
        Self {
            pending: None,
            well: 0,
            faulted: 0,
            first_fault: None,
        }
    }

    /// Starts the analysis with these parents and their generations.
    pub fn open(&mut self, parents: impl IntoIterator<Item = (ObjectId, Option<i64>)>) {
        self.pending = Some(parents.into_iter().collect());
    }

    /// Returns true once the analysis has started.
    pub const fn is_open(&self) -> bool {
        self.pending.is_some()
    }

    /// Counts a parent's first pass for a generation.
    ///
    /// A fault is a trap, an exceeded limit, a rejected answer, a fatal fault, or a parent that the guest finds invalid.
    /// Returns true if the plugin controller should evaluate the analysis now: it is complete, or has one more fault.
    pub fn record(
        &mut self,
        parent: &ObjectId,
        generation: Option<i64>,
        fault: Option<&RecentFault>,
    ) -> bool {
        let Some(expected) = self.take(parent) else {
            return false;
        };
        // A tenant has edited the parent since the swap: if the edit fails, the revision need not be to blame.
        if expected != generation {
            return self.pending() == 0;
        }
        if let Some(fault) = fault {
            self.faulted += 1;
            self.first_fault.get_or_insert_with(|| fault.clone());
        } else {
            self.well += 1;
        }
        fault.is_some() || self.pending() == 0
    }

    /// Removes a parent that gets no pass: it is gone, or its passes are skipped. Returns true if that completes the
    /// analysis.
    pub fn exempt(&mut self, parent: &ObjectId) -> bool {
        self.take(parent).is_some() && self.pending() == 0
    }

    fn take(&mut self, parent: &ObjectId) -> Option<Generation> {
        self.pending.as_mut()?.remove(parent)
    }

    /// Returns the number of parents without a first pass; zero while the parents are unknown.
    pub fn pending(&self) -> usize {
        self.pending.as_ref().map_or(0, BTreeMap::len)
    }

    /// Returns the number of good first passes.
    pub fn well(&self) -> usize {
        self.well
    }

    /// Returns the number of first passes with a fault.
    pub fn faulted(&self) -> usize {
        self.faulted
    }

    /// Returns the first fault.
    pub fn first_fault(&self) -> Option<&RecentFault> {
        self.first_fault.as_ref()
    }
}

/// An analysis without parents, which is complete.
impl Default for Analysis {
    fn default() -> Self {
        Self::new([])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use innkeeper_model::GroupKind;

    fn id(name: &str) -> ObjectId {
        ObjectId::new(GroupKind::new("g", "K"), Some("demo"), name)
    }

    /// Parents in generation 1.
    fn new<const N: usize>(names: [&str; N]) -> [(ObjectId, Option<i64>); N] {
        names.map(|name| (id(name), Some(1)))
    }

    /// Records a parent's fault with this message.
    fn fault(analysis: &mut Analysis, parent: &str, message: &str) -> bool {
        let fault = RecentFault {
            parent: id(parent),
            reason: "GuestTrapped".to_owned(),
            message: message.to_owned(),
            time: jiff::Timestamp::UNIX_EPOCH,
        };
        analysis.record(&id(parent), Some(1), Some(&fault))
    }

    /// Records a parent's fault for this generation.
    fn fault_at(analysis: &mut Analysis, parent: &str, generation: Option<i64>) -> bool {
        let fault = RecentFault {
            parent: id(parent),
            reason: "GuestTrapped".to_owned(),
            message: String::new(),
            time: jiff::Timestamp::UNIX_EPOCH,
        };
        analysis.record(&id(parent), generation, Some(&fault))
    }

    #[test]
    fn only_the_first_pass_of_a_parent_counts() {
        let mut analysis = Analysis::new(new(["a", "b", "c"]));
        assert!(!analysis.record(&id("a"), Some(1), None));
        assert!(!fault(&mut analysis, "a", "later"));
        assert!(fault(&mut analysis, "b", "first"));
        assert!(!analysis.record(&id("b"), Some(1), None));
        assert_eq!(
            (analysis.pending(), analysis.well(), analysis.faulted()),
            (1, 1, 1)
        );
        assert!(fault(&mut analysis, "c", "second"));
        assert_eq!(
            (analysis.pending(), analysis.well(), analysis.faulted()),
            (0, 1, 2)
        );
        let first = analysis.first_fault().unwrap();
        assert_eq!((&first.parent, &*first.message), (&id("b"), "first"));
    }

    #[test]
    fn parents_that_come_later_or_get_no_pass_do_not_count() {
        let mut analysis = Analysis::new(new(["a", "b"]));
        fault(&mut analysis, "new", "of a new one");
        assert!(!analysis.exempt(&id("a")));
        fault(&mut analysis, "a", "of one that is gone");
        assert_eq!(
            (analysis.pending(), analysis.well(), analysis.faulted()),
            (1, 0, 0)
        );
        assert_eq!(analysis.first_fault(), None);
        assert!(analysis.exempt(&id("b")));
        assert!(!analysis.exempt(&id("b")));
    }

    /// Otherwise a tenant could force a rollback by edits that fail.
    #[test]
    fn a_pass_of_another_generation_does_not_count() {
        let mut analysis = Analysis::new([(id("edited"), Some(1)), (id("same"), Some(2))]);
        assert!(!fault_at(&mut analysis, "edited", Some(2)));
        assert!(
            !fault_at(&mut analysis, "edited", Some(1)),
            "only the first pass counts"
        );
        assert_eq!((analysis.pending(), analysis.faulted()), (1, 0));
        assert!(fault_at(&mut analysis, "same", Some(2)));
        assert_eq!((analysis.pending(), analysis.faulted()), (0, 1));
        // The last pending one completes the analysis, although it does not count.
        let mut analysis = Analysis::new([(id("edited"), Some(1))]);
        assert!(fault_at(&mut analysis, "edited", Some(2)));
        assert_eq!((analysis.well(), analysis.faulted()), (0, 0));
    }

    #[test]
    fn only_parents_whose_generation_passed_before_count() {
        let facts = ParentFacts {
            generation: Some(3),
            ..ParentFacts::default()
        };
        let good_at = |generation| ParentFacts {
            good_at: Some(generation),
            ..facts
        };
        let synced = |facts| ParentFacts {
            is_synced: true,
            ..facts
        };
        let faulted = |facts| ParentFacts {
            failed_before: true,
            ..facts
        };
        for (state, facts, counts, counts_at_start) in [
            ("it passed", good_at(Some(3)), true, true),
            (
                "it was edited since it passed",
                good_at(Some(2)),
                false,
                false,
            ),
            (
                "the edit is reported as synced",
                synced(good_at(Some(2))),
                false,
                false,
            ),
            (
                "it faulted after it passed",
                faulted(good_at(Some(3))),
                false,
                false,
            ),
            ("it is new", facts, false, true),
            (
                "another process reported its pass",
                synced(facts),
                true,
                true,
            ),
            ("its only pass was a fault", faulted(facts), false, false),
        ] {
            assert_eq!(facts.counts(true), counts, "{state}");
            assert_eq!(facts.counts(false), counts_at_start, "{state}");
        }
        // Built-in kinds without generations.
        let ungenerated = ParentFacts {
            good_at: Some(None),
            ..ParentFacts::default()
        };
        assert!(ungenerated.counts(true));
    }

    #[test]
    fn an_analysis_starts_when_its_parents_are_known() {
        let mut analysis = Analysis::unopened();
        assert!(!fault(&mut analysis, "a", "before"));
        assert!(!analysis.is_open());
        analysis.open(new(["a"]));
        assert_eq!(
            (analysis.is_open(), analysis.pending(), analysis.faulted()),
            (true, 1, 0)
        );
        assert!(analysis.record(&id("a"), Some(1), None));
    }
}
