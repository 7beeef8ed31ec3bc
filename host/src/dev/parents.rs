//! The parents with their conditions.

use std::fmt;

use innkeeper_cluster::{Observed, ParentConditions, Waiting};
use innkeeper_model::{Object, ObjectId};
use innkeeper_reconcile::RecentFault;
use innkeeper_server::run::StatusRegistry;

use super::examples::Example;

/// A parent's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) parent: ObjectId,
    /// The resource name for `kubectl get`.
    pub(super) resource: String,
    /// `True`, `False` or `Unknown`; `-` without the condition.
    pub(super) ready: String,
    synced: String,
    /// Why the parent is not Ready or not Synced.
    message: String,
}

impl Row {
    /// Returns true if the current generation is Synced and Ready.
    pub(super) fn is_ready(&self) -> bool {
        self.ready == "True" && self.synced == "True"
    }

    fn unknown(parent: ObjectId, message: &str) -> Self {
        Self {
            resource: parent.kind.to_string().to_lowercase(),
            parent,
            ready: "-".to_owned(),
            synced: "-".to_owned(),
            message: message.to_owned(),
        }
    }

    fn new(parent: &Object) -> Self {
        let conditions = ParentConditions::new(parent);
        let cell = |status: Option<&str>| status.unwrap_or("-").to_owned();
        let message = conditions.why().map(|condition| match &*condition.message {
            "" => condition.reason.clone(),
            message => format!("{}: {message}", condition.reason),
        });
        Self {
            resource: parent.kind.group_kind().to_string().to_lowercase(),
            parent: parent.id(),
            ready: cell(conditions.ready_status()),
            synced: cell(conditions.synced_status()),
            message: message.unwrap_or_default(),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            parent,
            ready,
            synced,
            message,
            ..
        } = self;
        write!(f, "{parent}: Ready={ready}, Synced={synced}")?;
        if !message.is_empty() {
            write!(f, " ({message})")?;
        }
        Ok(())
    }
}

/// Returns the rows of parents among the examples, or of all parents without examples.
pub(super) async fn rows(status: &StatusRegistry, examples: &[Example]) -> Vec<Row> {
    let mut rows = Vec::new();
    for serving in status.active() {
        for reconciler in &serving.reconcilers {
            let registration = reconciler.registration();
            for parent in registration.parents() {
                if !examples.is_empty() && !examples.iter().any(|example| example.is(&parent)) {
                    continue;
                }
                rows.push(match registration.observe(&parent).await {
                    // The conditions may be from an earlier host.
                    Observed::Ready(_) if reconciler.last_pass(&parent).is_none() => {
                        Row::unknown(parent, "before its first pass")
                    }
                    Observed::Ready(observed) => Row::new(&observed.parent),
                    Observed::Gone | Observed::NotHeld => continue,
                    Observed::Behind { .. } => Row::unknown(parent, "being applied"),
                    Observed::NotReady { waiting, .. } => Row::unknown(parent, &reasons(&waiting)),
                    Observed::NamespaceFull { .. } => Row::unknown(
                        parent,
                        "waiting: the namespace has too many objects for the cache",
                    ),
                });
            }
        }
    }
    // An example that no watch has delivered yet is not Ready.
    for example in examples {
        let is_parent = status
            .active()
            .iter()
            .any(|serving| serving.parents(&example.document.kind));
        if is_parent && !rows.iter().any(|row| example.is(&row.parent)) {
            rows.push(Row::unknown(example.document.id(), "not observed yet"));
        }
    }
    rows.sort_by(|a, b| a.parent.cmp(&b.parent));
    rows
}

/// Returns the kinds that passes wait for, with reasons.
pub(super) fn unread(status: &StatusRegistry) -> Vec<String> {
    let active = status.active();
    active
        .iter()
        .flat_map(|serving| &serving.reconcilers)
        .map(|reconciler| reconciler.registration().waiting())
        .filter(|waiting| !waiting.is_empty())
        .map(|waiting| reasons(&waiting))
        .collect()
}

fn reasons(waiting: &[Waiting]) -> String {
    let reasons: Vec<String> = waiting
        .iter()
        .map(|waiting| format!("{} {}", waiting.kind, waiting.why))
        .collect();
    reasons.join("; ")
}

/// Returns the plugins' last faults as lines, latest last.
pub(super) fn faults(status: &StatusRegistry) -> Vec<String> {
    let mut lines = Vec::new();
    for serving in status.active() {
        for fault in serving.recent_faults().into_iter().rev() {
            let RecentFault {
                parent,
                reason,
                message,
                ..
            } = fault;
            lines.push(format!(
                "plugin {} failed for {parent}: {reason}: {message}",
                serving.name
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use innkeeper_cluster::present;
    use innkeeper_model::{Access, Gvk, HashKey};

    fn parent(observed_generation: i64, ready: &str) -> Object {
        let kind = Gvk::new("example.com", "v1", "Pond");
        let condition = |kind: &str, status: &str| {
            json!({
                "type": kind,
                "status": status,
                "reason": "Because",
                "message": "of this",
                "observedGeneration": observed_generation,
            })
        };
        let object = json!({
            "apiVersion": "example.com/v1",
            "kind": "Pond",
            "metadata": {
                "name": "a",
                "namespace": "demo",
                "uid": "1",
                "resourceVersion": "7",
                "generation": 2,
            },
            "status": {"conditions": [condition("Ready", ready), condition("Synced", "True")]},
        });
        let object = object.as_object().unwrap();
        present(object, &kind, Access::Full, &HashKey::new([0; 32])).unwrap()
    }

    #[test]
    fn a_parent_is_ready_when_its_current_generation_is() {
        assert!(Row::new(&parent(2, "True")).is_ready());
        assert!(!Row::new(&parent(1, "True")).is_ready());
        let waits = Row::new(&parent(2, "False"));
        assert!(!waits.is_ready());
        assert_eq!(
            waits.to_string(),
            "Pond.example.com demo/a: Ready=False, Synced=True (Because: of this)"
        );
    }
}
