//! Status: the writes of a parent's status, and the Events about it.

use std::time::Duration;

use innkeeper_apply::{self as apply, ErrorKind, Target};
use innkeeper_cluster::Cause;
use innkeeper_model::{
    ANNOTATION_TRACE, Condition, ConditionStatus, Event, EventType, Object, error_chain, reason,
};
use innkeeper_plan::{self as plan, Contention, StatusWrite};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::{
    limits::throttled::HeldBack,
    next::Next,
    pass::context::Context,
    pass::result::{Conclusion, Findings, Status, StatusFinding},
    pass::trace::Trace,
};

/// The reason of the Event about a status that the host may not write.
const STATUS_FORBIDDEN: &str = "StatusForbidden";

/// The reason of the Event about a status that admission or the definition of the parent refuses.
const STATUS_DENIED: &str = "StatusDenied";

/// The end of a pass.
pub(super) struct Reported {
    pub(super) next: Next,
    pub(super) wrote: Wrote,
    /// True if the API server refused a status as a whole.
    pub(super) refused: bool,
}

/// The writes of a pass, with those that it tried or had to wait with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrote {
    Nothing,
    /// Only a status, which the API server accepted as a whole.
    Status,
    More,
}

/// Writes the status and the events that follow from the findings; `fresh` says that the pass changed something before.
pub(super) async fn write(
    context: &Context,
    target: &mut Target,
    parent: &Object,
    mut findings: Findings<'_>,
    fresh: bool,
    trace: &Trace<'_>,
) -> Reported {
    let conclusion = findings.conclude();
    let before = if fresh { Wrote::More } else { Wrote::Nothing };
    let Some(first) = &conclusion.status else {
        return Reported {
            next: conclusion.next,
            wrote: before,
            refused: false,
        };
    };
    if let Some(event) = conclusion.event() {
        record_event(context, parent, &event, true, trace);
    }
    let synced = &first.synced;
    if synced.status != ConditionStatus::True {
        debug!(
            reason = synced.reason,
            message = synced.message,
            "not synced"
        );
    }
    let (conclusion, tries) =
        write_due(context, target, parent, (&mut findings, conclusion), trace).await;
    if tries.failure == StatusFailure::None {
        let fresh = fresh || tries.written;
        record_events(context, parent, findings.events(), fresh, trace);
    }
    let wrote = match tries {
        Tries {
            incomplete: true, ..
        } => Wrote::More,
        Tries { written: true, .. } if !fresh => Wrote::Status,
        _ => before,
    };
    Reported {
        next: conclusion.next,
        wrote,
        refused: tries.failure == StatusFailure::Refused,
    }
}

/// The results of the tries to write a status.
#[derive(Default)]
struct Tries {
    /// A status was written, at least the host's conditions.
    written: bool,
    /// A try had to wait or failed.
    incomplete: bool,
    failure: StatusFailure,
}

/// The failure of the last try.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum StatusFailure {
    #[default]
    None,
    Failed,
    /// The API server refused the host's conditions.
    Refused,
}

/// Writes the status that is due. Each finding changes the conclusion: the status is left as it is, or has only the
/// conditions of the host.
async fn write_due<'a>(
    context: &Context,
    target: &mut Target,
    parent: &Object,
    (findings, mut conclusion): (&mut Findings<'a>, Conclusion<'a>),
    trace: &Trace<'_>,
) -> (Conclusion<'a>, Tries) {
    let now = (context.shared.now)();
    let mut tries = Tries::default();
    while let Some(status) = &conclusion.status {
        let (report, ready) = (status.report, status.ready.clone());
        let (plugin, outlook) = (&context.plugin, conclusion.outlook());
        let synced = &status.synced;
        let due = plan::status(plugin, parent, report, synced, ready, outlook, now);
        let Some(due) = due else { break };
        // A status is charged once, also if its first write is refused.
        let charge = !tries.incomplete;
        let hold = hold_status(context, parent, (&due, synced), charge, trace).await;
        let finding = match hold {
            Some(finding) => finding,
            None => match write_status(context, target, parent, &due, status, trace).await {
                Ok(()) => {
                    tries.written = true;
                    break;
                }
                Err(finding) => finding,
            },
        };
        tries.incomplete = true;
        tries.failure = match finding {
            StatusFinding::Refused => StatusFailure::Refused,
            StatusFinding::Failed(_) => StatusFailure::Failed,
            _ => StatusFailure::None,
        };
        let ends =
            tries.failure != StatusFailure::None || matches!(finding, StatusFinding::Contested(_));
        findings.add(finding);
        conclusion = findings.conclude();
        if ends {
            break;
        }
    }
    (conclusion, tries)
}

/// Returns the reason why a status may not be written now.
async fn hold_status(
    context: &Context,
    parent: &Object,
    (due, synced): (&StatusWrite, &Condition),
    charge: bool,
    trace: &Trace<'_>,
) -> Option<StatusFinding> {
    if let Some(wait) = contested_status(context, parent, due, trace).await {
        return Some(StatusFinding::Contested(wait));
    }
    let granted = context.take_writes(&parent.id(), usize::from(charge));
    HeldBack::of_status(granted, synced).map(StatusFinding::HeldBack)
}

/// Returns the time until a contested status may be written; none if it may be now. An Event names the other side, because
/// it overwrites the conditions too.
async fn contested_status(
    context: &Context,
    parent: &Object,
    due: &StatusWrite,
    trace: &Trace<'_>,
) -> Option<Duration> {
    let (id, now) = (parent.id(), Instant::now().into_std());
    let write = context.status_write(parent);
    let wait = context.ledger.lock().repeats(&id).wait(&write, now)?;
    if let Some(undone) = context.explain_status(parent, due).await {
        let undone = vec![undone];
        let synced = Contention { undone, wait }.synced();
        warn!(message = synced.message, "the status is overwritten");
        let event = Event {
            kind: EventType::Warning,
            reason: synced.reason,
            message: synced.message,
        };
        record_event(context, parent, &event, true, trace);
    }
    Some(wait)
}

async fn write_status(
    context: &Context,
    target: &mut Target,
    parent: &Object,
    write: &StatusWrite,
    status: &Status<'_>,
    trace: &Trace<'_>,
) -> Result<(), StatusFinding> {
    let id = parent.id();
    let repeated = context.status_write(parent);
    match context.shared.writer.status(target, write).await {
        Ok(written) => {
            context.note_written(&id, &id, "status", &written);
            context.record_status(repeated, parent, &written);
            context.ledger.lock().set_status_refused(&id, None);
            let epoch = context.active.current();
            if epoch.serving.plugin.manifest().reads_own_status {
                context.registration.trigger([id], Cause::ParentStatus);
            }
            Ok(())
        }
        Err(error) => {
            context.note_failure(&id, &id, Some(target.resource_version()), &error);
            let failure = error.failure();
            if status.report.is_some() && error.is_rejection() {
                // The host's conditions alone got this answer before.
                let is_known = context
                    .ledger
                    .lock()
                    .is_status_refused(&id, &failure.message);
                if !is_known {
                    warn!(error = %failure.message, "the API server rejected the guest's status");
                    return Err(StatusFinding::Rejected(failure));
                }
            }
            not_written(context, parent, &status.synced, &error, trace);
            if !error.is_refusal() {
                return Err(StatusFinding::Failed(error.retry()));
            }
            let refused = Some(failure.message);
            context.ledger.lock().set_status_refused(&id, refused);
            Err(StatusFinding::Refused)
        }
    }
}

/// Logs a status that is not written, and tells the user by an Event where no condition can.
fn not_written(
    context: &Context,
    parent: &Object,
    synced: &Condition,
    error: &apply::Error,
    trace: &Trace<'_>,
) {
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
    // The role of the host allows Events.
    let (reason, message) = if error.kind == ErrorKind::Forbidden {
        // The role of the plugin is missing.
        (STATUS_FORBIDDEN, message)
    } else {
        context.metrics.conditions_refused();
        // The first pass tries the guest's status too. Without its condition, both refusals are one Event.
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
    record_event(context, parent, &event, true, trace);
}

/// Queues the events of the guest, and those that the last pass deferred to this one.
fn record_events(
    context: &Context,
    parent: &Object,
    events: &[Event],
    fresh: bool,
    trace: &Trace<'_>,
) {
    let deferred = context.ledger.lock().take_events(&parent.id());
    let own = events
        .iter()
        .filter(|event| !deferred.contains(event))
        .map(|event| (event, fresh));
    for (event, fresh) in deferred.iter().map(|event| (event, true)).chain(own) {
        record_event(context, parent, event, fresh, trace);
    }
}

fn record_event(context: &Context, parent: &Object, event: &Event, fresh: bool, trace: &Trace<'_>) {
    let (shared, now) = (&context.shared, (context.shared.now)());
    let due = shared
        .events
        .due(&context.plugin, parent, event, fresh, now);
    if let Some(mut write) = due {
        if let Some(id) = trace.id() {
            write.annotate(ANNOTATION_TRACE, &id);
        }
        context.event_queue.push(shared, &context.metrics, write);
    }
}
