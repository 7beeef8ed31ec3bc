//! Properties of every parent that the CRD admits.

use std::collections::BTreeMap;

use innkeeper_guest_testing::{self as testing, Values};
use innkeeper_sdk::testing::{FakeHost, TestRequest, with_defaults};
use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};

use super::*;

/// Texts that are quantities, names and paths, or nearly so.
const TEXTS: [&str; 14] = [
    "",
    "0",
    "1.5",
    "128Mi",
    "-1Ki",
    "pg",
    "s",
    "keys",
    "id",
    "openssl",
    "tgz",
    "gobackup.io",
    "/data/../x",
    "a/b\u{0}\u{1d11e}$(X)",
];

/// Few optional fields, because the plugin refuses most combinations.
const VALUES: Values = Values {
    texts: &TEXTS,
    given: 0.15,
};

/// A parent as the API server stores it. Each field that it would reject is left out.
///
/// Most have a database and a storage, because the plugin refuses the others early.
fn admitted() -> impl Strategy<Value = Value> {
    let kinds = ["Backup", "CronBackup"].map(|kind| {
        let properties = &PLUGIN.root(kind)["properties"];
        let fields = ["backupModelRef", "databaseRefs", "storageRefs"];
        let beside =
            fields.map(|field| prop::option::weighted(0.1, VALUES.strategy(&properties[field])));
        let usual = any::<[bool; 3]>();
        (VALUES.strategy(&properties["spec"]), beside, usual).prop_map(
            move |(spec, beside, usual)| {
                let mut object = json!({
                    "apiVersion": "gobackup.io/v1", "kind": kind,
                    "metadata": { "name": "nightly", "namespace": "default" }, "spec": spec,
                });
                for (field, value) in fields.iter().zip(beside) {
                    if let Some(value) = value {
                        object[*field] = value;
                    }
                }
                if usual[0] || usual[1] {
                    object["spec"]["databaseRefs"] = json!([{ "name": "pg" }]);
                    object["spec"]
                        .as_object_mut()
                        .unwrap()
                        .remove("backupModelRef");
                }
                if usual[0] || usual[2] {
                    object["spec"]["storageRefs"] = json!([{ "name": "s" }]);
                    object["spec"]
                        .as_object_mut()
                        .unwrap()
                        .remove("defaultStorage");
                }
                if usual[2] {
                    object["spec"]["schedule"] = json!({ "cron": "@daily" });
                }
                // The plugin refuses scratch databases for dumps that the parent does not have.
                if let Some(given) = object.pointer_mut("/spec/verify/databases") {
                    *given = json!([{ "database": "pg", "databaseRef": { "name": "scratch" } }]);
                }
                // The plugin refuses most random labels.
                let labels = [
                    "/spec/podTemplate/spec/nodeSelector",
                    "/spec/runWith/labelSelector/matchLabels",
                ];
                for labels in labels {
                    if let Some(labels) = object.pointer_mut(labels) {
                        *labels = json!({ "app": "shop" });
                    }
                }
                repaired(object)
            },
        )
    });
    prop::strategy::Union::new(kinds)
}

/// The object without the fields that the API server rejects.
fn repaired(object: Value) -> Value {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let object = object.as_object().unwrap().clone();
    testing::admitted(PLUGIN.schema(&kind), object, |members, cause| {
        let mut path = cause.path.split(['.', '[']);
        let first = path.next().unwrap_or_default();
        let second = path.next();
        let is_gone = match second {
            Some(field) if first == "spec" => members["spec"]
                .as_object_mut()
                .is_some_and(|object| object.remove(field).is_some()),
            _ => first != "spec" && members.remove(first).is_some(),
        };
        if !is_gone {
            // A rule over several fields.
            for field in ["backupModelRef", "databaseRefs", "storageRefs"] {
                members.remove(field);
            }
            members["spec"] = backup(json!({}))["spec"].clone();
            if kind == "CronBackup" {
                members["spec"]["schedule"] = json!({ "cron": "@daily" });
            }
        }
    })
}

/// A request with settings that let the plugin accept most parents.
fn request(parent: &Value) -> TestRequest {
    let tenants = json!({
        "references": "namespace", "hostVolumes": true, "scripts": true, "serviceAccounts": TEXTS,
        "podMetadata": { "labels": ["a", "cpu"], "annotations": ["a", "cpu"] },
        "tolerations": TEXTS, "priorityClasses": TEXTS,
    });
    TestRequest::new(parent).config(&json!({ "tenants": tenants }))
}

/// A host with a related object, a Secret and a claim for each name above.
fn cluster() -> FakeHost {
    let mut objects = around();
    for name in TEXTS {
        let named = |api_version: &str, kind: &str| {
            json!({
                "apiVersion": api_version, "kind": kind,
                "metadata": { "name": name, "namespace": "default" },
            })
        };
        objects.push(named("v1", "PersistentVolumeClaim"));
        if name != "keys" {
            let mut keys = secret(name, &TEXTS);
            keys["metadata"]["name"] = json!(name);
            objects.push(keys);
        }
    }
    objects[2] = secret(
        "keys",
        &TEXTS
            .into_iter()
            .chain(["pg", "id", "key"])
            .collect::<Vec<_>>(),
    );
    host(&objects)
}

/// Returns a child as the API server stores it: with defaults and metadata.
fn stored(child: &Child) -> Value {
    let pod = json!({
        "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30, "securityContext": {},
        "containers": [{ "terminationMessagePath": "/dev/termination-log" }],
    });
    let job = json!({
        "completions": 1, "parallelism": 1, "completionMode": "NonIndexed", "suspend": false,
        "manualSelector": false, "podReplacementPolicy": "TerminatingOrFailed", "template": { "spec": pod },
    });
    let (spec, status) = match child.kind() {
        "Job" => (
            job,
            json!({ "active": 1, "startTime": "2026-08-20T02:00:01Z" }),
        ),
        "CronJob" => (json!({ "jobTemplate": { "spec": job } }), json!({})),
        "PersistentVolumeClaim" => (
            json!({ "volumeMode": "Filesystem" }),
            json!({ "phase": "Bound" }),
        ),
        _ => (Value::Null, Value::Null),
    };
    let mut object = Value::from(child.object.clone());
    let metadata = json!({
        "namespace": "default", "uid": child.key, "generation": 1, "resourceVersion": "7",
        "creationTimestamp": "2026-08-20T00:00:00Z",
        "annotations": { "innkeeper.dev/key": child.key },
    });
    with_defaults(&mut object, &json!({ "metadata": metadata }));
    if !spec.is_null() {
        with_defaults(&mut object, &json!({ "spec": spec, "status": status }));
    }
    object
}

/// The next pass after an answer, with the report as the stored status.
fn next(parent: &Value, answer: &Answer) -> TestRequest {
    following(parent, answer, answer.children())
}

/// Returns the next pass, with these children and the answer's report as the stored status.
fn following(parent: &Value, answer: &Answer, children: &[Child]) -> TestRequest {
    let request = children.iter().fold(request(parent), |request, child| {
        request.child(&child.key, &stored(child))
    });
    request.status(&testing::stored_status(answer))
}

fn pass(request: TestRequest) -> Result<Answer, Fault> {
    Plugin::reconcile(&request.build(), &cluster())
}

/// The children by their keys, without the decisions on them.
fn objects(answer: &Answer) -> BTreeMap<&str, Value> {
    answer
        .children()
        .iter()
        .map(|child| (child.key.as_str(), Value::from(child.object.clone())))
        .collect()
}

/// A parent that the plugin refuses, made by an edit.
fn broken(parent: &Value) -> [Value; 2] {
    let mut invalid = parent.clone();
    invalid["spec"]["compressWith"] = json!({ "type": "rar" });
    let mut blocked = parent.clone();
    blocked["spec"]["databaseRefs"] = json!([{ "name": "gone" }]);
    [invalid, blocked]
}

// The properties would say little about parents that the plugin refuses.
#[test]
fn many_admitted_parents_have_children() {
    let mut runner = TestRunner::deterministic();
    let mut refused = BTreeMap::<String, usize>::new();
    for _ in 0..100 {
        let parent = admitted().new_tree(&mut runner).unwrap().current();
        let reason = match pass(request(&parent)) {
            Ok(answer) if !answer.children().is_empty() => continue,
            Ok(answer) => condition(answer.report(), "Ready"),
            Err(fault) => fault.message,
        };
        *refused.entry(reason).or_default() += 1;
    }
    assert!(refused.values().sum::<usize>() <= 80, "{refused:#?}");
}

proptest! {
    #[test]
    fn an_answer_is_a_fixed_point(parent in admitted()) {
        let Ok(first) = pass(request(&parent)) else {
            return Ok(());
        };
        let second = pass(next(&parent, &first)).unwrap();
        prop_assert_eq!(objects(&first), objects(&second));
        let third = pass(following(&parent, &second, first.children())).unwrap();
        prop_assert_eq!(second.children(), third.children());
        prop_assert_eq!(second.report().status.as_ref(), third.report().status.as_ref());
        prop_assert_eq!(&second.report().conditions, &third.report().conditions);
        prop_assert_eq!(&third.report().events, &[]);
    }

    #[test]
    fn the_order_of_members_and_lists_does_not_matter(parent in admitted()) {
        let first = request(&parent);
        let second = pass(first.clone()).map(|answer| next(&parent, &answer));
        for request in [Ok(first), second].into_iter().flatten() {
            PLUGIN.check_order(&request.build(), cluster);
        }
    }

    #[test]
    fn every_admitted_parent_has_an_answer(parent in admitted()) {
        match pass(request(&parent)) {
            Ok(answer) => {
                let has_children = !answer.children().is_empty();
                prop_assert!(has_children || matches!(answer, Answer::Keep(_)));
            }
            Err(fault) => {
                prop_assert_eq!(fault.kind, FaultKind::Invalid);
                prop_assert!(fault.message.contains(':') || fault.message.contains("needed"));
            }
        }
    }

    #[test]
    fn the_end_of_a_bad_edit_restores_the_children(parent in admitted()) {
        let Ok(first) = pass(request(&parent)) else {
            return Ok(());
        };
        if first.children().is_empty() {
            return Ok(());
        }
        let settled = pass(next(&parent, &first)).unwrap();
        for broken in broken(&parent) {
            let refused = following(&broken, &settled, first.children());
            let report = match pass(refused) {
                // A suspended schedule stays stated.
                Ok(answer) => {
                    let stopped = objects(&answer);
                    let before = objects(&first);
                    let changed = stopped.iter().filter(|(key, it)| before.get(*key) != Some(*it));
                    prop_assert_eq!(changed.count(), 0);
                    answer.report().clone()
                }
                Err(fault) => {
                    prop_assert_eq!(fault.kind, FaultKind::Invalid);
                    *fault.report.unwrap()
                }
            };
            let keep = Answer::keep(report);
            let again = pass(following(&parent, &keep, first.children())).unwrap();
            prop_assert_eq!(objects(&again), objects(&first));
            prop_assert_eq!(again.children(), settled.children());
        }
    }
}
