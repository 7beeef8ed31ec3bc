//! Admission that rejects or changes the host's writes: a parent's finalizer or status, or the
//! metadata that the host needs to find an object again.

use std::{thread, time::Duration};

use innkeeper_tests::{Host, Write, eventually, manifest::condition, user::Kind};
use serde_json::{Value, json};

use crate::{
    mirrored::{MIRRORS, mirror_guest},
    stage::{Stage, finalizers, is_applied},
    suite::Target,
};

/// How long the tests count the host's retries.
const OBSERVED: Duration = Duration::from_secs(10);

const API_VERSION: &str = "test.innkeeper.dev/v1";

const fn parent(name: &'static str) -> Target<'static> {
    (API_VERSION, "Mirror", name)
}

/// Returns a parent with a ConfigMap of the same name.
fn mirror(name: &str) -> Value {
    let child = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "a": "b" },
    });
    json!({
        "apiVersion": API_VERSION, "kind": "Mirror", "metadata": { "name": name },
        "spec": { "children": [child.to_string()], "status": r#"{"phase":"Fine"}"# },
    })
}

/// Waits until the parent's condition `Synced` is False and contains these words.
#[track_caller]
fn wait_refused(stage: &Stage, host: &Host, namespace: &str, name: &'static str, words: &[&str]) {
    eventually(name, || {
        let object = stage.get(namespace, parent(name));
        let synced = condition(&object, "Synced").unwrap_or_default();
        if synced.starts_with("False/") && words.iter().all(|words| synced.contains(words)) {
            return Ok(());
        }
        Err(format!("{synced}\n{}", host.log().unwrap_or_default()))
    });
}

/// Returns the notes from a parent's Events with this reason.
fn notes(stage: &Stage, namespace: &str, name: &str, reason: &str) -> Vec<String> {
    let kind = Kind::new("events.k8s.io/v1", "Event", namespace);
    let note = |event: &Value| event["note"].as_str().unwrap_or_default().to_owned();
    stage
        .plane
        .user()
        .list(kind, "")
        .unwrap()
        .iter()
        .filter(|event| event["reason"] == reason && event["regarding"]["name"] == name)
        .map(note)
        .collect()
}

/// Counts the host's rejected writes to a parent.
fn refused(stage: &Stage, mark: usize, (namespace, name): (&str, &str), resource: &str) -> usize {
    let writes = stage.plane.audit().since(mark).unwrap();
    writes
        .iter()
        .filter(|write| {
            write.is_by_host()
                && write.namespace == namespace
                && write.name == name
                && write.resource == resource
                && write.code >= 400
        })
        .count()
}

/// Applies an admission policy for objects with the policy's name, and the binding.
fn apply_policy(stage: &Stage, kind: &str, name: &str, rule: &Value, spec: &Value) {
    let api_version = "admissionregistration.k8s.io/v1";
    let mut policy = json!({
        "apiVersion": api_version, "kind": kind, "metadata": { "name": name },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [rule] },
            "matchConditions": [
                { "name": "name", "expression": format!("object.metadata.name == '{name}'") },
            ],
        },
    });
    let mut binding = json!({
        "apiVersion": api_version, "kind": format!("{kind}Binding"), "metadata": { "name": name },
        "spec": { "policyName": name },
    });
    if kind == "ValidatingAdmissionPolicy" {
        binding["spec"]["validationActions"] = json!(["Deny"]);
    }
    for (field, value) in spec.as_object().unwrap() {
        policy["spec"][field] = value.clone();
    }
    for object in [policy, binding] {
        stage.plane.user().apply(&object).unwrap();
    }
}

fn delete_policy(stage: &Stage, kind: &str, name: &str) {
    for kind in [format!("{kind}Binding"), kind.to_owned()] {
        let kind = Kind::cluster("admissionregistration.k8s.io/v1", &kind);
        stage.plane.user().delete(kind, name).unwrap();
    }
}

/// The metadata that a policy removes: the object's name, the resource, the field below `metadata`,
/// the key in it, and words in the condition.
const LOST: [(&str, &str, &str, &str, &str); 5] = [
    (
        "label",
        "configmaps",
        "labels",
        "innkeeper.dev/plugin",
        "the label innkeeper.dev/plugin",
    ),
    (
        "key",
        "configmaps",
        "annotations",
        "innkeeper.dev/key",
        "the annotation innkeeper.dev/key",
    ),
    (
        "applied",
        "configmaps",
        "annotations",
        "innkeeper.dev/applied",
        "the annotation innkeeper.dev/applied",
    ),
    (
        "owner",
        "configmaps",
        "ownerReferences",
        "",
        "the owner reference",
    ),
    (
        "finalizer",
        "mirrors",
        "finalizers",
        "",
        "the finalizer innkeeper.dev/mirror",
    ),
];

/// Applies a policy that removes a field, and waits until it is in force.
fn remove_by_policy(stage: &Stage, elsewhere: &str, row: (&str, &str, &str, &str, &str)) {
    let (name, resource, field, key, _) = row;
    let group = if resource == "mirrors" {
        "test.innkeeper.dev"
    } else {
        ""
    };
    let rule = json!({
        "apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
        "resources": [resource],
    });
    let mut is_there = format!("has(object.metadata.{field})");
    let mut path = format!("\"/metadata/{field}\"");
    if !key.is_empty() {
        is_there = format!("{is_there} && '{key}' in object.metadata.{field}");
        path = format!("\"/metadata/{field}/\" + jsonpatch.escapeKey('{key}')");
    }
    let expression = format!("[JSONPatch{{op: \"remove\", path: {path}}}]");
    let spec = json!({
        "matchConditions": [
            { "name": "name", "expression": format!("object.metadata.name == '{name}'") },
            { "name": "field", "expression": is_there },
        ],
        "reinvocationPolicy": "Never",
        "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression": expression } }],
    });
    apply_policy(stage, "MutatingAdmissionPolicy", name, &rule, &spec);
    let mut probe = mirror(name);
    if group.is_empty() {
        probe = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    }
    probe["metadata"][field] = match field {
        "ownerReferences" => json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b",
        }]),
        "finalizers" => json!(["example.com/probe"]),
        _ => json!({ key: "a" }),
    };
    eventually("the policy is in force", || {
        let answer = stage.apply(elsewhere, &probe);
        let remaining = &answer["metadata"][field];
        if remaining.is_null() || remaining[key].is_null() && !key.is_empty() {
            return Ok(());
        }
        Err(format!("{remaining}"))
    });
}

/// If a policy removes metadata that the host needs to find a child, the parent reports it and is
/// never Synced.
#[test]
fn metadata_that_admission_removes_is_named_until_it_stays() {
    let (stage, host) = Stage::serving(vec![mirror_guest()], &[MIRRORS]);
    let namespace = stage.namespace("lost");
    let elsewhere = "default";
    for row in LOST {
        remove_by_policy(&stage, elsewhere, row);
    }
    let mark = stage.mark();
    for (name, ..) in LOST {
        stage.apply(&namespace, &mirror(name));
    }
    for (name, _, _, _, words) in LOST {
        wait_refused(&stage, &host, &namespace, name, &["MetadataLost", words]);
    }
    assert!(
        stage
            .find(&namespace, ("v1", "ConfigMap", "finalizer"))
            .is_none()
    );
    // Each attempt is a create, a read and an update, with a backoff of at most 1, 2, 4 and 8 s plus
    // jitter.
    thread::sleep(OBSERVED);
    for (name, _, _, _, words) in LOST {
        let writes = stage.plane.audit().requests_since(mark).unwrap();
        let own = writes
            .iter()
            .filter(|write| write.is_by_host() && write.name == name);
        assert!(
            own.clone().count() <= 36,
            "{name}: {:?}",
            own.collect::<Vec<_>>()
        );
        let reason = if name == "owner" {
            "lost the owner reference"
        } else {
            words
        };
        wait_refused(&stage, &host, &namespace, name, &["MetadataLost", reason]);
    }
    for name in ["label", "finalizer"] {
        delete_policy(&stage, "MutatingAdmissionPolicy", name);
    }
    for name in ["label", "finalizer"] {
        stage.wait(&host, &namespace, parent(name), is_applied);
    }
    // The host finds the child again.
    stage.delete(&namespace, ("v1", "ConfigMap", "label"));
    stage.wait(
        &host,
        &namespace,
        ("v1", "ConfigMap", "label"),
        Value::is_object,
    );
    Stage::stop(host);
}

/// The host reports a denied status in one Event, and retries it with backoff.
#[test]
fn a_denied_status_is_told_once_and_retried_rarely() {
    let (stage, host) = Stage::serving(vec![mirror_guest()], &[MIRRORS]);
    let namespace = stage.namespace("denied");
    let elsewhere = "default";
    let rule = json!({
        "apiGroups": ["test.innkeeper.dev"], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": ["mirrors/status"],
    });
    let spec =
        json!({ "validations": [{ "expression": "false", "message": "no status for you" }] });
    apply_policy(&stage, "ValidatingAdmissionPolicy", "denied", &rule, &spec);
    stage.apply_new(elsewhere, &mirror("denied"));
    eventually("the policy is in force", || {
        let kind = Kind::new(API_VERSION, "Mirror", elsewhere);
        let patch = json!({ "status": { "phase": "a" } });
        match stage.plane.user().merge_status(kind, "denied", &patch) {
            Ok(_) => Err("it is not denied"),
            Err(_) => Ok(()),
        }
    });
    let mark = stage.mark();
    stage.apply(&namespace, &mirror("denied"));
    eventually("the Event", || {
        let notes = notes(&stage, &namespace, "denied", "StatusDenied");
        match &*notes {
            [note] if note.contains("no status for you") => Ok(()),
            _ => Err(format!("{notes:?}\n{}", host.log().unwrap())),
        }
    });
    thread::sleep(OBSERVED);
    let writes = stage.plane.audit().requests_since(mark).unwrap();
    let is_own = |write: &&Write| {
        write.is_by_host()
            && write.namespace == namespace
            && write.resource == "mirrors.test.innkeeper.dev/status"
    };
    // Two attempts in the first pass, and one after each backoff of 1, 2, 4 and 8 s.
    let count = writes.iter().filter(is_own).count();
    assert!((3..=7).contains(&count), "{count}");
    assert_eq!(notes(&stage, &namespace, "denied", "StatusDenied").len(), 1);
    // The denied status does not block the parent's deletion.
    stage.delete(&namespace, parent("denied"));
    eventually("the parent is gone", || {
        stage
            .find(&namespace, parent("denied"))
            .map_or(Ok(()), |parent| Err(parent.to_string()))
    });
    Stage::stop(host);
}

/// If a policy rejects the removal of the finalizer, the parent reports it with a remedy.
#[test]
fn a_finalizer_that_cannot_come_off_is_told_with_the_way_out() {
    let (stage, host) = Stage::serving(vec![mirror_guest()], &[MIRRORS]);
    let namespace = stage.namespace("stuck");
    let elsewhere = "default";
    let rule = json!({
        "apiGroups": ["test.innkeeper.dev"], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": ["mirrors"],
    });
    let is_released =
        "has(object.metadata.annotations) && 'released' in object.metadata.annotations";
    let expression = format!("has(object.metadata.finalizers) || {is_released}");
    let names = ["corrected", "skipped"];
    for name in names {
        let validations = json!([{ "expression": expression, "message": "not released yet" }]);
        let spec = json!({ "validations": validations });
        apply_policy(&stage, "ValidatingAdmissionPolicy", name, &rule, &spec);
        stage.apply_new(&namespace, &mirror(name));
        stage.wait(&host, &namespace, parent(name), is_applied);
        let mut probe = mirror(name);
        probe["metadata"]["finalizers"] = json!(["example.com/probe"]);
        probe["metadata"]["annotations"] = json!({ "innkeeper.dev/paused": "true" });
        stage.apply_new(elsewhere, &probe);
        eventually("the policy is in force", || {
            let kind = Kind::new(API_VERSION, "Mirror", elsewhere);
            let patch = json!({ "metadata": { "finalizers": null } });
            match stage.plane.user().merge(kind, name, &patch) {
                Ok(_) => {
                    stage.apply(elsewhere, &probe);
                    Err("it is not denied")
                }
                Err(_) => Ok(()),
            }
        });
    }
    let mark = stage.mark();
    for name in names {
        stage.delete(&namespace, parent(name));
    }
    for name in names {
        let words = ["FinalizerRefused", "not released yet", "skip-finalize"];
        wait_refused(&stage, &host, &namespace, name, &words);
    }
    thread::sleep(OBSERVED);
    for name in names {
        let count = refused(&stage, mark, (&namespace, name), MIRRORS);
        assert!((2..=7).contains(&count), "{name}: {count}");
        let notes = notes(&stage, &namespace, name, "FinalizerRefused");
        assert!(
            matches!(&*notes, [note] if note.contains("not released yet")),
            "{notes:?}"
        );
        assert!(!finalizers(&stage.get(&namespace, parent(name))).is_empty());
    }
    let released = json!({ "released": "true" });
    let skipped = json!({ "released": "true", "innkeeper.dev/skip-finalize": "true" });
    for (name, annotations) in [("corrected", released), ("skipped", skipped)] {
        let edit = json!({ "metadata": { "annotations": annotations } });
        stage.merge(&namespace, parent(name), &edit);
    }
    for name in names {
        eventually("the parent is gone", || {
            stage
                .find(&namespace, parent(name))
                .map_or(Ok(()), |parent| Err(parent.to_string()))
        });
    }
    Stage::stop(host);
}
