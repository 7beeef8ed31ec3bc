//! How the first passes of a revision that has just taken over end, so that somebody can decide whether it stays.
//!
//! Pure; it counts and decides nothing.

use std::collections::BTreeSet;

use innkeeper_model::ObjectId;

/// How a first pass ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstPass {
    /// The guest gave an answer that could be acted on, or said that the parent is wrong.
    Well,
    /// The guest broke down, ran out of time or memory, gave an answer that was refused, or said that it cannot work.
    Faulted {
        /// The reason, as in the parent's condition `Synced`.
        reason: String,
        /// What happened.
        message: String,
    },
}

/// The first passes so far.
///
/// A pass that came to no verdict of the guest, because it was parked or is to be tried again, is not a first pass: the
/// next one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// None while it is not known which parents there are.
    pending: Option<BTreeSet<ObjectId>>,
    well: usize,
    faulted: usize,
    first_fault: Option<AnalysisFault>,
}

/// The first fault of a analysis, to be told to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalysisFault {
    /// The parent.
    pub parent: ObjectId,
    /// The reason, as in the parent's condition `Synced`.
    pub reason: String,
    /// What happened.
    pub message: String,
}

impl Analysis {
    /// The analysis of a revision that takes over these parents; parents that come later are not part of it.
    pub fn of(parents: impl IntoIterator<Item = ObjectId>) -> Self {
        let mut analysis = Self::unopened();
        analysis.open(parents);
        analysis
    }

    /// A analysis that begins once it is known which parents there are.
    pub const fn unopened() -> Self {
        Self {
            pending: None,
            well: 0,
            faulted: 0,
            first_fault: None,
        }
    }

    /// Begins with these parents.
    pub fn open(&mut self, parents: impl IntoIterator<Item = ObjectId>) {
        self.pending = Some(parents.into_iter().collect());
    }

    /// Whether it has begun.
    pub const fn is_open(&self) -> bool {
        self.pending.is_some()
    }

    /// Takes note of how a pass ended; only the first one of a parent counts.
    ///
    /// Says whether somebody should look at the analysis now: it is over, or there is one fault more.
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

    /// Leaves out a parent that has no pass: it is gone, or its passes are stopped.
    ///
    /// Says whether somebody should look at the analysis now: it is over.
    pub fn excuse(&mut self, parent: &ObjectId) -> bool {
        self.take(parent) && self.pending() == 0
    }

    fn take(&mut self, parent: &ObjectId) -> bool {
        let pending = self.pending.as_mut();
        pending.is_some_and(|pending| pending.remove(parent))
    }

    /// How many parents have not had their first pass, as far as they are known.
    pub fn pending(&self) -> usize {
        self.pending.as_ref().map_or(0, BTreeSet::len)
    }

    /// How many first passes ended well.
    pub fn well(&self) -> usize {
        self.well
    }

    /// How many first passes ended with a fault of the guest.
    pub fn faulted(&self) -> usize {
        self.faulted
    }

    /// The first fault.
    pub fn first_fault(&self) -> Option<&AnalysisFault> {
        self.first_fault.as_ref()
    }
}

/// Nothing is tried out.
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
    fn parents_that_come_later_or_have_no_pass_do_not_count() {
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
    fn a_trial_begins_when_its_parents_are_known() {
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
