//! Contested writes: those that others undo again and again are set aside until their wait is over, and their cause is
//! read from the API server once.

use innkeeper_apply::Written;
use innkeeper_model::{Access, Gvk, Object, ObjectId, Operation, error_chain};
use innkeeper_plan::{self as plan, Plan, RepeatableWrite, StatusWrite, Subject, Undone};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tracing::debug;

use super::{apply::live, plan::Planned, state::Pass};
use crate::pass::context::Context;

impl Pass<'_, Planned> {
    /// Removes the operations from a plan that would repeat a contested write too early, and with them the prunes, which
    /// run only after everything else is as desired.
    pub(super) async fn set_aside(&self, plan: &mut Plan) {
        let now = Instant::now().into_std();
        let generation = self.state.entered.observation.parent.generation;
        let contested: Vec<Operation> = {
            let mut ledger = self.context.ledger.lock();
            let repeats = ledger.repeats(self.id);
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
            plan.operations
                .retain(|operation| !matches!(operation, Operation::Prune { .. }));
        }
        for operation in &contested {
            let Some(write) = RepeatableWrite::for_operation(operation, generation) else {
                continue;
            };
            let subject = write.subject();
            let is_unexplained = self
                .context
                .ledger
                .lock()
                .repeats(self.id)
                .is_unexplained(subject);
            if is_unexplained && let Some(undone) = self.explain(operation, subject).await {
                self.context
                    .ledger
                    .lock()
                    .repeats(self.id)
                    .explain(subject, undone);
            }
        }
    }

    /// Returns the cause of a contested write; none if the object cannot be read.
    async fn explain(&self, operation: &Operation, subject: &Subject) -> Option<Undone> {
        let (manager, context) = (&*self.state.entered.manager, self.context);
        let parent = &self.state.entered.observation.parent;
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
                let live = read(context, &parent.kind, self.id).await??;
                let body = metadata(json!({ "finalizers": [context.plugin.finalizer()] }));
                let own = context.plugin.host_manager();
                Some(Undone::changed(subject, &body, &live, &[&own]))
            }
            Operation::Prune { .. } | Operation::RemoveFinalizer => None,
        }
    }
}

impl Context {
    /// Returns the write of a status, as the ledger compares it.
    pub(super) fn status_write(&self, parent: &Object) -> RepeatableWrite {
        let digest = || plan::own_status(&self.plugin, parent).to_hex();
        let mut ledger = self.ledger.lock();
        ledger.repeats(&parent.id()).status_write(parent, digest)
    }

    /// Records a status that was written, after the cache has got the answer of the API server.
    pub(super) fn record_status(&self, write: RepeatableWrite, parent: &Object, answer: &Written) {
        let is_answer = |parent: &Object| parent.resource_version == answer.resource_version;
        let cached = self.registration.parent(&parent.id()).filter(is_answer);
        let left = cached.or_else(|| {
            // Another client was faster.
            let hash_key = self.shared.hash_key.get()?;
            let answer = serde_json::from_str(&answer.json).ok()?;
            innkeeper_cluster::present(&answer, &parent.kind, Access::Full, hash_key).ok()
        });
        let mut ledger = self.ledger.lock();
        let repeats = ledger.repeats(&parent.id());
        if repeats.record(write, Instant::now().into_std()) {
            self.metrics.contested();
        }
        if let Some(left) = left {
            let digest = plan::own_status(&self.plugin, &left).to_hex();
            repeats.set_status(&digest, left.resource_version);
        }
    }

    /// Returns the cause of a contested status if it has not been found before; none if the parent cannot be read.
    pub(super) async fn explain_status(
        &self,
        parent: &Object,
        write: &StatusWrite,
    ) -> Option<Undone> {
        let id = parent.id();
        if !self
            .ledger
            .lock()
            .repeats(&id)
            .is_unexplained(&Subject::Status)
        {
            return None;
        }
        let live = read(self, &parent.kind, &id).await??;
        let own = [self.plugin.status_manager(), self.plugin.host_manager()];
        let own = own.each_ref().map(|manager| &**manager);
        let status = Value::Object(write.status.clone());
        let body = Map::from_iter([("status".to_owned(), status)]);
        let undone = Undone::changed(&Subject::Status, &body, &live, &own);
        let mut ledger = self.ledger.lock();
        ledger
            .repeats(&id)
            .explain(&Subject::Status, undone.clone());
        Some(undone)
    }
}

/// Reads an object with the fields of all managers, of which the cache keeps only the host's own.
async fn read(context: &Context, kind: &Gvk, id: &ObjectId) -> Option<Option<Object>> {
    let read = live(context, kind, id).await;
    read.inspect_err(|error| {
        debug!(error = %error_chain(error), "failed to read who undoes a write");
    })
    .ok()
}

fn metadata(metadata: Value) -> Map<String, Value> {
    Map::from_iter([("metadata".to_owned(), metadata)])
}
