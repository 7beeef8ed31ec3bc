//! A revision's plan for all parents, with the JSON form.
//!
//! Used by `innkeeper plan` and the host's dry run for a candidate revision.

use std::collections::BTreeMap;

use innkeeper_model::ObjectId;
use innkeeper_reconcile::ParentOutcome;
use serde_json::{Value, json};

use super::{Forecast, Writes};

/// Measured size in bytes for a parent or delete entry, excluding texts.
const ENTRY_BYTES: usize = 250;

/// Size for a line in an entry, excluding text.
const LINE_BYTES: usize = 20;

/// Number of faults that a plan names, regardless of the room for entries.
const FAULTS_NAMED_MAX: usize = 10;

/// A revision's plan for all parents.
#[derive(Debug, Default)]
pub struct FleetPlan {
    /// The Plugin name.
    pub plugin: String,
    /// The revision.
    pub revision: String,
    /// The revision whose changes are left out; none if there is none.
    pub against: Option<String>,
    /// The sums over all parents.
    pub forecast: Forecast,
    /// The first faults that are not known, each with reason and message.
    pub faults: BTreeMap<ObjectId, (String, String)>,
    parents: BTreeMap<ObjectId, ParentPlan>,
    /// Number of parents without an entry for lack of room.
    omitted: usize,
    /// The room for more parents, in bytes.
    room: usize,
}

/// The plan for one parent.
#[derive(Debug)]
pub struct ParentPlan {
    /// True if the user wants the differences.
    pub is_asked: bool,
    /// The plan.
    pub outcome: ParentOutcome,
}

impl ParentPlan {
    /// Returns true if the parent changes or fails, or if the user asked for it.
    fn is_shown(&self) -> bool {
        let has_news = match &self.outcome {
            ParentOutcome::Planned(planned) => planned.status || !planned.operations.is_empty(),
            ParentOutcome::Fault { .. } => true,
            ParentOutcome::Skipped => false,
        };
        self.is_asked || has_news
    }

    /// Returns the approximate JSON size for a parent's entry with the deletes.
    fn bytes(&self, parent: &ObjectId) -> usize {
        let named = |id: &ObjectId| {
            let namespace = id.namespace.as_deref().unwrap_or_default();
            ENTRY_BYTES + namespace.len() + id.name.len()
        };
        let texts = match &self.outcome {
            ParentOutcome::Planned(planned) => {
                let lines = planned
                    .operations
                    .iter()
                    .chain(&planned.differences)
                    .map(|line| LINE_BYTES + line.len());
                let deletes = planned.changes.deletes.iter().map(named);
                lines.chain(deletes).sum()
            }
            ParentOutcome::Fault {
                reason, message, ..
            } => reason.len() + message.len(),
            ParentOutcome::Skipped => 0,
        };
        named(parent) + texts
    }

    fn json(&self, parent: &ObjectId) -> Option<Value> {
        let mut entry = name(parent);
        match &self.outcome {
            ParentOutcome::Planned(planned) => {
                entry["writes"] = planned.operations.clone().into();
                entry["statusChanges"] = planned.status.into();
                // They hold values, which the other parts of the plan never show.
                if self.is_asked {
                    entry["differences"] = planned.differences.clone().into();
                }
            }
            ParentOutcome::Fault {
                reason,
                message,
                known,
            } => entry["fault"] = json!({"reason": reason, "message": message, "known": known}),
            ParentOutcome::Skipped => return None,
        }
        Some(entry)
    }
}

impl FleetPlan {
    /// Returns a plan without parents, which keeps as many entries as `bytes_max` allows.
    pub fn new(
        plugin: String,
        revision: String,
        against: Option<String>,
        bytes_max: usize,
    ) -> Self {
        Self {
            plugin,
            revision,
            against,
            room: bytes_max,
            ..Self::default()
        }
    }

    /// Adds a parent's plan. Every parent counts; the entry is kept if it is not empty and there is room.
    pub fn add(&mut self, parent: ObjectId, plan: ParentPlan) {
        self.forecast.add(&plan.outcome);
        if let ParentOutcome::Fault {
            reason,
            message,
            known: false,
        } = &plan.outcome
        {
            let fault = (reason.clone(), message.clone());
            self.faults.insert(parent.clone(), fault);
            // The parents come in any order, and the first ones are the same in the next plan.
            if self.faults.len() > FAULTS_NAMED_MAX {
                self.faults.pop_last();
            }
        }
        if !plan.is_shown() {
            return;
        }
        match self.room.checked_sub(plan.bytes(&parent)) {
            Some(room) => {
                self.room = room;
                self.parents.insert(parent, plan);
            }
            None => self.omitted += 1,
        }
    }

    /// Returns the kept entries, sorted by parent.
    pub const fn parents(&self) -> &BTreeMap<ObjectId, ParentPlan> {
        &self.parents
    }

    /// Returns the plan as JSON, with values only from objects that the user requested.
    pub fn json(&self) -> Value {
        let forecast = &self.forecast;
        let counts = |writes: Writes| json!({"creates": writes.creates, "updates": writes.updates, "deletes": writes.deletes});
        let mut total = counts(forecast.total());
        for (name, number) in [
            ("parents", forecast.parents),
            ("unchanged", forecast.unchanged),
            ("statusChanges", forecast.statuses),
            ("faults", forecast.faults),
            ("faultsKnown", forecast.faults_known),
            ("skipped", forecast.skipped),
        ] {
            total[name] = number.into();
        }
        let kinds = forecast.kinds.iter().map(|(kind, writes)| {
            let mut entry = counts(*writes);
            entry["group"] = (*kind.group).into();
            entry["kind"] = (*kind.kind).into();
            entry
        });
        let deletes = self.parents.values().flat_map(|plan| match &plan.outcome {
            ParentOutcome::Planned(planned) => &*planned.changes.deletes,
            _ => &[],
        });
        let entries = self
            .parents
            .iter()
            .filter_map(|(parent, plan)| plan.json(parent));
        json!({
            "plugin": self.plugin,
            "revision": self.revision,
            "against": self.against,
            "counts": total,
            "kinds": kinds.collect::<Vec<_>>(),
            "deletes": deletes.map(name).collect::<Vec<_>>(),
            "parents": entries.collect::<Vec<_>>(),
            "parentsOmitted": self.omitted,
        })
    }
}

fn name(id: &ObjectId) -> Value {
    json!({
        "group": *id.kind.group, "kind": *id.kind.kind,
        "namespace": id.namespace.as_deref(), "name": *id.name,
    })
}

#[cfg(test)]
mod tests {
    use innkeeper_model::GroupKind;
    use innkeeper_plan::Changes;
    use innkeeper_reconcile::PlannedChanges;

    use super::*;

    fn deletes(name: &str) -> (ObjectId, ParentPlan) {
        let id = |kind: &str| ObjectId::new(GroupKind::new("", kind), Some("demo"), name);
        let changes = Changes {
            deletes: vec![id("Secret")],
            ..Changes::default()
        };
        let planned = PlannedChanges {
            changes,
            operations: vec![format!("prune v1 Secret demo/{name}")],
            ..PlannedChanges::default()
        };
        let plan = ParentPlan {
            is_asked: false,
            outcome: ParentOutcome::Planned(planned),
        };
        (id("Web"), plan)
    }

    #[test]
    fn the_first_faults_are_named_without_room_for_entries() {
        let mut plan = FleetPlan::new("web".to_owned(), "r".to_owned(), None, 0);
        for number in (0..30).rev() {
            let parent =
                ObjectId::new(GroupKind::new("", "Web"), Some("demo"), &number.to_string());
            let outcome = ParentOutcome::Fault {
                reason: "Invalid".to_owned(),
                message: number.to_string(),
                known: number == 0,
            };
            let is_asked = false;
            plan.add(parent, ParentPlan { is_asked, outcome });
        }
        let named: Vec<&str> = plan.faults.keys().map(|parent| &*parent.name).collect();
        let first = ["1", "10", "11", "12", "13", "14", "15", "16", "17", "18"];
        assert_eq!(named, first);
        assert_eq!((plan.forecast.faults, plan.forecast.faults_known), (29, 1));
    }

    #[test]
    fn entries_have_a_bound_and_counts_have_none() {
        let bytes_max = 10_000;
        let mut plan = FleetPlan::new("web".to_owned(), "r".to_owned(), None, bytes_max);
        for number in (0..100).rev() {
            let (parent, deletes) = deletes(&format!("web-{number:02}"));
            plan.add(parent, deletes);
        }
        let json = plan.json();
        let bytes = format!("{json:#}").len();
        assert!(bytes < bytes_max, "{bytes}");
        let parents = json["parents"].as_array().unwrap();
        let count = parents.len();
        assert!(count > 10 && count < 100, "{count}");
        assert_eq!(json["deletes"].as_array().unwrap().len(), count);
        assert_eq!(json["parentsOmitted"], 100 - count);
        assert_eq!(json["counts"]["deletes"], 100);
        let names: Vec<_> = parents
            .iter()
            .map(|parent| parent["name"].as_str())
            .collect();
        assert!(names.is_sorted(), "{names:?}");
    }
}
