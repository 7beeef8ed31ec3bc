//! Tests of the reconciler as plain Rust, with a fake host.

mod bad_input;
mod properties;

use std::sync::LazyLock;

use innkeeper_schema::Schema;
use innkeeper_sdk::{
    prelude::*,
    testing::{FakeHost, TestRequest, definition_problems},
};
use serde_json::{Value, json};

use crate::{
    Plugin,
    api::EtcdCluster,
    version::{Version, check_upgrade},
};

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

fn manifest() -> &'static Manifest {
    static MANIFEST: LazyLock<Manifest> = LazyLock::new(Plugin::describe);
    &MANIFEST
}

/// The definition, as the API server applies it.
fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let crd = manifest().crds[0].as_object().unwrap();
        Schema::new(crd, "v1alpha1").unwrap()
    });
    &SCHEMA
}

fn host() -> FakeHost {
    FakeHost::granting(manifest())
}

fn pod(ordinal: i32, ready: bool, image: &str) -> Value {
    of_revision(ordinal, ready, image, "r1")
}

fn of_revision(ordinal: i32, ready: bool, image: &str, revision: &str) -> Value {
    let mut labels = innkeeper_sdk::labels::base_labels("etcd", "demo", "member");
    labels.insert("controller-revision-hash".to_owned(), revision.to_owned());
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("demo-{ordinal}"), "namespace": "default", "labels": labels },
        "spec": { "containers": [{ "name": "etcd", "image": image }] },
        "status": { "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] },
    })
}

fn answer(request: TestRequest, host: &FakeHost) -> Outcome {
    Plugin::reconcile(&request.build(), host).unwrap()
}

fn keys(outcome: &Outcome) -> Vec<&str> {
    outcome
        .children()
        .iter()
        .map(|child| child.key.as_str())
        .collect()
}

fn reason<'a>(outcome: &'a Outcome, kind: &str) -> &'a str {
    &outcome.report().find_condition(kind).unwrap().reason
}

/// The children of an answer as the cluster would show them: the StatefulSet with a creation time and a status.
fn settled(outcome: &Outcome, replicas: i32) -> Vec<(String, Value)> {
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
fn formed(parent: &EtcdCluster) -> (Outcome, FakeHost) {
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
        state["metadata"]["annotations"]["etcd.ydzs.io/voters"],
        "0,1,2"
    );
    assert_eq!(
        outcome.child("pdb").unwrap().object["spec"]["minAvailable"],
        2
    );
    assert_eq!(reason(&outcome, "Ready"), "Ready");
    let status = outcome.report().status.as_ref().unwrap();
    assert_eq!(status["currentVersion"], "3.4.13");
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
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/health");
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
    let ready = |outcome: &Outcome| outcome.report().find_condition("Ready").unwrap().is_true();
    assert_eq!(reason(&before, "Progressing"), "RollingUpdate");
    assert!(!ready(&before));
    let written = answer(observing(&other, &settled(&before, 3)), &host);
    assert!(ready(&written));
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
fn versions_go_one_minor_at_a_time_and_never_back() {
    let version = |text: &str| Version::parse(text).unwrap();
    assert!(check_upgrade("spec.image", version("3.4.13"), version("v3.5.0")).is_ok());
    assert!(check_upgrade("spec.image", version("3.5.1"), version("3.5.9")).is_ok());
    // Upstream supports an upgrade to the next minor version from these patches on only.
    for (from, to, expected) in [
        ("3.5.25", "3.6.14", Some("3.5.26")),
        ("3.5.26", "3.6.0", None),
        ("3.6.10", "3.7.1", Some("3.6.11")),
        ("3.6.11", "3.7.0", None),
        ("3.7.0", "3.8.0", None),
    ] {
        let expected = expected.map(|least| {
            format!("spec.version: upgrade from {from} to {to} is not allowed, go to {least} or later first")
        });
        let found = check_upgrade("spec.version", version(from), version(to));
        assert_eq!(found.err(), expected, "{from} {to}");
    }
    assert_eq!(
        check_upgrade("spec.image", version("3.5.1"), version("3.5.0")).unwrap_err(),
        "spec.image: downgrade from 3.5.1 to 3.5.0 is not allowed"
    );
    assert_eq!(
        check_upgrade("spec.image", version("3.4.0"), version("3.6.0")).unwrap_err(),
        "spec.image: upgrade from 3.4.0 to 3.6.0 is not allowed, go one minor version at a time"
    );
    assert_eq!(Version::of_image("registry:5000/etcd"), None);
    assert_eq!(
        Version::of_image("a/etcd:v3.5.1-debian@sha256:0"),
        Some(Version::new(3, 5, 1))
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
fn probes_follow_the_version() {
    let table = [
        ((3, 4, 13), false),
        ((3, 4, 29), true),
        ((3, 5, 10), false),
        ((3, 5, 11), true),
        ((3, 6, 0), true),
    ];
    for ((major, minor, patch), expected) in table {
        let version = Version::new(major, minor, patch);
        assert_eq!(version.has_health_endpoints(), expected, "{version}");
    }
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

/// A claim or Secret that the host made for another parent.
fn of_another(mut object: Value) -> Value {
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
    let foreign = host().object(&of_another(secret));
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
    // A claim without the mark of a parent is free.
    let founded = check_adopts(&[&first, &second, &third], json!({}));
    let foreign = of_another(second);
    let expected = "claim data-demo-1 belongs to another parent: annotate it with \
                    innkeeper.dev/shared-with: EtcdCluster.etcd.ydzs.io/demo, or name another";
    let expected = (FaultKind::Invalid, expected.to_owned());
    let claims = [&first, &foreign, &third];
    let refused = reconcile(TestRequest::new(&adopting), &claims, json!({}));
    assert_eq!(refused.unwrap_err(), expected);
    // Neither is one that another parent makes after the record, which the StatefulSet would mount.
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
    let foreign = host().object(&of_another(beyond));
    let second = answer(observing(&article(), &settled(&first, 0)), &foreign);
    assert!(second.child("members").is_some());
}

#[test]
fn names_of_flags_are_plain() {
    let with = |name: &str| parent(json!({ "size": 1, "options": { name: "1" } }));
    let broken = |name: &str| {
        schema()
            .admit(json!(with(name)).as_object().unwrap().clone())
            .is_err()
    };
    let refused = |name: &str| {
        let answer = Plugin::reconcile(&TestRequest::new(&with(name)).build(), &host());
        answer.err().map(|fault| fault.message)
    };
    for name in ["heartbeat-interval", "snapshot-count", "v2"] {
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

fn spec_of(outcome: &Outcome) -> Value {
    Value::from(outcome.child("members").unwrap().object.clone())["spec"].clone()
}

fn partition(outcome: &Outcome) -> Value {
    spec_of(outcome)["updateStrategy"]["rollingUpdate"]["partition"].clone()
}

fn status(outcome: &Outcome) -> Value {
    outcome.report().status.clone().unwrap()
}

/// The problem of a parent without children.
fn problem(parent: &EtcdCluster) -> Option<String> {
    let answer = Plugin::reconcile(&TestRequest::new(parent).build(), &host());
    answer.err().map(|fault| fault.message)
}

fn members(ready: &[bool], revisions: &[&str]) -> FakeHost {
    let pods = (0..).zip(ready.iter().zip(revisions));
    pods.fold(host(), |host, (ordinal, (ready, revision))| {
        host.object(&of_revision(ordinal, *ready, IMAGE, revision))
    })
}

/// EB1
#[test]
fn an_edit_takes_no_member_while_another_one_is_down() {
    let (outcome, _) = formed(&article());
    let other = parent(json!({ "size": 3, "image": IMAGE, "snapshotCount": 5000 }));
    let old = settled(&outcome, 3);
    let down = members(&[false, true, true], &["r1"; 3]);
    let held = answer(observing(&other, &old), &down);
    assert_eq!(partition(&held), 3);
    assert_eq!(reason(&held, "Progressing"), "RolloutHeld");
    assert_eq!(reason(&held, "Degraded"), "MembersUnhealthy");

    let mut annotated = other.clone();
    annotated.metadata.annotations = Some(
        [(
            "etcd.ydzs.io/allow-unsafe-rollout".to_owned(),
            "true".to_owned(),
        )]
        .into(),
    );
    assert_eq!(partition(&answer(observing(&annotated, &old), &down)), 0);

    let begun = answer(observing(&other, &old), &members(&[true; 3], &["r1"; 3]));
    assert_eq!(partition(&begun), 2);
    // The controller has not seen the new template yet, so the revision of the Pods is not known.
    let mut rolling = settled(&begun, 3);
    let set = rolling
        .iter_mut()
        .find(|(key, _)| key == "members")
        .unwrap();
    set.1["metadata"]["generation"] = json!(2);
    let unseen = answer(
        observing(&other, &rolling),
        &members(&[true; 3], &["r1"; 3]),
    );
    assert_eq!(partition(&unseen), 2);
    let set = rolling
        .iter_mut()
        .find(|(key, _)| key == "members")
        .unwrap();
    set.1["status"]["observedGeneration"] = json!(2);
    set.1["status"]["updateRevision"] = json!("r2");
    set.1["status"]["updatedReplicas"] = json!(1);
    for (ready, revisions, expected) in [
        ([true, true, false], ["r1", "r1", "r2"], 2),
        ([true, true, true], ["r1", "r1", "r2"], 1),
        ([true, false, true], ["r1", "r2", "r2"], 1),
        ([true, true, true], ["r1", "r2", "r2"], 0),
    ] {
        let step = answer(observing(&other, &rolling), &members(&ready, &revisions));
        assert_eq!(partition(&step), expected, "{revisions:?}");
        // A normal roll-out is no problem.
        assert_eq!(
            reason(&step, "Progressing"),
            "RollingUpdate",
            "{revisions:?}"
        );
        assert!(!step.report().find_condition("Degraded").unwrap().is_true());
        assert!(step.report().find_condition("Available").unwrap().is_true());
    }
}

/// EB2
#[test]
fn a_late_founder_is_let_in_until_it_is_ready() {
    let first = answer(TestRequest::new(&article()), &host());
    let second = answer(observing(&article(), &settled(&first, 0)), &host());
    let quorum = members(&[true, true, false], &["r1"; 3]).now(600_000);
    let formed = answer(observing(&article(), &settled(&second, 3)), &quorum);
    let data = |outcome: &Outcome| outcome.child("state").unwrap().object["data"].clone();
    assert_eq!(data(&formed)["ETCD_INITIAL_CLUSTER_STATE"], "existing");
    assert_eq!(data(&formed)["ADMIT_2"], "1");
    assert_eq!(data(&formed)["ADMIT_1"], Value::Null);
    let later = answer(observing(&article(), &settled(&formed, 3)), &quorum);
    assert_eq!(data(&later)["ADMIT_2"], "1");
    let whole = members(&[true; 3], &["r1"; 3]);
    let after = answer(observing(&article(), &settled(&later, 3)), &whole);
    assert_eq!(data(&after)["ADMIT_2"], Value::Null);
}

/// EB3
#[test]
fn media_that_lose_their_data_are_refused() {
    for medium in ["Memory", "EmptyDir"] {
        let parent = parent(json!({ "storage": { "medium": medium } }));
        let expected = format!(
            "spec.storage.medium: {medium} loses the data of a member with its Pod, and such a member cannot be replaced yet: \
             set it to Persistent"
        );
        assert_eq!(problem(&parent), Some(expected));
    }
}

/// EB4
#[test]
fn a_first_version_that_was_too_high_can_be_taken_back() {
    let mistyped = parent(json!({ "size": 1, "image": "etcd:v3.9.9" }));
    let first = answer(TestRequest::new(&mistyped), &host());
    let second = answer(observing(&mistyped, &settled(&first, 0)), &host());
    let corrected = parent(json!({ "size": 1, "image": "etcd:v3.6.14" }));
    let pending = host().object(&pod(0, false, "etcd:v3.9.9"));
    let after = answer(observing(&corrected, &settled(&second, 1)), &pending);
    // It has never run, so the StatefulSet is made again.
    assert!(after.child("members").is_none());
}

/// ES2
#[test]
fn an_upgrade_starts_from_the_version_that_has_run() {
    let (outcome, _) = formed(&article());
    let version = |outcome: &Outcome| {
        outcome.child("state").unwrap().object["metadata"]["annotations"]["etcd.ydzs.io/version"]
            .clone()
    };
    assert_eq!(version(&outcome), "3.4.13");
    let paused = |image: &str, before: &[(String, Value)]| {
        let parent = parent(json!({ "size": 0, "image": image }));
        let request = observing(&parent, before).build();
        Plugin::reconcile(&request, &host()).map_err(|fault| fault.message)
    };
    let next = paused("etcd:v3.5.26", &settled(&outcome, 0)).unwrap();
    assert_eq!(version(&next), "3.4.13");
    assert_eq!(
        paused("etcd:v3.6.14", &settled(&next, 0)).unwrap_err(),
        "spec.image: upgrade from 3.4.13 to 3.6.14 is not allowed, go one minor version at a time"
    );
}

/// EB5
#[test]
fn compaction_by_revision_keeps_a_number_of_revisions() {
    for spec in [
        json!({ "size": 1, "autoCompactionMode": "revision" }),
        json!({ "size": 1, "options": { "auto-compaction-mode": "revision" } }),
    ] {
        let parent = parent(spec);
        let first = answer(TestRequest::new(&parent), &host());
        let second = answer(observing(&parent, &settled(&first, 0)), &host());
        let arguments = spec_of(&second)["template"]["spec"]["containers"][0]["args"].to_string();
        assert!(
            arguments.contains("--auto-compaction-retention=1000"),
            "{arguments}"
        );
    }
}

/// EB6
#[test]
fn the_quota_is_that_of_the_smallest_volume() {
    let quota = |size: &str, capacities: &[&str]| {
        let parent = parent(json!({ "size": 3, "image": IMAGE, "storage": { "size": size } }));
        let first = answer(TestRequest::new(&parent), &host());
        let second = answer(observing(&parent, &settled(&first, 0)), &host());
        let mut children = settled(&second, 3);
        for (ordinal, capacity) in capacities.iter().enumerate() {
            let key = format!("claim-{ordinal}");
            let claim = children.iter_mut().find(|(it, _)| *it == key).unwrap();
            claim.1["status"] = json!({ "capacity": { "storage": capacity } });
        }
        let ready = members(&[true; 3], &["r1"; 3]);
        let after = answer(observing(&parent, &children), &ready);
        let arguments = spec_of(&after)["template"]["spec"]["containers"][0]["args"].clone();
        let arguments = arguments.as_array().unwrap().last().unwrap().clone();
        arguments
            .as_str()
            .unwrap()
            .replace("--quota-backend-bytes=", "")
    };
    assert_eq!(quota("1000", &[]), "950");
    assert_eq!(quota("1000", &["2000", "1000", "1000"]), "950");
    assert_eq!(quota("2000", &["2000", "1000", "2000"]), "950");
    assert_eq!(quota("20Gi", &["20Gi"]), (8_u64 << 30).to_string());
}

/// EB7
#[test]
fn a_resume_is_no_loss_of_the_quorum() {
    let (outcome, _) = formed(&article());
    let paused = parent(json!({ "size": 0, "image": IMAGE }));
    let pause = answer(observing(&paused, &settled(&outcome, 3)), &host());
    let stored = |outcome: &Outcome| {
        let mut status = status(outcome);
        let available = outcome.report().find_condition("Available").unwrap();
        status["conditions"] = json!([{
            "type": "Available", "status": if available.is_true() { "True" } else { "False" },
            "reason": available.reason, "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z",
        }]);
        status
    };
    let request = observing(&article(), &settled(&pause, 0)).status(&stored(&pause));
    let resumed = answer(request, &host());
    let request = observing(&article(), &settled(&resumed, 0)).status(&stored(&resumed));
    let starting = answer(request, &members(&[true, false, false], &["r1"; 3]));
    assert_eq!(reason(&starting, "Available"), "Resuming");
    assert!(
        !starting
            .report()
            .find_condition("Degraded")
            .unwrap()
            .is_true()
    );
    assert_eq!(starting.report().events, []);
    let request = observing(&article(), &settled(&starting, 3)).status(&stored(&starting));
    let running = answer(request, &members(&[true; 3], &["r1"; 3]));
    assert_eq!(reason(&running, "Available"), "QuorumHealthy");
    assert_eq!(running.report().events[0].reason, "Resumed");
}

/// EB9
#[test]
fn an_adoption_needs_the_claims_of_all_members() {
    let adopting =
        parent(json!({ "size": 3, "image": IMAGE, "storage": { "existingClaims": "Adopt" } }));
    let with = |ordinals: &[usize], members: Option<&str>| {
        let claims = retained_claims();
        let request = ordinals
            .iter()
            .fold(TestRequest::new(&adopting), |request, at| {
                let mut claim = claims[*at].clone();
                if let Some(members) = members {
                    claim["metadata"]["labels"]["etcd.ydzs.io/members"] = json!(members);
                }
                request.retained(&format!("claim-{at}"), &claim)
            });
        answer(request, &host())
    };
    for (ordinals, members, missing) in [
        (&[1, 2][..], None, "data-demo-0"),
        (&[0, 2], None, "data-demo-1"),
        (&[0], Some("3"), "data-demo-1, data-demo-2"),
    ] {
        let outcome = with(ordinals, members);
        let available = outcome.report().find_condition("Available").unwrap();
        assert_eq!(
            (available.is_true(), &*available.reason),
            (false, "StaleClaims")
        );
        assert!(
            available.message.contains(&format!("missing: {missing};")),
            "{}",
            available.message
        );
        assert!(outcome.child("state").is_none());
    }
    let whole = with(&[0, 1, 2], Some("3"));
    assert_eq!(reason(&whole, "Available"), "Resuming");
    assert!(whole.child("state").is_some());
}

/// EB10
#[test]
fn the_version_of_a_digest_counts_for_upgrades() {
    let digest = |version: &str, digest: &str| {
        let image = format!("etcd@sha256:{digest}");
        parent(json!({ "size": 3, "image": image, "version": version }))
    };
    let before = digest("3.5.9", "0");
    let first = answer(TestRequest::new(&before), &host());
    let second = answer(observing(&before, &settled(&first, 0)), &host());
    let ready = (0..3).fold(host(), |host, ordinal| {
        host.object(&pod(ordinal, true, "etcd@sha256:0"))
    });
    let third = answer(observing(&before, &settled(&second, 3)), &ready);
    let fourth = answer(observing(&before, &settled(&third, 3)), &ready);
    assert_eq!(status(&fourth)["currentVersion"], "3.5.9");
    let after = digest("3.6.14", "1");
    let request = observing(&after, &settled(&fourth, 3)).build();
    assert_eq!(
        Plugin::reconcile(&request, &ready).unwrap_err().message,
        "spec.version: upgrade from 3.5.9 to 3.6.14 is not allowed, go to 3.5.26 or later first"
    );
}

/// ES14 and ES15
#[test]
fn a_version_that_contradicts_the_image_or_the_flags_is_invalid() {
    let contradiction = parent(json!({ "image": "etcd:v3.5.1", "version": "3.6.0" }));
    assert_eq!(
        problem(&contradiction).unwrap(),
        "spec.version: 3.6.0 is not the version in the tag of spec.image, 3.5.1: leave version out, or correct one of them"
    );
    let flag =
        |version: &str| parent(json!({ "version": version, "options": { "experimental-x": "1" } }));
    assert_eq!(
        problem(&flag("3.7.0")).unwrap(),
        "spec.options: experimental-x was removed in etcd 3.7: use the flag without experimental-, or leave it out"
    );
    assert_eq!(problem(&flag("3.6.14")), None);
}

/// EB13
#[test]
fn a_lost_record_keeps_the_disruption_budget() {
    let (outcome, _) = formed(&article());
    let mut children = settled(&outcome, 3);
    children.retain(|(key, _)| key != "state");
    let degraded = members(&[true, false, true], &["r1"; 3]);
    let after = answer(observing(&article(), &children), &degraded);
    assert_eq!(
        after.child("pdb").unwrap().object["spec"]["minAvailable"],
        2
    );
}

/// EB14
#[test]
fn a_member_without_a_pod_is_listed() {
    let (outcome, _) = formed(&article());
    let two = members(&[true, true], &["r1"; 2]);
    let after = answer(observing(&article(), &settled(&outcome, 3)), &two);
    assert_eq!(
        status(&after)["members"][2],
        json!({ "name": "demo-2", "ordinal": 2, "ready": false })
    );
}

/// EB15
#[test]
fn a_stateful_set_goes_before_the_formation_only_if_the_claims_stay() {
    let deleting = |image: &str| {
        parent(json!({ "size": 3, "image": image, "storage": { "whenDeleted": "Delete" } }))
    };
    let first = answer(TestRequest::new(&deleting(IMAGE)), &host());
    let second = answer(observing(&deleting(IMAGE), &settled(&first, 0)), &host());
    let policy = |outcome: &Outcome| {
        spec_of(outcome)["persistentVolumeClaimRetentionPolicy"]["whenDeleted"].clone()
    };
    assert_eq!(policy(&second), "Retain");
    let other = deleting("cnych/etcd:v3.4.14");
    // One of an earlier version of this plugin.
    let mut children = settled(&second, 3);
    let set = children
        .iter_mut()
        .find(|(key, _)| key == "members")
        .unwrap();
    set.1["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] = json!("Delete");
    let kept = answer(observing(&other, &children), &host());
    assert_eq!(policy(&kept), "Retain");
    let gone = answer(observing(&other, &settled(&second, 3)), &host());
    assert!(gone.child("members").is_none());
    let whole = members(&[true; 3], &["r1"; 3]);
    let formed = answer(observing(&deleting(IMAGE), &settled(&second, 3)), &whole);
    assert_eq!(policy(&formed), "Delete");
}

/// U4
#[test]
fn an_edited_record_starts_no_second_cluster() {
    let (outcome, ready) = formed(&article());
    let mut children = settled(&outcome, 3);
    let state = children.iter_mut().find(|(key, _)| key == "state").unwrap();
    state.1["data"]["ETCD_INITIAL_CLUSTER_STATE"] = json!("new");
    let request = observing(&article(), &children).status(&status(&outcome));
    let after = answer(request, &ready);
    assert_eq!(
        after.child("state").unwrap().object["data"]["ETCD_INITIAL_CLUSTER_STATE"],
        "existing"
    );
}
