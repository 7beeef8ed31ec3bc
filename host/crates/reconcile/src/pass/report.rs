//! Report: writes the parent's status and events, and returns the time of the next pass.

use std::ops::ControlFlow;

use innkeeper_apply::Execution;
use innkeeper_cluster::{Cause, ParentConditions};
use innkeeper_model::{
    Answer, Condition, ConditionStatus, Desired, Object, Operation, Outcome, ReadKey, Retry,
    error_chain, reason,
};
use innkeeper_plan::{self as plan, WriteFailure};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{
    apply::Applied,
    context::{Context, Pass, Step},
    plan::Planned,
    result::{AppliedPlan, PassEnd, PassResult},
    rollout,
    skip::{Skip, Skipped},
    status::{Writes, write_status},
    writes::{record_failure, record_write},
};
use crate::{
    limits::throttled::Throttled,
    memory::Inputs,
    next::{Attempt, Next},
};

/// The most rounds in a pass.
///
/// Children that wait for each other by `after` take one round each if the API server answers that they are ready, as few
/// kinds do. A guest that never settles gets a new pass, which the queue orders.
const ROUNDS_MAX: u32 = 6;

/// Writes the last status of a finalized parent before the finalizer goes, and the parent with it.
///
/// A status that the API server rejects, or that has to wait, does not keep the parent.
pub(super) async fn report_finalized(pass: &Pass<'_>, planned: &mut Planned<'_>) -> Step<()> {
    let Outcome::Finalized(report) = &**planned.outcome else {
        return Ok(());
    };
    pass.trace.step("report");
    let refused = finalizer_refused(planned.parent);
    let is_retry = refused.is_some();
    let end = PassEnd::Finalizing { report, refused };
    let result = PassResult::new(&pass.context.plugin, Some(planned.parent), end);
    let (next, writes) =
        write_status(pass, &mut planned.target, planned.parent, result, false).await;
    if writes == Writes::Refused || is_retry {
        return Ok(());
    }
    match next {
        Next::Settled | Next::UntilChanged | Next::RequeueAfter(_) => Ok(()),
        next => Err(Box::new(Skip::NotReported(next))),
    }
}

/// Returns the condition about a finalizer that an earlier pass could not remove; it stays until an attempt succeeds.
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

/// Reports the pass, and remembers it if the next one with the same inputs may be skipped. Returns `Continue` if another
/// round follows, which reports instead.
pub(super) async fn report(
    pass: &Pass<'_>,
    applied: Applied<'_>,
    inputs: Option<(Inputs, &[(ReadKey, Answer)])>,
    round: u32,
    attempt: &Attempt,
) -> ControlFlow<Next> {
    let Applied {
        mut planned,
        result,
        throttled,
    } = applied;
    let (end, has_written) = match result {
        Ok(execution) => {
            let may_continue = round < ROUNDS_MAX && !attempt.edits.any();
            match end_of_plan(pass, &planned, &execution, throttled, may_continue) {
                Some(end) => end,
                None => return ControlFlow::Continue(()),
            }
        }
        Err(error) => {
            let has_claim = pass.context.shared.writer_for(pass.id).may_begin();
            let error = error_chain(&error).to_string();
            if has_claim {
                warn!(error, "failed to apply the plan, or to finalize");
            } else {
                debug!(error, "not applied, another host serves the parent");
            }
            (not_applied(planned.outcome, error), false)
        }
    };
    let parent = planned.parent;
    let result = PassResult::new(&pass.context.plugin, Some(parent), end);
    let has_waiting = result.has_waiting_operations();
    let target = &mut planned.target;
    let (next, writes) = write_status(pass, target, parent, result, has_written).await;
    // A pass for this parent, with the same other inputs, would end the same way and write nothing.
    let after_status;
    let parent = match writes {
        Writes::None => Some(parent),
        Writes::Status => {
            after_status = parent_after_status(pass, &planned);
            after_status.as_ref()
        }
        Writes::More | Writes::Refused => None,
    };
    if let (Some((mut inputs, reads)), Some(parent)) = (inputs, parent)
        && matches!(next, Next::Settled | Next::RequeueAfter(_))
        && !has_waiting
    {
        inputs.parent(planned.entered.phase, parent);
        pass.epoch
            .memory
            .remember(pass.id, inputs, reads, next.clone());
    }
    ControlFlow::Break(next)
}

/// Returns the parent with this pass's status; `None` if the guest's answer may depend on it, or if the cache does not show
/// that version.
///
/// The status write was bound to the observed version, so nothing else has changed.
fn parent_after_status(pass: &Pass<'_>, planned: &Planned<'_>) -> Option<Object> {
    if pass.epoch.revision.plugin.manifest().reads_own_status {
        return None;
    }
    let parent = pass.registration.parent(pass.id)?;
    (parent.resource_version == planned.target.resource_version()).then_some(parent)
}

fn not_applied(outcome: &Outcome, error: String) -> PassEnd<'_> {
    let report = match outcome {
        Outcome::Finalized(report) => {
            let failure = WriteFailure {
                reason: reason::APPLY_FAILED,
                message: error,
                retry: Retry::Backoff,
            };
            return PassEnd::Released(Some(report), Err(failure));
        }
        // Not reached for `Keep`, whose empty plan cannot fail.
        Outcome::Keep(report) => report,
        Outcome::Desired(desired) => &desired.report,
    };
    PassEnd::NotApplied { report, error }
}

/// Returns the end of a pass whose operations were tried, and true if it wrote something; `None` if another round follows.
fn end_of_plan<'a>(
    pass: &Pass<'_>,
    planned: &Planned<'a>,
    execution: &Execution,
    throttled: Option<Throttled>,
    may_continue: bool,
) -> Option<(PassEnd<'a>, bool)> {
    let outcome: &'a Outcome = planned.outcome;
    match outcome {
        Outcome::Keep(report) => {
            let phase = planned.entered.phase;
            Some((PassEnd::Kept { phase, report }, false))
        }
        Outcome::Finalized(report) => {
            let released = execution
                .errors()
                .next()
                .map_or(Ok(()), |error| Err(error.finalizer_failure()));
            Some((PassEnd::Released(Some(report), released), true))
        }
        Outcome::Desired(_)
            if execution.is_conflict_only()
                && !execution
                    .errors()
                    .any(|error| error.blocks_deletion_of(planned.parent)) =>
        {
            Some((superseded(planned.parent, execution), true))
        }
        Outcome::Desired(desired) => {
            let has_written = planned.has_written || !execution.results.is_empty();
            let end = end_of_desired(pass, planned, desired, execution, throttled, may_continue)?;
            Some((PassEnd::Applied(Box::new(end)), has_written))
        }
    }
}

fn end_of_desired<'a>(
    pass: &Pass<'_>,
    planned: &Planned<'_>,
    desired: &'a Desired,
    execution: &Execution,
    throttled: Option<Throttled>,
    may_continue: bool,
) -> Option<AppliedPlan<'a>> {
    let report = &desired.report;
    let mut ledger = pass.context.ledger.lock();
    let contention = ledger
        .repeats(pass.id)
        .contention(Instant::now().into_std());
    drop(ledger);
    let mut applied = AppliedPlan {
        report,
        conclusion: plan::conclude(&planned.plan, &execution.effects()),
        throttled,
        contention,
        is_deferred: false,
    };
    if !planned.has_written && !execution.changed_children() {
        return Some(applied);
    }
    let is_cached = !pass.registration.is_behind(pass.id);
    if applied.is_complete() {
        let mut ledger = pass.context.ledger.lock();
        // While the cache is behind these writes, another round could only wait for it.
        if may_continue && is_cached {
            ledger.defer_events(pass.id, &report.events);
            return None;
        }
        // A report about children that this pass has just made is obsolete a moment later and would cost another write.
        // Two passes in a row never defer their report.
        applied.is_deferred = ledger.defer_report(pass.id, &report.events);
    }
    if is_cached {
        // The cache has these writes already, so their watch events trigger nothing.
        pass.registration
            .trigger([pass.id.clone()], Cause::ChildChanged);
    }
    Some(applied)
}

/// All failures mean that the cluster has changed, which the next pass observes.
///
/// A parent that disappears with its namespace needs no further pass. One that has to finalize first, or that outlives a
/// child's namespace, does.
fn superseded(parent: &Object, execution: &Execution) -> PassEnd<'static> {
    let is_deleted_with_namespace = parent.namespace.is_some() && !parent.is_deleting();
    PassEnd::Superseded {
        again: !is_deleted_with_namespace
            || execution
                .errors()
                .any(|error| error.retry() != Retry::Never),
    }
}

/// Writes the condition about the reason where the user has to know it. Returns the time of the next pass, or `Continue` if
/// another round follows.
pub(super) async fn report_skip(
    pass: &Pass<'_>,
    skipped: Box<Skipped>,
    attempt: &Attempt,
) -> ControlFlow<Next> {
    let Skipped { parent, reason } = *skipped;
    clear_state(pass, &reason);
    let context = pass.context;
    let finalizer = context.plugin.finalizer();
    let releases = match (&*reason, &parent) {
        (Skip::Released, _) => true,
        // Only this pass removes it. The condition follows in the next round.
        (Skip::NotSelected { .. }, Some(parent)) => parent.has_finalizer(&finalizer),
        _ => false,
    };
    let end = match &parent {
        Some(parent) if releases => {
            let result = release(context, parent).await;
            if result.is_ok() && matches!(*reason, Skip::NotSelected { .. }) {
                return ControlFlow::Continue(());
            }
            PassEnd::Released(None, result)
        }
        _ => PassEnd::Skipped {
            reason: &reason,
            waited: attempt.cache_wait.unwrap_or_default(),
            now: Instant::now(),
        },
    };
    let result = PassResult::new(&context.plugin, parent.as_ref(), end);
    let Some(parent) = &parent else {
        return ControlFlow::Break(result.conclude().next);
    };
    let mut target = context.target(parent);
    let (next, _) = write_status(pass, &mut target, parent, result, false).await;
    ControlFlow::Break(next)
}

/// Clears state that no longer applies, and exempts the parent from the rollout analysis.
fn clear_state(pass: &Pass<'_>, reason: &Skip) {
    let epoch = &pass.epoch;
    match reason {
        Skip::Gone => {
            rollout::exempt(pass.context, epoch, pass.id);
            epoch.memory.forget(pass.id);
            epoch.given_up.forget(pass.id);
        }
        // No revision can change this.
        Skip::CacheFull(_) => rollout::exempt(pass.context, epoch, pass.id),
        Skip::NotSelected { reads, .. } => {
            rollout::exempt(pass.context, epoch, pass.id);
            epoch.memory.forget(pass.id);
            // The subscriptions to the guest's reads end.
            pass.registration.commit(pass.id, reads);
        }
        _ => {}
    }
}

/// Removes the finalizer without the guest.
async fn release(context: &Context, parent: &Object) -> Result<(), WriteFailure> {
    let mut target = context.target(parent);
    let id = parent.id();
    let writer = context.shared.writer_for(&id);
    match writer.release(&mut target, &context.plugin).await {
        Ok(written) => {
            info!("released the parent without its guest");
            if let Some(written) = written {
                let verb = Operation::RemoveFinalizer.verb();
                record_write(context, &id, &id, verb, &written);
            } else {
                // The parent is gone, or without the finalizer, and the cache does not show it yet.
                let version = target.resource_version();
                context.registration.expect_newer(&id, &id, version);
            }
            Ok(())
        }
        Err(error) => {
            record_failure(context, &id, &id, Some(target.resource_version()), &error);
            if error.is_conflict_only() {
                debug!(
                    category = error.category(),
                    "the parent is not released yet"
                );
            } else {
                warn!(error = %error_chain(&error), "failed to release the parent");
            }
            Err(error.finalizer_failure())
        }
    }
}
