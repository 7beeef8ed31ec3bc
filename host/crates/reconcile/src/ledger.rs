//! What is remembered of each parent from one pass to the next, whatever the revision; it only saves work.

use std::collections::BTreeMap;

use innkeeper_model::{Digest, Event, ObjectId};
use tokio::time::Instant;

use super::{budget::Budget, conflicts::Conflicts};

/// One entry for each parent that has or had a pass and is not gone.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    parents: BTreeMap<ObjectId, ParentRecord>,
}

#[derive(Debug, Default)]
struct ParentRecord {
    /// When the last pass ended, and how in a word; none before the first has.
    passed: Option<(Instant, &'static str)>,
    /// The revision whose last answer was a fault; none if the last answer was none.
    faulted_on: Option<Digest>,
    /// When the change was seen that the pass that runs is for, until that pass has written.
    changed: Option<Instant>,
    /// What it may write.
    budget: Budget,
    /// Which of its children somebody else keeps changing.
    conflicts: Conflicts,
    /// The events of the last pass, if it left its report to the next one.
    left: Option<Vec<Event>>,
}

impl Ledger {
    /// Takes note of the begin of a pass, and of when the change was seen that it is for.
    pub(super) fn begin(&mut self, parent: &ObjectId, changed: Option<Instant>) {
        self.entry(parent).changed = changed;
    }

    /// Takes note of a write; says when the change was seen, if it is the first one of the pass.
    pub(super) fn react(&mut self, parent: &ObjectId) -> Option<Instant> {
        self.parents.get_mut(parent)?.changed.take()
    }

    /// Takes note of the end of a pass.
    pub(super) fn passed(&mut self, parent: &ObjectId, now: Instant, outcome: &'static str) {
        let entry = self.entry(parent);
        entry.passed = Some((now, outcome));
        entry.changed = None;
    }

    /// When the last pass of a parent ended, and how.
    pub(super) fn last(&self, parent: &ObjectId) -> Option<(Instant, &'static str)> {
        self.parents.get(parent)?.passed
    }

    /// What a parent may write.
    pub(super) fn budget(&mut self, parent: &ObjectId) -> &mut Budget {
        &mut self.entry(parent).budget
    }

    /// Which children of a parent somebody else keeps changing.
    pub(super) fn conflicts(&mut self, parent: &ObjectId) -> &mut Conflicts {
        &mut self.entry(parent).conflicts
    }

    /// Leaves the report of a pass to the next one, with its events; false if the pass before did that already.
    pub(super) fn leave(&mut self, parent: &ObjectId, events: &[Event]) -> bool {
        let left = &mut self.entry(parent).left;
        let may = left.is_none();
        left.get_or_insert_with(|| events.to_vec());
        may
    }

    /// What the pass before left to be said.
    pub(super) fn take_left(&mut self, parent: &ObjectId) -> Vec<Event> {
        let entry = self.parents.get_mut(parent);
        entry
            .and_then(|entry| entry.left.take())
            .unwrap_or_default()
    }

    /// Forgets a parent that is gone.
    pub(super) fn forget(&mut self, parent: &ObjectId) {
        self.parents.remove(parent);
    }

    /// Takes note of whether a revision's last answer was a fault.
    pub(super) fn answered(&mut self, parent: &ObjectId, revision: &Digest, faulted: bool) {
        self.entry(parent).faulted_on = faulted.then(|| revision.clone());
    }

    /// Whether another revision than this one has been faulting for a parent.
    pub(super) fn faulted_before(&self, parent: &ObjectId, revision: &Digest) -> bool {
        let entry = self.parents.get(parent);
        let faulted_on = entry.and_then(|entry| entry.faulted_on.as_ref());
        faulted_on.is_some_and(|other| other != revision)
    }

    /// Sorts parents by their last pass: those that had none first, then the one whose is the longest ago.
    pub(super) fn longest_ago_first(&self, mut parents: Vec<ObjectId>) -> Vec<ObjectId> {
        parents.sort_by_cached_key(|parent| self.last(parent).map(|(at, _)| at));
        parents
    }

    fn entry(&mut self, parent: &ObjectId) -> &mut ParentRecord {
        self.parents.entry(parent.clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use innkeeper_model::{EventType, GroupKind};

    #[test]
    fn only_the_first_write_of_a_pass_for_a_change_reacts_to_it() {
        let id = ObjectId::new(GroupKind::new("g", "K"), Some("demo"), "a");
        let now = Instant::now();
        let mut ledger = Ledger::default();
        assert_eq!(ledger.react(&id), None);
        ledger.begin(&id, Some(now));
        assert_eq!(ledger.react(&id), Some(now));
        assert_eq!(ledger.react(&id), None);
        ledger.begin(&id, Some(now));
        ledger.passed(&id, now, "settled");
        ledger.begin(&id, None);
        assert_eq!(ledger.react(&id), None);
    }

    #[test]
    fn two_passes_in_a_row_never_leave_their_report() {
        let id = ObjectId::new(GroupKind::new("g", "K"), Some("demo"), "a");
        let event = Event {
            kind: EventType::Normal,
            reason: "Made".to_owned(),
            message: "a child".to_owned(),
        };
        let mut ledger = Ledger::default();
        assert_eq!(ledger.take_left(&id), []);
        assert!(ledger.leave(&id, std::slice::from_ref(&event)));
        assert!(!ledger.leave(&id, &[]));
        assert_eq!(ledger.take_left(&id), [event]);
        assert!(ledger.leave(&id, &[]), "it was made in between");
        assert_eq!(ledger.take_left(&id), []);
        assert!(ledger.leave(&id, &[]));
    }

    #[test]
    fn a_fault_is_remembered_with_its_revision_until_the_next_answer() {
        let id = ObjectId::new(GroupKind::new("g", "K"), Some("demo"), "a");
        let [old, new] = ["old", "new"].map(|text| Digest::of(text.as_bytes()));
        let mut ledger = Ledger::default();
        assert!(!ledger.faulted_before(&id, &new));
        ledger.answered(&id, &old, true);
        assert!(ledger.faulted_before(&id, &new));
        assert!(!ledger.faulted_before(&id, &old));
        ledger.answered(&id, &old, false);
        assert!(!ledger.faulted_before(&id, &new));
    }

    #[test]
    fn who_waited_longest_comes_first() {
        let id = |name: &str| ObjectId::new(GroupKind::new("g", "K"), Some("demo"), name);
        let now = Instant::now();
        let mut ledger = Ledger::default();
        for (name, second) in [("a", 3), ("b", 1), ("gone", 0), ("c", 2), ("b", 9)] {
            ledger.passed(&id(name), now + Duration::from_secs(second), "settled");
        }
        ledger.forget(&id("gone"));
        let sorted = ledger.longest_ago_first(["a", "b", "new", "c", "gone"].map(id).to_vec());
        let names: Vec<&str> = sorted.iter().map(|id| &*id.name).collect();
        assert_eq!(names, ["new", "gone", "c", "a", "b"]);
    }
}
