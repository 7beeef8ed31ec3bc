//! Properties that hold for every parent the CRD admits.

use innkeeper_guest_testing::{self as testing, Values};
use innkeeper_kit::prelude::*;
use innkeeper_sdk::testing::{FakeHost, TestRequest, with_defaults};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{PLUGIN, host};
use crate::Plugin;

/// A parent as the API server stores it, without spec fields that it would reject.
fn admitted() -> impl Strategy<Value = Value> {
    let spec = Values::default().strategy(&PLUGIN.root("Memcached")["properties"]["spec"]);
    spec.prop_map(|spec| {
        let object = json!({
            "apiVersion": "cache.example.com/v1", "kind": "Memcached",
            "metadata": { "name": "example", "namespace": "default" }, "spec": spec,
        });
        let rules = ["resources", "highAvailability"];
        let object = object.as_object().unwrap().clone();
        testing::admitted(PLUGIN.schema("Memcached"), object, |object, cause| {
            testing::leave_out_of_spec(object, cause, &rules);
        })
    })
}

/// A request with objects and settings under which the plugin accepts most parents.
fn request(parent: &Value) -> TestRequest {
    let tenants = json!({ "serviceAnnotations": ["cpu", "memory", "a", "a/"] });
    TestRequest::new(parent).config(&json!({ "tenants": tenants }))
}

/// A host with the pool's Pods.
fn cluster() -> FakeHost {
    let pods = ["Running", "Failed", "Pending"].iter().enumerate().map(|(number, phase)| {
        let labels = base_labels("memcached", "example", "cache");
        json!({
            "apiVersion": "v1", "kind": "Pod", "status": { "phase": phase },
            "metadata": { "name": format!("example-{number}"), "namespace": "default", "labels": labels },
        })
    });
    host().objects(pods)
}

/// A child as the API server stores it, with defaults and metadata.
fn stored(child: &Child) -> Value {
    let probe = json!({ "failureThreshold": 3, "successThreshold": 1 });
    let container = json!({
        "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File", "livenessProbe": probe, "readinessProbe": probe,
    });
    let spec = match child.kind() {
        "Deployment" => json!({
            "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
            "template": { "spec": {
                "containers": [container], "dnsPolicy": "ClusterFirst", "restartPolicy": "Always",
                "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30,
            } },
        }),
        "Service" => json!({
            "clusterIPs": ["None"], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "type": "ClusterIP",
        }),
        _ => json!({}),
    };
    let mut object = Value::from(child.object.clone());
    let metadata = json!({
        "namespace": "default", "uid": "u", "generation": 1, "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": { "innkeeper.dev/key": child.key, "deployment.kubernetes.io/revision": "1" },
    });
    with_defaults(&mut object, &json!({ "metadata": metadata, "spec": spec }));
    if child.kind() == "Deployment" {
        let replicas = object["spec"]["replicas"].clone();
        object["status"] = json!({
            "observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": replicas,
        });
    }
    object
}

/// The next request after an answer, with the answer's report as stored status.
fn next(parent: &Value, answer: &Answer) -> TestRequest {
    let request = answer
        .children()
        .iter()
        .fold(request(parent), |request, child| {
            request.child(&child.key, &stored(child))
        });
    request.status(&testing::stored_status(answer))
}

fn pass(request: TestRequest) -> Result<Answer, Fault> {
    Plugin::reconcile(&request.build(), &cluster())
}

proptest! {
    #[test]
    fn an_answer_is_a_fixed_point(parent in admitted()) {
        let Ok(first) = pass(request(&parent)) else {
            return Ok(());
        };
        let second = pass(next(&parent, &first)).unwrap();
        prop_assert_eq!(first.children(), second.children());
        let third = pass(next(&parent, &second)).unwrap();
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
            Ok(answer) => prop_assert!(answer.children().len() >= 2),
            Err(fault) => {
                prop_assert_eq!(fault.kind, FaultKind::Invalid);
                prop_assert!(fault.message.starts_with("spec."), "{}", fault.message);
            }
        }
    }
}
