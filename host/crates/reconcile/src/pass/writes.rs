//! Records the results of writes: in the metrics, the ledger and the cache, so that no pass plans from an older state.

use innkeeper_apply::{self as apply, Written};
use innkeeper_model::{Object, ObjectId, Operation, ResourceVersion};
use innkeeper_plan::RepeatableWrite;
use tokio::time::Instant;

use super::context::Context;

/// Records an operation that the API server accepted; a prune has no `written` object.
pub(super) fn record_operation(
    context: &Context,
    parent: &Object,
    operation: &Operation,
    written: Option<&Written>,
) {
    let parent_id = &parent.id();
    let id = operation.child().unwrap_or(parent_id);
    // The API server answers a write that changes nothing with the observed version: then nobody has changed the child.
    let is_changed =
        written.is_none_or(|written| operation.child_version() != Some(written.resource_version));
    if let Some(write) = RepeatableWrite::for_operation(operation, parent.generation)
        && is_changed
    {
        let mut ledger = context.ledger.lock();
        let now = Instant::now().into_std();
        if ledger.repeats(parent_id).record(write, now) {
            context.metrics.contested();
        }
    }
    if let Some(written) = written {
        return record_write(context, parent_id, id, operation.verb(), written);
    }
    count_write(context, parent_id, operation.verb());
    if let Operation::Prune { uid, .. } = operation {
        context.registration.expect_deletion(parent_id, id, uid);
        // The host has deleted it, so creating it again undoes nobody else's write.
        context.ledger.lock().repeats(parent_id).forget(id);
    }
}

/// Counts a write and adds the API server's answer to the cache. If the cache cannot take the answer, later passes of the
/// parent wait until the watch shows the write.
pub(super) fn record_write(
    context: &Context,
    parent: &ObjectId,
    id: &ObjectId,
    verb: &str,
    written: &Written,
) {
    count_write(context, parent, verb);
    let registration = &context.registration;
    let version = written.resource_version;
    if written.gone {
        // The answer shows the object's last state, so only its removal proves that the cache is current.
        registration.expect_newer(parent, id, version);
    } else if !registration.apply_write_response(parent, id, &written.json) {
        registration.expect_version(parent, id, version);
    }
}

/// Makes later passes wait if a failed write shows that the cache is behind, or if its effect is unknown.
pub(super) fn record_failure(
    context: &Context,
    parent: &ObjectId,
    id: &ObjectId,
    observed: Option<ResourceVersion>,
    error: &apply::Error,
) {
    if error.is_ambiguous() {
        context.registration.expect_unknown(parent, id);
    } else if error.is_stale()
        && let Some(observed) = observed
    {
        context.registration.expect_newer(parent, id, observed);
    }
}

fn count_write(context: &Context, parent: &ObjectId, verb: &str) {
    context.metrics.wrote(verb);
    let change = context.ledger.lock().take_change(parent);
    if let Some(change) = change {
        context.metrics.reacted(change.elapsed());
    }
}
