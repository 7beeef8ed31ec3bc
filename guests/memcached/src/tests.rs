//! Unit tests of the reconciler in plain Rust.

mod bad_input;
mod configuration;
mod program;
mod properties;

use std::sync::LazyLock;

use innkeeper_guest_testing::Fixture;
use innkeeper_kit::prelude::*;
use innkeeper_sdk::testing::{FakeHost, TestRequest, definition_problems};
use serde_json::{Value, json};

use crate::{
    Plugin,
    api::{Memcached, MemcachedStatus},
    options::{EXTENDED_OPTIONS, OPTIONS},
};

fn parent(spec: Value) -> Memcached {
    let object = json!({
        "apiVersion": "cache.example.com/v1", "kind": "Memcached",
        "metadata": { "name": "example", "namespace": "default" },
        "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

/// The Deployment from the first answer, with Pod counts.
fn workload(replicas: i32, ready: i32) -> Value {
    let outcome = reconcile(json!({}));
    let mut deployment = Value::from(outcome.child("deployment").unwrap().object.clone());
    deployment["metadata"]["generation"] = json!(1);
    deployment["spec"]["replicas"] = json!(replicas);
    deployment["status"] = json!({
        "observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
        "readyReplicas": ready,
    });
    deployment
}

static PLUGIN: LazyLock<Fixture> =
    LazyLock::new(|| Fixture::new(Plugin::describe, Plugin::reconcile));

fn host() -> FakeHost {
    PLUGIN.host()
}

fn reconcile(spec: Value) -> Answer {
    Plugin::reconcile(&TestRequest::new(&parent(spec)).build(), &host()).unwrap()
}

fn conditions(outcome: &Answer) -> Vec<String> {
    let text = |condition: &Condition| {
        format!(
            "{} {:?}/{}: {}",
            condition.type_, condition.status, condition.reason, condition.message
        )
    };
    outcome.report().conditions.iter().map(text).collect()
}

#[test]
fn the_article_makes_a_deployment_and_a_headless_service() {
    let outcome = reconcile(json!({ "size": 3 }));
    let names: Vec<String> = outcome
        .children()
        .iter()
        .map(Child::kind_and_name)
        .collect();
    assert_eq!(names, ["Deployment/example", "Service/example"]);

    let deployment = &outcome.child("deployment").unwrap().object;
    assert_eq!(deployment["spec"]["replicas"], 3);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "memcached:1.6");
    assert_eq!(
        container["args"],
        json!(["-m", "64", "-c", "1024", "-t", "4", "-I", "1m"])
    );
    assert_eq!(container["resources"]["requests"]["memory"], "135Mi");

    let service = &outcome.child("service").unwrap().object;
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(
        service["spec"]["selector"],
        deployment["spec"]["selector"]["matchLabels"]
    );
}

#[test]
fn an_absent_size_is_one() {
    let outcome = reconcile(json!({}));
    assert_eq!(
        outcome.child("deployment").unwrap().object["spec"]["replicas"],
        1
    );
}

#[test]
fn selectors_do_not_depend_on_the_image() {
    let selector = |image: &str| {
        reconcile(json!({ "image": image }))
            .child("deployment")
            .unwrap()
            .object["spec"]["selector"]
            .clone()
    };
    assert_eq!(
        selector("memcached:1.5"),
        selector("registry:5000/memcached")
    );
}

#[test]
fn every_option_becomes_an_argument_in_order() {
    let outcome = reconcile(json!({
        "containerPort": 11300,
        "memcached": {
            "maxMemoryMB": 128, "maxConnections": 28, "threads": 2, "maxItemSize": "512k",
            "verbosity": 2, "extraArgs": ["-o", "modern"],
        },
    }));
    let deployment = &outcome.child("deployment").unwrap().object;
    let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    assert_eq!(
        *arguments,
        json!([
            "-m", "128", "-c", "28", "-t", "2", "-I", "512k", "-vv", "-p", "11300", "-o", "modern"
        ])
    );
}

#[test]
fn a_disabled_disruption_budget_leaves_no_trace() {
    let budget = json!({ "podDisruptionBudget": { "enabled": true, "maxUnavailable": 1 } });
    let with = reconcile(json!({ "size": 3, "highAvailability": budget }));
    let pdb = &with.child("pdb").unwrap().object;
    assert_eq!(pdb["spec"]["maxUnavailable"], 1);
    assert_eq!(pdb["spec"].get("minAvailable"), None);

    let off = json!({ "podDisruptionBudget": { "enabled": false } });
    let without = reconcile(json!({ "size": 3, "highAvailability": off }));
    assert_eq!(without, reconcile(json!({ "size": 3 })));
}

#[test]
fn conditions_follow_the_pods() {
    let available = "Available";
    let complete = "ProgressingComplete";
    let fine = "NotDegraded";
    let table = [
        (
            3,
            None,
            ["Unavailable", "Progressing", "Degraded", "RollingOut"],
        ),
        (
            3,
            Some((3, 0)),
            ["Unavailable", complete, "Degraded", "NotReady"],
        ),
        (
            3,
            Some((3, 2)),
            [available, complete, "Degraded", "NotReady"],
        ),
        (3, Some((3, 3)), [available, complete, fine, "Ready"]),
        // A rollout with one surplus Pod, and an unfinished scale-in.
        (3, Some((4, 4)), [available, "Progressing", fine, "Ready"]),
        (2, Some((3, 3)), [available, "Progressing", fine, "Ready"]),
        (0, Some((0, 0)), ["Unavailable", complete, fine, "NotReady"]),
    ];
    for (size, observed, expected) in table {
        let parent = parent(json!({ "size": size }));
        let mut request = TestRequest::new(&parent);
        if let Some((replicas, ready)) = observed {
            request = request.child("deployment", &workload(replicas, ready));
        }
        let outcome = Plugin::reconcile(&request.build(), &host()).unwrap();
        let report = outcome.report();
        let reasons: Vec<&str> = report
            .conditions
            .iter()
            .map(|condition| condition.reason.as_str())
            .collect();
        assert_eq!(
            reasons,
            expected,
            "size {size}, observed {observed:?}: {:?}",
            conditions(&outcome)
        );
    }
}

#[test]
fn more_ready_pods_than_requested_are_no_problem() {
    let stored = json!({ "conditions": [{
        "type": "Ready", "status": "True", "reason": "Ready", "message": "all 3 replicas are ready",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] });
    let request = TestRequest::new(&parent(json!({ "size": 3 })))
        .child("deployment", &workload(4, 4))
        .status(&stored);
    let outcome = Plugin::reconcile(&request.build(), &host()).unwrap();
    assert_eq!(
        conditions(&outcome),
        [
            "Available True/Available: 3 of 3 replicas are ready",
            "Progressing True/Progressing: 4 replicas exist, 3 are requested",
            "Degraded False/NotDegraded: all 3 replicas are ready",
            "Ready True/Ready: all 3 replicas are ready",
        ]
    );
    assert_eq!(outcome.report().events, []);
}

/// Returns `Ready` and the events after an earlier Deployment changed. `numbers` are the generation, the observed
/// generation, and the updated, total and ready Pods.
fn rolling(earlier: &Answer, numbers: [i32; 5], was_ready: bool) -> (Answer, String, Vec<String>) {
    let [generation, observed, updated, replicas, ready] = numbers;
    let mut deployment = earlier.child("deployment").unwrap().object.clone();
    deployment["metadata"]["generation"] = json!(generation);
    deployment["status"] = json!({
        "observedGeneration": observed, "updatedReplicas": updated, "replicas": replicas,
        "readyReplicas": ready,
    });
    let stored = json!({ "conditions": [{
        "type": "Ready", "status": if was_ready { "True" } else { "False" },
        "reason": if was_ready { "Ready" } else { "RollingOut" }, "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] });
    let request = TestRequest::new(&parent(json!({ "size": 3, "image": "memcached:1.6.40" })))
        .child("deployment", &deployment)
        .status(&stored);
    let outcome = Plugin::reconcile(&request.build(), &host()).unwrap();
    let conditions = conditions(&outcome);
    let events = outcome
        .report()
        .events
        .iter()
        .map(|event| event.reason.clone())
        .collect();
    assert!(
        conditions[2].starts_with("Degraded False"),
        "{conditions:?}"
    );
    (outcome, conditions[3].clone(), events)
}

#[test]
fn a_pool_is_ready_when_all_pods_have_the_new_template() {
    let old = reconcile(json!({ "size": 3, "image": "memcached:1.6.39" }));
    let waiting = "Ready False/RollingOut: waiting for the Deployment to be updated";
    let (new, ready, events) = rolling(&old, [1, 1, 3, 3, 3], true);
    assert_eq!((&*ready, events.len()), (waiting, 0));
    let table = [
        ([2, 1, 3, 3, 3], waiting),
        (
            [2, 2, 1, 4, 3],
            "Ready False/RollingOut: 1 of 3 replicas are updated",
        ),
        (
            [2, 2, 3, 4, 4],
            "Ready False/RollingOut: 4 replicas exist, 3 are requested",
        ),
        (
            [2, 2, 3, 3, 3],
            "Ready True/Ready: all 3 replicas are ready",
        ),
    ];
    for (numbers, expected) in table {
        let (_, ready, events) = rolling(&new, numbers, false);
        assert_eq!(ready, expected, "{numbers:?}");
        let expected_events: &[&str] = if ready.contains("True") {
            &["Ready"]
        } else {
            &[]
        };
        assert_eq!(events, expected_events, "{numbers:?}");
    }
}

#[test]
fn nodes_are_the_pods_that_stay_sorted() {
    let pod = |name: &str, phase: &str, deleting: bool| {
        let labels = base_labels("memcached", "example", "cache");
        let mut metadata = json!({ "name": name, "namespace": "default", "labels": labels });
        if deleting {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": { "phase": phase },
        })
    };
    let host = host().objects([
        pod("b", "Running", false),
        pod("a", "Pending", false),
        pod("c", "Running", true),
        pod("evicted", "Failed", false),
        pod("finished", "Succeeded", false),
    ]);
    let request = TestRequest::new(&parent(json!({ "size": 2 }))).build();
    let outcome = Plugin::reconcile(&request, &host).unwrap();
    assert_eq!(
        outcome.report().status.as_ref().unwrap()["nodes"],
        json!(["a", "b"])
    );
}

/// An unready Pod of the pool.
fn broken(name: &str, status: &Value) -> Value {
    let labels = base_labels("memcached", "example", "cache");
    let metadata = json!({ "name": name, "namespace": "default", "labels": labels });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status })
}

/// The status of a Pod with a waiting container.
fn waiting(restarts: i32, reason: &str) -> Value {
    json!({ "containerStatuses": [{
        "ready": false, "restartCount": restarts, "state": { "waiting": { "reason": reason } },
    }] })
}

/// The status of a Pod without a node.
fn unscheduled() -> Value {
    json!({ "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available",
    }] })
}

#[test]
fn degraded_tells_the_cause() {
    let running = json!({ "containerStatuses": [{ "ready": false, "state": { "running": {} } }] });
    let quota = "pods \"example-x\" is forbidden: failed quota: q: must specify limits.memory for: memcached";
    let failure = json!({ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": quota });
    let late = json!({
        "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "",
    });
    let no_failure = json!({ "type": "ReplicaFailure", "status": "False", "message": quota });
    let one = "Degraded True/Degraded: 1 of 3 replicas are ready";
    let deadline = "Degraded True/ProgressDeadlineExceeded: 1 of 3 replicas are ready; the Deployment exceeded its \
                    progress deadline";
    let quoted = format!("{one}; {quota}");
    let all_late = "Degraded True/ProgressDeadlineExceeded: 3 of 3 replicas are ready; the Deployment exceeded its \
                    progress deadline";
    for (ready, conditions, pods, expected) in [
        (1, json!([]), vec![], one.to_owned()),
        (1, json!([no_failure]), vec![], one.to_owned()),
        (1, json!([failure]), vec![], quoted.clone()),
        // The Deployment's reason for missing Pods comes before a Pod's.
        (1, json!([failure]), vec![waiting(3, "x")], quoted),
        (1, json!([]), vec![running.clone()], one.to_owned()),
        (
            1,
            json!([]),
            vec![running, waiting(0, "CreateContainerConfigError")],
            format!("{one}; pod b: CreateContainerConfigError"),
        ),
        (
            1,
            json!([]),
            vec![waiting(0, "ErrImagePull")],
            format!("{one}; pod a: ImagePullBackOff"),
        ),
        (
            1,
            json!([]),
            vec![waiting(2, "CrashLoopBackOff")],
            format!("{one}; pod a: CrashLoopBackOff"),
        ),
        (
            1,
            json!([]),
            vec![unscheduled()],
            format!("{one}; pod a: Unschedulable: 0/1 nodes are available"),
        ),
        (
            1,
            json!([late]),
            vec![waiting(1, "")],
            format!("{deadline}; pod a: CrashLoopBackOff"),
        ),
        (3, json!([late]), vec![], all_late.to_owned()),
        (
            3,
            json!([failure]),
            vec![],
            "Degraded False/NotDegraded: all 3 replicas are ready".to_owned(),
        ),
    ] {
        let mut deployment = workload(3, ready);
        deployment["status"]["conditions"] = conditions;
        let pods = ["b", "a"].iter().rev().zip(&pods);
        let host = host().objects(pods.map(|(name, status)| broken(name, status)));
        let request =
            TestRequest::new(&parent(json!({ "size": 3 }))).child("deployment", &deployment);
        let outcome = Plugin::reconcile(&request.build(), &host).unwrap();
        assert_eq!(super::tests::conditions(&outcome)[2], expected);
    }
}

#[test]
fn a_new_port_is_announced_when_the_pods_listen_on_it() {
    let spec = |port: i32| json!({ "size": 3, "containerPort": port });
    let old = reconcile(spec(11211));
    let new = reconcile(spec(11300));
    let stored = MemcachedStatus {
        server_list: Some(vec!["x".to_owned()]),
        ..Default::default()
    };
    let announced = |deployment: &Answer, updated: i32, size: i32| {
        let mut spec = spec(11300);
        spec["size"] = json!(size);
        let mut deployment = deployment.child("deployment").unwrap().object.clone();
        deployment["status"] =
            json!({ "replicas": 3, "updatedReplicas": updated, "readyReplicas": 3 });
        let request = TestRequest::new(&parent(spec))
            .child("deployment", &deployment)
            .child("service", &old.child("service").unwrap().object)
            .status(&stored);
        let outcome = Plugin::reconcile(&request.build(), &host()).unwrap();
        let container = "/spec/template/spec/containers/0/ports/0/containerPort";
        let pods = Value::from(outcome.child("deployment").unwrap().object.clone());
        assert_eq!(pods.pointer(container).unwrap(), 11300);
        let port = outcome.child("service").unwrap().object["spec"]["ports"][0]["port"].clone();
        let listed = outcome.report().status.as_ref().unwrap()["serverList"].clone();
        if size > 0 {
            assert_eq!(listed, json!([format!("example.default.svc:{port}")]));
        }
        port
    };
    assert_eq!(announced(&old, 3, 3), 11211);
    assert_eq!(announced(&new, 1, 3), 11211);
    assert_eq!(announced(&new, 3, 3), 11300);
    assert_eq!(announced(&old, 3, 0), 11300);
    assert_eq!(
        new.child("service").unwrap().object["spec"]["ports"][0]["port"],
        11300
    );
}

#[test]
fn the_server_list_stays_when_a_pod_restarts() {
    let stored = MemcachedStatus {
        server_list: Some(vec!["x".to_owned()]),
        ..Default::default()
    };
    let parent = parent(json!({ "size": 2 }));
    let request = TestRequest::new(&parent)
        .child("deployment", &workload(2, 1))
        .status(&stored)
        .build();
    let outcome = Plugin::reconcile(&request, &host()).unwrap();
    let status = outcome.report().status.as_ref().unwrap();
    assert_eq!(status["serverList"], json!(["example.default.svc:11211"]));
}

#[test]
fn each_transition_has_one_event() {
    let parent = parent(json!({ "size": 1 }));
    let first = TestRequest::new(&parent)
        .child("deployment", &workload(1, 1))
        .build();
    let outcome = Plugin::reconcile(&first, &host()).unwrap();
    let reasons: Vec<&str> = outcome
        .report()
        .events
        .iter()
        .map(|event| event.reason.as_str())
        .collect();
    assert_eq!(reasons, ["Ready"]);

    let stored = json!({ "conditions": [{
        "type": "Ready", "status": "True", "reason": "Ready", "message": "all 1 replicas are ready",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] });
    let second = TestRequest::new(&parent)
        .child("deployment", &workload(1, 1))
        .status(&stored)
        .build();
    let outcome = Plugin::reconcile(&second, &host()).unwrap();
    assert_eq!(outcome.report().events, []);
}

#[test]
fn a_request_above_its_limit_is_invalid_with_the_whole_report() {
    let resources = json!({ "requests": { "memory": "2Gi" }, "limits": { "memory": "1Gi" } });
    let request = TestRequest::new(&parent(json!({ "resources": resources }))).build();
    let fault = Plugin::reconcile(&request, &host()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Invalid);
    assert_eq!(
        fault.message,
        "spec.resources.memory: request 2Gi exceeds limit 1Gi"
    );
    assert!(fault.report.is_some());
}

#[test]
fn a_key_that_no_annotation_can_have_is_invalid() {
    for key in ["../up", "1Gi/", "𝄞", "a b"] {
        let annotations = json!({ key: "x" });
        let parent = parent(json!({ "size": 1, "service": { "annotations": annotations } }));
        let request = TestRequest::new(&parent).build();
        let fault = Plugin::reconcile(&request, &host()).unwrap_err();
        let start = format!("spec.service.annotations: \"{key}\" is not an annotation key");
        assert!(fault.message.starts_with(&start), "{}", fault.message);
    }
}

#[test]
fn a_read_that_is_not_granted_is_tried_again() {
    let request = TestRequest::new(&parent(json!({}))).build();
    let fault = Plugin::reconcile(&request, &FakeHost::new().not_granted("v1", "Pod")).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Retry);
    assert!(fault.message.contains("Pod"), "{}", fault.message);
    assert_eq!(fault.report, None);
}

#[test]
fn the_definition_is_small_enough_for_client_side_apply() {
    let crd = Plugin::describe().crds[0].to_string();
    assert!(crd.len() < 256 * 1024, "{} bytes", crd.len());
}

#[test]
fn the_definition_describes_each_field_and_has_no_default_in_the_status() {
    let problems = definition_problems(&Plugin::describe());
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
fn an_image_outside_the_list_is_invalid() {
    let config = json!({ "tenants": { "images": ["memcached"] } });
    let request = |image: &str| {
        let parent = parent(json!({ "image": image }));
        TestRequest::new(&parent).config(&config).build()
    };
    let fault = Plugin::reconcile(&request("evil/memcached:1"), &host()).unwrap_err();
    assert_eq!(
        fault.message,
        "spec.image: image evil/memcached:1 is outside the repositories that the plugin's configuration \
         allows: memcached",
    );
    Plugin::reconcile(&request("memcached:1.6"), &host()).expect("the list has the image");
}

/// The message for a parent that the default configuration rejects and `tenants` allows.
fn refused(spec: &Value, tenants: &Value, host: &dyn Fn() -> FakeHost) -> String {
    let request = |tenants: &Value| {
        TestRequest::new(&parent(spec.clone()))
            .config(&json!({ "tenants": tenants }))
            .build()
    };
    Plugin::reconcile(&request(tenants), &host()).expect("the configuration allows it");
    let fault = Plugin::reconcile(&request(&json!({})), &host()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Invalid);
    fault.message
}

#[test]
fn annotations_of_the_service_outside_the_list_are_invalid() {
    let annotations = json!({ "external-dns.alpha.kubernetes.io/hostname": "bank.example.com" });
    assert_eq!(
        refused(
            &json!({ "service": { "annotations": annotations } }),
            &json!({ "serviceAnnotations": ["external-dns.alpha.kubernetes.io/"] }),
            &host,
        ),
        "spec.service.annotations: tenants.serviceAnnotations of the plugin's configuration does not list \
         external-dns.alpha.kubernetes.io/hostname",
    );
}

/// Read access to them would let a stolen host token read every Secret in the cluster.
#[test]
fn secrets_for_pulling_images_are_stated_without_a_read_of_secrets() {
    assert!(
        PLUGIN
            .manifest
            .reads
            .iter()
            .all(|read| read.kind != "Secret")
    );
    let secrets = json!([{ "name": "registry" }]);
    let outcome = reconcile(json!({ "imagePullSecrets": secrets }));
    let deployment = &outcome.child("deployment").unwrap().object;
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["imagePullSecrets"], secrets);
}

#[test]
fn the_readme_names_the_options_that_need_no_configuration() {
    let readme = include_str!("../README.md");
    let options = OPTIONS.iter().flat_map(|(short, long, _)| [short, long]);
    for name in options.chain(EXTENDED_OPTIONS.iter().map(|(name, _)| name)) {
        assert!(readme.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn the_configuration_permits_further_options() {
    for arguments in [
        json!(["-e", "/tmp/x", "-k"]),
        json!(["-A", "-k"]),
        json!(["--memory-file=/tmp/x"]),
        json!(["-o", "modern,ext_path=/tmp/x:1g"]),
    ] {
        let listed = ["-e", "-A", "--memory-file", "ext_path"];
        let message = refused(
            &json!({ "memcached": { "extraArgs": arguments } }),
            &json!({ "extraArgs": listed }),
            &host,
        );
        let start = "spec.memcached.extraArgs: tenants.extraArgs of the plugin's configuration does not list ";
        let name = message.strip_prefix(start).unwrap();
        assert!(listed.contains(&name), "{name}");
    }
}

#[test]
fn reports_on_new_examples_are_predicted() {
    expect_test::expect![[r"
        01-article.yaml Memcached: 1 made, 1 saved
        02-tuned.yaml Memcached: 1 made, 1 saved
        03-highly-available.yaml Memcached: 1 made, 1 saved
    "]]
    .assert_eq(&PLUGIN.example_calls("memcached", host()));
}
