//! Facts about each parent between passes, across revisions; they only save work.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_model::{Digest, Event, ObjectId};
use innkeeper_plan::Repeats;
use tokio::time::Instant;

use crate::limits::first_writes::ParentLimits;

/// A parent's generation; `None` if its kind has none.
pub(crate) type Generation = Option<i64>;

/// The time between two sweeps, equal to the time that the ledger remembers writes.
const SWEEP_INTERVAL: Duration = Duration::from_mins(1);

/// One record for each parent that has had a pass and is not gone.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    parents: BTreeMap<ObjectId, ParentRecord>,
    /// The time of the last sweep.
    swept: Option<Instant>,
}

#[derive(Debug, Default)]
struct ParentRecord {
    /// The end of the last pass, and the result in a word.
    passed: Option<(Instant, &'static str)>,
    /// The revision whose last answer was a fault or found the parent invalid.
    failed_on: Option<Digest>,
    /// The generation of the last good answer, from any revision.
    good_at: Option<Generation>,
    /// The time of the change that the running pass is for, until the pass has written.
    changed: Option<Instant>,
    limits: ParentLimits,
    /// The recent writes, including those that other clients undo.
    repeats: Repeats,
    /// The API server's message if it refused the last status even without the guest's part.
    status_refused: Option<String>,
    /// True if the API server has refused a child because the namespace is being deleted, which nothing can undo.
    namespace_terminating: bool,
    /// The events that the last pass, or earlier rounds of the running pass, deferred.
    deferred: Option<Vec<Event>>,
}

impl Ledger {
    /// Begins a pass; `changed` is when the host saw the change that it is for.
    pub(crate) fn begin(&mut self, parent: &ObjectId, changed: Option<Instant>) {
        self.entry(parent).changed = changed;
        self.sweep(Instant::now());
    }

    /// Forgets old writes of all parents: most parents have no pass after their first writes.
    fn sweep(&mut self, now: Instant) {
        let is_due = |swept: Instant| now.saturating_duration_since(swept) >= SWEEP_INTERVAL;
        if self.swept.is_none_or(is_due) {
            self.swept = Some(now);
            for parent in self.parents.values_mut() {
                parent.repeats.forget_ended(now.into_std());
            }
        }
    }

    /// Returns when the host saw the change, to the first write in a pass only.
    pub(crate) fn take_change(&mut self, parent: &ObjectId) -> Option<Instant> {
        self.parents.get_mut(parent)?.changed.take()
    }

    /// Ends a pass, with the result in a word.
    pub(crate) fn passed(&mut self, parent: &ObjectId, now: Instant, outcome: &'static str) {
        let entry = self.entry(parent);
        entry.passed = Some((now, outcome));
        entry.changed = None;
    }

    /// Returns when the last pass ended, and the result.
    pub(crate) fn last(&self, parent: &ObjectId) -> Option<(Instant, &'static str)> {
        self.parents.get(parent)?.passed
    }

    pub(crate) fn limits(&mut self, parent: &ObjectId) -> &mut ParentLimits {
        &mut self.entry(parent).limits
    }

    pub(crate) fn repeats(&mut self, parent: &ObjectId) -> &mut Repeats {
        &mut self.entry(parent).repeats
    }

    /// Sets why the API server refused the host's conditions; `None` after a success.
    pub(crate) fn set_status_refused(&mut self, parent: &ObjectId, answer: Option<String>) {
        self.entry(parent).status_refused = answer;
    }

    /// Returns true if the API server has refused the host's conditions with this message.
    pub(crate) fn is_status_refused(&self, parent: &ObjectId, answer: &str) -> bool {
        self.parents
            .get(parent)
            .is_some_and(|entry| entry.status_refused.as_deref() == Some(answer))
    }

    /// Defers a report with the events to the next pass.
    ///
    /// Returns false if the pass before did so already: a report is late by at most one pass.
    pub(crate) fn defer_report(&mut self, parent: &ObjectId, events: &[Event]) -> bool {
        let deferred = &mut self.entry(parent).deferred;
        let may_defer = deferred.is_none();
        deferred.get_or_insert_with(|| events.to_vec());
        may_defer
    }

    /// Defers a round's events to the pass's report.
    pub(crate) fn defer_events(&mut self, parent: &ObjectId, events: &[Event]) {
        let deferred = self.entry(parent).deferred.get_or_insert_default();
        // Each round's answer may have the events of the one before.
        let new: Vec<Event> = events
            .iter()
            .filter(|event| !deferred.contains(event))
            .cloned()
            .collect();
        deferred.extend(new);
    }

    /// Takes the deferred events.
    pub(crate) fn take_events(&mut self, parent: &ObjectId) -> Vec<Event> {
        self.parents
            .get_mut(parent)
            .and_then(|entry| entry.deferred.take())
            .unwrap_or_default()
    }

    /// Records that nothing can be created in the parent's namespace any more.
    pub(crate) fn set_namespace_terminating(&mut self, parent: &ObjectId) {
        self.entry(parent).namespace_terminating = true;
    }

    /// Returns true if writes have shown that nothing can be created in the parent's namespace any more.
    pub(crate) fn is_namespace_terminating(&self, parent: &ObjectId) -> bool {
        self.parents
            .get(parent)
            .is_some_and(|entry| entry.namespace_terminating)
    }

    /// Forgets a parent that is gone.
    pub(crate) fn forget(&mut self, parent: &ObjectId) {
        self.parents.remove(parent);
    }

    /// Records an answer for a parent's generation; `failed` if it was a fault or found the parent invalid.
    pub(crate) fn record_answer(
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

    pub(crate) fn good_at(&self, parent: &ObjectId) -> Option<Generation> {
        self.parents.get(parent)?.good_at
    }

    /// Returns true if any parent has had a good answer.
    pub(crate) fn has_history(&self) -> bool {
        self.parents.values().any(|parent| parent.good_at.is_some())
    }

    /// Returns true if the parent's last answer was a failure of another revision.
    pub(crate) fn failed_before(&self, parent: &ObjectId, revision: &Digest) -> bool {
        self.parents
            .get(parent)
            .and_then(|entry| entry.failed_on.as_ref())
            .is_some_and(|other| other != revision)
    }

    /// Sorts parents by their last pass: first those without one, then the oldest.
    pub(crate) fn sort_longest_ago_first(&self, parents: &mut [ObjectId]) {
        parents.sort_by_cached_key(|parent| self.last(parent).map(|(at, _)| at));
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
        ledger.record_answer(&id, Some(1), &old, true);
        assert!(ledger.failed_before(&id, &new));
        assert!(!ledger.failed_before(&id, &old));
        assert_eq!((ledger.good_at(&id), ledger.has_history()), (None, false));
        ledger.record_answer(&id, Some(2), &old, false);
        assert!(!ledger.failed_before(&id, &new));
        // A fault leaves the generation that passed.
        ledger.record_answer(&id, Some(3), &new, true);
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
        let mut sorted = ["a", "b", "new", "c", "gone"].map(id);
        ledger.sort_longest_ago_first(&mut sorted);
        let names: Vec<&str> = sorted.iter().map(|id| &*id.name).collect();
        assert_eq!(names, ["new", "gone", "c", "a", "b"]);
    }
}
