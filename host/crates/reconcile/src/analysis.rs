//! The rollout analysis: the results of the first passes of a revision that has just become active.
//!
//! Pure: it only counts. The plugin controller decides from the counts if the revision stays.

use std::collections::BTreeSet;

use innkeeper_model::ObjectId;

use super::faults::RecentFault;

/// The counts of the first passes so far.
///
/// A pass without a verdict about the guest, because it was parked or is to be retried, does not count: the parent's
/// next pass is its first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// The parents without a first pass; none while the parents are unknown.
    pending: Option<BTreeSet<ObjectId>>,
    well: usize,
    faulted: usize,
    first_fault: Option<RecentFault>,
}

impl Analysis {
    /// Starts the analysis of a revision that takes over these parents; parents that come later are not part of it.
    pub fn of(parents: impl IntoIterator<Item = ObjectId>) -> Self {
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

    /// Starts the analysis with these parents.
    pub fn open(&mut self, parents: impl IntoIterator<Item = ObjectId>) {
        self.pending = Some(parents.into_iter().collect());
    }

    /// Returns true once the analysis has started.
    pub const fn is_open(&self) -> bool {
        self.pending.is_some()
    }

    /// Counts the end of a pass; only the first one of a parent counts.
    ///
    /// It ends well if the guest gave a valid answer, or reported that the parent is invalid. It ends with a fault if
    /// the guest trapped, exceeded its time or memory, gave an answer that was rejected, or reported a fatal fault.
    /// Returns true if the analysis should be evaluated now: it is complete, or it has one more fault.
    pub fn record(&mut self, parent: &ObjectId, fault: Option<&RecentFault>) -> bool {
        if !self.take(parent) {
            return false;
        }
        if let Some(fault) = fault {
            self.faulted += 1;
            self.first_fault.get_or_insert_with(|| fault.clone());
        } else {
            self.well += 1;
        }
        fault.is_some() || self.pending() == 0
    }

    /// Removes a parent that gets no pass: it is gone, or its passes are stopped.
    ///
    /// Returns true if the analysis is now complete.
    pub fn exempt(&mut self, parent: &ObjectId) -> bool {
        self.take(parent) && self.pending() == 0
    }

    fn take(&mut self, parent: &ObjectId) -> bool {
        let pending = self.pending.as_mut();
        pending.is_some_and(|pending| pending.remove(parent))
    }

    /// Returns the number of parents without a first pass; zero while the parents are unknown.
    pub fn pending(&self) -> usize {
        self.pending.as_ref().map_or(0, BTreeSet::len)
    }

    /// Returns the number of first passes that ended well.
    pub fn well(&self) -> usize {
        self.well
    }

    /// Returns the number of first passes that ended with a fault of the guest.
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
        Self::of([])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use innkeeper_model::GroupKind;

    fn id(name: &str) -> ObjectId {
        ObjectId::new(GroupKind::new("g", "K"), Some("demo"), name)
    }

    /// Records a fault of a parent with this message.
    fn fault(analysis: &mut Analysis, parent: &str, message: &str) -> bool {
        let fault = RecentFault {
            parent: id(parent),
            reason: "GuestTrapped".to_owned(),
            message: message.to_owned(),
            time: jiff::Timestamp::UNIX_EPOCH,
        };
        analysis.record(&id(parent), Some(&fault))
    }

    #[test]
    fn only_the_first_pass_of_a_parent_counts() {
        let mut analysis = Analysis::of(["a", "b", "c"].map(id));
        assert!(!analysis.record(&id("a"), None));
        assert!(!fault(&mut analysis, "a", "later"));
        assert!(fault(&mut analysis, "b", "first"));
        assert!(!analysis.record(&id("b"), None));
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
        let mut analysis = Analysis::of(["a", "b"].map(id));
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

    #[test]
    fn an_analysis_starts_when_its_parents_are_known() {
        let mut analysis = Analysis::unopened();
        assert!(!fault(&mut analysis, "a", "before"));
        assert!(!analysis.is_open());
        analysis.open(["a"].map(id));
        assert_eq!(
            (analysis.is_open(), analysis.pending(), analysis.faulted()),
            (true, 1, 0)
        );
        assert!(analysis.record(&id("a"), None));
    }
}
