//! Report: the status and the events of the parent, and the time of the next pass.

use std::ops::ControlFlow;

use innkeeper_apply::Execution;
use innkeeper_cluster::{Cause, ParentConditions};
use innkeeper_model::{Condition, ConditionStatus, Object, Outcome, Retry, error_chain, reason};
use innkeeper_plan::{self as plan, Plan, WriteFailure};
use tokio::time::Instant;
use tracing::warn;

use super::{
    apply::Applied,
    enter::Entered,
    plan::Planned,
    state::{Pass, Step},
    status::{Reported, Wrote, write},
};
use crate::{
    limits::throttled::HeldBack,
    next::{Attempt, Next},
    pass::result::{self, End, Findings},
    pass::skip::Stop,
    pass::trace::Trace,
};

/// The largest number of rounds of a pass.
///
/// Chosen: children that wait for each other by `after` come in one round each if the API server answers that they are
/// ready, which few kinds are at once. A guest that never settles gets a new pass, which the queue orders.
const ROUNDS_MAX: u32 = 6;

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
        let refused = finalizer_refused(parent);
        let is_retry = refused.is_some();
        let end = End::Finalizing { report, refused };
        let findings = Findings::of(&self.context.plugin, Some(parent), end);
        let target = &mut self.state.target;
        let reported = write(self.context, target, parent, findings, false, trace).await;
        if reported.refused || is_retry {
            return Ok(self);
        }
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
        let Reported { next, wrote, .. } = reported;
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

/// Returns the present condition of a parent whose finalizer could not be removed, so that no other condition replaces it
/// before each attempt.
fn finalizer_refused(parent: &Object) -> Option<Condition> {
    let synced = ParentConditions::new(parent).synced?;
    (synced.reason == reason::FINALIZER_REFUSED).then(|| {
        plan::synced(
            ConditionStatus::False,
            reason::FINALIZER_REFUSED,
            synced.message,
        )
    })
}

fn not_applied(outcome: &Outcome, error: String) -> End<'_> {
    let report = match outcome {
        Outcome::Finalized(report) => {
            let failure = WriteFailure {
                reason: reason::APPLY_FAILED,
                message: error,
                retry: Retry::Backoff,
            };
            return End::Released(Some(report), Err(failure));
        }
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
            Outcome::Finalized(report) => {
                let failed = execution.errors().next();
                let released = failed.map_or(Ok(()), |error| Err(error.finalizer_failure()));
                (End::Released(Some(report), released), true)
            }
            Outcome::Desired(_)
                if execution.is_conflict_only()
                    && !execution
                        .errors()
                        .any(|error| error.blocks_deletion_of(parent)) =>
            {
                (superseded(parent, &execution), true)
            }
            Outcome::Desired(desired) => {
                let (report, ledger) = (&desired.report, &self.context.ledger);
                let mut applied = result::Applied {
                    report,
                    conclusion: plan::conclude(plan, &execution.effects()),
                    held_back,
                    contention: ledger
                        .lock()
                        .repeats(self.id)
                        .contention(Instant::now().into_std()),
                    is_deferred: false,
                };
                if wrote || execution.changed_children() {
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
