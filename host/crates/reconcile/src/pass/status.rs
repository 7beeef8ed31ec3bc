//! Status: writes a parent's status and the events about it.

use std::time::Duration;

use innkeeper_apply::{self as apply, ErrorKind, Target};
use innkeeper_cluster::Cause;
use innkeeper_model::{
    ANNOTATION_TRACE, Condition, ConditionStatus, Event, EventType, Object, error_chain, reason,
};
use innkeeper_plan::{self as plan, Contention, StatusWrite};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{
    contested::{self, explain_status, record_status},
    context::Pass,
    result::{PassResult, Status, StatusWriteResult},
    throttle::permit_status,
    writes::{record_failure, record_write},
};
use crate::{limits::throttled::Throttled, next::Next};

/// The Event reason for a status that the host has no permission to write.
const STATUS_FORBIDDEN: &str = "StatusForbidden";

/// The Event reason for a status that admission or the parent's definition refuses.
const STATUS_DENIED: &str = "StatusDenied";

/// The writes of a pass, or the attempts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Writes {
    None,
    /// Only a status, which the API server accepted as a whole.
    Status,
    More,
    /// The API server refused even the host's conditions.
    Refused,
}

/// Writes the status and the events for a result, and returns the time of the next pass. `has_written` is true if the pass
/// changed something before.
pub(super) async fn write_status(
    pass: &Pass<'_>,
    target: &mut Target,
    parent: &Object,
    mut result: PassResult<'_>,
    has_written: bool,
) -> (Next, Writes) {
    let conclusion = result.conclude();
    let before = if has_written {
        Writes::More
    } else {
        Writes::None
    };
    let Some(first) = &conclusion.status else {
        return (conclusion.next, before);
    };
    if let Some(event) = conclusion.event() {
        record_event(pass, parent, &event, true);
    }
    let synced = &first.synced;
    if synced.status != ConditionStatus::True {
        debug!(
            reason = synced.reason,
            message = synced.message,
            "not synced"
        );
    }
    let is_status_written = write_due(pass, target, parent, &mut result).await;
    let last = result.last_status_write();
    if !matches!(
        last,
        Some(StatusWriteResult::Failed(_) | StatusWriteResult::Refused)
    ) {
        let is_fresh = has_written || is_status_written;
        record_events(pass, parent, result.events(), is_fresh);
    }
    let writes = match last {
        Some(StatusWriteResult::Refused) => Writes::Refused,
        Some(_) => Writes::More,
        None if is_status_written && !has_written => Writes::Status,
        None => before,
    };
    (result.conclude().next, writes)
}

/// Writes the status if it has changed. A write that fails or has to wait changes the conclusion: then the next attempt
/// writes the host's conditions alone, or nothing.
async fn write_due(
    pass: &Pass<'_>,
    target: &mut Target,
    parent: &Object,
    result: &mut PassResult<'_>,
) -> bool {
    let plugin = &pass.context.plugin;
    let now = (pass.context.shared.now)();
    loop {
        let conclusion = result.conclude();
        let Some(status) = &conclusion.status else {
            return false;
        };
        let due = plan::status(
            plugin,
            parent,
            status.report,
            &status.synced,
            status.ready.clone(),
            conclusion.outlook(),
            now,
        );
        let Some(due) = due else { return false };
        // A status is charged once, even if the first write is refused.
        let count = usize::from(result.last_status_write().is_none());
        let failure = match hold_back(pass, parent, &due, &status.synced, count).await {
            Some(wait) => wait,
            None => match write(pass, target, parent, &due, status).await {
                Ok(()) => return true,
                Err(failure) => failure,
            },
        };
        let is_last = !matches!(
            failure,
            StatusWriteResult::Throttled(_) | StatusWriteResult::Rejected(_)
        );
        result.add(failure);
        if is_last {
            return false;
        }
    }
}

/// Returns why a status may not be written now.
async fn hold_back(
    pass: &Pass<'_>,
    parent: &Object,
    due: &StatusWrite,
    synced: &Condition,
    count: usize,
) -> Option<StatusWriteResult> {
    if let Some(wait) = contested_wait(pass, parent, due).await {
        return Some(StatusWriteResult::Contested(wait));
    }
    let permit = permit_status(pass.context, &parent.id(), count);
    Throttled::by_status_permit(permit, synced).map(StatusWriteResult::Throttled)
}

/// Returns the time until a contested status may be written. An Event names the other client, because that client
/// overwrites the conditions too.
async fn contested_wait(pass: &Pass<'_>, parent: &Object, due: &StatusWrite) -> Option<Duration> {
    let context = pass.context;
    let id = parent.id();
    let write = contested::status_write(context, parent);
    let now = Instant::now().into_std();
    let wait = context.ledger.lock().repeats(&id).wait(&write, now)?;
    if let Some(undone) = explain_status(context, parent, due).await {
        let undone = vec![undone];
        let synced = Contention { undone, wait }.synced();
        warn!(message = synced.message, "the status is overwritten");
        let event = Event {
            kind: EventType::Warning,
            reason: synced.reason,
            message: synced.message,
        };
        record_event(pass, parent, &event, true);
    }
    Some(wait)
}

async fn write(
    pass: &Pass<'_>,
    target: &mut Target,
    parent: &Object,
    due: &StatusWrite,
    status: &Status<'_>,
) -> Result<(), StatusWriteResult> {
    let context = pass.context;
    let id = parent.id();
    let repeatable = contested::status_write(context, parent);
    let error = match context.shared.writer_for(&id).status(target, due).await {
        Ok(written) => {
            record_write(context, &id, &id, "status", &written);
            record_status(context, repeatable, parent, &written);
            context.ledger.lock().set_status_refused(&id, None);
            // The cache has this write already, so its watch event triggers nothing.
            let epoch = context.slot.current();
            if epoch.revision.plugin.manifest().reads_own_status {
                context.registration.trigger([id], Cause::ParentStatus);
            }
            return Ok(());
        }
        Err(error) => error,
    };
    let version = target.resource_version();
    record_failure(context, &id, &id, Some(version), &error);
    let failure = error.failure();
    if status.report.is_some() && error.is_rejection() {
        let ledger = context.ledger.lock();
        // The host's conditions alone got this answer before.
        let is_known = ledger.is_status_refused(&id, &failure.message);
        drop(ledger);
        if !is_known {
            warn!(error = %failure.message, "the API server rejected the guest's status");
            return Err(StatusWriteResult::Rejected(failure));
        }
    }
    report_not_written(pass, parent, &status.synced, &error);
    if !error.is_refusal() {
        return Err(StatusWriteResult::Failed(error.retry()));
    }
    context
        .ledger
        .lock()
        .set_status_refused(&id, Some(failure.message));
    Err(StatusWriteResult::Refused)
}

/// Logs a status that is not written, and records an Event if no condition can report it.
fn report_not_written(pass: &Pass<'_>, parent: &Object, synced: &Condition, error: &apply::Error) {
    if error.is_conflict_only() {
        let category = error.category();
        debug!(category, "status not written, the parent changed");
        return;
    }
    let message = error_chain(error).to_string();
    let condition = format!(
        "{}={}/{}: {}",
        synced.kind,
        <&str>::from(synced.status),
        synced.reason,
        synced.message
    );
    warn!(error = message, condition, "failed to write the status");
    if !error.is_refusal() {
        return;
    }
    // No condition can tell it, but the host's own role always allows Events.
    let (reason, message) = if error.kind == ErrorKind::Forbidden {
        // The plugin's role is missing.
        (STATUS_FORBIDDEN, message)
    } else {
        pass.context.metrics.conditions_refused();
        // The first pass tries the guest's status too. Without that condition, both refusals make one Event.
        let is_news =
            synced.status != ConditionStatus::True && synced.reason != reason::STATUS_REJECTED;
        let condition = is_news.then(|| format!("; the condition is {condition}"));
        (STATUS_DENIED, message + &condition.unwrap_or_default())
    };
    let event = Event {
        kind: EventType::Warning,
        reason: reason.to_owned(),
        message,
    };
    record_event(pass, parent, &event, true);
}

/// Queues the guest's events, and those that the last pass deferred to this one.
fn record_events(pass: &Pass<'_>, parent: &Object, events: &[Event], is_fresh: bool) {
    let deferred = pass.context.ledger.lock().take_events(&parent.id());
    for event in &deferred {
        record_event(pass, parent, event, true);
    }
    for event in events.iter().filter(|event| !deferred.contains(event)) {
        record_event(pass, parent, event, is_fresh);
    }
}

fn record_event(pass: &Pass<'_>, parent: &Object, event: &Event, is_fresh: bool) {
    let context = pass.context;
    let shared = &context.shared;
    let now = (shared.now)();
    let due = shared
        .events
        .due(&context.plugin, parent, event, is_fresh, now);
    if let Some(mut write) = due {
        if let Some(id) = pass.trace.id() {
            write.annotate(ANNOTATION_TRACE, &id);
        }
        context.event_queue.push(shared, &context.metrics, write);
    }
}
