//! Selects the first passes that count in a new revision's rollout analysis.

use innkeeper_cluster::ParentConditions;
use innkeeper_model::{Digest, ObjectId};

use super::context::Context;
use crate::{
    memory::ledger::Generation,
    revision::{analysis::ParentFacts, epoch::Epoch},
};

/// Returns the parents whose first passes show whether a revision is good, each with its generation.
pub(crate) fn analysed_parents(
    context: &Context,
    revision: &Digest,
) -> Vec<(ObjectId, Generation)> {
    let has_history = context.ledger.lock().has_history();
    context
        .registration
        .parents()
        .into_iter()
        .filter_map(|id| {
            let facts = parent_facts(context, &id, revision)?;
            facts.counts(has_history).then_some((id, facts.generation))
        })
        .collect()
}

/// Returns true if the parent's generation has had a good pass and none has failed since, so that the revision is to blame
/// for a failure.
pub(crate) fn has_passed(context: &Context, parent: &ObjectId, revision: &Digest) -> bool {
    parent_facts(context, parent, revision).is_some_and(|facts| facts.counts(true))
}

/// Leaves a parent out of an epoch's rollout analysis: it is gone, or its passes are skipped.
pub(crate) fn exempt(context: &Context, epoch: &Epoch, parent: &ObjectId) {
    if epoch.analysis.lock().exempt(parent) {
        context.shared.analyses.notify_one();
    }
}

fn parent_facts(context: &Context, id: &ObjectId, revision: &Digest) -> Option<ParentFacts> {
    let parent = context.registration.parent(id)?;
    let ledger = context.ledger.lock();
    let good_at = ledger.good_at(id);
    let failed_before = ledger.failed_before(id, revision);
    // Running passes need it, and the conditions are parsed below.
    drop(ledger);
    Some(ParentFacts {
        generation: parent.generation,
        good_at,
        failed_before,
        // Parsed only where it decides.
        is_synced: good_at.is_none()
            && ParentConditions::new(&parent).synced_status() == Some("True"),
    })
}
