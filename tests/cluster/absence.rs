//! Explicitly absent fields: a null in the answer removes a field that the plugin never set.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    mirrored::{MIRRORS_AND_GADGETS, stage_with_gadgets},
    stage::{Stage, is_applied, lines},
};

const API: &str = "test.innkeeper.dev/v1";

/// One child, before and after the answer changes.
struct Row {
    name: &'static str,
    api_version: &'static str,
    kind: &'static str,
    before: Value,
    after: Value,
    /// JSON pointer to the compared part, and its final value.
    part: &'static str,
    expected: Value,
}

fn deployment(strategy: Value) -> Value {
    let mut spec = json!({
        "replicas": 0,
        "selector": { "matchLabels": { "app": "a" } },
        "template": {
            "metadata": { "labels": { "app": "a" }, "creationTimestamp": null },
            "spec": { "containers": [{ "name": "a", "image": "a" }] },
        },
    });
    if !strategy.is_null() {
        spec["strategy"] = strategy;
    }
    spec
}

fn service() -> Row {
    Row {
        name: "service",
        api_version: "v1",
        kind: "Service",
        before: json!({ "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } }),
        after: json!({ "spec": {
                "type": "ClusterIP", "ports": [{ "port": 80 }],
                "allocateLoadBalancerNodePorts": null, "externalTrafficPolicy": null,
            } }),
        part: "/spec/allocateLoadBalancerNodePorts",
        expected: Value::Null,
    }
}

fn rows() -> Vec<Row> {
    let recreate = json!({ "type": "Recreate", "rollingUpdate": null });
    let of_deployment = |name, before, after| Row {
        name,
        api_version: "apps/v1",
        kind: "Deployment",
        before: json!({ "spec": deployment(before) }),
        after: json!({ "spec": deployment(after) }),
        part: "/spec/strategy",
        expected: json!({ "type": "Recreate" }),
    };
    let of_gadget = |name, before, after, part, expected| Row {
        name,
        api_version: API,
        kind: "Gadget",
        before: json!({ "spec": before }),
        after: json!({ "spec": after }),
        part,
        expected,
    };
    vec![
        of_deployment("recreate", Value::Null, recreate.clone()),
        of_deployment("created-so", recreate.clone(), recreate),
        of_gadget(
            "text",
            json!({}),
            json!({ "colour": null }),
            "/spec/colour",
            Value::Null,
        ),
        of_gadget(
            "map",
            json!({}),
            json!({ "size": null }),
            "/spec/size",
            Value::Null,
        ),
        of_gadget(
            "not-nullable",
            json!({ "speed": 1 }),
            json!({ "speed": null }),
            "/spec/speed",
            Value::Null,
        ),
        // The schema's default fills this field in again, so it can never be absent.
        of_gadget(
            "always-there",
            json!({}),
            json!({ "weight": null }),
            "/spec/weight",
            json!(10),
        ),
        Row {
            name: "data",
            api_version: "v1",
            kind: "ConfigMap",
            before: json!({ "data": { "a": "1" } }),
            after: json!({ "data": { "a": null, "b": "2" } }),
            part: "/data",
            expected: json!({ "b": "2" }),
        },
        service(),
    ]
}

fn parent(row: &Row, fields: &Value) -> Value {
    let mut child = fields.clone();
    child["apiVersion"] = json!(row.api_version);
    child["kind"] = json!(row.kind);
    child["metadata"] = json!({ "name": row.name });
    json!({
        "apiVersion": API, "kind": "Mirror", "metadata": { "name": row.name },
        "spec": { "children": [child.to_string()] },
    })
}

/// Removes every field that the answer calls absent, applies the parent and then writes nothing
/// more.
#[test]
fn a_null_takes_a_defaulted_field_away_and_is_written_once() {
    let stage = stage_with_gadgets();
    let host = stage.host_serving(&MIRRORS_AND_GADGETS);
    let namespace = stage.namespace("absence");
    let rows = rows();
    for state in [
        |row: &Row| row.before.clone(),
        |row: &Row| row.after.clone(),
    ] {
        for row in &rows {
            stage.apply_new(&namespace, &parent(row, &state(row)));
        }
        for row in &rows {
            stage.wait(&host, &namespace, (API, "Mirror", row.name), is_applied);
        }
        stage.settle(Duration::from_secs(1));
    }
    let mark = stage.settle(Duration::from_secs(1));
    for touch in 1..=3 {
        for row in &rows {
            let note = json!({ "metadata": { "annotations": { "touch": touch.to_string() } } });
            stage.merge(&namespace, (API, "Mirror", row.name), &note);
        }
        stage.settle(Duration::from_millis(500));
    }
    let is_child = |line: &String| !line.contains("/status") && !line.contains(" events.");
    let writes = stage.writes_since(mark);
    let repeated: Vec<String> = lines(&writes).into_iter().filter(is_child).collect();
    assert_eq!(repeated, Vec::<String>::new(), "{}", host.log().unwrap());
    for row in &rows {
        let part = stage
            .get(&namespace, (row.api_version, row.kind, row.name))
            .pointer(row.part)
            .cloned()
            .unwrap_or_default();
        assert_eq!(part, row.expected, "{}", row.name);
        let parent = stage.get(&namespace, (API, "Mirror", row.name));
        assert!(is_applied(&parent), "{}: {:#}", row.name, parent["status"]);
    }
    Stage::stop(host);
}
