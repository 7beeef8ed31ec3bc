//! How the first passes of a revision that has just taken over end, so that somebody can decide whether it stays.
//!
//! Pure; it counts and decides nothing.

use std::collections::BTreeSet;

use crate::model::ObjectId;

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    pending: BTreeSet<ObjectId>,
    well: usize,
    faulted: usize,
    first_fault: Option<Fault>,
}

/// The first fault of a trial, to be told to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The parent.
    pub parent: ObjectId,
    /// The reason, as in the parent's condition `Synced`.
    pub reason: String,
    /// What happened.
    pub message: String,
}

impl Trial {
    /// The trial of a revision that takes over these parents; parents that come later are not part of it.
    pub fn of(parents: impl IntoIterator<Item = ObjectId>) -> Self {
        Self {
            pending: parents.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Takes note of how a pass ended; only the first one of a parent counts.
    pub fn record(&mut self, parent: &ObjectId, ended: FirstPass) {
        if !self.pending.remove(parent) {
            return;
        }
        match ended {
            FirstPass::Well => self.well += 1,
            FirstPass::Faulted { reason, message } => {
                self.faulted += 1;
                self.first_fault.get_or_insert_with(|| Fault {
                    parent: parent.clone(),
                    reason,
                    message,
                });
            }
        }
    }

    /// Leaves out a parent that has no pass: it is gone, or its passes are stopped.
    pub fn excuse(&mut self, parent: &ObjectId) {
        self.pending.remove(parent);
    }

    /// How many parents have not had their first pass.
    pub fn pending(&self) -> usize {
        self.pending.len()
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
    pub fn first_fault(&self) -> Option<&Fault> {
        self.first_fault.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::GroupKind;

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
        let mut trial = Trial::of(["a", "b", "c"].map(id));
        trial.record(&id("a"), FirstPass::Well);
        trial.record(&id("a"), faulted("later"));
        trial.record(&id("b"), faulted("first"));
        trial.record(&id("b"), FirstPass::Well);
        assert_eq!((trial.pending(), trial.well(), trial.faulted()), (1, 1, 1));
        trial.record(&id("c"), faulted("second"));
        assert_eq!((trial.pending(), trial.well(), trial.faulted()), (0, 1, 2));
        let first = trial.first_fault().unwrap();
        assert_eq!((&first.parent, &*first.message), (&id("b"), "first"));
    }

    #[test]
    fn parents_that_come_later_or_have_no_pass_do_not_count() {
        let mut trial = Trial::of(["a", "b"].map(id));
        trial.record(&id("new"), faulted("of a new one"));
        trial.excuse(&id("a"));
        trial.record(&id("a"), faulted("of one that is gone"));
        assert_eq!((trial.pending(), trial.well(), trial.faulted()), (1, 0, 0));
        assert_eq!(trial.first_fault(), None);
    }
}
