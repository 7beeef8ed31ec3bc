//! Recall: skips passes whose inputs are unchanged, and parents whose plugin reported a fatal fault.

use std::sync::atomic::Ordering;

use innkeeper_cluster::Observation;
use innkeeper_model::{Phase, Resources as _};
use tracing::debug;

use super::{
    check::record_outcome,
    context::{Pass, Step},
    enter::Entered,
    skip::Skip,
};
use crate::{memory::Inputs, next::Next};

/// Returns the inputs besides the parent and the reads, if the host remembers passes.
///
/// A call that somebody wants to record always runs.
pub(super) fn recall(
    pass: &Pass<'_>,
    observed: &Observation,
    entered: &Entered,
) -> Step<Option<Inputs>> {
    let context = pass.context;
    let inputs = context
        .shared
        .remember_passes
        .then(|| inputs(pass, observed, entered));
    let recordings = &context.shared.recordings;
    if recordings.want_call(&context.plugin, pass.id) {
        return Ok(inputs);
    }
    if let Some(next) = inputs
        .as_ref()
        .and_then(|inputs| recalled(pass, observed, entered, inputs))
    {
        return Err(Box::new(Skip::Unchanged(next)));
    }
    let given_up = pass.epoch.given_up.condition_of(&observed.parent);
    // A guest may finalize a parent that it has given up.
    match given_up.filter(|_| entered.phase == Phase::Reconcile) {
        Some(synced) => Err(Box::new(Skip::GivenUp(synced))),
        None => Ok(inputs),
    }
}

fn inputs(pass: &Pass<'_>, observed: &Observation, entered: &Entered) -> Inputs {
    let plugin = &pass.epoch.revision.plugin;
    let revision = plugin.revision().as_bytes();
    let mut inputs = Inputs::for_revision(plugin.contract(), revision, &entered.hash_key);
    inputs.children(&observed.children);
    // Only the ledger knows it: no object among the inputs shows it.
    inputs.flag(entered.namespace_terminating);
    for child in &plugin.manifest().children {
        let resource = pass.context.shared.cluster.resource(&child.kind);
        // A kind that the cluster begins or ceases to serve changes the plan, but no object.
        inputs.served(&child.kind, resource.as_ref());
        let kind = child.kind.group_kind();
        inputs.flag(entered.unreadable.contains_key(&kind));
    }
    inputs
}

/// Returns the time of the next pass if this one would change nothing.
fn recalled(
    pass: &Pass<'_>,
    observed: &Observation,
    entered: &Entered,
    inputs: &Inputs,
) -> Option<Next> {
    let context = pass.context;
    let mut reads = pass
        .registration
        .reads(&observed.parent, &pass.epoch.revision.reads)
        .with_subscriptions(&entered.own_reads);
    let mut inputs = inputs.clone();
    inputs.parent(entered.phase, &observed.parent);
    let next = pass
        .epoch
        .memory
        .recall(pass.id, &inputs, |read| reads.read(read))?;
    // The reads equal those of the last pass, so the subscriptions do not change.
    pass.registration.commit(pass.id, &reads.into_recording());
    context.skipped.fetch_add(1, Ordering::Relaxed);
    context.metrics.skipped();
    // The last pass had a valid answer, or the memory would not hold it.
    record_outcome(pass, &observed.parent, &Step::Ok(()));
    debug!("skipped: inputs unchanged since the last pass");
    Some(next)
}
