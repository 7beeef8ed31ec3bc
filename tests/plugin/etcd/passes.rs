//! Runs the plugin's passes in the product's engine, and applies the writes.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
    time::Duration,
};

use innkeeper_model::{
    ApplyPolicy, Child, Limits, ListSelector, ObjectId, ObjectRef, Outcome, Phase, ReadFailure,
    Reads, RemovalPolicy, Report, Selector, SelectorExt as _, child_order, parse_selector,
};
use innkeeper_sandbox::{Context, End, ObservedChild, Plugin, Request};
use serde_json::{Value, json};

use super::{
    pods::name,
    world::{Stored, World, texts},
};
use crate::memory::Guest;

pub(super) static PLUGIN: LazyLock<Plugin> = LazyLock::new(|| Guest::load("etcd").plugin);

/// The objects that a pass can read.
struct Objects(Vec<Value>);

impl Reads for Objects {
    fn get(&mut self, reference: &ObjectRef) -> Result<Option<Arc<str>>, ReadFailure> {
        let is_it = |object: &&Value| {
            object["kind"] == *reference.kind.kind && name(&object["metadata"]) == &*reference.name
        };
        Ok(self
            .0
            .iter()
            .find(is_it)
            .map(|object| Arc::from(object.to_string())))
    }

    fn list(&mut self, selector: &ListSelector) -> Result<Vec<Arc<str>>, ReadFailure> {
        let labels = selector.label_selector.as_deref().unwrap_or_default();
        let labels = selected(labels);
        let is_one = |object: &&Value| {
            object["kind"] == *selector.kind.kind
                && labels.matches(&texts(&object["metadata"]["labels"]))
        };
        let matches = self.0.iter().filter(is_one);
        Ok(matches
            .map(|object| Arc::from(object.to_string()))
            .collect())
    }
}

fn selected(text: &str) -> Selector {
    parse_selector(text).unwrap()
}

impl World {
    /// Runs a pass with all writes; returns when the plugin wants the next one.
    pub(super) fn pass(&mut self) -> Option<Duration> {
        let mut ids: Vec<&ObjectId> = self.children.keys().collect();
        ids.sort_by(|a, b| child_order(a, b));
        let observed = ids.into_iter().map(|id| {
            let stored = &self.children[id];
            ObservedChild {
                key: Some(Arc::from(&*stored.key)),
                retained: stored.retained,
                object: Arc::from(stored.object.to_string()),
            }
        });
        let observed: Vec<ObservedChild> = observed.collect();
        let request = Request {
            parent: &self.parent.to_string(),
            children: &observed,
            phase: Phase::Reconcile,
            namespace_terminating: false,
            predict: false,
        };
        let context = Context {
            now_ms: self.now_ms(),
            seed: [1; 32],
        };
        let called = PLUGIN.call(
            &request,
            Objects(self.objects().into_iter().chain(self.secrets()).collect()),
            &context,
            &Limits::default(),
        );
        let report = match called.unwrap().0.end {
            End::Answered(Outcome::Desired(desired)) => {
                self.apply(desired.children);
                desired.report
            }
            End::GuestFault(fault) => {
                let message = fault.message;
                let mut report = fault.report.unwrap_or_default();
                report.events.clear();
                self.store(report, &message);
                return None;
            }
            other => unreachable!("{other:?}"),
        };
        let requeue = report.requeue_after_ms.map(Duration::from_millis);
        self.store(report, "");
        requeue
    }

    /// Stores status and conditions; `Synced` has an invalid parent's problem.
    fn store(&mut self, report: Report, problem: &str) {
        let mut status = report.status.unwrap_or_default();
        let synced = json!({
            "type": "Synced", "status": if problem.is_empty() { "True" } else { "False" },
            "reason": if problem.is_empty() { "Applied" } else { "Invalid" }, "message": problem,
        });
        let stated = report
            .conditions
            .iter()
            .map(|condition| serde_json::to_value(condition).unwrap());
        status.insert("conditions".to_owned(), stated.chain([synced]).collect());
        self.parent["status"] = Value::Object(status);
    }

    fn apply(&mut self, stated: Vec<Child>) {
        let ids: BTreeSet<ObjectId> = stated.iter().map(Child::id).collect();
        for child in stated {
            if child.apply == ApplyPolicy::Always {
                self.write(child);
            }
        }
        let is_left = |id: &ObjectId, stored: &Stored| !stored.retained && !ids.contains(id);
        let pruned: Vec<ObjectId> = self
            .children
            .iter()
            .filter(|(id, child)| is_left(id, child))
            .map(|entry| entry.0.clone())
            .collect();
        for id in pruned {
            self.children.remove(&id);
        }
    }

    fn write(&mut self, child: Child) {
        let id = child.id();
        let mut object = Value::Object(child.object);
        object["metadata"]["namespace"] = json!("default");
        let before = match self.children.get(&id) {
            Some(child) => child.object.clone(),
            None => json!({ "metadata": {
                "uid": format!("uid-{}", self.number()), "creationTimestamp": self.now(), "generation": 0,
            } }),
        };
        for field in ["uid", "creationTimestamp", "generation"] {
            object["metadata"][field] = before["metadata"][field].clone();
        }
        if before["spec"] != object["spec"] || before["spec"].is_null() {
            let generation = before["metadata"]["generation"].as_i64().unwrap();
            object["metadata"]["generation"] = json!(generation + 1);
        }
        object["status"] = before["status"].clone();
        if object["kind"] == "PersistentVolumeClaim" {
            object["status"] =
                json!({ "phase": "Bound", "capacity": object["spec"]["resources"]["requests"] });
        }
        if object["kind"] == "Job" && before["spec"].is_null() {
            self.operations.push(id.name.to_string());
        }
        let retained = child.removal == RemovalPolicy::Retain;
        self.children.insert(
            id,
            Stored {
                key: child.key,
                retained,
                object,
            },
        );
    }
}
