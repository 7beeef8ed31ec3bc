//! Operations on children: A2, A4, A5, A7, A8, A10.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use expect_test::{Expect, expect};
use innkeeper_model::{
    ApplyPolicy, Child, ConditionStatus, GroupKind, HashKey, ObjectId, Operation, Outcome,
    Readiness, Report, Retry,
};
use serde_json::{Value, json};

use super::{build::*, server::Server};
use crate::{Effects, Progress, WriteFailure, conclude};

/// Checks a plan's lines.
pub(super) fn check_plan(scene: &Scene, objects: &[Value], answer: &Outcome, expected: Expect) {
    expected.assert_eq(&scene.plan(objects, answer).to_string());
}

/// Returns a server on which a plan for the answer was applied.
pub(super) fn applied(scene: &Scene, answer: &Outcome) -> Server {
    let mut server = Server::default();
    for _ in 0..8 {
        let plan = scene.plan(&server.objects(), answer);
        for operation in &plan.operations {
            server.write(operation).unwrap();
        }
    }
    server
}

pub(super) fn id(kind: &str, name: &str) -> ObjectId {
    let (group, kind) = kind.rsplit_once('/').unwrap_or(("", kind));
    ObjectId::new(GroupKind::new(group, kind), Some("demo"), name)
}

pub(super) fn edit(object: &mut Value, pointer: &str, field: &str, value: Value) {
    object.pointer_mut(pointer).unwrap()[field] = value;
}

#[test]
fn creates_in_order_of_after_and_prunes_last() {
    // A5, A7
    let scene = scene();
    let first = desired(vec![config_map("old")]);
    let objects = applied(&scene, &first).objects();
    let answer = desired(vec![
        config_map("a").after(&["configmap-z"]),
        deployment("web").after(&["configmap-a"]),
        config_map("z"),
    ]);
    check_plan(
        &scene,
        &objects,
        &answer,
        expect![[r#"
        create v1 ConfigMap demo/z
        prune v1 ConfigMap demo/old
        wait v1 ConfigMap demo/a after configmap-z
        wait apps/v1 Deployment demo/web after configmap-a
    "#]],
    );
}

#[test]
fn a_child_waits_until_its_after_children_are_ready() {
    // A5
    let scene = scene();
    let answer = desired(vec![
        deployment("db"),
        deployment("web").after(&["deployment-db"]),
    ]);
    let mut server = applied(&scene, &desired(vec![deployment("db")]));
    check_plan(
        &scene,
        &server.objects(),
        &answer,
        expect![[r#"
        wait apps/v1 Deployment demo/web after deployment-db
    "#]],
    );
    let ready = json!({
        "observedGeneration": 99, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2,
    });
    server.set_status(&id("apps/Deployment", "db"), ready);
    check_plan(
        &scene,
        &server.objects(),
        &answer,
        expect![[r#"
        create apps/v1 Deployment demo/web
    "#]],
    );
    // A child that this pass updates does not count as ready.
    let changed = desired(vec![
        deployment("db").set("spec", json!({"replicas": 3})),
        deployment("web").after(&["deployment-db"]),
    ]);
    check_plan(
        &scene,
        &server.objects(),
        &changed,
        expect![[r#"
        update apps/v1 Deployment demo/db
        wait apps/v1 Deployment demo/web after deployment-db
    "#]],
    );
}

#[test]
fn updates_an_existing_child_even_if_its_after_children_are_not_ready() {
    let scene = scene();
    let server = applied(&scene, &desired(vec![config_map("a")]));
    let answer = desired(vec![
        deployment("db"),
        config_map("a")
            .set("data", json!({"a": "2"}))
            .after(&["deployment-db"]),
    ]);
    check_plan(
        &scene,
        &server.objects(),
        &answer,
        expect![[r#"
        create apps/v1 Deployment demo/db
        update v1 ConfigMap demo/a
    "#]],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn repairs_changed_fields_and_leaves_fields_of_other_managers() {
    // A2
    let scene = scene();
    let answer = desired(vec![config_map("a"), secret("s")]);
    let server = applied(&scene, &answer);
    check_plan(&scene, &server.objects(), &answer, expect![""]);
    for (kind, name, path, value, expected) in [
        (
            "ConfigMap",
            "a",
            &["data", "a"][..],
            json!("2"),
            "update v1 ConfigMap demo/a\n",
        ),
        (
            "ConfigMap",
            "a",
            &["data", "a"],
            Value::Null,
            "update v1 ConfigMap demo/a\n",
        ),
        ("ConfigMap", "a", &["data", "b"], json!("theirs"), ""),
        (
            "ConfigMap",
            "a",
            &["metadata", "annotations", "note"],
            json!("x"),
            "",
        ),
        (
            "ConfigMap",
            "a",
            &["metadata", "labels", "innkeeper.dev/plugin"],
            json!("x"),
            "update v1 ConfigMap demo/a\n",
        ),
        (
            "Secret",
            "s",
            &["data", "password"],
            json!("eA=="),
            "update v1 Secret demo/s\n",
        ),
        (
            "Secret",
            "s",
            &["data", "password"],
            Value::Null,
            "update v1 Secret demo/s\n",
        ),
    ] {
        let mut server = server.clone();
        server.edit(
            &id(kind, name),
            path,
            Some(value.clone()).filter(|value| !value.is_null()),
        );
        assert_eq!(
            scene.plan(&server.objects(), &answer).to_string(),
            expected,
            "{path:?} {value}"
        );
    }
    // The host's entry is missing from the managed fields.
    let mut objects = server.objects();
    edit(&mut objects[0], "/metadata", "managedFields", json!([]));
    check_plan(
        &scene,
        &objects,
        &answer,
        expect![[r#"
        update v1 ConfigMap demo/a
    "#]],
    );
}

#[test]
fn another_hash_key_updates_every_child_once() {
    let mut scene = scene();
    let answer = desired(vec![config_map("a")]);
    let objects = applied(&scene, &answer).objects();
    scene.key = HashKey::new(*b"another key");
    check_plan(
        &scene,
        &objects,
        &answer,
        expect![[r#"
        update v1 ConfigMap demo/a
    "#]],
    );
}

#[test]
fn once_is_created_and_never_written_again() {
    let scene = scene();
    let once = |value: &str| {
        desired(vec![
            config_map("a")
                .set("data", json!({"a": value}))
                .applied(ApplyPolicy::Once),
        ])
    };
    let mut server = applied(&scene, &once("1"));
    assert!(server.edit(&id("ConfigMap", "a"), &["data", "a"], Some(json!("theirs"))));
    check_plan(&scene, &server.objects(), &once("2"), expect![""]);
    check_plan(
        &scene,
        &[],
        &once("2"),
        expect![[r#"
        create v1 ConfigMap demo/a
    "#]],
    );
    check_plan(
        &scene,
        &server.objects(),
        &desired(vec![]),
        expect![[r#"
        prune v1 ConfigMap demo/a
    "#]],
    );
}

#[test]
fn hold_keeps_existing_children_and_creates_none() {
    let scene = scene();
    let hold = |readiness| {
        desired(vec![
            config_map("a").applied(ApplyPolicy::Hold).said(readiness),
        ])
    };
    let server = applied(&scene, &desired(vec![config_map("a")]));
    let existing = scene.plan(&server.objects(), &hold(Readiness::Derive));
    assert!(existing.is_settled() && existing.children[0].ready);
    for (readiness, ready) in [
        (Readiness::Derive, false),
        (Readiness::NotReady, false),
        (Readiness::Ready, true),
    ] {
        let missing = scene.plan(&[], &hold(readiness));
        assert!(missing.is_settled());
        assert_eq!(missing.children[0].progress, Progress::Missing);
        assert_eq!(missing.children[0].ready, ready, "{readiness:?}");
        let conclusion = conclude(&missing, &Effects::default());
        assert_eq!(conclusion.ready.status == ConditionStatus::True, ready);
    }
}

#[test]
fn keep_touches_no_child() {
    // A7
    let scene = scene();
    let server = applied(&scene, &desired(vec![config_map("a")]));
    check_plan(
        &scene,
        &server.objects(),
        &Outcome::Keep(Report::default()),
        expect![""],
    );
}

#[test]
fn never_applies_a_child_that_is_being_deleted() {
    let scene = scene();
    let answer = desired(vec![
        config_map("a"),
        config_map("b").after(&["configmap-a"]),
    ]);
    let mut server = applied(&scene, &desired(vec![config_map("a")]));
    server.mark_deleting(&id("ConfigMap", "a"));
    let plan = scene.plan(&server.objects(), &answer);
    expect![[r#"
        deleting v1 ConfigMap demo/a
        wait v1 ConfigMap demo/b after configmap-a
    "#]]
    .assert_eq(&plan.to_string());
    let conclusion = conclude(&plan, &Effects::default());
    assert_eq!(conclusion.synced.reason, "ChildDeleting");
    assert_eq!(conclusion.ready.reason, "ChildrenNotReady");
    assert_eq!(conclusion.retry, None);
    check_plan(&scene, &server.objects(), &desired(vec![]), expect![""]);
}

#[test]
fn an_optional_kind_that_is_not_served_blocks_nothing() {
    let scene = scene();
    let monitor = child("monitoring.coreos.com/v1", "ServiceMonitor", "m");
    let answer = desired(vec![monitor, config_map("a").after(&["servicemonitor-m"])]);
    let server = applied(&scene, &desired(vec![config_map("old")]));
    let plan = scene.plan(&server.objects(), &answer);
    expect![[r#"
        create v1 ConfigMap demo/a
        prune v1 ConfigMap demo/old
        skip monitoring.coreos.com/v1 ServiceMonitor demo/m: not served
    "#]]
    .assert_eq(&plan.to_string());
    let settled = scene.plan(&applied(&scene, &answer).objects(), &answer);
    let conclusion = conclude(&settled, &Effects::default());
    assert_eq!(conclusion.synced.reason, "KindNotServed");
    assert_eq!(conclusion.ready.reason, "ChildrenNotReady");
}

#[test]
fn an_optional_kind_that_cannot_be_read_stops_only_its_own_children() {
    let mut scene = scene();
    let secret = child("v1", "Secret", "s");
    let unreadable = GroupKind::new("", "Secret");
    let before = applied(&scene, &desired(vec![config_map("old")]));
    scene.unreadable = [(unreadable, "could not be listed: webhook".to_owned())].into();
    let answer = desired(vec![secret, config_map("a").after(&["secret-s"])]);
    check_plan(
        &scene,
        &before.objects(),
        &answer,
        expect![[r#"
            create v1 ConfigMap demo/a
            prune v1 ConfigMap demo/old
            skip v1 Secret demo/s: not readable
        "#]],
    );
    let settled = scene.plan(&applied(&scene, &answer).objects(), &answer);
    let conclusion = conclude(&settled, &Effects::default());
    assert_eq!(conclusion.synced.reason, "KindUnreadable");
    assert!(
        conclusion
            .synced
            .message
            .ends_with("Secret demo/s; v1 Secret could not be listed: webhook"),
        "{}",
        conclusion.synced.message
    );
    assert_eq!(conclusion.ready.reason, "ChildrenNotReady");
}

#[test]
fn a_required_kind_that_is_not_served_stops_pruning() {
    // A7, W8
    let mut scene = scene();
    let server = applied(&scene, &desired(vec![config_map("old")]));
    scene.cluster.without = vec!["Deployment"];
    check_plan(
        &scene,
        &server.objects(),
        &desired(vec![deployment("web")]),
        expect![[r#"
        blocked apps/v1 Deployment demo/web: not served
    "#]],
    );
}

#[test]
fn records_new_kinds() {
    // A8
    let scene = scene();
    let answer = desired(vec![
        config_map("a"),
        deployment("web").after(&["configmap-a"]),
    ]);
    let kinds: Vec<String> = scene
        .plan(&[], &answer)
        .kinds
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(kinds, ["v1 ConfigMap"]);
}

#[test]
fn sends_the_whole_object_with_the_hosts_metadata() {
    let scene = scene();
    let mut secret = secret("s").set("stringData", json!({"user": "root"}));
    secret.object["metadata"]["creationTimestamp"] = Value::Null;
    let plan = scene.plan(&[], &desired(vec![secret]));
    let Operation::Create { body, generate, .. } = &plan.operations[0] else {
        panic!("{plan}");
    };
    expect![[r#"
        {
          "apiVersion": "v1",
          "data": {
            "user": "cm9vdA=="
          },
          "kind": "Secret",
          "metadata": {
            "annotations": {
              "innkeeper.dev/applied": "v1:3b1ed41e76315e8616b6de01ff36c8f04a5565b20626d877ec179f0a5fc930a5",
              "innkeeper.dev/key": "secret-s"
            },
            "labels": {
              "innkeeper.dev/plugin": "web"
            },
            "name": "s",
            "namespace": "demo",
            "ownerReferences": [
              {
                "apiVersion": "example.dev/v1",
                "blockOwnerDeletion": true,
                "controller": true,
                "kind": "Web",
                "name": "shop",
                "uid": "p1"
              }
            ]
          }
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&**body).unwrap());
    assert_eq!(generate[0].key, "password");
}

#[test]
fn leaves_out_the_null_that_the_types_of_kubernetes_write() {
    let scene = scene();
    let spec = |nulls: Value| {
        let mut template = nulls.clone();
        let mut claim = nulls;
        template["labels"] = json!({"app": "web"});
        claim["name"] = "data".into();
        json!({"template": {"metadata": template}, "volumeClaimTemplates": [{"metadata": claim}]})
    };
    let stated = deployment("web").set("spec", spec(json!({"creationTimestamp": null})));
    let answer = desired(vec![stated]);
    let plan = scene.plan(&[], &answer);
    let Operation::Create { body, .. } = &plan.operations[0] else {
        panic!("{plan}");
    };
    assert_eq!(body["spec"], spec(json!({})));
    let objects = applied(&scene, &answer).objects();
    check_plan(&scene, &objects, &answer, expect![""]);
}

#[test]
fn a_changed_token_is_an_update_and_an_absent_one_leaves_the_secret_as_it_is() {
    let mut server = Server::default();
    let scene = scene();
    let with = |token: Option<&str>| {
        let mut secret = secret("s");
        secret.generate[0].token = token.map(str::to_owned);
        desired(vec![secret])
    };
    let mut applied = |answer: &Outcome| {
        let plan = scene.plan(&server.objects(), answer);
        for operation in &plan.operations {
            server.write(operation).unwrap();
        }
        plan.operations.len()
    };
    assert_eq!(applied(&with(None)), 1);
    assert_eq!(applied(&with(None)), 0);
    assert_eq!(applied(&with(Some("1"))), 1);
    assert_eq!(applied(&with(Some("1"))), 0);
    assert_eq!(applied(&with(Some("2"))), 1);
}

#[test]
fn readiness_after_a_write_comes_from_the_returned_object() {
    let plan = scene().plan(&[], &desired(vec![config_map("a"), deployment("web")]));
    let mut effects = Effects::default();
    let returned = |json: &str| Ok(Some(Arc::from(json)));
    effects
        .children
        .insert(id("ConfigMap", "a"), returned(r#"{"metadata": {}}"#));
    effects.children.insert(
        id("apps/Deployment", "web"),
        returned(r#"{"metadata": {"generation": 1}}"#),
    );
    let conclusion = conclude(&plan, &effects);
    assert_eq!(conclusion.synced.reason, "Applied");
    assert_eq!(
        conclusion.ready.message,
        "not ready: Deployment.apps demo/web"
    );
    assert_eq!(conclusion.retry, None);
    // Neither the desired object nor the observed one, which does not exist, has this status.
    let counts =
        r#"{"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}"#;
    let json = format!(
        r#"{{"metadata": {{"generation": 1}}, "spec": {{"replicas": 2}}, "status": {counts}}}"#
    );
    effects
        .children
        .insert(id("apps/Deployment", "web"), returned(&json));
    assert_eq!(conclude(&plan, &effects).ready.reason, "Ready");
}

#[test]
fn the_most_specific_failure_is_reported_and_all_are_retried() {
    // A10
    let plan = scene().plan(
        &[],
        &desired(vec![config_map("a"), config_map("b"), config_map("c")]),
    );
    let failure = |reason, message: &str, retry| WriteFailure {
        reason,
        message: message.to_owned(),
        retry,
    };
    let mut effects = Effects::default();
    effects.children.insert(
        id("ConfigMap", "a"),
        Err(failure("ApplyFailed", "no connection", Retry::Backoff)),
    );
    effects.children.insert(
        id("ConfigMap", "b"),
        Err(failure("ChildRejected", "b is wrong", Retry::OnChange)),
    );
    let conclusion = conclude(&plan, &effects);
    assert_eq!(conclusion.synced.reason, "ChildRejected");
    assert_eq!(conclusion.synced.message, "b is wrong (and 1 more)");
    assert_eq!(conclusion.retry, Some(Retry::Backoff));
    assert_eq!(
        conclusion.ready.message,
        "not ready: ConfigMap demo/a, ConfigMap demo/b, ConfigMap demo/c"
    );
}

/// Two plugins that make parents of each other are found by the depth as well. It stays without the other plugin, because a
/// host that starts may have that one later.
#[test]
fn a_child_that_another_plugin_serves_carries_its_depth_and_keeps_it() {
    let depth = |object: &Value| object["metadata"]["annotations"]["innkeeper.dev/depth"].clone();
    let with_depth = json!({"innkeeper.dev/depth": "3"});
    let mut scene = Scene {
        parent: parent("p1").with("/metadata", "annotations", with_depth),
        ..scene()
    };
    let answer = desired(vec![config_map("a")]);
    let mut server = applied(&scene, &answer);
    assert_eq!(depth(&server.objects()[0]), Value::Null);

    scene.cluster.parents = vec!["ConfigMap"];
    let plan = scene.plan(&server.objects(), &answer);
    for operation in &plan.operations {
        server.write(operation).unwrap();
    }
    assert_eq!(depth(&server.objects()[0]), "4");

    scene.cluster.parents.clear();
    let plan = scene.plan(&server.objects(), &answer);
    assert!(
        plan.operations
            .iter()
            .all(|operation| operation.child().is_none()),
        "{plan}"
    );
}

/// The depth of the grants is counted along the chain of parents, by the annotation of the host alone.
#[test]
fn a_child_of_an_own_kind_of_parents_carries_its_depth_and_other_children_do_not() {
    let depth_of = |parent: Parent| {
        let scene = Scene { parent, ..scene() };
        let copy = child("example.dev/v1", "Web", "copy");
        let answer = desired(vec![config_map("a"), copy]);
        let objects = applied(&scene, &answer).objects();
        let depth =
            |object: &Value| object["metadata"]["annotations"]["innkeeper.dev/depth"].clone();
        let all: Vec<(Value, Value)> = objects
            .iter()
            .map(|object| (object["kind"].clone(), depth(object)))
            .collect();
        assert_eq!(all.len(), 2);
        assert!(all.contains(&(json!("ConfigMap"), Value::Null)), "{all:?}");
        all.into_iter().find(|(kind, _)| kind == "Web").unwrap().1
    };
    let at = |depth: &str| {
        let annotations = json!({"innkeeper.dev/depth": depth});
        parent("p1").with("/metadata", "annotations", annotations)
    };
    assert_eq!(depth_of(parent("p1")), "1");
    assert_eq!(depth_of(at("1")), "2");
    // A broken annotation must not start the count again.
    assert_eq!(depth_of(at("none")), u32::MAX.to_string());
}

#[test]
fn a_long_chain_of_children_is_ordered_in_little_time() {
    // As many children as limits allow. Each waits for the next one by name, so that the order is the reverse.
    let names: Vec<String> = (0..10_000).map(|number| format!("k{number:05}")).collect();
    let keys: Vec<String> = names
        .iter()
        .map(|name| format!("configmap-{name}"))
        .collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let children: Vec<Child> = names
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let last = (number + 4).min(keys.len());
            config_map(name).after(&keys[number + 1..last])
        })
        .collect();
    let started = Instant::now();
    let sorted = crate::order::sorted(&children);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert!(sorted.iter().rev().map(|child| &child.name).eq(&names));
}
