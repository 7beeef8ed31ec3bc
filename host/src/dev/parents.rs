//! The parents with their conditions.

use std::fmt;

use innkeeper_cluster::{Observed, ParentConditions, Waiting};
use innkeeper_model::{Object, ObjectId};
use innkeeper_reconcile::RecentFault;
use innkeeper_server::run::StatusRegistry;

use super::examples::Example;

/// The row of a parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) parent: ObjectId,
    /// The resource name for `kubectl get`.
    pub(super) resource: String,
    /// `True`, `False` or `Unknown`; `-` without the condition.
    pub(super) ready: String,
    synced: String,
    /// The reason for which the parent is not Ready or not Synced.
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
        let shown = |status: Option<&str>| status.unwrap_or("-").to_owned();
        let message = conditions.why().map(|said| match &*said.message {
            "" => said.reason.clone(),
            message => format!("{}: {message}", said.reason),
        });
        Self {
            resource: parent.kind.group_kind().to_string().to_lowercase(),
            parent: parent.id(),
            ready: shown(conditions.ready_status()),
            synced: shown(conditions.synced_status()),
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

/// Returns the rows of the parents among the examples; without examples, of all parents.
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
                    // Its conditions may be those of an earlier host.
                    Observed::Ready(_) if reconciler.last_pass(&parent).is_none() => {
                        Row::unknown(parent, "before its first pass")
                    }
                    Observed::Ready(seen) => Row::new(&seen.parent),
                    Observed::Gone => continue,
                    Observed::Behind { .. } => Row::unknown(parent, "being applied"),
                    Observed::NotReady { waiting, .. } => Row::unknown(parent, &named(&waiting)),
                    Observed::NamespaceFull { .. } => {
                        Row::unknown(parent, "without all children: its namespace has too many")
                    }
                });
            }
        }
    }
    // An example that the watches have not delivered yet counts as not Ready.
    for example in examples {
        let is_parent = status
            .active()
            .iter()
            .any(|serving| serving.parents(&example.document.kind));
        if is_parent && !rows.iter().any(|row| example.is(&row.parent)) {
            rows.push(Row::unknown(example.document.id(), "not seen yet"));
        }
    }
    rows.sort_by(|a, b| a.parent.cmp(&b.parent));
    rows
}

/// Returns the kinds that the passes of the plugins wait for, with the reasons.
pub(super) fn unread(status: &StatusRegistry) -> Vec<String> {
    let active = status.active();
    let reconcilers = active.iter().flat_map(|serving| &serving.reconcilers);
    let waiting = reconcilers
        .map(|reconciler| reconciler.registration().waiting())
        .filter(|waiting| !waiting.is_empty());
    waiting.map(|waiting| named(&waiting)).collect()
}

fn named(waiting: &[Waiting]) -> String {
    let each: Vec<String> = waiting
        .iter()
        .map(|it| format!("{} {}", it.kind, it.why))
        .collect();
    each.join("; ")
}

/// Returns the last faults of the plugins, the latest last, as lines.
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
