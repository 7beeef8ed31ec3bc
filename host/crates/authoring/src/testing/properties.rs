//! Properties of a good reconciler, checked for one parent.
//!
//! A small simulation replaces the cluster: it applies an answer as the host does, with each child's owner and the
//! parent's status, and feeds it back. It sets no defaults and no child statuses. Pure except for the plugin calls.

mod prediction;

use std::collections::BTreeMap;

use innkeeper_command::Failure;
use innkeeper_model::{
    ANNOTATION_KEY, ANNOTATION_RETAINED_FOR, ApplyPolicy, Child, ObjectId, Phase, RemovalPolicy,
    Report, reason,
};
use innkeeper_plan::{self as plan, absence, put};
use innkeeper_sandbox::CallOutput;
use serde_json::{Map, Value, json};

use super::typed;
use crate::{
    diff,
    document::Document,
    render::{Offline, Passed, Simulation, Variation},
};

/// The most rounds until nothing changes: a plugin that creates children in steps needs a round for each step.
const ROUNDS_MAX: usize = 10;

/// The time in all passes: Thu Jan 31 2030 08:00:00 UTC.
pub(super) const NOW_MS: u64 = 1_896_076_800_000;

/// A property of a good reconciler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum Property {
    /// It answers: no trap, and within its limits.
    Total,
    /// The answer follows the contract, and each child has the kind's fields.
    ValidOutput,
    /// It creates only granted kinds.
    InsideGrants,
    /// It does not depend on random numbers.
    Deterministic,
    /// Its predicted report is the one that it gives.
    Predicts,
    /// Fed back, its children change nothing after some rounds.
    Converges,
    /// It does not depend on the order in children and reads.
    OrderIndependent,
    /// It recreates a deleted child.
    SurvivesDeletion,
    /// It deletes no child because something is missing for a while.
    KeepsChildren,
    /// It uses little more than the budget.
    Cheap,
}

impl Property {
    /// All properties that are checked for a parent.
    pub(super) const ALL: [Self; 10] = [
        Self::Total,
        Self::ValidOutput,
        Self::InsideGrants,
        Self::Deterministic,
        Self::Predicts,
        Self::Converges,
        Self::OrderIndependent,
        Self::SurvivesDeletion,
        Self::KeepsChildren,
        Self::Cheap,
    ];
}

/// A violated property, with the observed objects that show it.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) property: Property,
    pub(super) problem: String,
    pub(super) parent: Document,
    pub(super) observed: Vec<Document>,
}

/// A stopped check: a violated property, or a host failure.
#[derive(Debug)]
enum Stop {
    Finding(Box<Finding>),
    Failure(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// The largest resource usage in all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) fuel: u64,
    pub(super) memory_bytes: usize,
}

/// Facts about all plugin calls.
#[derive(Debug, Default)]
pub(super) struct CallFacts {
    pub(super) cost: Cost,
    /// The key for a Job that the cluster deletes some time after the end, so the host runs it again.
    pub(super) expiring_job: Option<String>,
}

/// The simulated objects: parent and children.
#[derive(Clone, PartialEq)]
struct Cluster {
    parent: Document,
    children: BTreeMap<ObjectId, Document>,
}

/// Checks all properties for one parent; returns the first violation.
pub(super) fn finding_of(
    plugin: &Offline<'_>,
    parent: &Document,
    calls: &mut CallFacts,
) -> Result<Option<Finding>, Failure> {
    match check(plugin, parent, calls) {
        Ok(()) => Ok(None),
        Err(Stop::Finding(finding)) => Ok(Some(*finding)),
        Err(Stop::Failure(failure)) => Err(failure),
    }
}

fn check(plugin: &Offline<'_>, parent: &Document, calls: &mut CallFacts) -> Result<(), Stop> {
    let mut checker = Checker { plugin, calls };
    let start = Cluster {
        parent: parent.clone(),
        children: BTreeMap::new(),
    };
    let refusals = plugin.definitions.refusals(&plugin.manifest.name);
    if let Some(refusal) = refusals.into_iter().next() {
        return Err(finding(Property::ValidOutput, refusal, &start));
    }
    let alone = Simulation::default();
    // The objects that the plugin reads are missing at first, and exist in the second run.
    for simulation in [
        alone,
        Simulation {
            exists: true,
            ..alone
        },
    ] {
        checker.random(&start, simulation)?;
        let (settled, answer) = checker.settle(start.clone(), simulation)?;
        checker.random(&settled, simulation)?;
        checker.order(&settled, &answer, simulation)?;
        checker.foreign_edits(&settled, &answer, simulation)?;
        checker.deletion(&settled, &answer, simulation)?;
        if simulation.exists {
            checker.missing_reads(&settled)?;
        }
        checker.finalize(&settled, simulation)?;
    }
    Ok(())
}

struct Checker<'a> {
    plugin: &'a Offline<'a>,
    calls: &'a mut CallFacts,
}

impl Checker<'_> {
    fn pass(&mut self, cluster: &Cluster, variation: Variation) -> Result<Passed, Stop> {
        let others = cluster.children.values().cloned();
        let passed = self
            .plugin
            .pass(cluster.parent.clone(), others.collect(), variation)?;
        let cost = &mut self.calls.cost;
        cost.fuel = cost.fuel.max(passed.fuel.unwrap_or_default());
        cost.memory_bytes = cost.memory_bytes.max(passed.memory_peak_bytes);
        let failure = |property, problem| Err(finding(property, problem, cluster));
        if let Some(fault) = &passed.answer.fault {
            let property = match fault.kind {
                // Answers, not faults: a plugin may refuse a generated parent.
                "retry" | "invalid" | "fatal" => return Ok(passed),
                reason::CHILD_FORBIDDEN => Property::InsideGrants,
                reason::OUTPUT_REJECTED => Property::ValidOutput,
                _ => Property::Total,
            };
            return failure(property, fault.message.clone());
        }
        if let Some(problem) = &passed.status_problem {
            return failure(Property::ValidOutput, problem.clone());
        }
        for child in &passed.answer.children {
            if let Err(problem) = typed::check(&stored(child)) {
                let problem = format!("child \"{}\": {problem}", child.key);
                return failure(Property::ValidOutput, problem);
            }
            if plan::time_to_live(&child.kind, &child.object).is_some() {
                self.calls.expiring_job = Some(child.key.clone());
            }
        }
        Ok(passed)
    }

    /// Applies answers until nothing changes.
    fn settle(
        &mut self,
        mut cluster: Cluster,
        simulation: Simulation,
    ) -> Result<(Cluster, CallOutput), Stop> {
        let mut changes = String::new();
        for _ in 0..=ROUNDS_MAX {
            let answer = self.pass(&cluster, under(simulation))?.answer;
            let next = apply(&cluster, &answer);
            if next == cluster {
                return Ok((cluster, answer));
            }
            self.prediction(&cluster, simulation)?;
            changes = changed(&cluster, &next);
            cluster = next;
        }
        let problem = format!("{changes} still changes after {ROUNDS_MAX} rounds");
        Err(finding(Property::Converges, problem, &cluster))
    }

    fn random(&mut self, cluster: &Cluster, simulation: Simulation) -> Result<(), Stop> {
        let first = self.pass(cluster, under(simulation))?.answer;
        let other = self
            .pass(
                cluster,
                Variation {
                    seed: 1,
                    ..under(simulation)
                },
            )?
            .answer;
        same(
            Property::Deterministic,
            "with other random numbers",
            &first,
            &other,
            cluster,
        )
    }

    fn order(
        &mut self,
        cluster: &Cluster,
        answer: &CallOutput,
        simulation: Simulation,
    ) -> Result<(), Stop> {
        let reversed = Simulation {
            reversed: true,
            ..simulation
        };
        let other = self.pass(cluster, under(reversed))?.answer;
        same(
            Property::OrderIndependent,
            "with children and reads in another order",
            answer,
            &other,
            cluster,
        )
    }

    /// Another manager annotates every child, which is no reason for another answer.
    fn foreign_edits(
        &mut self,
        cluster: &Cluster,
        answer: &CallOutput,
        simulation: Simulation,
    ) -> Result<(), Stop> {
        let mut edited = cluster.clone();
        for child in edited.children.values_mut() {
            put(
                &mut child.object,
                &["metadata", "annotations"],
                "example.com/note",
                json!("x"),
            );
        }
        let other = self.pass(&edited, under(simulation))?.answer;
        same(
            Property::Converges,
            "after another manager annotated the children",
            answer,
            &other,
            &edited,
        )
    }

    fn deletion(
        &mut self,
        cluster: &Cluster,
        answer: &CallOutput,
        simulation: Simulation,
    ) -> Result<(), Stop> {
        let children = answer
            .children
            .iter()
            .filter(|child| child.apply != ApplyPolicy::Hold);
        for id in children.map(Child::id).collect::<Vec<_>>() {
            let mut smaller = cluster.clone();
            if smaller.children.remove(&id).is_none() {
                continue;
            }
            let other = self.pass(&smaller, under(simulation))?.answer;
            keeps(&smaller, &other)?;
            let is_recreated = other.children.iter().any(|child| child.id() == id);
            // Other answers, such as retry, may create the child in a later pass.
            if other.outcome == Some("desired") && !is_recreated {
                let problem = format!("{id} is deleted, and the answer does not contain it");
                return Err(finding(Property::SurvivesDeletion, problem, &smaller));
            }
        }
        Ok(())
    }

    /// The objects that the plugin reads are missing for a while.
    fn missing_reads(&mut self, cluster: &Cluster) -> Result<(), Stop> {
        let answer = self.pass(cluster, under(Simulation::default()))?.answer;
        keeps(cluster, &answer)
    }

    fn finalize(&mut self, cluster: &Cluster, simulation: Simulation) -> Result<(), Stop> {
        if self.plugin.manifest.finalize {
            let variation = Variation {
                phase: Phase::Finalize,
                ..under(simulation)
            };
            self.pass(cluster, variation)?;
        }
        Ok(())
    }
}

/// Checks that an answer deletes no child.
fn keeps(cluster: &Cluster, answer: &CallOutput) -> Result<(), Stop> {
    if answer.outcome != Some("desired") {
        return Ok(());
    }
    let stated: Vec<ObjectId> = answer.children.iter().map(Child::id).collect();
    let mut pruned = cluster
        .children
        .iter()
        .filter(|(_, child)| !is_retained(child));
    match pruned.find(|(id, _)| !stated.contains(id)) {
        None => Ok(()),
        Some((lost, _)) => {
            let problem = format!(
                "{lost} is deleted while an object is missing: answer keep, retry, or with the child on hold"
            );
            Err(finding(Property::KeepsChildren, problem, cluster))
        }
    }
}

const fn under(simulation: Simulation) -> Variation {
    Variation {
        phase: Phase::Reconcile,
        now_ms: NOW_MS,
        seed: 0,
        predict: false,
        simulation,
    }
}

fn finding(property: Property, problem: String, cluster: &Cluster) -> Stop {
    Stop::Finding(Box::new(Finding {
        property,
        problem,
        parent: cluster.parent.clone(),
        observed: cluster.children.values().cloned().collect(),
    }))
}

/// Compares two answers: status, conditions, and children in any order.
fn same(
    property: Property,
    when: &str,
    first: &CallOutput,
    other: &CallOutput,
    cluster: &Cluster,
) -> Result<(), Stop> {
    let comparable = |answer: &CallOutput| {
        let children: BTreeMap<_, _> = answer
            .children
            .iter()
            .map(|child| (child.id().to_string(), plan::stated(child)))
            .collect();
        let fault = answer.fault.as_ref().map(|fault| fault.kind);
        json!({
            "children": children,
            "conditions": answer.report.conditions,
            "fault": fault,
            "outcome": answer.outcome,
            "status": answer.report.status,
        })
    };
    match diff::differences(&comparable(first), &comparable(other)).first() {
        None => Ok(()),
        Some(difference) => {
            let problem = format!("the answer is another {when}: {difference}");
            Err(finding(property, problem, cluster))
        }
    }
}

/// Returns the objects after an answer was applied.
fn apply(cluster: &Cluster, answer: &CallOutput) -> Cluster {
    let mut next = cluster.clone();
    set_status(&mut next.parent.object, &answer.report);
    if answer.outcome != Some("desired") {
        return next;
    }
    // The host keeps retained children for the parent, whether the answer has them or not.
    next.children.retain(|_, child| is_retained(child));
    for child in &answer.children {
        let id = child.id();
        let existing = cluster.children.get(&id);
        let written = match (child.apply, existing) {
            (ApplyPolicy::Hold, None) => continue,
            (ApplyPolicy::Hold | ApplyPolicy::Once, Some(existing)) => existing.clone(),
            _ => document(child, &cluster.parent),
        };
        next.children.insert(id, written);
    }
    next
}

/// Returns a child without explicitly absent fields.
fn stored(child: &Child) -> Map<String, Value> {
    absence::without_absences(&plan::stated(child), &Value::Null, &[])
}

/// Returns a child as the host would write it.
fn document(child: &Child, parent: &Document) -> Document {
    let mut object = stored(child);
    put(
        &mut object,
        &["metadata", "annotations"],
        ANNOTATION_KEY,
        child.key.as_str().into(),
    );
    // Any UID that stays the same between rounds.
    let uid = child.id().to_string().into();
    put(&mut object, &["metadata"], "uid", uid);
    match child.removal {
        RemovalPolicy::Delete => {
            let owner = json!([{
                "apiVersion": parent.kind.api_version(),
                "kind": &*parent.kind.kind,
                "name": parent.name,
                "uid": parent.metadata("uid").unwrap_or(crate::render::UID),
                "controller": true,
            }]);
            put(&mut object, &["metadata"], "ownerReferences", owner);
        }
        RemovalPolicy::Retain => {
            let identity = parent.id().identity();
            put(
                &mut object,
                &["metadata", "annotations"],
                ANNOTATION_RETAINED_FOR,
                identity.into(),
            );
        }
    }
    for generated in &child.generate {
        // The text "generated" in Secret encoding.
        let value = json!("Z2VuZXJhdGVk");
        put(&mut object, &["data"], &generated.key, value);
    }
    Document {
        kind: child.kind.clone(),
        namespace: child.namespace.clone(),
        name: child.name.clone(),
        object,
    }
}

fn is_retained(child: &Document) -> bool {
    child
        .metadata_field("annotations")
        .is_some_and(|all| all.get(ANNOTATION_RETAINED_FOR).is_some())
}

fn set_status(parent: &mut Map<String, Value>, report: &Report) {
    let mut status = report.status.clone().unwrap_or_default();
    let conditions: Vec<Value> = report
        .conditions
        .iter()
        .map(|condition| {
            let mut condition = json!(condition);
            // Always the same: a new time would count as a change in every round.
            condition["lastTransitionTime"] = json!("2030-01-31T08:00:00Z");
            condition["observedGeneration"] = json!(1);
            condition
        })
        .collect();
    if !conditions.is_empty() {
        status.insert("conditions".to_owned(), conditions.into());
    }
    if status.is_empty() {
        parent.remove("status");
    } else {
        parent.insert("status".to_owned(), status.into());
    }
}

/// Names the first object that differs between two states.
fn changed(before: &Cluster, after: &Cluster) -> String {
    let ids = before.children.keys().chain(after.children.keys());
    let differs = |id: &&ObjectId| before.children.get(*id) != after.children.get(*id);
    ids.into_iter()
        .find(differs)
        .map_or_else(|| "the status".to_owned(), ToString::to_string)
}
