//! Report: the status and the events of the parent, and the time of the next pass.

use std::{mem, ops::ControlFlow, time::Duration};

use innkeeper_apply::{self as apply, ErrorKind, Execution, Target};
use innkeeper_cluster::Cause;
use innkeeper_model::{
    ANNOTATION_TRACE, Condition, ConditionStatus, Event, EventType, Object, Outcome, Retry,
    error_chain, reason,
};
use innkeeper_plan::{self as plan, Plan, StatusWrite};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{
    apply::Applied,
    enter::Entered,
    plan::Planned,
    state::{Pass, Step},
};
use crate::{
    contention::Contention,
    context::Context,
    findings::{self, End, Findings, Status, StatusFinding},
    held_back::HeldBack,
    next::{Attempt, Next},
    stop::Stop,
    trace::Trace,
};

/// The largest number of rounds of a pass.
///
/// Chosen: children that wait for each other by `after` come in one round each if the API server answers that they are
/// ready, which few kinds are at once. A guest that never settles gets a new pass, which the queue orders.
const ROUNDS_MAX: u32 = 6;

/// The reason of the Event about a status that the host may not write.
const STATUS_FORBIDDEN: &str = "StatusForbidden";

/// The end of a pass.
pub(super) struct Reported {
    pub(super) next: Next,
    pub(super) wrote: Wrote,
}

/// The writes of a pass, with those that it tried or had to wait with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrote {
    Nothing,
    /// Only a status, which the API server accepted as a whole.
    Status,
    More,
}

/// The operations of a round that were tried.
struct Tried {
    execution: Execution,
    /// The writes that have to wait.
    held_back: Option<HeldBack>,
    /// True if an earlier plan of the round changed children.
    wrote: bool,
}

impl<'a> Pass<'a, Planned> {
    /// Writes the last status of a parent that the guest has finalized. It goes first, because the parent is gone
    /// without its finalizer.
    ///
    /// A status that the API server rejects, or that has to wait, does not keep the parent.
    pub(super) async fn report_finalized(mut self, trace: &Trace<'_>) -> Step<'a, Self> {
        let Outcome::Finalized(report) = &*self.state.outcome else {
            return Ok(self);
        };
        trace.step("report");
        let parent = &self.state.entered.observation.parent;
        let end = End::Finalizing { report };
        let findings = Findings::of(&self.context.plugin, Some(parent), end);
        let target = &mut self.state.target;
        let reported = write(self.context, target, parent, findings, false, trace).await;
        match reported.next {
            Next::Settled | Next::UntilChanged | Next::RequeueAfter(_) => Ok(self),
            next => Err(self.stop(|_| None, Stop::NotReported(next))),
        }
    }
}

impl Pass<'_, Applied> {
    /// Reports the pass, and remembers it if the next one with the same inputs may be skipped. Returns nothing if another
    /// round follows, which reports instead.
    pub(super) async fn report(
        self,
        round: u32,
        attempt: &Attempt,
        trace: &Trace<'_>,
    ) -> ControlFlow<Next> {
        let (pass, applied) = self.split();
        let Applied {
            planned,
            result,
            held_back,
        } = applied;
        let Planned {
            entered,
            outcome,
            reads,
            inputs,
            plan,
            mut target,
            wrote,
            ..
        } = planned;
        let context = pass.context;
        let (end, fresh) = match result {
            Ok(execution) => {
                let may_go_on = round < ROUNDS_MAX && !attempt.edits.any();
                let tried = Tried {
                    execution,
                    held_back,
                    wrote,
                };
                match pass.applied(&entered, &outcome, &plan, tried, may_go_on) {
                    ControlFlow::Break(ended) => ended,
                    ControlFlow::Continue(()) => return ControlFlow::Continue(()),
                }
            }
            Err(error) => {
                let error = error_chain(&error).to_string();
                warn!(error, "failed to apply the plan, or to finalize");
                (not_applied(&outcome, error), false)
            }
        };
        let parent = &entered.observation.parent;
        let findings = Findings::of(&context.plugin, Some(parent), end);
        let waits = findings.waits();
        let reported = write(context, &mut target, parent, findings, fresh, trace).await;
        let Reported { next, wrote } = reported;
        // A pass for this parent, with the same other inputs, would end the same way and write nothing.
        let parent = match wrote {
            Wrote::Nothing => Some(entered.observation.parent),
            Wrote::Status => pass.parent_after_status(target.resource_version()),
            Wrote::More => None,
        };
        if let (Some(mut inputs), Some(reads), Some(parent)) = (inputs, reads, parent)
            && matches!(next, Next::Settled | Next::RequeueAfter(_))
            && !waits
        {
            inputs.parent(entered.phase, &parent);
            let memory = &pass.epoch.memory;
            memory.remember(pass.id, inputs, &reads, next.clone());
        }
        ControlFlow::Break(next)
    }
}

fn not_applied(outcome: &Outcome, error: String) -> End<'_> {
    let report = match outcome {
        Outcome::Finalized(_) => return End::Released(Err(Retry::Backoff)),
        // Not reached for `Keep`, whose empty plan cannot fail.
        Outcome::Keep(report) => report,
        Outcome::Desired(desired) => &desired.report,
    };
    End::NotApplied { report, error }
}

impl Pass<'_, ()> {
    /// Returns the end of a pass whose operations were tried, and true if it changed something; nothing if it goes on with
    /// another round.
    fn applied<'p>(
        &self,
        entered: &Entered,
        outcome: &'p Outcome,
        plan: &Plan,
        tried: Tried,
        may_go_on: bool,
    ) -> ControlFlow<(End<'p>, bool)> {
        let Tried {
            execution,
            held_back,
            wrote,
        } = tried;
        let parent = &entered.observation.parent;
        ControlFlow::Break(match outcome {
            Outcome::Keep(report) => {
                let phase = entered.phase;
                (End::Kept { phase, report }, false)
            }
            Outcome::Finalized(_) => {
                let failed = execution.errors().next();
                let released = failed.map_or(Ok(()), |error| Err(error.retry()));
                (End::Released(released), true)
            }
            Outcome::Desired(_)
                if execution.is_silent()
                    && !execution.errors().any(|error| error.holds(parent)) =>
            {
                (superseded(parent, &execution), true)
            }
            Outcome::Desired(desired) => {
                let (report, ledger) = (&desired.report, &self.context.ledger);
                let mut applied = findings::Applied {
                    report,
                    conclusion: plan::conclude(plan, &execution.effects()),
                    held_back,
                    contention: ledger.lock().repeats(self.id).contention(Instant::now()),
                    is_deferred: false,
                };
                if wrote || execution.comes_back() {
                    let shown = !self.registration.is_behind(self.id);
                    let is_complete = applied.is_complete();
                    if is_complete && may_go_on && shown {
                        ledger.lock().defer_events(self.id, &report.events);
                        return ControlFlow::Continue(());
                    }
                    // A report about children that this pass has just made is obsolete a moment later and would cost
                    // another write. Two passes in a row never defer their report.
                    applied.is_deferred =
                        is_complete && ledger.lock().defer_report(self.id, &report.events);
                    if shown {
                        // Their watch events are no changes any more.
                        let parent = [self.id.clone()];
                        self.registration.trigger(parent, Cause::ChildChanged);
                    }
                }
                (
                    End::Applied(Box::new(applied)),
                    wrote || !execution.results.is_empty(),
                )
            }
        })
    }
}

/// The end of a pass whose failures all say that the cluster has changed: the next pass observes it.
///
/// A parent that is deleted with its namespace gets no further pass. One that has to finalize first, or that stays when
/// the namespace of a child is deleted, does.
fn superseded(parent: &Object, execution: &Execution) -> End<'static> {
    let goes_along = parent.namespace.is_some() && !parent.is_deleting();
    End::Superseded {
        again: !goes_along
            || execution
                .errors()
                .any(|error| error.retry() != Retry::Never),
    }
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
    let mut conclusion = findings.conclude();
    let before = if fresh { Wrote::More } else { Wrote::Nothing };
    let Some(first) = &conclusion.status else {
        let (next, wrote) = (conclusion.next, before);
        return Reported { next, wrote };
    };
    let (synced, reason) = (&first.synced, &first.synced.reason);
    if synced.status != ConditionStatus::True {
        debug!(reason, message = synced.message, "not synced");
    }
    let now = (context.shared.now)();
    let (mut charged, mut written, mut refused) = (false, false, false);
    // Each finding changes the conclusion: the status is left as it is, or has only the conditions of the host.
    while let Some(status) = &conclusion.status {
        let (report, ready) = (status.report, status.ready.clone());
        let (plugin, outlook) = (&context.plugin, conclusion.outlook());
        let synced = &status.synced;
        let due = plan::status(plugin, parent, report, synced, ready, outlook, now);
        let Some(due) = due else { break };
        if let Some(wait) = contested_status(context, parent, &due, trace).await {
            refused = true;
            findings.add(StatusFinding::Contested(wait));
            conclusion = findings.conclude();
            break;
        }
        // A status is charged once, also if its first write is refused.
        let wanted = usize::from(!mem::replace(&mut charged, true));
        let granted = context.take_writes(&parent.id(), wanted);
        let held = HeldBack::of_status(granted, &status.synced);
        let finding = match held {
            Some(held) => StatusFinding::HeldBack(held),
            None => match write_status(context, target, parent, &due, status, trace).await {
                Ok(()) => {
                    written = true;
                    break;
                }
                Err(finding) => finding,
            },
        };
        refused = true;
        let failed = matches!(finding, StatusFinding::Failed(_));
        findings.add(finding);
        conclusion = findings.conclude();
        if failed {
            let (next, wrote) = (conclusion.next, Wrote::More);
            return Reported { next, wrote };
        }
    }
    record_events(context, parent, findings.events(), fresh || written, trace);
    let wrote = match (refused, written) {
        (true, _) => Wrote::More,
        (false, true) if !fresh => Wrote::Status,
        (false, _) => before,
    };
    Reported {
        next: conclusion.next,
        wrote,
    }
}

/// Returns the time until a contested status may be written; none if it may be now. An Event names the other side, because
/// it overwrites the conditions too.
async fn contested_status(
    context: &Context,
    parent: &Object,
    due: &StatusWrite,
    trace: &Trace<'_>,
) -> Option<Duration> {
    let (id, now) = (parent.id(), Instant::now());
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
            let epoch = context.active.current();
            if epoch.serving.plugin.manifest().reads_own_status {
                context.registration.trigger([id], Cause::ParentStatus);
            }
            Ok(())
        }
        Err(error) => {
            context.note_failure(&id, &id, Some(target.resource_version()), &error);
            if status.report.is_some() && error.is_rejection() {
                let failure = error.failure();
                warn!(error = %failure.message, "the API server rejected the guest's status");
                return Err(StatusFinding::Rejected(failure));
            }
            not_written(context, parent, &status.synced, &error, trace);
            Err(StatusFinding::Failed(error.retry()))
        }
    }
}

/// Logs a status that is not written, and tells the user by an Event where no condition ever can.
fn not_written(
    context: &Context,
    parent: &Object,
    synced: &Condition,
    error: &apply::Error,
    trace: &Trace<'_>,
) {
    if error.is_silent() {
        let category = error.category();
        debug!(category, "status not written, the parent changed");
        return;
    }
    let message = error_chain(error).to_string();
    let Condition { kind, reason, .. } = synced;
    let status = <&str>::from(synced.status);
    let condition = format!("{kind}={status}/{reason}: {}", synced.message);
    warn!(error = message, condition, "failed to write the status");
    // The role of the host allows Events.
    let (reason, message) = match error.kind {
        // The role of the plugin is missing.
        ErrorKind::Forbidden => (STATUS_FORBIDDEN, message),
        // The definition of the parent refuses a status with the host's conditions alone.
        ErrorKind::Rejected => {
            context.metrics.conditions_refused();
            (
                reason::STATUS_REJECTED,
                format!("{message}; the condition is {condition}"),
            )
        }
        _ => return,
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
