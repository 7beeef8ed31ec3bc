//! Triggers for passes: a set and not a queue, so that it never has more than one entry for a parent.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_model::ObjectId;
use tokio::time::Instant;

/// Why a parent gets a pass, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The parent was created, or more than the status changed.
    ParentChanged,
    /// The parent is gone.
    ParentGone,
    /// A child was added, changed or removed.
    ChildChanged,
    /// An object or a list that the last pass read has changed.
    RelatedChanged,
    /// A kind that the parent depends on became readable or unreadable.
    KindChanged,
    /// The cache shows the host's own writes.
    CaughtUp,
    /// The plugin's active revision changed.
    Swapped,
    /// Only the parent's status changed.
    ParentStatus,
    /// The first list has shown the parent, or the registration is new.
    Listed,
    /// The resync interval has passed without a known change.
    Resync,
}

/// A trigger for a pass; for order, logs and metrics only, never for decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The cause.
    pub cause: Cause,
    /// The changed object, if there is one.
    pub object: Option<ObjectId>,
    /// The time of the change, if a running pass held the trigger back.
    pub since: Option<Instant>,
}

impl Trigger {
    pub(super) fn for_object(cause: Cause, object: Option<&ObjectId>) -> Self {
        Self {
            object: object.cloned(),
            ..cause.into()
        }
    }
}

impl From<Cause> for Trigger {
    fn from(cause: Cause) -> Self {
        Self {
            cause,
            object: None,
            since: None,
        }
    }
}

/// A parent's triggers since the running pass last observed.
///
/// A trigger is dropped when the pass itself observes the change.
#[derive(Debug, Default)]
pub(super) struct HeldTriggers(Vec<Trigger>);

impl HeldTriggers {
    /// Adds a trigger, unless there is one with the same object and cause.
    pub(super) fn hold(&mut self, trigger: Trigger, now: Instant) {
        let is_same = |held: &Trigger| {
            // One for all reads: a parent may read many objects.
            let is_read = trigger.cause == Cause::RelatedChanged;
            held.cause == trigger.cause && (is_read || held.object == trigger.object)
        };
        if !self.0.iter().any(is_same) {
            let since = trigger.since.or(Some(now));
            self.0.push(Trigger { since, ..trigger });
        }
    }

    /// Drops all: the pass has observed everything up to now.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Drops the triggers for an object that the pass has written, unless the pass knows the object only by a read.
    pub(super) fn forget(&mut self, object: &ObjectId) {
        self.0.retain(|held| {
            held.object.as_ref() != Some(object) || held.cause == Cause::RelatedChanged
        });
    }

    /// Returns the remaining triggers at the end of the pass.
    pub(super) fn release(self) -> Vec<Trigger> {
        self.0
    }
}

/// The parents that wait for a pass.
#[derive(Debug, Default)]
pub(super) struct Triggers {
    waiting: BTreeMap<ObjectId, (u64, Trigger)>,
    order: BTreeSet<(Cause, u64, ObjectId)>,
    count: u64,
}

impl Triggers {
    /// Adds a trigger. Only the most urgent one stays for each parent.
    pub(super) fn add(&mut self, parent: ObjectId, trigger: Trigger) {
        if let Some((number, queued)) = self.waiting.get(&parent) {
            // The later of "changed" and "gone" is true: the parent was recreated, or deleted after a change.
            let is_gone =
                queued.cause == Cause::ParentChanged && trigger.cause == Cause::ParentGone;
            if queued.cause <= trigger.cause && !is_gone {
                return;
            }
            self.order.remove(&(queued.cause, *number, parent.clone()));
        }
        self.count += 1;
        self.order
            .insert((trigger.cause, self.count, parent.clone()));
        self.waiting.insert(parent, (self.count, trigger));
    }

    /// Takes one parent's trigger.
    pub(super) fn remove(&mut self, parent: &ObjectId) -> Option<Trigger> {
        let (number, trigger) = self.waiting.remove(parent)?;
        self.order.remove(&(trigger.cause, number, parent.clone()));
        Some(trigger)
    }

    /// Takes the most urgent triggers; equally urgent ones in order of arrival.
    pub(super) fn take(&mut self, max: usize) -> Vec<(ObjectId, Trigger)> {
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some((_, _, parent)) = self.order.pop_first()
        {
            if let Some((_, trigger)) = self.waiting.remove(&parent) {
                taken.push((parent, trigger));
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use innkeeper_model::GroupKind;

    fn id(name: &str) -> ObjectId {
        ObjectId::new(GroupKind::new("g", "K"), Some("demo"), name)
    }

    fn add(triggers: &mut Triggers, name: &str, cause: Cause) {
        triggers.add(id(name), cause.into());
    }

    fn take(triggers: &mut Triggers, max: usize) -> Vec<(String, Cause)> {
        triggers
            .take(max)
            .into_iter()
            .map(|(id, trigger)| (id.name.to_string(), trigger.cause))
            .collect()
    }

    #[test]
    fn one_entry_per_parent_and_the_most_urgent_first() {
        let mut triggers = Triggers::default();
        for round in 0..1000 {
            add(&mut triggers, "a", Cause::Listed);
            add(&mut triggers, "b", Cause::ChildChanged);
            add(
                &mut triggers,
                "c",
                if round == 500 {
                    Cause::ParentChanged
                } else {
                    Cause::Listed
                },
            );
        }
        assert_eq!(triggers.waiting.len(), 3);
        let first = [
            ("c".to_owned(), Cause::ParentChanged),
            ("b".to_owned(), Cause::ChildChanged),
        ];
        assert_eq!(take(&mut triggers, 2), first);
        assert_eq!(take(&mut triggers, 9), [("a".to_owned(), Cause::Listed)]);
        assert!(triggers.order.is_empty() && triggers.waiting.is_empty());
    }

    #[test]
    fn a_parent_that_came_back_is_not_gone() {
        let mut triggers = Triggers::default();
        add(&mut triggers, "a", Cause::ParentChanged);
        add(&mut triggers, "a", Cause::ParentGone);
        add(&mut triggers, "a", Cause::ChildChanged);
        assert_eq!(
            take(&mut triggers, 9),
            [("a".to_owned(), Cause::ParentGone)]
        );
        add(&mut triggers, "a", Cause::ParentGone);
        add(&mut triggers, "a", Cause::ParentChanged);
        assert_eq!(
            take(&mut triggers, 9),
            [("a".to_owned(), Cause::ParentChanged)]
        );
    }
}
