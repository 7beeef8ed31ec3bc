//! Tests the reconciler as plain Rust, with a fake host.

use std::sync::LazyLock;

use innkeeper_guest_testing::Fixture;
use innkeeper_kit::prelude::*;
use innkeeper_sdk::testing::{FakeHost, TestRequest};
use serde_json::{Value, json};

use crate::Plugin;

mod bad_input;
mod case;
mod configuration;
mod dumps;
mod forms;
mod gobackup;
mod inputs;
mod monitoring;
pub(crate) mod outcomes;
mod parents;
mod paths;
mod predictions;
mod probe;
mod programs;
mod properties;
mod readiness;
mod redaction;
mod requested;
mod restore;
mod restore_script;
mod run;
mod script;
mod standin;
mod tenants;
mod verification;

/// The four objects of the article's sample; the last one is the parent.
const ARTICLE: &str = include_str!("../../../examples/backup/01-article.yaml");

/// Returns the objects in a YAML file.
pub(crate) fn documents(yaml: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(yaml).expect("an example is YAML")
}

/// The objects that the article's parent refers to.
pub(crate) fn article() -> (Vec<Value>, Value) {
    let mut objects = in_namespace(documents(ARTICLE));
    let parent = objects.pop().expect("the article has objects");
    (objects, parent)
}

pub(crate) fn in_namespace(mut objects: Vec<Value>) -> Vec<Value> {
    for object in &mut objects {
        object["metadata"]["namespace"] = json!("default");
    }
    objects
}

pub(crate) static PLUGIN: LazyLock<Fixture> =
    LazyLock::new(|| Fixture::new(Plugin::describe, Plugin::reconcile));

/// Returns a host that grants everything in the manifest.
pub(crate) fn host(related: &[Value]) -> FakeHost {
    PLUGIN
        .host()
        .objects(related)
        .zone("Europe/Berlin", [(0, 3600)])
        // 2026-08-20T12:00:00Z.
        .now(1_787_227_200_000)
}

pub(crate) fn related(kind: &str, name: &str, spec: Value) -> Value {
    let group = match kind {
        "PostgreSQL" => "database.gobackup.io",
        "S3" => "storage.gobackup.io",
        _ => "gobackup.io",
    };
    json!({
        "apiVersion": format!("{group}/v1"), "kind": kind,
        "metadata": { "name": name, "namespace": "default" },
        "spec": spec,
    })
}

pub(crate) fn secret(name: &str, keys: &[&str]) -> Value {
    let data: serde_json::Map<String, Value> = keys
        .iter()
        .map(|key| ((*key).to_owned(), json!("c2VjcmV0")))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": name, "namespace": "default" }, "data": data,
    })
}

/// Returns a `Backup` with the database `pg` and the storage `s`, and with more fields.
pub(crate) fn backup(spec: Value) -> Value {
    let mut object = related(
        "Backup",
        "nightly",
        json!({ "databaseRefs": [{ "name": "pg" }], "storageRefs": [{ "name": "s" }] }),
    );
    for (key, value) in spec.as_object().expect("a spec is an object") {
        object["spec"][key] = value.clone();
    }
    object
}

pub(crate) fn postgresql() -> Value {
    let config = json!({
        "database": "shop", "username": "u", "password_ref": { "name": "keys", "key": "pg" },
    });
    related(
        "Database",
        "pg",
        json!({ "type": "postgresql", "config": config }),
    )
}

pub(crate) fn s3() -> Value {
    let config = json!({
        "bucket": "b",
        "access_key_id_ref": { "name": "keys", "key": "id" },
        "secret_access_key_ref": { "name": "keys", "key": "key" },
    });
    related("Storage", "s", json!({ "type": "s3", "config": config }))
}

/// Returns the objects that the parent from [`backup`] references.
pub(crate) fn around() -> Vec<Value> {
    vec![postgresql(), s3(), secret("keys", &["pg", "id", "key"])]
}

pub(crate) fn reconcile(parent: &Value, related: &[Value]) -> Result<Answer, Fault> {
    reconcile_with(parent, related, &json!({}))
}

/// Runs a pass with `tenants` settings in the configuration.
pub(crate) fn reconcile_with(
    parent: &Value,
    related: &[Value],
    tenants: &Value,
) -> Result<Answer, Fault> {
    let request = TestRequest::new(parent).config(&json!({ "tenants": tenants }));
    Plugin::reconcile(&request.build(), &host(related))
}

pub(crate) fn names(outcome: &Answer) -> Vec<String> {
    outcome
        .children()
        .iter()
        .map(Child::kind_and_name)
        .collect()
}

/// Returns a condition as `type status/reason: message`.
pub(crate) fn condition(report: &Report, type_: &str) -> String {
    let condition = report
        .find_condition(type_)
        .expect("the condition is there");
    format!(
        "{:?}/{}: {}",
        condition.status, condition.reason, condition.message
    )
}

/// The configuration in the child Secret.
pub(crate) fn configuration(outcome: &Answer) -> String {
    use k8s_openapi::ByteString;
    let text = &outcome.child("config").expect("there is a Secret").object["data"]["gobackup.yml"];
    let ByteString(bytes) = serde_json::from_value(text.clone()).expect("data is base64");
    String::from_utf8(bytes).expect("the configuration is text")
}
