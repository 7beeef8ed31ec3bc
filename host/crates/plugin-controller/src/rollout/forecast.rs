//! The plans for many parents, added up.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_model::{GroupKind, ObjectId};
use innkeeper_plan::Changes;
use innkeeper_reconcile::ParentOutcome;

/// Children of a kind by write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Creates.
    pub creates: usize,
    /// Updates and ownership transfers.
    pub updates: usize,
    /// Deletes.
    pub deletes: usize,
}

/// A revision's effects on many parents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// The parents with a pass, those with a fault included.
    pub parents: usize,
    /// Parents without changes to children, finalizer or stated status.
    pub unchanged: usize,
    /// The parents whose stated status changes.
    pub statuses: usize,
    /// The parents with a fault.
    pub faults: usize,
    /// The parents with a known fault; they count nowhere else.
    pub faults_known: usize,
    /// The parents without a pass; they count nowhere else.
    pub skipped: usize,
    /// Writes to children by kind.
    pub kinds: BTreeMap<GroupKind, Writes>,
    /// The children to delete.
    pub deletes: BTreeSet<ObjectId>,
}

impl Forecast {
    /// Adds a parent's plan.
    pub fn add(&mut self, outcome: &ParentOutcome) {
        match outcome {
            ParentOutcome::Planned(planned) => self.add_changes(&planned.changes, planned.status),
            ParentOutcome::Fault { known: true, .. } => self.faults_known += 1,
            ParentOutcome::Fault { known: false, .. } => {
                self.parents += 1;
                self.faults += 1;
            }
            ParentOutcome::Skipped => self.skipped += 1,
        }
    }

    fn add_changes(&mut self, changes: &Changes, status: bool) {
        self.parents += 1;
        self.unchanged += usize::from(!status && changes.is_empty());
        self.statuses += usize::from(status);
        for id in &changes.creates {
            self.writes(id).creates += 1;
        }
        for id in &changes.updates {
            self.writes(id).updates += 1;
        }
        for id in &changes.deletes {
            self.writes(id).deletes += 1;
        }
        self.deletes.extend(changes.deletes.iter().cloned());
    }

    /// Returns the sum for all kinds.
    pub fn total(&self) -> Writes {
        let mut total = Writes::default();
        for writes in self.kinds.values() {
            total.creates += writes.creates;
            total.updates += writes.updates;
            total.deletes += writes.deletes;
        }
        total
    }

    fn writes(&mut self, id: &ObjectId) -> &mut Writes {
        self.kinds.entry(id.kind.clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(kind: &str, name: &str) -> ObjectId {
        ObjectId::new(GroupKind::new("", kind), Some("demo"), name)
    }

    #[test]
    fn writes_are_counted_by_kind_and_deletes_are_named() {
        let mut forecast = Forecast::default();
        let fault = |known| ParentOutcome::Fault {
            reason: "Invalid".to_owned(),
            message: "no".to_owned(),
            known,
        };
        forecast.add(&fault(false));
        forecast.add(&fault(true));
        forecast.add(&ParentOutcome::Skipped);
        forecast.add_changes(&Changes::default(), false);
        forecast.add_changes(&Changes::default(), true);
        let changes = Changes {
            creates: vec![child("Secret", "a")],
            updates: vec![child("Service", "a")],
            deletes: vec![child("Secret", "b"), child("Secret", "c")],
            finalizer: true,
        };
        forecast.add_changes(&changes, false);
        let total = Writes {
            creates: 1,
            updates: 1,
            deletes: 2,
        };
        assert_eq!(forecast.total(), total);
        let secrets = Writes {
            updates: 0,
            ..total
        };
        assert_eq!(forecast.kinds[&GroupKind::new("", "Secret")], secrets);
        assert_eq!(Vec::from_iter(forecast.deletes), changes.deletes);
        let Forecast {
            parents,
            unchanged,
            statuses,
            faults,
            faults_known,
            skipped,
            ..
        } = forecast;
        assert_eq!((parents, unchanged, statuses, faults), (4, 1, 1, 1));
        assert_eq!((faults_known, skipped), (1, 1));
    }
}
