//! Observe: reads the parent and its children from the cache, under the revision that is active now.

use std::sync::Arc;

use innkeeper_cluster::{Observation, Observed, Registration, Running};
use innkeeper_model::{Object, ObjectId};
use innkeeper_plan::{self as plan, PassEntry};
use tokio::time::Instant;

use super::{
    context::{Context, Pass, Step},
    rollout,
    selection::may_state_wait,
    skip::{Skip, Skipped},
    trace::Trace,
};
use crate::revision::epoch::Epoch;

/// Begins a pass with the active revision.
pub(super) async fn observe<'a>(
    context: &'a Context,
    running: &Running,
    id: &'a ObjectId,
    trace: &'a Trace<'a>,
) -> (Pass<'a>, Result<Observation, Box<Skipped>>) {
    let (epoch, observed) = loop {
        let epoch = context.slot.current();
        let observed = running.observe().await;
        // A swap in between may have changed the watched kinds: then the new revision needs another look.
        if context.slot.is_current(&epoch) {
            break (epoch, observed);
        }
    };
    let pass = Pass {
        context,
        registration: &context.registration,
        epoch,
        id,
        trace,
    };
    let observed = observation(&pass, observed);
    if observed.is_ok() {
        if let Some(change) = pass.epoch.take_change() {
            context.metrics.took_over(change.elapsed());
        }
        let revision = pass.epoch.revision.plugin.revision();
        // Not earlier: before the lists are complete, the cache lacks parents.
        pass.epoch
            .begin_analysis(|| rollout::analysed_parents(context, revision));
    }
    (pass, observed)
}

/// Begins a candidate's dry run, with the candidate's registration.
pub(super) async fn observe_for_candidate<'a>(
    context: &'a Context,
    registration: &'a Registration,
    epoch: Arc<Epoch>,
    id: &'a ObjectId,
    trace: &'a Trace<'a>,
) -> (Pass<'a>, Step<Observation>) {
    let pass = Pass {
        context,
        registration,
        epoch,
        id,
        trace,
    };
    // Children that the cache does not show yet would seem to be missing.
    if context.registration.is_behind(id) {
        let until = Instant::now();
        return (pass, Err(Box::new(Skip::AwaitOwnWrites { until })));
    }
    let observed =
        observation(&pass, registration.observe(id).await).map_err(|skipped| skipped.reason);
    (pass, observed)
}

fn observation(pass: &Pass<'_>, observed: Observed) -> Result<Observation, Box<Skipped>> {
    let skip = |reason| Err(Skipped::new(None, Box::new(reason)));
    match observed {
        Observed::Ready(observation) => Ok(observation),
        // The host that holds the shard has the passes.
        Observed::Gone | Observed::NotHeld => skip(Skip::Gone),
        Observed::Behind { until } => skip(Skip::AwaitOwnWrites { until }),
        Observed::NotReady { parent, waiting } => {
            Err(skip_unobserved(pass, parent, Skip::NotCached(waiting)))
        }
        Observed::NamespaceFull { parent, full } => {
            Err(skip_unobserved(pass, Some(parent), Skip::CacheFull(full)))
        }
    }
}

/// Skips a pass before `enter`: a parent that may belong to another host gets no condition.
fn skip_unobserved(pass: &Pass<'_>, parent: Option<Object>, reason: Skip) -> Box<Skipped> {
    let plugin = &pass.context.plugin;
    let manifest = pass.epoch.revision.plugin.manifest();
    // A release needs nothing but the parent.
    let is_released = |parent: &Object| plan::enter(parent, plugin, manifest) == PassEntry::Release;
    if parent.as_ref().is_some_and(is_released) {
        return Skipped::new(parent, Box::new(Skip::Released));
    }
    let parent = parent.filter(|parent| may_state_wait(pass, parent));
    Skipped::new(parent, Box::new(reason))
}
