//! What a parent does not write for now because somebody else keeps changing it back.

use std::time::Duration;

use innkeeper_model::{Condition, ObjectId, Operation, reason};
use innkeeper_plan::{self as plan, Plan};
use tokio::time::Instant;
use tracing::debug;

use super::{Reconciler, not_synced};

/// A quarrel about children of one parent.
pub(super) struct Quarrel {
    /// What is contested, and by whom.
    about: String,
    /// When to look again.
    pub(super) wait: Duration,
}

impl Quarrel {
    /// The condition that says so; the same from one restoration to the next.
    pub(super) fn synced(&self) -> Condition {
        let message = format!(
            "somebody keeps changing what the plugin states, so that it is put back less and less often: {}; stop whoever it is, or have the plugin leave the field out",
            self.about
        );
        not_synced(reason::FIELD_CONFLICT, message)
    }
}

impl Reconciler {
    /// Takes out of a plan what would restore a contested child before its time, and with it the prunes, which come only
    /// after everything else is as it should be.
    pub(super) async fn set_aside(&self, context: &plan::Context<'_>, plan: &mut Plan) {
        let now = Instant::now();
        let parent = &context.parent.id();
        let contested: Vec<Operation> = {
            let mut ledger = self.ledger.lock();
            let conflicts = ledger.conflicts(parent);
            let holds = |operation: &Operation| {
                operation.is_restoration()
                    && operation
                        .child()
                        .is_some_and(|child| conflicts.holds(child, now))
            };
            plan.operations
                .extract_if(.., |operation| holds(operation))
                .collect()
        };
        if contested.is_empty() {
            return;
        }
        plan.operations
            .retain(|operation| !matches!(operation, Operation::Prune { .. }));
        for operation in &contested {
            if let Some(child) = operation.child()
                && self.ledger.lock().conflicts(parent).is_untold(child)
            {
                let about = self.disputed(operation, child, context.manager).await;
                self.ledger.lock().conflicts(parent).tell(child, about);
            }
        }
    }

    /// Takes note that a child was restored.
    pub(super) fn restored(&self, parent: &ObjectId, child: &ObjectId) {
        let mut ledger = self.ledger.lock();
        if ledger.conflicts(parent).restored(child, Instant::now()) {
            self.metrics.contested();
        }
    }

    /// Whether children of a parent are contested.
    pub(super) fn quarrel(&self, parent: &ObjectId) -> Option<Quarrel> {
        let contested = self
            .ledger
            .lock()
            .conflicts(parent)
            .contested(Instant::now());
        contested.map(|(about, wait)| Quarrel { about, wait })
    }

    /// What an operation would put back, and who has changed it: `spec.replicas of apps/Deployment demo/a (by scaler)`.
    async fn disputed(&self, operation: &Operation, child: &ObjectId, own: &str) -> String {
        let Operation::Update { kind, body, .. } = operation else {
            return child.to_string();
        };
        // The cache keeps only what the host's own managers own.
        let namespace = child.namespace.as_deref();
        let cluster = &self.shared.cluster;
        let live = match cluster.live_get(kind, namespace, &child.name).await {
            Ok(Some(live)) => live,
            Ok(None) => return child.to_string(),
            Err(error) => {
                debug!(error = %innkeeper_model::error_chain(&error), "failed to find out who changes a child");
                return child.to_string();
            }
        };
        let Some(field) = plan::first_difference(body, &live) else {
            return child.to_string();
        };
        let managers = field.managers(&live);
        let others: Vec<&str> = managers.into_iter().filter(|name| *name != own).collect();
        match &*others {
            [] => format!("{field} of {child}"),
            others => format!("{field} of {child} (by {})", others.join(", ")),
        }
    }
}
