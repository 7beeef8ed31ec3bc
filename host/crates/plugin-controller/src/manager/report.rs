//! The status of a Plugin: made anew in every pass, written where it differs.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_apply::MANAGER;
use innkeeper_cluster::ParentConditions;
use innkeeper_model::{ANNOTATION_PAUSED, Object, error_chain};
use innkeeper_plan::StatusWrite;
use innkeeper_reconcile::{Next, RecentFault, Reconciler};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{Known, Manager, running::Running};
use crate::{
    lifecycle::{Judgement, Problem, Standing, dated},
    resource::{
        ChildKindStatus, Declared, FaultReason, Faults, LAST_FAULTS_MAX, LimitsStatus, ObjectName,
        Parents, PluginStatus, lines, revision_name, whole_seconds,
    },
};

/// The shortest wait for the next pass.
const REQUEUE_MIN: Duration = Duration::from_millis(100);

impl Manager {
    /// Writes the status of a Plugin, and returns the time of its next pass.
    pub(super) async fn report(
        &self,
        object: &Object,
        known: &Known,
        declared: Option<&Declared>,
        problem: Option<&Problem>,
    ) -> Next {
        let before = status_of(object);
        let after = self.status(object, known, declared, problem, &before);
        let conditions = after.conditions.iter();
        let conditions = conditions.map(|one| (&*one.type_, one.status == "True"));
        let metrics = &self.parts.shared.metrics;
        metrics.plugin_conditions(&object.name, conditions);
        if after != before
            && let Err(next) = self.write(object, known, &after).await
        {
            return next;
        }
        match known.due_next() {
            Some(due) => {
                let wait = due.saturating_duration_since(Instant::now());
                Next::RequeueAfter(wait.max(REQUEUE_MIN))
            }
            None => Next::UntilChanged,
        }
    }

    fn status(
        &self,
        object: &Object,
        known: &Known,
        declared: Option<&Declared>,
        problem: Option<&Problem>,
        before: &PluginStatus,
    ) -> PluginStatus {
        let running = known.running.as_ref();
        let attempt = known.attempt.as_ref();
        let loaded = attempt.and_then(|attempt| attempt.ended.as_ref().ok());
        let reduced = declared.zip(loaded).and_then(|(declared, plugin)| {
            let assessment = declared.charter.assess(plugin.manifest());
            lines(&assessment)
        });
        let rolled_back = known.history.last_rollback(known.generation);
        let faulting = declared.and_then(|declared| faulting(known, declared));
        let component = attempt.and_then(|attempt| attempt.component.as_ref());
        let standing = Standing {
            problem,
            verified_by: component.map_or("", |component| &component.verified_by),
            reduced: reduced.as_deref(),
            revision: running.map(|running| running.plugin.revision()),
            is_suspended: running.is_some_and(|running| running.charter.suspend),
            rolled_back: rolled_back.as_deref(),
            faulting: faulting.as_deref(),
        };
        let now = (self.parts.shared.now)();
        let generation = object.generation;
        PluginStatus {
            observed_generation: generation,
            revision: running.map(|running| revision_name(running.plugin.revision())),
            digest: running.map(|running| running.plugin.digest().to_string()),
            candidate: known.candidate.clone(),
            child_kinds: running.map_or_else(Vec::new, |running| self.child_kinds(running)),
            parents: running.and_then(|running| parents(running).or(before.parents)),
            faults: running.map(|running| faults(known, running, before)),
            limits: running.map(|running| self.limits(running)),
            history: known.history.entries().to_vec(),
            conditions: dated(standing.conditions(), &before.conditions, generation, now),
        }
    }

    /// Every kind once, although it may have been made in several versions.
    fn child_kinds(&self, running: &Running) -> Vec<ChildKindStatus> {
        let kinds = self.parts.shared.inventory.of(&running.served.name);
        let by_kind: BTreeMap<_, _> = kinds
            .into_iter()
            .map(|kind| (kind.group_kind(), kind))
            .collect();
        let kinds = by_kind.into_values();
        kinds
            .map(|kind| ChildKindStatus {
                group: kind.group.to_string(),
                version: kind.version.to_string(),
                kind: kind.kind.to_string(),
            })
            .collect()
    }

    fn limits(&self, running: &Running) -> LimitsStatus {
        let limits = &running.charter.limits;
        let engine = &self.parts.loader.workshop.engine;
        LimitsStatus::of(limits, engine.memory_bytes_max(limits.memory_bytes_max))
    }

    async fn write(
        &self,
        object: &Object,
        known: &Known,
        status: &PluginStatus,
    ) -> Result<(), Next> {
        let Some(mut target) = known.target.clone() else {
            return Ok(());
        };
        let Ok(Value::Object(status)) = serde_json::to_value(status) else {
            // All of its fields have a form in JSON.
            return Ok(());
        };
        let write = StatusWrite {
            manager: MANAGER.to_owned(),
            status: Some(status),
        };
        let written = self.parts.shared.writer.status(&mut target, &write).await;
        let id = object.id();
        match written {
            Ok(written) => {
                let version = written.resource_version;
                self.registration.note_write(&id, &id, version);
                Ok(())
            }
            Err(error) if error.is_silent() => {
                debug!(plugin = %id.name, "status of a Plugin not written, it changed");
                Err(Next::Backoff)
            }
            Err(error) => {
                warn!(plugin = %id.name, error = %error_chain(&error), "failed to write the status of a Plugin");
                Err(Next::Backoff)
            }
        }
    }
}

/// Returns a note that the active revision faults too often, with the reason why it stays.
fn faulting(known: &Known, declared: &Declared) -> Option<String> {
    if known.judgement() != Some(Judgement::Faulty) {
        return None;
    }
    let why = if declared.rollout.auto_rollback {
        "there is no good revision to go back to"
    } else {
        "spec.rollout.autoRollback is false"
    };
    Some(format!("{}; {why}", known.faults()?))
}

/// The status alone: the rest may not be readable.
pub(super) fn status_of(object: &Object) -> PluginStatus {
    #[derive(Deserialize)]
    struct Stated {
        #[serde(default)]
        status: PluginStatus,
    }
    let stated = serde_json::from_str(&object.json);
    stated.map_or_else(|_| PluginStatus::default(), |stated: Stated| stated.status)
}

/// Only those that are selected; none while it is not known which there are.
fn parents(running: &Running) -> Option<Parents> {
    let mut counts = Parents::default();
    for reconciler in &running.served.reconcilers {
        let registration = reconciler.registration();
        if !registration.waiting().is_empty() {
            return None;
        }
        for id in registration.parents() {
            let Some(parent) = registration.parent(&id) else {
                continue;
            };
            if reconciler.selects(&parent)? {
                count(&mut counts, &parent);
            }
        }
    }
    Some(counts)
}

/// Counts one parent by the same reading of its conditions as `innkeeper status`.
pub(super) fn count(counts: &mut Parents, parent: &Object) {
    let conditions = ParentConditions::of(parent);
    counts.total += 1;
    counts.synced += i32::from(conditions.synced_status() == Some("True"));
    counts.ready += i32::from(conditions.is_ready());
    counts.paused += i32::from(parent.annotation(ANNOTATION_PAUSED) == Some("true"));
}

/// Faults of earlier processes and revisions stay, so that a restart of the host alone changes no status.
fn faults(known: &Known, running: &Running, before: &PluginStatus) -> Faults {
    let reconcilers = running.served.reconcilers.iter();
    let count: u64 = reconcilers
        .map(|reconciler| Reconciler::faults(reconciler))
        .sum();
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let recent = running.served.recent_faults().into_iter();
    let mut last: Vec<_> = recent.map(fault_reason).collect();
    let told = before.faults.iter().flat_map(|faults| &faults.last);
    for fault in told {
        if !last.contains(fault) {
            last.push(fault.clone());
        }
    }
    last.truncate(LAST_FAULTS_MAX);
    Faults {
        count: count.saturating_add(known.faults_told()),
        last,
    }
}

fn fault_reason(fault: RecentFault) -> FaultReason {
    let RecentFault {
        parent,
        reason,
        message,
        time,
    } = fault;
    FaultReason {
        reason,
        message,
        parent: ObjectName::of(&parent),
        time: whole_seconds(time),
    }
}
