//! Sets aside the writes that other clients keep undoing, and reads the cause once from the API server.

use innkeeper_apply::Written;
use innkeeper_cluster as cluster;
use innkeeper_model::{Access, Gvk, HashKey, Object, ObjectId, Operation, error_chain};
use innkeeper_plan::{self as plan, Plan, RepeatableWrite, StatusWrite, Subject, Undone};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tracing::debug;

use super::{
    context::{Context, Pass},
    plan::Planned,
};

/// Removes the operations from `plan` that would repeat a contested write too early, and the prunes with them.
pub(super) async fn set_aside(pass: &Pass<'_>, planned: &Planned<'_>, plan: &mut Plan) {
    let now = Instant::now().into_std();
    let generation = planned.parent.generation;
    // A block, because the ledger, which all parents' passes share, must be free during the live reads below.
    let contested: Vec<Operation> = {
        let mut ledger = pass.context.ledger.lock();
        let repeats = ledger.repeats(pass.id);
        let must_wait = |operation: &mut Operation| {
            RepeatableWrite::for_operation(operation, generation)
                .is_some_and(|write| repeats.wait(&write, now).is_some())
        };
        plan.operations.extract_if(.., must_wait).collect()
    };
    if contested.contains(&Operation::AddFinalizer) {
        // Children without the finalizer on their parent would not be finalized.
        plan.operations.clear();
    } else if !contested.is_empty() {
        plan.remove_prunes();
    }
    let ledger = &pass.context.ledger;
    for operation in &contested {
        let Some(write) = RepeatableWrite::for_operation(operation, generation) else {
            continue;
        };
        let subject = write.subject();
        let is_unexplained = ledger.lock().repeats(pass.id).is_unexplained(subject);
        if is_unexplained && let Some(undone) = explain(pass, planned, operation, subject).await {
            ledger.lock().repeats(pass.id).explain(subject, undone);
        }
    }
}

/// Finds out who undoes a write; `None` if the object cannot be read.
async fn explain(
    pass: &Pass<'_>,
    planned: &Planned<'_>,
    operation: &Operation,
    subject: &Subject,
) -> Option<Undone> {
    let context = pass.context;
    let parent = planned.parent;
    let manager = &*planned.entered.manager;
    match operation {
        Operation::Create { id, kind, body, .. } | Operation::Update { id, kind, body, .. } => {
            let Some(live) = read(context, kind, id).await? else {
                return Some(Undone::deleted(id, operation));
            };
            Some(if plan::is_by_other_host(body, &live, manager) {
                Undone::other_host(&id.to_string(), manager)
            } else {
                Undone::changed(subject, body, &live, &[manager])
            })
        }
        Operation::Transfer { id, kind, .. } => {
            let live = read(context, kind, id).await??;
            let body = metadata(json!({ "ownerReferences": [] }));
            Some(Undone::changed(subject, &body, &live, &[manager]))
        }
        Operation::AddFinalizer => {
            let live = read(context, &parent.kind, pass.id).await??;
            let body = metadata(json!({ "finalizers": [context.plugin.finalizer()] }));
            let own = context.plugin.host_manager();
            Some(Undone::changed(subject, &body, &live, &[&own]))
        }
        Operation::Prune { .. } | Operation::RemoveFinalizer => None,
    }
}

/// Returns a status write as the ledger compares it.
pub(super) fn status_write(context: &Context, parent: &Object) -> RepeatableWrite {
    // A closure, because most parents have no recent status write to compare with.
    let digest = || plan::own_status(&context.plugin, parent).to_hex();
    let mut ledger = context.ledger.lock();
    ledger.repeats(&parent.id()).status_write(parent, digest)
}

/// Records a status write, after the cache has got the API server's answer.
pub(super) fn record_status(
    context: &Context,
    write: RepeatableWrite,
    parent: &Object,
    written: &Written,
) {
    let after = context
        .registration
        .parent(&parent.id())
        .filter(|parent| parent.resource_version == written.resource_version)
        .or_else(|| {
            // Another client was faster.
            let hash_key = context.shared.hash_key.get()?;
            object_from(written, &parent.kind, hash_key)
        });
    let mut ledger = context.ledger.lock();
    let repeats = ledger.repeats(&parent.id());
    if repeats.record(write, Instant::now().into_std()) {
        context.metrics.contested();
    }
    // After `record`, which clears the last digest.
    if let Some(after) = after {
        let digest = plan::own_status(&context.plugin, &after).to_hex();
        repeats.set_status(&digest, after.resource_version);
    }
}

/// Finds out who overwrites a status, unless an earlier pass has done so; `None` if the parent cannot be read.
pub(super) async fn explain_status(
    context: &Context,
    parent: &Object,
    write: &StatusWrite,
) -> Option<Undone> {
    let id = parent.id();
    let subject = Subject::Status;
    let ledger = &context.ledger;
    if !ledger.lock().repeats(&id).is_unexplained(&subject) {
        return None;
    }
    let live = read(context, &parent.kind, &id).await??;
    let own = [
        context.plugin.status_manager(),
        context.plugin.host_manager(),
    ];
    let undone = Undone::status_changed(write, &live, &own.each_ref().map(|name| &**name));
    ledger.lock().repeats(&id).explain(&subject, undone.clone());
    Some(undone)
}

/// Reads an object with all managers' fields, because the cache holds only the host's own.
async fn read(context: &Context, kind: &Gvk, id: &ObjectId) -> Option<Option<Object>> {
    context
        .shared
        .cluster
        .live_get(kind, id.namespace.as_deref(), &id.name)
        .await
        .inspect_err(|error| {
            debug!(error = %error_chain(error), "failed to read who undoes a write");
        })
        .ok()
}

/// Returns a written object as the cache would show it.
pub(super) fn object_from(written: &Written, kind: &Gvk, hash_key: &HashKey) -> Option<Object> {
    let object = serde_json::from_str(&written.json).ok()?;
    cluster::present(&object, kind, Access::Full, hash_key).ok()
}

fn metadata(metadata: Value) -> Map<String, Value> {
    Map::from_iter([("metadata".to_owned(), metadata)])
}
