//! The status of a Plugin: computed in every pass, written if it differs.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_apply::MANAGER;
use innkeeper_cluster::ParentConditions;
use innkeeper_model::{
    ANNOTATION_PAUSED, Event, EventType, Limits, Object, PluginName, error_chain,
};
use innkeeper_plan::StatusWrite;
use innkeeper_reconcile::{Next, RecentFault, Reconciler, Usage};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{
    Manager, PluginState,
    active::ActiveRevision,
    conditions::{READY, cache_full},
    contested,
    definition::RECHECK_INTERVAL,
};
use crate::{
    lifecycle::{NextStep, StageFailure, dated},
    resource::{
        ChildKindStatus, Declared, FaultReason, Faults, LAST_FAULTS_MAX, LimitUsage, LimitsSpec,
        ObjectName, Parents, PluginStatus, has_granted_parents, number, whole_seconds,
    },
};

/// The shortest wait for the next pass: a time that has come during a pass does not make passes follow each other at
/// once. Chosen: too short to notice.
const REQUEUE_MIN: Duration = Duration::from_millis(100);

impl Manager {
    /// Writes the status of a Plugin, and returns the time of its next pass. `declared` is the declaration, or the
    /// reason why there is none to follow.
    pub(super) async fn report(
        &self,
        object: &Object,
        state: &mut PluginState,
        declared: Result<&Declared, &StageFailure>,
    ) -> Next {
        let before = status_of(object);
        let mut after = self.status(object, state, declared, &before);
        if state.keeps_conditions() {
            if state.active.is_none() {
                return Next::UntilChanged;
            }
            after.conditions.clone_from(&before.conditions);
            after.candidate.clone_from(&before.candidate);
        }
        let conditions = after
            .conditions
            .iter()
            .map(|one| (&*one.type_, one.status == "True"));
        let metrics = &self.context.shared.metrics;
        if has_granted_parents(object) {
            metrics.plugin_conditions(&object.name, conditions);
        } else {
            metrics.plugin_without_grants(&object.name);
        }
        let contested = match self.publish(object, state, (&before, &after)).await {
            Ok(wait) => wait.map(|wait| Instant::now() + wait),
            Err(next) => return next,
        };
        let due = match declared {
            Ok(_) => state.due_next(),
            Err(_) => state.due_report(),
        };
        match due.into_iter().chain(contested).min() {
            Some(due) => {
                let wait = due.saturating_duration_since(Instant::now());
                Next::RequeueAfter(wait.max(REQUEUE_MIN))
            }
            None => Next::UntilChanged,
        }
    }

    /// Writes the conditions alone: an older definition refuses a status with new fields.
    pub(super) async fn report_unusable(
        &self,
        object: &Object,
        state: &mut PluginState,
        failure: &StageFailure,
    ) -> Next {
        let before = status_of(object);
        let conditions = state.conditions(Err(failure), None);
        let now = (self.context.shared.now)();
        let after = PluginStatus {
            observed_generation: object.generation,
            conditions: dated(conditions, &before.conditions, object.generation, now),
            ..before.clone()
        };
        if let Err(next) = self.publish(object, state, (&before, &after)).await {
            return next;
        }
        Next::RequeueAfter(RECHECK_INTERVAL)
    }

    /// Writes a status that differs from the stored one, and the Event about the difference. Returns the time until it may
    /// be written, if another client overwrites it again and again.
    async fn publish(
        &self,
        object: &Object,
        state: &mut PluginState,
        (before, after): (&PluginStatus, &PluginStatus),
    ) -> Result<Option<Duration>, Next> {
        if after == before {
            return Ok(None);
        }
        let wait = self.write(object, state, after).await?;
        if wait.is_none()
            && let Some(event) = event(before, after)
        {
            self.record_event(object, &event).await;
        }
        Ok(wait)
    }

    /// Writes an Event about a Plugin.
    pub(super) async fn record_event(&self, object: &Object, event: &Event) {
        let shared = &self.context.shared;
        // A Plugin with an invalid name has a condition.
        let Ok(plugin) = PluginName::new(&object.name) else {
            return;
        };
        let now = (shared.now)();
        let (events, writer) = (&shared.events, &shared.writer);
        let Some(write) = events.due(&plugin, object, event, true, now) else {
            return;
        };
        if let Err(error) = events.write(writer, &write).await {
            debug!(%plugin, error = %error_chain(&error), "failed to write an Event about a Plugin");
        }
    }

    fn status(
        &self,
        object: &Object,
        state: &PluginState,
        declared: Result<&Declared, &StageFailure>,
        before: &PluginStatus,
    ) -> PluginStatus {
        let active = state.active.as_ref();
        let analysis = state.analysis();
        let mut conditions = state.conditions(declared, analysis.as_ref());
        let full = active.and_then(|active| active.served.reconcilers.first());
        conditions.extend(full.and_then(|it| cache_full(&it.full_namespaces())));
        let step = declared.map(|declared| state.next_step(declared, analysis.as_ref()));
        let rolls_back = matches!(step, Ok(NextStep::RollBack(_)));
        let now = (self.context.shared.now)();
        let engine = &self.context.loader.context.engine;
        let generation = object.generation;
        let (history, history_seal) = if state.is_unverified {
            (before.history.clone(), before.history_seal.clone())
        } else {
            let key = self.context.shared.hash_key.get();
            let seal = key.and_then(|key| state.history.seal(&object.uid, key));
            (state.history.0.clone(), seal)
        };
        PluginStatus {
            observed_generation: generation,
            revision: active.map(ActiveRevision::name),
            digest: active.map(|active| active.plugin.digest().to_string()),
            version: active.map(|active| active.plugin.manifest().version.clone()),
            candidate: state.candidate.as_ref().map(|it| it.status.clone()),
            child_kinds: active.map_or_else(Vec::new, |active| self.child_kinds(active)),
            parents: active.and_then(|active| parents(active).or(before.parents)),
            faults: match &before.faults {
                // The write of the rollback counts them. A host that ends at each of its writes would otherwise count
                // one more fault in each life, and never come to the rollback.
                Some(before) if rolls_back => Some(before.clone()),
                _ => active.map(|active| faults(state, active, before)),
            },
            limits: active.map(|active| {
                let limits = &active.terms.limits;
                LimitsSpec::of(&Limits {
                    memory_bytes_max: engine.memory_bytes_max(limits.memory_bytes_max),
                    ..limits.clone()
                })
            }),
            usage: active.map_or_else(Vec::new, usage),
            history,
            history_seal,
            conditions: dated(conditions, &before.conditions, generation, now),
        }
    }

    /// Returns every kind once, although children may have been made in several versions of it.
    fn child_kinds(&self, active: &ActiveRevision) -> Vec<ChildKindStatus> {
        let kinds = self
            .context
            .shared
            .inventory
            .of(&active.served.name)
            .into_iter()
            .map(|kind| (kind.group_kind(), kind));
        let by_kind: BTreeMap<_, _> = kinds.collect();
        let kinds = by_kind.into_values();
        kinds
            .map(|kind| ChildKindStatus {
                group: kind.group.to_string(),
                version: kind.version.to_string(),
                kind: kind.kind.to_string(),
            })
            .collect()
    }

    async fn write(
        &self,
        object: &Object,
        state: &mut PluginState,
        status: &PluginStatus,
    ) -> Result<Option<Duration>, Next> {
        let Some(mut target) = state.target.clone() else {
            return Ok(None);
        };
        // Always an object: all of its fields have a form in JSON.
        let Ok(Value::Object(mut status)) = serde_json::to_value(status) else {
            return Ok(None);
        };
        // As it is stored: the seal is for it, and this version of the host may not know all of its fields.
        if state.is_unverified
            && let Some(stored) = stored_status(object).remove("history")
        {
            status.insert("history".to_owned(), stored);
        }
        let write = StatusWrite {
            manager: MANAGER.to_owned(),
            status,
        };
        let repeated = contested::status_write(object, state);
        let wait = self.contested(object, state, (&repeated, &write)).await;
        if wait.is_some() {
            return Ok(wait);
        }
        let written = self.context.shared.writer.status(&mut target, &write).await;
        let id = object.id();
        match written {
            Ok(written) => {
                contested::record(state, repeated, &written);
                let version = written.resource_version;
                self.registration.note_write(&id, &id, version);
                return Ok(None);
            }
            Err(error) if error.is_silent() => {
                debug!(plugin = %id.name, "skipped the status of a Plugin: it changed since it was observed");
            }
            Err(error) => {
                warn!(plugin = %id.name, error = %error_chain(&error), "failed to write the status of a Plugin");
            }
        }
        Err(Next::Backoff)
    }
}

/// Returns the Event about a changed condition Ready: a Plugin is Ready, or is not Ready for another reason than before.
/// None while a revision is being loaded.
fn event(before: &PluginStatus, after: &PluginStatus) -> Option<Event> {
    let ready = |status: &'_ PluginStatus| {
        let mut conditions = status.conditions.iter();
        conditions.find(|one| one.type_ == READY).cloned()
    };
    let (before, after) = (ready(before), ready(after)?);
    let is_same =
        |before: &Condition| before.status == after.status && before.reason == after.reason;
    if before.as_ref().is_some_and(is_same) {
        return None;
    }
    let kind = match &*after.status {
        "True" => EventType::Normal,
        "False" => EventType::Warning,
        _ => return None,
    };
    Some(Event {
        kind,
        reason: after.reason,
        message: after.message,
    })
}

/// Reads the status alone, because a spec that another version of the host wrote may be unreadable.
pub(super) fn stored_status(object: &Object) -> Map<String, Value> {
    #[derive(Default, Deserialize)]
    struct StatusOnly {
        #[serde(default)]
        status: Map<String, Value>,
    }
    let StatusOnly { status } = serde_json::from_str(&object.json).unwrap_or_default();
    status
}

/// Returns the readable fields of the status.
pub(super) fn status_of(object: &Object) -> PluginStatus {
    let mut status = stored_status(object);
    // By reference, so that nothing is copied; the type reads objects and lists alike.
    let read = |status: &Map<String, Value>| PluginStatus::deserialize(status);
    read(&status)
        .or_else(|_| {
            // A field that another version of the host wrote may be unreadable; the others count.
            status.retain(|field, value| {
                read(&Map::from_iter([(field.clone(), value.clone())])).is_ok()
            });
            read(&status)
        })
        .unwrap_or_default()
}

/// Counts the selected parents; none while some are not in the cache, or their namespaces are not.
fn parents(active: &ActiveRevision) -> Option<Parents> {
    let mut counts = Parents::default();
    for reconciler in &active.served.reconcilers {
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

/// Returns the used limits. In tens of percent, so that not every write of a child changes the status of its Plugin.
fn usage(active: &ActiveRevision) -> Vec<LimitUsage> {
    let reconciler = active.served.reconcilers.first();
    let all = reconciler
        .map(|reconciler| reconciler.usage())
        .unwrap_or_default();
    let used = |usage: &Usage| limit_usage(usage.limit, &usage.namespace, usage.share.percent());
    all.iter().filter_map(used).collect()
}

fn limit_usage(limit: &str, namespace: &str, percent: u32) -> Option<LimitUsage> {
    (percent >= 10).then(|| LimitUsage {
        limit: limit.to_owned(),
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        percent: number(percent / 10 * 10),
    })
}

/// Counts one parent by the same reading of its conditions as `innkeeper status`.
pub(super) fn count(counts: &mut Parents, parent: &Object) {
    let conditions = ParentConditions::of(parent);
    counts.total += 1;
    counts.synced += i32::from(conditions.synced_status() == Some("True"));
    counts.ready += i32::from(conditions.is_ready());
    counts.paused += i32::from(parent.annotation(ANNOTATION_PAUSED) == Some("true"));
}

/// Faults of earlier processes and revisions stay listed, so that a restart of the host alone changes no status.
fn faults(state: &PluginState, active: &ActiveRevision, before: &PluginStatus) -> Faults {
    let reconcilers = active.served.reconcilers.iter();
    let count: u64 = reconcilers
        .map(|reconciler| Reconciler::faults(reconciler))
        .sum();
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let recent = active.served.recent_faults().into_iter();
    let mut last: Vec<_> = recent.map(fault_reason).collect();
    let reported = before.faults.iter().flat_map(|faults| &faults.last);
    for fault in reported {
        if !last.contains(fault) {
            last.push(fault.clone());
        }
    }
    last.truncate(LAST_FAULTS_MAX);
    Faults {
        count: count.saturating_add(state.faults_before()),
        last,
    }
}

fn fault_reason(fault: RecentFault) -> FaultReason {
    FaultReason {
        reason: fault.reason,
        message: fault.message,
        parent: ObjectName::of(&fault.parent),
        time: whole_seconds(fault.time),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_has_the_used_limits_in_tens_of_percent() {
        let check = |namespace, percent, expected: Option<(Option<&str>, i32)>| {
            let usage = limit_usage("objectsPerNamespace", namespace, percent);
            let expected = expected.map(|(namespace, percent)| LimitUsage {
                limit: "objectsPerNamespace".to_owned(),
                namespace: namespace.map(str::to_owned),
                percent,
            });
            assert_eq!(usage, expected, "{namespace:?} {percent}");
        };
        check("demo", 0, None);
        check("demo", 9, None);
        check("demo", 10, Some((Some("demo"), 10)));
        check("demo", 99, Some((Some("demo"), 90)));
        check("demo", 100, Some((Some("demo"), 100)));
        // Cluster-scoped parents have no namespace.
        check("", 55, Some((None, 50)));
    }

    #[test]
    fn a_plugin_that_stops_or_degrades_has_a_warning() {
        let status = |status: &str, reason: &str| {
            let condition = json!({
                "type": "Ready", "status": status, "reason": reason, "message": "the cause",
                "lastTransitionTime": "2030-01-31T08:00:00Z",
            });
            serde_json::from_value(json!({"conditions": [condition]})).unwrap()
        };
        let none = PluginStatus::default;
        for (before, after, expected) in [
            (none(), none(), None),
            (
                none(),
                status("True", "Ready"),
                Some((EventType::Normal, "Ready")),
            ),
            (status("True", "Ready"), status("True", "Ready"), None),
            (status("True", "Ready"), status("Unknown", "Fetching"), None),
            (
                status("True", "Ready"),
                status("False", "NotGranted"),
                Some((EventType::Warning, "NotGranted")),
            ),
            (
                status("False", "NotGranted"),
                status("False", "NotFound"),
                Some((EventType::Warning, "NotFound")),
            ),
            (
                status("False", "NotFound"),
                status("False", "NotFound"),
                None,
            ),
        ] {
            let event = event(&before, &after);
            let found = event.as_ref().map(|event| (event.kind, &*event.reason));
            assert_eq!(found, expected, "{before:?} {after:?}");
        }
    }
}
