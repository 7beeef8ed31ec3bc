//! Unit tests of the reconciler in plain Rust, with a fake host.

mod advice;
mod bad_input;
mod configuration;
mod events;
mod flags;
mod inspection;
mod losses;
mod membership;
mod operation;
mod properties;
mod replacement;
mod scripts;
mod surroundings;
mod tls;
mod upgrade;
mod versions;

use std::sync::LazyLock;

use innkeeper_guest_testing::Fixture;
use innkeeper_kit::prelude::*;
use innkeeper_sdk::testing::{FakeHost, TestRequest, definition_problems, predicted_parts};
use serde_json::{Value, json};

use crate::{Plugin, api::EtcdCluster};

const IMAGE: &str = "cnych/etcd:v3.4.13";

fn parent(spec: Value) -> EtcdCluster {
    let object = json!({
        "apiVersion": "etcd.ydzs.io/v1alpha1", "kind": "EtcdCluster",
        "metadata": { "name": "demo", "namespace": "default", "uid": "u1", "generation": 1 },
        "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

fn article() -> EtcdCluster {
    parent(json!({ "size": 3, "image": IMAGE }))
}

static PLUGIN: LazyLock<Fixture> =
    LazyLock::new(|| Fixture::new(Plugin::describe, Plugin::reconcile));

fn host() -> FakeHost {
    PLUGIN.host()
}

fn pod(ordinal: i32, ready: bool, image: &str) -> Value {
    pod_of_revision(ordinal, ready, image, "r1")
}

fn pod_of_revision(ordinal: i32, ready: bool, image: &str, revision: &str) -> Value {
    let mut labels = base_labels("etcd", "demo", "member");
    labels.insert("controller-revision-hash".to_owned(), revision.to_owned());
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("demo-{ordinal}"), "namespace": "default", "labels": labels, "uid": format!("uid-{ordinal}"),
        },
        "spec": { "containers": [{ "name": "etcd", "image": image }] },
        "status": { "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] },
    })
}

fn answer(request: TestRequest, host: &FakeHost) -> Answer {
    Plugin::reconcile(&request.build(), host).unwrap()
}

fn keys(outcome: &Answer) -> Vec<&str> {
    outcome
        .children()
        .iter()
        .map(|child| child.key.as_str())
        .collect()
}

fn reason<'a>(outcome: &'a Answer, kind: &str) -> &'a str {
    &outcome.report().find_condition(kind).unwrap().reason
}

/// An answer's children as the cluster would show them: the StatefulSet with creation time and status.
fn settled(outcome: &Answer, replicas: i32) -> Vec<(String, Value)> {
    outcome
        .children()
        .iter()
        .map(|child| {
            let mut object = Value::from(child.object.clone());
            object["metadata"]["namespace"] = json!("default");
            if child.key == "members" {
                object["metadata"]["creationTimestamp"] = json!("1970-01-01T00:00:00Z");
                object["metadata"]["generation"] = json!(1);
                object["status"] = json!({
                    "observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
                    "readyReplicas": replicas, "updateRevision": "r1",
                });
            }
            (child.key.clone(), object)
        })
        .collect()
}

fn observing(parent: &EtcdCluster, children: &[(String, Value)]) -> TestRequest {
    children
        .iter()
        .fold(TestRequest::new(parent), |request, (key, object)| {
            request.child(key, object)
        })
}

/// The passes from an empty cluster to a formed one.
fn formed(parent: &EtcdCluster) -> (Answer, FakeHost) {
    let first = answer(TestRequest::new(parent), &host());
    let second = answer(observing(parent, &settled(&first, 0)), &host());
    let ready = (0..3).fold(host(), |host, ordinal| {
        host.object(&pod(ordinal, true, IMAGE))
    });
    let third = answer(observing(parent, &settled(&second, 3)), &ready);
    let fourth = answer(observing(parent, &settled(&third, 3)), &ready);
    assert!(third == fourth, "a formed cluster is steady");
    (fourth, ready)
}

#[test]
fn definitions_describe_every_field_and_have_no_default_in_the_status() {
    let problems = definition_problems(&Plugin::describe());
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
fn the_record_comes_before_everything_that_reads_it() {
    let first = answer(TestRequest::new(&article()), &host());
    assert_eq!(keys(&first), ["headless", "client", "state"]);
    let data = &first.child("state").unwrap().object["data"];
    assert_eq!(
        data["ETCD_INITIAL_CLUSTER"],
        "demo-0=https://demo-0.demo.default.svc:2380,\
         demo-1=https://demo-1.demo.default.svc:2380,\
         demo-2=https://demo-2.demo.default.svc:2380"
    );
    assert_eq!(data["ETCD_INITIAL_CLUSTER_STATE"], "new");

    let second = answer(observing(&article(), &settled(&first, 0)), &host());
    assert_eq!(
        keys(&second),
        [
            "headless", "client", "state", "claim-0", "claim-1", "claim-2", "members"
        ]
    );
    let members = second.child("members").unwrap();
    assert_eq!(
        members.after,
        ["headless", "state", "claim-0", "claim-1", "claim-2"]
    );
    assert_eq!(
        second.child("claim-0").unwrap().removal,
        RemovalPolicy::Retain
    );
    assert_eq!(reason(&second, "Available"), "Bootstrapping");
}

#[test]
fn a_cluster_whose_founders_are_ready_is_formed_for_ever() {
    let (outcome, _) = formed(&article());
    let state = &outcome.child("state").unwrap().object;
    assert_eq!(state["data"]["ETCD_INITIAL_CLUSTER_STATE"], "existing");
    assert_eq!(
        outcome.child("pdb").unwrap().object["spec"]["minAvailable"],
        2
    );
    assert_eq!(reason(&outcome, "Ready"), "Ready");
    let status = outcome.report().status.as_ref().unwrap();
    assert_eq!(status["currentVersion"], "3.4.13");
    assert_eq!(status["image"], IMAGE);
    assert_eq!(
        status["endpoints"]["client"],
        "http://demo-client.default.svc:2379"
    );
}

#[test]
fn the_arguments_have_their_fixed_order() {
    let first = answer(TestRequest::new(&article()), &host());
    let second = answer(observing(&article(), &settled(&first, 0)), &host());
    let pod = &second.child("members").unwrap().object["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["command"], json!(["etcd"]));
    assert_eq!(
        container["args"],
        json!([
            "--name=$(POD_NAME)",
            "--listen-metrics-urls=http://0.0.0.0:2381",
            "--listen-peer-urls=https://0.0.0.0:2380",
            "--listen-client-urls=http://0.0.0.0:2379",
            "--initial-advertise-peer-urls=https://$(POD_NAME).demo.$(POD_NAMESPACE).svc:2380",
            "--data-dir=/var/run/etcd/default.etcd",
            "--advertise-client-urls=http://$(POD_NAME).demo.$(POD_NAMESPACE).svc:2379",
            "--peer-auto-tls",
            "--auto-compaction-retention=5m",
            "--snapshot-count=10000",
            "--quota-backend-bytes=1020054732",
        ])
    );
    // 3.4.13 has no /livez: liveness must not depend on the quorum.
    assert_eq!(container["livenessProbe"]["tcpSocket"]["port"], 2380);
    // A full database is ready for reads; 3.4 knows the exception from 3.4.16 on.
    assert_eq!(
        container["readinessProbe"]["httpGet"]["path"],
        "/health?exclude=NOSPACE"
    );
}

#[test]
fn user_flags_replace_defaults_and_are_sorted() {
    let parent = parent(json!({
        "size": 1, "image": "etcd:v3.6.1", "storage": { "size": "2Gi" },
        "autoCompactionRetention": "1h", "options": { "pre-vote": "", "heartbeat-interval": "100" },
    }));
    let first = answer(TestRequest::new(&parent), &host());
    let second = answer(observing(&parent, &settled(&first, 0)), &host());
    let pod = &second.child("members").unwrap().object["spec"]["template"]["spec"];
    let arguments = pod["containers"][0]["args"].as_array().unwrap();
    assert_eq!(
        arguments[8..],
        [
            json!("--snapshot-count=10000"),
            json!("--auto-compaction-retention=1h"),
            json!("--heartbeat-interval=100"),
            json!("--pre-vote"),
            json!("--quota-backend-bytes=2040109465"),
        ]
    );
    assert_eq!(
        pod["containers"][0]["livenessProbe"]["httpGet"]["path"],
        "/livez"
    );
}

#[test]
fn a_changed_size_of_a_formed_cluster_breaks_nothing() {
    let (outcome, ready) = formed(&article());
    for size in [1, 5] {
        let resized = parent(json!({ "size": size, "image": IMAGE }));
        let after = answer(observing(&resized, &settled(&outcome, 3)), &ready);
        assert_eq!(after.children(), outcome.children(), "size {size}");
        assert_eq!(reason(&after, "Progressing"), "SizeNotSupported");
        assert_eq!(reason(&after, "Available"), "QuorumHealthy");
        assert_eq!(reason(&after, "Ready"), "SizeNotSupported");
    }
}

#[test]
fn a_pause_keeps_the_claims_and_ends_with_all_members() {
    let (outcome, _) = formed(&article());
    let paused = parent(json!({ "size": 0, "image": IMAGE }));
    let after = answer(observing(&paused, &settled(&outcome, 3)), &host());
    let members = &after.child("members").unwrap().object["spec"];
    assert_eq!(members["replicas"], 0);
    assert_eq!(
        members["persistentVolumeClaimRetentionPolicy"]["whenScaled"],
        "Retain"
    );
    assert!(after.child("claim-2").is_some());
    assert!(after.child("pdb").is_none());
    assert_eq!(reason(&after, "Available"), "Paused");

    let resumed = answer(observing(&article(), &settled(&after, 0)), &host());
    assert_eq!(
        resumed.child("members").unwrap().object["spec"]["replicas"],
        3
    );
    assert_eq!(reason(&resumed, "Progressing"), "Resuming");
}

fn retained_claims() -> Vec<Value> {
    (0..3)
        .map(|ordinal| {
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": format!("data-demo-{ordinal}"), "namespace": "default",
                    "labels": { "etcd.ydzs.io/cluster-uid": "former" },
                },
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": "1Gi" } },
                },
            })
        })
        .collect()
}

#[test]
fn claims_of_a_former_cluster_are_waited_for_unless_they_are_to_be_adopted() {
    let retained = |parent: &EtcdCluster| {
        retained_claims()
            .iter()
            .enumerate()
            .fold(TestRequest::new(parent), |request, (at, claim)| {
                request.retained(&format!("claim-{at}"), claim)
            })
    };
    let refused = answer(retained(&article()), &host());
    assert_eq!(keys(&refused), ["headless", "client"]);
    assert_eq!(reason(&refused, "Available"), "StaleClaims");

    let adopting =
        parent(json!({ "size": 3, "image": IMAGE, "storage": { "existingClaims": "Adopt" } }));
    let first = answer(retained(&adopting), &host());
    let state = &first.child("state").unwrap().object;
    assert_eq!(state["data"]["ETCD_INITIAL_CLUSTER_STATE"], "existing");
    let second = answer(
        retained(&adopting).child("state", &settled(&first, 0)[2].1),
        &host(),
    );
    let claim = &second.child("claim-0").unwrap().object;
    assert_eq!(
        claim["metadata"]["labels"]["etcd.ydzs.io/cluster-uid"],
        "former"
    );
    assert_eq!(
        second.child("members").unwrap().object["spec"]["replicas"],
        3
    );
}

#[test]
fn founders_that_take_too_long_are_reported_without_giving_up() {
    let first = answer(TestRequest::new(&article()), &host());
    let second = answer(observing(&article(), &settled(&first, 0)), &host());
    let children = settled(&second, 3);
    let one = || host().object(&pod(0, true, IMAGE));
    let early = answer(observing(&article(), &children), &one().now(100_000));
    assert_eq!(
        early.report().requeue,
        Some(std::time::Duration::from_secs(500))
    );
    assert_eq!(reason(&early, "Available"), "Bootstrapping");

    let late = answer(observing(&article(), &children), &one().now(600_000));
    assert_eq!(reason(&late, "Available"), "BootstrapFailed");
    assert!(late.child("members").is_some());

    let quorum = one().object(&pod(1, true, IMAGE)).now(600_000);
    let formed = answer(observing(&article(), &children), &quorum);
    assert_eq!(reason(&formed, "Available"), "QuorumAvailable");
}

#[test]
fn a_template_that_never_started_is_made_again() {
    let first = answer(TestRequest::new(&article()), &host());
    let second = answer(observing(&article(), &settled(&first, 0)), &host());
    let other = parent(json!({ "size": 3, "image": "cnych/etcd:v3.4.14" }));
    let after = answer(observing(&other, &settled(&second, 3)), &host());
    assert!(after.child("members").is_none());
    assert!(after.child("claim-0").is_some());
}

#[test]
fn a_cluster_is_ready_when_all_members_have_the_new_template() {
    let (outcome, host) = formed(&article());
    let other = parent(json!({ "size": 3, "image": IMAGE, "snapshotCount": 5000 }));
    // The StatefulSet as it is before the answer is written.
    let old = settled(&outcome, 3);
    let before = answer(observing(&other, &old), &host);
    let ready = |outcome: &Answer| outcome.report().find_condition("Ready").unwrap().is_true();
    assert_eq!(reason(&before, "Progressing"), "RollingUpdate");
    assert!(!ready(&before));
    let written = answer(observing(&other, &settled(&before, 3)), &host);
    assert!(ready(&written));
}

/// The API server adds none of these parts.
#[test]
fn the_report_on_a_changed_template_depends_on_the_parts_that_it_reads() {
    let (outcome, host) = formed(&article());
    let other = parent(json!({ "size": 3, "image": IMAGE, "snapshotCount": 5000 }));
    let request = observing(&other, &settled(&outcome, 3)).build();
    let parts = predicted_parts(&request, &host, Plugin::reconcile);
    assert_eq!(
        parts.unwrap(),
        [
            "members/metadata/annotations/etcd.ydzs.io~1formed",
            "members/metadata/annotations/etcd.ydzs.io~1members",
            "members/metadata/annotations/innkeeper-sdk~1template-hash",
            "members/metadata/creationTimestamp",
            "members/metadata/generation",
            "members/spec/persistentVolumeClaimRetentionPolicy/whenDeleted",
            "members/spec/replicas",
            "members/spec/updateStrategy/rollingUpdate/partition",
            "members/spec/volumeClaimTemplates/0/spec/resources/requests/storage",
            "members/status",
            "members/status/updateRevision",
        ]
    );
}

#[test]
fn a_lost_record_is_made_again_from_what_runs() {
    let (outcome, ready) = formed(&article());
    let mut children = settled(&outcome, 3);
    children.retain(|(key, _)| key != "state");
    let after = answer(observing(&article(), &children), &ready);
    let state = &after.child("state").unwrap().object;
    assert_eq!(state["data"]["ETCD_INITIAL_CLUSTER_STATE"], "existing");
    assert_eq!(
        after.child("members").unwrap().object["spec"]["replicas"],
        3
    );
}

#[test]
fn a_refused_upgrade_is_invalid_and_reports_the_members() {
    let (outcome, ready) = formed(&article());
    let jump = parent(json!({ "size": 3, "image": "etcd:v3.6.0" }));
    let request = observing(&jump, &settled(&outcome, 3)).build();
    let fault = Plugin::reconcile(&request, &ready).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Invalid);
    assert!(
        fault.message.contains("from 3.4.13 to 3.6.0"),
        "{}",
        fault.message
    );
    assert_eq!(
        fault
            .report
            .unwrap()
            .find_condition("Available")
            .unwrap()
            .reason,
        "QuorumHealthy"
    );
}

#[test]
fn an_image_outside_the_list_is_invalid() {
    let config = json!({ "tenants": { "images": ["quay.io/coreos/"] } });
    let request = |image: &str| {
        let parent = parent(json!({ "image": image }));
        TestRequest::new(&parent).config(&config).build()
    };
    let fault = Plugin::reconcile(&request("evil/etcd:v3.6.1"), &host()).unwrap_err();
    assert_eq!(
        fault.message,
        "spec.image: image evil/etcd:v3.6.1 is outside the repositories that the plugin's configuration \
         allows: quay.io/coreos/",
    );
    let fine = request("quay.io/coreos/etcd:v3.6.14");
    Plugin::reconcile(&fine, &host()).expect("the list has the repository");
}

/// A claim or Secret that the host created for another parent.
fn owned_by_another(mut object: Value) -> Value {
    object["metadata"]["labels"] = json!({ "innkeeper.dev/plugin": "other" });
    object
}

#[test]
fn pull_secrets_of_other_parents_are_invalid() {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "registry", "namespace": "default" },
    });
    let reconcile = |host: &FakeHost, tenants: Value| {
        let parent = parent(json!({ "imagePullSecrets": [{ "name": "registry" }] }));
        let request = TestRequest::new(&parent).config(&json!({ "tenants": tenants }));
        Plugin::reconcile(&request.build(), host)
            .map(|_| ())
            .map_err(|fault| fault.message)
    };
    assert_eq!(reconcile(&host().object(&secret), json!({})), Ok(()));
    let foreign = host().object(&owned_by_another(secret));
    let expected = "spec.imagePullSecrets: Secret registry belongs to another parent: annotate it with \
                    innkeeper.dev/shared-with: EtcdCluster.etcd.ydzs.io/demo, or name another";
    assert_eq!(reconcile(&foreign, json!({})).unwrap_err(), expected);
    let missing = "spec.imagePullSecrets: Secret not found: registry";
    assert_eq!(reconcile(&host(), json!({})).unwrap_err(), missing);
    let namespace = json!({ "references": "namespace" });
    assert_eq!(reconcile(&foreign, namespace), Ok(()));
}

#[test]
fn a_missing_pull_secret_stops_a_running_cluster_only_if_it_is_new() {
    let secret = |name: &str| json!([{ "name": name }]);
    let stateful_set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": { "name": "demo", "namespace": "default" },
        "spec": {
            "replicas": 1,
            "template": { "spec": { "imagePullSecrets": secret("registry") } },
        },
    });
    let reconcile = |name: &str| {
        let parent = parent(json!({ "imagePullSecrets": secret(name) }));
        let request = TestRequest::new(&parent).child("members", &stateful_set);
        Plugin::reconcile(&request.build(), &host())
            .map(|_| ())
            .map_err(|fault| fault.message)
    };
    assert_eq!(reconcile("registry"), Ok(()));
    let missing = "spec.imagePullSecrets: Secret not found: other";
    assert_eq!(reconcile("other").unwrap_err(), missing);
}

#[test]
fn claims_of_other_parents_are_not_adopted() {
    let adopting =
        parent(json!({ "size": 3, "image": IMAGE, "storage": { "existingClaims": "Adopt" } }));
    let [first, second, third] = <[Value; 3]>::try_from(retained_claims()).unwrap();
    let reconcile = |request: TestRequest, claims: &[&Value], tenants: Value| {
        let host = host().objects(claims.iter().copied());
        let request = request.config(&json!({ "tenants": tenants })).build();
        Plugin::reconcile(&request, &host).map_err(|fault| (fault.kind, fault.message))
    };
    let check_adopts = |claims: &[&Value], tenants: Value| {
        let outcome = reconcile(TestRequest::new(&adopting), claims, tenants).unwrap();
        let state = &outcome.child("state").unwrap().object;
        assert_eq!(state["data"]["ETCD_INITIAL_CLUSTER_STATE"], "existing");
        outcome
    };
    // A claim without a parent's mark is free.
    let founded = check_adopts(&[&first, &second, &third], json!({}));
    let foreign = owned_by_another(second);
    let expected = "claim data-demo-1 belongs to another parent: annotate it with \
                    innkeeper.dev/shared-with: EtcdCluster.etcd.ydzs.io/demo, or name another";
    let expected = (FaultKind::Invalid, expected.to_owned());
    let claims = [&first, &foreign, &third];
    let refused = reconcile(TestRequest::new(&adopting), &claims, json!({}));
    assert_eq!(refused.unwrap_err(), expected);
    // Nor is one that another parent creates after the record, although the StatefulSet would mount it.
    for parent in [&adopting, &article()] {
        let begun = || observing(parent, &settled(&founded, 0));
        let refused = reconcile(begun(), &[&foreign], json!({}));
        assert_eq!(refused.unwrap_err(), expected);
    }
    check_adopts(&claims, json!({ "references": "namespace" }));
    let mut shared = foreign.clone();
    shared["metadata"]["annotations"] =
        json!({ "innkeeper.dev/shared-with": "EtcdCluster.etcd.ydzs.io/demo" });
    check_adopts(&[&first, &shared, &third], json!({}));
}

#[test]
fn a_claim_of_another_parent_beyond_the_members_is_left_alone() {
    let mut beyond = retained_claims().remove(0);
    beyond["metadata"]["name"] = json!("data-demo-7");
    let first = answer(TestRequest::new(&article()), &host());
    let foreign = host().object(&owned_by_another(beyond));
    let second = answer(observing(&article(), &settled(&first, 0)), &foreign);
    assert!(second.child("members").is_some());
    let status = second.report().status.as_ref().unwrap();
    assert_eq!(status["warnings"].to_string().find("data-demo-7"), None);
}

#[test]
fn names_of_flags_are_plain() {
    let with = |name: &str| parent(json!({ "size": 1, "options": { name: "1" } }));
    let broken = |name: &str| {
        PLUGIN
            .schema("EtcdCluster")
            .admit(json!(with(name)).as_object().unwrap().clone())
            .is_err()
    };
    let refused = |name: &str| {
        Plugin::reconcile(&TestRequest::new(&with(name)).build(), &host())
            .err()
            .map(|fault| fault.message)
    };
    for name in ["heartbeat-interval", "snapshot-count", "max-wals"] {
        assert!(!broken(name), "{name}");
        assert_eq!(refused(name), None);
    }
    for name in ["A", "a b", "a=b", "a\n", "a.b", "ä", "a=1 --data-dir", ""] {
        assert!(broken(name), "{name}");
        let expected = format!(
            "spec.options: \"{name}\" is no name of a flag, which has lower-case letters, digits and dashes \
             only"
        );
        assert_eq!(refused(name), Some(expected));
    }
}

#[test]
fn reports_on_new_examples_are_predicted() {
    expect_test::expect![[r"
        01-article.yaml EtcdCluster: 4 made, 0 saved
        03-production.yaml EtcdCluster: 4 made, 0 saved
        04-tls-cert-manager.yaml EtcdCluster: 2 made, 1 saved
        05-tls-secrets.yaml EtcdCluster: 4 made, 0 saved
        08-memory.yaml EtcdCluster: 3 made, 0 saved
        09-paused.yaml EtcdCluster: 1 made, 1 saved
    "]]
    .assert_eq(&PLUGIN.example_calls("etcd", host()));
}
