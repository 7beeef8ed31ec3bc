//! Each kind's readiness.

use serde_json::{Value, json};

use super::build::gvk;
use crate::is_ready;

#[track_caller]
fn check(api_version: &str, kind: &str, spec: Value, status: Value, expected: bool) {
    let object = json!({"metadata": {"generation": 2}, "spec": spec, "status": status});
    assert_eq!(
        is_ready(&gvk(api_version, kind), &object.to_string(), None),
        expected,
        "{kind} {object}"
    );
}

#[test]
fn workloads_are_ready_when_all_replicas_are_updated_and_ready() {
    let counts = |observed: i64, replicas: i64, updated: i64, ready: i64| {
        json!({
            "observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready,
        })
    };
    for kind in ["Deployment", "StatefulSet"] {
        let two = || json!({"replicas": 2});
        check("apps/v1", kind, two(), counts(2, 2, 2, 2), true);
        check("apps/v1", kind, two(), counts(1, 2, 2, 2), false);
        check("apps/v1", kind, two(), counts(2, 2, 1, 2), false);
        check("apps/v1", kind, two(), counts(2, 2, 2, 1), false);
        check("apps/v1", kind, two(), counts(2, 3, 2, 2), false);
        check("apps/v1", kind, two(), json!({}), false);
        check("apps/v1", kind, json!({}), counts(2, 1, 1, 1), true);
        check(
            "apps/v1",
            kind,
            json!({"replicas": 0}),
            json!({"observedGeneration": 2}),
            true,
        );
        check("apps/v1", kind, json!({"replicas": 0}), json!({}), false);
    }
    let partition = json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}});
    check(
        "apps/v1",
        "StatefulSet",
        partition,
        counts(2, 3, 1, 3),
        true,
    );
    check(
        "apps/v1",
        "ReplicaSet",
        json!({"replicas": 2}),
        counts(2, 2, 0, 2),
        true,
    );
    check(
        "apps/v1",
        "ReplicaSet",
        json!({"replicas": 2}),
        counts(2, 2, 0, 1),
        false,
    );
    let daemons = |updated: i64, ready: i64| {
        json!({
            "observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": updated, "numberReady": ready,
        })
    };
    check("apps/v1", "DaemonSet", json!({}), daemons(2, 2), true);
    check("apps/v1", "DaemonSet", json!({}), daemons(1, 2), false);
    check("apps/v1", "DaemonSet", json!({}), daemons(2, 1), false);
    check("apps/v1", "DaemonSet", json!({}), json!({}), false);
}

#[test]
fn other_kinds_have_rules_of_their_own() {
    let condition =
        |kind: &str, status: &str| json!({"conditions": [{"type": kind, "status": status}]});
    check(
        "batch/v1",
        "Job",
        json!({}),
        condition("Complete", "True"),
        true,
    );
    check(
        "batch/v1",
        "Job",
        json!({}),
        condition("Failed", "True"),
        false,
    );
    check("v1", "Pod", json!({}), condition("Ready", "True"), true);
    check("v1", "Pod", json!({}), json!({"phase": "Succeeded"}), true);
    check("v1", "Pod", json!({}), json!({"phase": "Running"}), false);
    for (phase, ready) in [("Pending", true), ("Bound", true), ("Lost", false)] {
        check(
            "v1",
            "PersistentVolumeClaim",
            json!({}),
            json!({"phase": phase}),
            ready,
        );
    }
    let ingress = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}});
    check(
        "v1",
        "Service",
        json!({"type": "LoadBalancer"}),
        ingress,
        true,
    );
    check(
        "v1",
        "Service",
        json!({"type": "LoadBalancer"}),
        json!({"loadBalancer": {}}),
        false,
    );
    check(
        "v1",
        "Service",
        json!({"type": "ClusterIP"}),
        json!({}),
        true,
    );
    check("v1", "ConfigMap", json!({}), json!({}), true);
    // A kind's rule applies only in the kind's own group.
    check(
        "example.dev/v1",
        "Deployment",
        json!({"replicas": 2}),
        json!({}),
        true,
    );
    check(
        "example.dev/v1",
        "Widget",
        json!({}),
        json!({"observedGeneration": 1}),
        false,
    );
}

#[test]
fn no_deleting_object_is_ready() {
    let object = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    assert!(!is_ready(
        &gvk("v1", "ConfigMap"),
        &object.to_string(),
        None
    ));
}

#[test]
fn a_declared_condition_decides() {
    let object = |status: &str, observed: Value| {
        json!({
            "metadata": {"generation": 2},
            "status": {"conditions": [{"type": "Available", "status": status, "observedGeneration": observed}]},
        })
    };
    let widget = gvk("example.dev/v1", "Widget");
    let ready = |object: &Value| is_ready(&widget, &object.to_string(), Some("Available"));
    assert!(ready(&object("True", json!(2))));
    assert!(ready(&object("True", Value::Null)));
    assert!(!ready(&object("True", json!(1))));
    assert!(!ready(&object("False", json!(2))));
    assert!(!ready(&json!({})));
}
