//! Unit tests of the reconciler in plain Rust; each submodule covers one concern.

mod bad_input;
mod claims;
mod configuration;
mod definition;
mod invalid;
mod order;
mod parents;
mod passwords;
mod pods;
mod predictions;
mod programs;
mod properties;
mod record;
mod scripts;
mod serving;
mod status;
mod tenants;
mod variables;

use std::sync::LazyLock;

use innkeeper_guest_testing::{Fixture, stored_conditions};
use innkeeper_kit::prelude::*;
use innkeeper_sdk::testing::{FakeHost, TestRequest};
use serde_json::{Value, json};

use crate::Plugin;

/// A parent as the API server returns it, without defaults.
fn parent(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Wordpress",
        "metadata": { "name": name, "namespace": "default" },
        "spec": spec,
    })
}

static PLUGIN: LazyLock<Fixture> =
    LazyLock::new(|| Fixture::new(Plugin::describe, Plugin::reconcile));

fn host() -> FakeHost {
    PLUGIN.host()
}

/// A pass without observed children.
fn first(spec: &Value) -> Answer {
    pass(&TestRequest::new(&parent("shop", spec)))
}

fn pass(request: &TestRequest) -> Answer {
    pass_with(request, &host())
}

fn pass_with(request: &TestRequest, host: &FakeHost) -> Answer {
    Plugin::reconcile(&request.clone().build(), host).unwrap()
}

fn fault(request: &TestRequest) -> Fault {
    Plugin::reconcile(&request.clone().build(), &host()).unwrap_err()
}

/// The answer with the workloads as the cluster stores them, with `web` ready site Pods and `database` ready database
/// Pods.
fn workloads(outcome: &Answer, web: i64, database: i64) -> Answer {
    let observe = |mut child: Child| {
        let ready = match child.key.as_str() {
            "web" => web,
            "db" => database,
            _ => return child,
        };
        let replicas = child.object["spec"]["replicas"].clone();
        child.object["metadata"]["generation"] = json!(1);
        child.object["status"] = json!({
            "observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": ready, "availableReplicas": ready,
        });
        child
    };
    let children = outcome.children().iter().cloned().map(observe);
    Answer::from(Desired::new().children(children))
}

/// The next pass for a parent with a running database and site.
fn running(parent: &Value) -> TestRequest {
    running_with(parent, &host())
}

fn running_with(parent: &Value, host: &FakeHost) -> TestRequest {
    let mut request = TestRequest::new(parent);
    for _ in 0..3 {
        let outcome = pass_with(&request, host);
        let web = outcome.child("web").unwrap().object["spec"]["replicas"].clone();
        request = request.answered(&workloads(&outcome, web.as_i64().unwrap(), 1));
    }
    request
}

/// A request with a configuration that allows tenants' code.
fn with_scripts(spec: &Value) -> TestRequest {
    TestRequest::new(&parent("shop", spec)).config(&json!({ "tenants": { "scripts": true } }))
}

/// A workload's Pod.
fn pod(outcome: &Answer, key: &str) -> Value {
    outcome.child(key).unwrap().object["spec"]["template"].clone()
}

/// A workload's container.
fn container(outcome: &Answer, key: &str) -> Value {
    pod(outcome, key)["spec"]["containers"][0].clone()
}

/// A condition as `Type=Status/Reason: message`.
fn condition(outcome: &Answer, type_: &str) -> String {
    text_of(outcome.report(), type_)
}

fn text_of(report: &Report, type_: &str) -> String {
    let condition = report.find_condition(type_).unwrap();
    format!(
        "{}={:?}/{}: {}",
        condition.type_, condition.status, condition.reason, condition.message
    )
}

/// A report's conditions as they are stored.
fn stored(report: &Report) -> Value {
    json!({ "conditions": stored_conditions(report) })
}

/// The events' types and reasons.
fn events(outcome: &Answer) -> Vec<String> {
    outcome
        .report()
        .events
        .iter()
        .map(|event| format!("{:?} {}", event.type_, event.reason))
        .collect()
}

fn secret(name: &str, keys: &[&str]) -> Value {
    let data: serde_json::Map<String, Value> = keys
        .iter()
        .map(|key| ((*key).to_owned(), json!("dmFsdWU=")))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": name, "namespace": "default" }, "data": data,
    })
}

fn claim(name: &str, size: &str, modes: &[&str]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "accessModes": modes, "resources": { "requests": { "storage": size } } },
    })
}
