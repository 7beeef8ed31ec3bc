//! The rollout analysis: the results of the first passes of a revision that has just become active.
//!
//! Pure: it only counts. The plugin controller decides from the counts if the revision stays.

use std::collections::BTreeSet;

use innkeeper_model::ObjectId;

/// The end of a first pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstPass {
    /// The guest gave a valid answer, or reported that the parent is invalid.
    Well,
    /// The guest trapped, exceeded its time or memory, gave an answer that was rejected, or reported a fatal fault.
    Faulted {
        /// The reason, as in the parent's condition `Synced`.
        reason: String,
        /// The description of the fault.
        message: String,
    },
}

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
    first_fault: Option<AnalysisFault>,
}

/// The first fault of an analysis, for conditions and events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalysisFault {
    /// The parent.
    pub parent: ObjectId,
    /// The reason, as in the parent's condition `Synced`.
    pub reason: String,
    /// The description of the fault.
    pub message: String,
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
    /// Returns true if the analysis should be evaluated now: it is complete, or it has one more fault.
    pub fn record(&mut self, parent: &ObjectId, ended: FirstPass) -> bool {
        if !self.take(parent) {
            return false;
        }
        match ended {
            FirstPass::Well => self.well += 1,
            FirstPass::Faulted { reason, message } => {
                self.faulted += 1;
                self.first_fault.get_or_insert_with(|| AnalysisFault {
                    parent: parent.clone(),
                    reason,
                    message,
                });
                return true;
            }
        }
        self.pending() == 0
    }

    /// Removes a parent that gets no pass: it is gone, or its passes are stopped.
    ///
    /// Returns true if the analysis is now complete.
    pub fn excuse(&mut self, parent: &ObjectId) -> bool {
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
    pub fn first_fault(&self) -> Option<&AnalysisFault> {
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

    fn faulted(message: &str) -> FirstPass {
        FirstPass::Faulted {
            reason: "GuestTrapped".to_owned(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn only_the_first_pass_of_a_parent_counts() {
        let mut analysis = Analysis::of(["a", "b", "c"].map(id));
        assert!(!analysis.record(&id("a"), FirstPass::Well));
        assert!(!analysis.record(&id("a"), faulted("later")));
        assert!(analysis.record(&id("b"), faulted("first")));
        assert!(!analysis.record(&id("b"), FirstPass::Well));
        assert_eq!(
            (analysis.pending(), analysis.well(), analysis.faulted()),
            (1, 1, 1)
        );
        assert!(analysis.record(&id("c"), faulted("second")));
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
        analysis.record(&id("new"), faulted("of a new one"));
        assert!(!analysis.excuse(&id("a")));
        analysis.record(&id("a"), faulted("of one that is gone"));
        assert_eq!(
            (analysis.pending(), analysis.well(), analysis.faulted()),
            (1, 0, 0)
        );
        assert_eq!(analysis.first_fault(), None);
        assert!(analysis.excuse(&id("b")));
        assert!(!analysis.excuse(&id("b")));
    }

    #[test]
    fn an_analysis_starts_when_its_parents_are_known() {
        let mut analysis = Analysis::unopened();
        assert!(!analysis.record(&id("a"), faulted("before")));
        assert!(!analysis.is_open());
        analysis.open(["a"].map(id));
        assert_eq!(
            (analysis.is_open(), analysis.pending(), analysis.faulted()),
            (true, 1, 0)
        );
        assert!(analysis.record(&id("a"), FirstPass::Well));
    }
}
