//! The facts about each parent that are kept between its passes, across revisions; they only save work.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_model::{Digest, Event, ObjectId};
use innkeeper_plan::Repeats;
use tokio::time::Instant;

use crate::{limits::first_writes::ParentLimits, revision::analysis::Generation};

/// The time between two sweeps of old writes: as long as writes are remembered.
const SWEEP_INTERVAL: Duration = Duration::from_mins(1);

/// The records of the parents; one for each parent that has or had a pass and is not gone.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    parents: BTreeMap<ObjectId, ParentRecord>,
    /// The time at which the writes of all parents were last swept.
    swept: Option<Instant>,
}

#[derive(Debug, Default)]
struct ParentRecord {
    /// The time of the last pass's end and its result in a word; none before the first one has ended.
    passed: Option<(Instant, &'static str)>,
    /// The revision of the last answer if that was a fault or found the parent invalid; none otherwise.
    failed_on: Option<Digest>,
    /// The generation of the last good answer, of any revision; none without such an answer.
    good_at: Option<Generation>,
    /// The time at which the host saw the change that the running pass is for, until the pass has written.
    changed: Option<Instant>,
    /// The write limits.
    limits: ParentLimits,
    /// The recent writes, with those that others undo.
    repeats: Repeats,
    /// The answer of the API server if it refused a status even without the guest's part, since the last success.
    status_refused: Option<String>,
    /// True if the API server has refused a child because the namespace is being deleted. Nothing ends that.
    namespace_terminating: bool,
    /// The deferred events: of the last pass if it deferred its report, and of the earlier rounds of the running pass.
    deferred: Option<Vec<Event>>,
}

impl Ledger {
    /// Begins a pass; `changed` is the time at which the host saw the change that it is for.
    pub(crate) fn begin(&mut self, parent: &ObjectId, changed: Option<Instant>) {
        self.entry(parent).changed = changed;
        self.sweep(Instant::now());
    }

    /// Forgets old writes of all parents from time to time: most parents have no pass after their first writes.
    fn sweep(&mut self, now: Instant) {
        let is_due = |swept: Instant| now.saturating_duration_since(swept) >= SWEEP_INTERVAL;
        if self.swept.is_none_or(is_due) {
            self.swept = Some(now);
            for parent in self.parents.values_mut() {
                parent.repeats.forget_ended(now.into_std());
            }
        }
    }

    /// Returns the time at which the host saw the change, for the first write of a pass only.
    pub(crate) fn take_change(&mut self, parent: &ObjectId) -> Option<Instant> {
        self.parents.get_mut(parent)?.changed.take()
    }

    /// Ends a pass with a result in a word.
    pub(crate) fn passed(&mut self, parent: &ObjectId, now: Instant, outcome: &'static str) {
        let entry = self.entry(parent);
        entry.passed = Some((now, outcome));
        entry.changed = None;
    }

    /// Returns the time of the last pass's end, and its result.
    pub(crate) fn last(&self, parent: &ObjectId) -> Option<(Instant, &'static str)> {
        self.parents.get(parent)?.passed
    }

    /// Returns the write limits of a parent.
    pub(crate) fn limits(&mut self, parent: &ObjectId) -> &mut ParentLimits {
        &mut self.entry(parent).limits
    }

    /// Returns the recent writes of a parent.
    pub(crate) fn repeats(&mut self, parent: &ObjectId) -> &mut Repeats {
        &mut self.entry(parent).repeats
    }

    /// Sets the answer of the API server that refused the host's conditions; none after a success.
    pub(crate) fn set_status_refused(&mut self, parent: &ObjectId, answer: Option<String>) {
        self.entry(parent).status_refused = answer;
    }

    /// Returns true if the API server has refused the host's conditions with this answer.
    pub(crate) fn is_status_refused(&self, parent: &ObjectId, answer: &str) -> bool {
        let entry = self.parents.get(parent);
        entry.is_some_and(|entry| entry.status_refused.as_deref() == Some(answer))
    }

    /// Defers the report of a pass, with its events, to the next pass.
    ///
    /// Returns false if the pass before did that already: two passes in a row never do, so every report is late by at
    /// most one pass.
    pub(crate) fn defer_report(&mut self, parent: &ObjectId, events: &[Event]) -> bool {
        let deferred = &mut self.entry(parent).deferred;
        let may = deferred.is_none();
        deferred.get_or_insert_with(|| events.to_vec());
        may
    }

    /// Defers the events of a round to the report at the end of the pass.
    pub(crate) fn defer_events(&mut self, parent: &ObjectId, events: &[Event]) {
        let deferred = self.entry(parent).deferred.get_or_insert_default();
        let new: Vec<Event> = events
            .iter()
            .filter(|event| !deferred.contains(event))
            .cloned()
            .collect();
        deferred.extend(new);
    }

    /// Takes the events that the last pass, or the earlier rounds of this one, deferred.
    pub(crate) fn take_events(&mut self, parent: &ObjectId) -> Vec<Event> {
        let entry = self.parents.get_mut(parent);
        entry
            .and_then(|entry| entry.deferred.take())
            .unwrap_or_default()
    }

    /// Notes that nothing can be created in the namespace of a parent any more.
    pub(crate) fn namespace_terminates(&mut self, parent: &ObjectId) {
        self.entry(parent).namespace_terminating = true;
    }

    /// Returns true if nothing can be created in the namespace of a parent any more, as far as its writes have shown.
    pub(crate) fn is_namespace_terminating(&self, parent: &ObjectId) -> bool {
        let entry = self.parents.get(parent);
        entry.is_some_and(|entry| entry.namespace_terminating)
    }

    /// Forgets a parent that is gone.
    pub(crate) fn forget(&mut self, parent: &ObjectId) {
        self.parents.remove(parent);
    }

    /// Records an answer for a generation of a parent: its revision, and if it was a fault or found the parent invalid.
    pub(crate) fn answered(
        &mut self,
        parent: &ObjectId,
        generation: Generation,
        revision: &Digest,
        failed: bool,
    ) {
        let entry = self.entry(parent);
        entry.failed_on = failed.then(|| revision.clone());
        if !failed {
            entry.good_at = Some(generation);
        }
    }

    /// Returns the generation of the last good answer.
    pub(crate) fn good_at(&self, parent: &ObjectId) -> Option<Generation> {
        self.parents.get(parent)?.good_at
    }

    /// Returns true if any answer was good.
    pub(crate) fn has_history(&self) -> bool {
        let mut parents = self.parents.values();
        parents.any(|parent| parent.good_at.is_some())
    }

    /// Returns true if the last answer for a parent was a failure of a revision other than this one.
    pub(crate) fn failed_before(&self, parent: &ObjectId, revision: &Digest) -> bool {
        let entry = self.parents.get(parent);
        let failed_on = entry.and_then(|entry| entry.failed_on.as_ref());
        failed_on.is_some_and(|other| other != revision)
    }

    /// Sorts parents by the time of their last pass: first those without one, then the oldest.
    pub(crate) fn longest_ago_first(&self, mut parents: Vec<ObjectId>) -> Vec<ObjectId> {
        parents.sort_by_cached_key(|parent| self.last(parent).map(|(at, _)| at));
        parents
    }

    fn entry(&mut self, parent: &ObjectId) -> &mut ParentRecord {
        self.parents.entry(parent.clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use innkeeper_model::{EventType, GroupKind};

    #[test]
    fn only_the_first_write_of_a_pass_gets_the_time_of_the_change() {
        let id = ObjectId::new(GroupKind::new("g", "K"), Some("demo"), "a");
        let now = Instant::now();
        let mut ledger = Ledger::default();
        assert_eq!(ledger.take_change(&id), None);
        ledger.begin(&id, Some(now));
        assert_eq!(ledger.take_change(&id), Some(now));
        assert_eq!(ledger.take_change(&id), None);
        ledger.begin(&id, Some(now));
        ledger.passed(&id, now, "settled");
        ledger.begin(&id, None);
        assert_eq!(ledger.take_change(&id), None);
    }

    #[test]
    fn two_passes_in_a_row_never_defer_their_report() {
        let id = ObjectId::new(GroupKind::new("g", "K"), Some("demo"), "a");
        let event = Event {
            kind: EventType::Normal,
            reason: "Made".to_owned(),
            message: "a child".to_owned(),
        };
        let mut ledger = Ledger::default();
        assert_eq!(ledger.take_events(&id), []);
        assert!(ledger.defer_report(&id, std::slice::from_ref(&event)));
        assert!(!ledger.defer_report(&id, &[]));
        assert_eq!(ledger.take_events(&id), [event]);
        assert!(
            ledger.defer_report(&id, &[]),
            "the pass in between took the report"
        );
        assert_eq!(ledger.take_events(&id), []);
        assert!(ledger.defer_report(&id, &[]));
    }

    #[test]
    fn a_fault_is_remembered_with_its_revision_until_the_next_answer() {
        let id = ObjectId::new(GroupKind::new("g", "K"), Some("demo"), "a");
        let [old, new] = ["old", "new"].map(|text| Digest::hash(text.as_bytes()));
        let mut ledger = Ledger::default();
        assert!(!ledger.failed_before(&id, &new));
        ledger.answered(&id, Some(1), &old, true);
        assert!(ledger.failed_before(&id, &new));
        assert!(!ledger.failed_before(&id, &old));
        assert_eq!((ledger.good_at(&id), ledger.has_history()), (None, false));
        ledger.answered(&id, Some(2), &old, false);
        assert!(!ledger.failed_before(&id, &new));
        // A fault leaves the generation that passed.
        ledger.answered(&id, Some(3), &new, true);
        let good_at = ledger.good_at(&id);
        assert_eq!((good_at, ledger.has_history()), (Some(Some(2)), true));
    }

    #[test]
    fn the_parent_with_the_oldest_pass_comes_first() {
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
