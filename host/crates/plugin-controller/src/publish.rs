//! Writes a Plugin's status, and an Event about each change.
//!
//! If another client keeps overwriting the status, the host writes it less and less often. An Event names the other
//! client, because a condition would be overwritten too.

use std::time::Duration;

use innkeeper_apply::{MANAGER, Written};
use innkeeper_model::{
    Condition as ModelCondition, Digest, Event, EventType, Object, PluginName, error_chain,
};
use innkeeper_plan::{Contention, RepeatableWrite, StatusWrite, Subject as Field, Undone};
use innkeeper_reconcile::Next;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::{
    act::Subject,
    conditions::READY,
    context::{Context, plugin_kind},
    definition::RECHECK_INTERVAL,
    resource::{PluginStatus, has_granted_parents},
    stage::dated,
    state::PluginState,
    status::{status_of, stored_status},
};

/// The shortest wait for the next pass. Prevents a tight loop when a deadline expires during a pass.
const REQUEUE_MIN: Duration = Duration::from_millis(100);

/// Writes a Plugin's status, and returns when the next pass runs; `due` is when the state needs it.
pub(crate) async fn status(
    cx: &Context,
    subject: &mut Subject<'_>,
    state: &mut PluginState,
    (before, after): (&PluginStatus, &PluginStatus),
    due: Option<Instant>,
) -> Next {
    let object = subject.object;
    // A restart alone changes no status. The load triggers a pass when it ends.
    if state.keeps_conditions(object.generation) && state.active.is_none() {
        return Next::UntilChanged;
    }
    let conditions = after
        .conditions
        .iter()
        .map(|condition| (&*condition.type_, condition.status == "True"));
    if has_granted_parents(object) {
        cx.shared
            .metrics
            .plugin_conditions(&object.name, conditions);
    } else {
        cx.shared.metrics.plugin_without_grants(&object.name);
    }
    let contested = match write_changed(cx, subject, state, (before, after)).await {
        Ok(wait) => wait.map(|wait| Instant::now() + wait),
        Err(next) => return next,
    };
    match due.into_iter().chain(contested).min() {
        Some(due) => {
            let wait = due.saturating_duration_since(Instant::now());
            Next::RequeueAfter(wait.max(REQUEUE_MIN))
        }
        None => Next::UntilChanged,
    }
}

/// Writes only the conditions: an older definition rejects a status with new fields.
pub(crate) async fn conditions(
    cx: &Context,
    subject: &mut Subject<'_>,
    state: &mut PluginState,
    conditions: Vec<ModelCondition>,
) -> Next {
    let generation = subject.object.generation;
    let before = status_of(subject.object);
    let after = PluginStatus {
        observed_generation: generation,
        conditions: dated(
            conditions,
            &before.conditions,
            generation,
            subject.moment.now,
        ),
        ..before.clone()
    };
    match write_changed(cx, subject, state, (&before, &after)).await {
        Ok(_) => Next::RequeueAfter(RECHECK_INTERVAL),
        Err(next) => next,
    }
}

/// Writes a status that differs from the stored one, and the Event about the difference. Returns the time until it may be
/// written, if another client overwrites it again and again.
async fn write_changed(
    cx: &Context,
    subject: &mut Subject<'_>,
    state: &mut PluginState,
    (before, after): (&PluginStatus, &PluginStatus),
) -> Result<Option<Duration>, Next> {
    if after == before {
        return Ok(None);
    }
    let wait = write(cx, subject, state, after).await?;
    if wait.is_none()
        && let Some(event) = event(before, after)
    {
        record_event(cx, subject.object, &event).await;
    }
    Ok(wait)
}

/// Writes an Event about a Plugin.
async fn record_event(cx: &Context, object: &Object, event: &Event) {
    // A Plugin with an invalid name has a condition.
    let Ok(plugin) = PluginName::new(&object.name) else {
        return;
    };
    let now = (cx.shared.now)();
    let events = &cx.shared.events;
    let Some(write) = events.due(&plugin, object, event, true, now) else {
        return;
    };
    if let Err(error) = events.write(cx.writer(), &write).await {
        debug!(%plugin, error = %error_chain(&error), "failed to write an Event about a Plugin");
    }
}

async fn write(
    cx: &Context,
    subject: &mut Subject<'_>,
    state: &mut PluginState,
    status: &PluginStatus,
) -> Result<Option<Duration>, Next> {
    let object = subject.object;
    // Always an object: all fields are serializable.
    let Ok(Value::Object(mut status)) = serde_json::to_value(status) else {
        return Ok(None);
    };
    // As stored: the seal covers that JSON, and this host version may not know all its fields.
    if state.is_unverified
        && let Some(stored) = stored_status(object).remove("history")
    {
        status.insert("history".to_owned(), stored);
    }
    let write = StatusWrite {
        manager: MANAGER.to_owned(),
        status,
    };
    let repeated = state
        .repeats
        .status_write(object, || digest(stored_status(object)));
    let wait = contested(cx, object, state, &repeated, &write).await;
    if wait.is_some() {
        return Ok(wait);
    }
    let written = cx.writer().status(&mut subject.target, &write).await;
    let id = object.id();
    match written {
        Ok(written) => {
            record(state, repeated, &written);
            cx.registration
                .expect_version(&id, &id, written.resource_version);
            return Ok(None);
        }
        Err(error) if error.is_conflict_only() => {
            debug!(plugin = %id.name, "skipped the status of a Plugin: it changed since it was observed");
        }
        Err(error) => {
            warn!(plugin = %id.name, error = %error_chain(&error), "failed to write the status of a Plugin");
        }
    }
    Err(Next::Backoff)
}

/// Returns the time until a contested status may be written; none if it may be now.
async fn contested(
    cx: &Context,
    object: &Object,
    state: &mut PluginState,
    repeated: &RepeatableWrite,
    write: &StatusWrite,
) -> Option<Duration> {
    let wait = state.repeats.wait(repeated, Instant::now().into_std())?;
    // Once for each contest: the explanation costs a read and an Event.
    if state.repeats.is_unexplained(&Field::Status)
        && let Some(undone) = explain(cx, object, write).await
    {
        state.repeats.explain(&Field::Status, undone.clone());
        let synced = Contention {
            undone: vec![undone],
            wait,
        }
        .synced();
        warn!(plugin = %object.name, message = synced.message, "the status of a Plugin is overwritten");
        let event = Event {
            kind: EventType::Warning,
            reason: synced.reason,
            message: synced.message,
        };
        record_event(cx, object, &event).await;
    }
    Some(wait)
}

/// Reads who overwrites the status; none if the Plugin cannot be read.
async fn explain(cx: &Context, object: &Object, write: &StatusWrite) -> Option<Undone> {
    // The cache drops other clients' entries in managedFields, which name them.
    let live = cx
        .cluster()
        .live_get(&plugin_kind(), None, &object.name)
        .await
        .inspect_err(|error| {
            debug!(plugin = %object.name, error = %error_chain(error), "failed to read who overwrites the status of a Plugin");
        });
    Some(Undone::status_changed(write, &live.ok()??, &[MANAGER]))
}

/// Records a status that was written.
fn record(state: &mut PluginState, write: RepeatableWrite, answer: &Written) {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        status: Map<String, Value>,
    }
    state.repeats.record(write, Instant::now().into_std());
    // The status as stored: the API server may have pruned or defaulted fields of the one that was sent.
    if let Ok(Answer { status }) = serde_json::from_str(&answer.json) {
        let digest = digest(status);
        state.repeats.set_status(&digest, answer.resource_version);
    }
}

fn digest(status: Map<String, Value>) -> String {
    Digest::hash(Value::Object(status).to_string().as_bytes()).to_hex()
}

/// Returns the Event about a changed condition Ready: a Plugin is Ready, or is not Ready for another reason than before.
/// None while a revision is being loaded.
fn event(before: &PluginStatus, after: &PluginStatus) -> Option<Event> {
    let ready = |status: &'_ PluginStatus| {
        status
            .conditions
            .iter()
            .find(|condition| condition.type_ == READY)
            .cloned()
    };
    let before = ready(before);
    let after = ready(after)?;
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            let current = event.as_ref().map(|event| (event.kind, &*event.reason));
            assert_eq!(current, expected, "{before:?} {after:?}");
        }
    }
}
