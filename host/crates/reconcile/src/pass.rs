//! One pass for one parent: observe, enter, recall, call, check, plan, apply, report.
//!
//! A pass that has written children goes on with another round: the cache shows the answers to its writes at once, so the
//! guest sees its children, and the report is about them.
//! Each step is a function in a file of its name. It consumes a [`Pass`] in one state and returns it in the next, or
//! stops the pass with a reason. A dry run takes `enter`, `check` and `plan`; its calls go to the guest in groups.
//! A pass needs nothing from earlier passes: memory, ledger and subscriptions only save work.

mod again;
mod answers;
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
mod recall;
mod report;
mod result;
pub(crate) mod selection;
mod skip;
mod state;
mod status;
mod stopped;
pub(crate) mod trace;

use std::ops::ControlFlow;

use innkeeper_cluster::Running;
use innkeeper_model::ObjectId;

pub(crate) use enter::Entered;
pub(crate) use plan::Planned;
pub(crate) use state::{Pass, Step, Stopped};

use context::Context;
use trace::Trace;

use crate::next::{Attempt, Next};

/// Runs a pass and returns the time of the next one.
///
/// Never fails: every problem becomes a condition of the parent and decides the next pass.
pub(crate) async fn run(
    context: &Context,
    running: &Running,
    id: &ObjectId,
    attempt: Attempt,
    trace: &Trace<'_>,
) -> Next {
    let mut round = 1;
    loop {
        let ended = match steps(context, running, id, round, &attempt, trace).await {
            Ok(ended) => ended,
            Err(stopped) => {
                trace.step("report");
                stopped.report(&attempt, trace).await
            }
        };
        match ended {
            ControlFlow::Break(next) => return next,
            ControlFlow::Continue(()) => round += 1,
        }
    }
}

/// Runs one round; returns the time of the next pass, or nothing if another round follows.
async fn steps<'a>(
    context: &'a Context,
    running: &Running,
    id: &'a ObjectId,
    round: u32,
    attempt: &Attempt,
    trace: &Trace<'_>,
) -> Step<'a, ControlFlow<Next>> {
    trace.step("observe");
    let pass = Pass::observe(context, running, id).await?;
    trace.step("enter");
    let pass = pass.enter()?;
    trace.step("recall");
    let pass = pass.recall()?;
    trace.step("call");
    let pass = pass.call().await?;
    trace.step("check");
    let pass = answers::count(pass.check())?;
    trace.step("plan");
    let mut pass = pass.plan().report_finalized(trace).await?;
    trace.step("apply");
    let applied = loop {
        let applied = pass.apply().await;
        match applied.plan_again().await {
            ControlFlow::Continue(planned) => pass = planned,
            ControlFlow::Break(applied) => break applied,
        }
    };
    trace.step("report");
    Ok(applied.report(round, attempt, trace).await)
}
