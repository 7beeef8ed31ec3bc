//! One pass for one parent: observe, enter, recall, answer (call and check, or a prediction), plan, apply, report.
//!
//! Read [`run`] from top to bottom: each step is a function that takes the values of the steps before it, and returns its
//! own or a [`Skip`](skip::Skip), which ends the pass. Dry runs use `enter`, `check` and `plan`, and call the guest in groups.
//! A pass needs nothing from earlier passes: memory, ledger and subscriptions only save work.

mod apply;
mod call;
mod check;
mod contested;
pub(crate) mod context;
pub(crate) mod dry_run;
mod enter;
pub(crate) mod events;
mod observe;
mod plan;
mod predict;
mod recall;
mod replan;
mod report;
mod result;
pub(crate) mod rollout;
pub(crate) mod selection;
mod skip;
mod status;
mod throttle;
pub(crate) mod trace;
mod writes;

use std::ops::ControlFlow;

use innkeeper_cluster::{Observation, Running};
use innkeeper_model::ObjectId;

use apply::apply;
use context::{Context, Pass, Step};
use enter::enter;
use observe::observe;
use plan::plan;
use predict::{Accepted, Predicted, answer};
use recall::recall;
use replan::replan;
use report::{report, report_finalized, report_skip};
use skip::Skipped;
use trace::Trace;

use crate::next::{Attempt, Next};

/// Runs a pass and returns the time of the next one.
///
/// A pass that has written children runs another round: the cache already shows the API server's answers, so the guest
/// sees its children and the report describes them.
/// Never fails: every problem becomes a condition of the parent and decides the next pass.
pub(crate) async fn run(
    context: &Context,
    running: &Running,
    id: &ObjectId,
    attempt: Attempt,
    trace: &Trace<'_>,
) -> Next {
    let mut round = 1;
    let mut predicted = None;
    loop {
        trace.step("observe");
        let (pass, observed) = observe(context, running, id, trace).await; // reads the cache
        let skipped = match observed {
            Ok(observed) => {
                match steps(&pass, &observed, round, &attempt, predicted.take()).await {
                    Ok(ControlFlow::Break(next)) => return next,
                    Ok(ControlFlow::Continue(accepted)) => {
                        predicted = Predicted::new(pass.epoch, observed, accepted);
                        round += 1;
                        continue;
                    }
                    Err(reason) => Skipped::new(Some(observed.parent), reason),
                }
            }
            Err(skipped) => skipped,
        };
        trace.step("report");
        let reported = report_skip(&pass, skipped, &attempt).await; // writes the status
        match reported {
            ControlFlow::Break(next) => return next,
            ControlFlow::Continue(()) => round += 1,
        }
    }
}

/// Runs the steps after `observe`; returns the time of the next pass, or `Continue` with the answer if another round
/// follows.
async fn steps(
    pass: &Pass<'_>,
    observed: &Observation,
    round: u32,
    attempt: &Attempt,
    predicted: Option<Predicted>,
) -> Step<ControlFlow<Next, Accepted>> {
    let trace = pass.trace;
    trace.step("enter");
    let entered = enter(pass, observed)?; // reads the cache
    trace.step("recall");
    let inputs = recall(pass, observed, &entered)?; // reads the cache
    trace.step("call");
    let accepted = answer(pass, observed, &entered, predicted).await?; // runs the guest, which reads the cache
    trace.step("plan");
    let mut planned = plan(pass, observed, &entered, &accepted.outcome); // pure
    report_finalized(pass, &mut planned).await?; // writes the status if the parent is finalized
    trace.step("apply");
    let applied = apply(pass, planned).await; // writes children and the finalizer
    let replanned = replan(pass, applied).await; // reads objects that the cache did not show
    let applied = match replanned {
        ControlFlow::Continue(planned) => apply(pass, planned).await,
        ControlFlow::Break(applied) => applied,
    };
    trace.step("report");
    let inputs = inputs.zip(accepted.reads.as_deref());
    let reported = report(pass, applied, inputs, round, attempt).await; // writes the status
    Ok(match reported {
        ControlFlow::Continue(()) => ControlFlow::Continue(accepted),
        ControlFlow::Break(next) => ControlFlow::Break(next),
    })
}
