//! Properties that hold for every parent the CRD admits.

use innkeeper_guest_testing::{self as testing, TEXTS, Values};
use innkeeper_kit::prelude::*;
use innkeeper_sdk::testing::{FakeHost, TestRequest, with_defaults};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{PLUGIN, host, pod};
use crate::Plugin;

/// A parent as the API server stores it, without spec fields that it would reject.
fn admitted() -> impl Strategy<Value = Value> {
    let spec = Values::default().strategy(&PLUGIN.root("EtcdCluster")["properties"]["spec"]);
    spec.prop_map(|spec| {
        let object = json!({
            "apiVersion": "etcd.ydzs.io/v1alpha1", "kind": "EtcdCluster",
            "metadata": { "name": "demo", "namespace": "default", "uid": "u1", "generation": 1 },
            "spec": spec,
        });
        let rules = [
            "storage",
            "options",
            "quotaBackendBytes",
            "podDisruptionBudget",
            "autoCompactionRetention",
        ];
        let object = object.as_object().unwrap().clone();
        testing::admitted(PLUGIN.schema("EtcdCluster"), object, |object, cause| {
            testing::leave_out_of_spec(object, cause, &rules);
        })
    })
}

/// A request with settings under which the plugin accepts most parents.
fn request(parent: &Value) -> TestRequest {
    TestRequest::new(parent).config(&json!({ "tenants": { "references": "namespace" } }))
}

/// A host with a ready Pod for each member, and a Secret for each name above.
fn cluster(parent: &Value) -> FakeHost {
    let size = parent["spec"]["size"].as_i64().unwrap_or_default();
    let image = parent["spec"]["image"].as_str().unwrap_or("etcd:v3.6.14");
    let pods = (0..size).map(|ordinal| pod(i32::try_from(ordinal).unwrap(), true, image));
    let secrets = TEXTS.iter().map(|name| {
        let metadata = json!({ "name": name, "namespace": "default" });
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata })
    });
    host().objects(pods).objects(secrets)
}

/// A child as the API server stores it, with defaults and metadata.
fn stored(child: &Child) -> Value {
    let probe = json!({ "successThreshold": 1 });
    let container = json!({
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "livenessProbe": probe, "readinessProbe": probe, "startupProbe": probe,
    });
    let spec = match child.kind() {
        "StatefulSet" => json!({
            "template": { "spec": {
                "containers": [container], "dnsPolicy": "ClusterFirst", "restartPolicy": "Always",
                "schedulerName": "default-scheduler",
            } },
        }),
        "PersistentVolumeClaim" => json!({ "volumeMode": "Filesystem" }),
        "Service" => json!({ "internalTrafficPolicy": "Cluster", "sessionAffinity": "None" }),
        _ => json!({}),
    };
    let mut object = Value::from(child.object.clone());
    let metadata = json!({
        "namespace": "default", "uid": "u", "generation": 1, "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": { "innkeeper.dev/key": child.key },
    });
    with_defaults(&mut object, &json!({ "metadata": metadata, "spec": spec }));
    if child.kind() == "StatefulSet" {
        let replicas = object["spec"]["replicas"].clone();
        object["status"] = json!({
            "observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": replicas, "updateRevision": "r1",
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
            let retained = child.removal == RemovalPolicy::Retain;
            if retained {
                request.retained(&child.key, &stored(child))
            } else {
                request.child(&child.key, &stored(child))
            }
        });
    request.status(&testing::stored_status(answer))
}

fn pass(parent: &Value, request: TestRequest) -> Result<Answer, Fault> {
    Plugin::reconcile(&request.build(), &cluster(parent))
}

/// The answer once passes no longer change anything after the bootstrap.
fn settled(parent: &Value) -> Option<Answer> {
    let first = pass(parent, request(parent)).ok()?;
    Some((0..4).fold(first, |answer, _| {
        pass(parent, next(parent, &answer)).unwrap()
    }))
}

proptest! {
    #[test]
    fn an_answer_is_a_fixed_point(parent in admitted()) {
        let Some(last) = settled(&parent) else {
            return Ok(());
        };
        let again = pass(&parent, next(&parent, &last)).unwrap();
        prop_assert_eq!(last.children(), again.children());
        prop_assert_eq!(last.report().status.as_ref(), again.report().status.as_ref());
        prop_assert_eq!(&last.report().conditions, &again.report().conditions);
        prop_assert_eq!(&again.report().events, &[]);
    }

    #[test]
    fn the_order_of_members_and_lists_does_not_matter(parent in admitted()) {
        let first = request(&parent);
        let second = settled(&parent).map(|answer| next(&parent, &answer));
        for request in [Some(first), second].into_iter().flatten() {
            PLUGIN.check_order(&request.build(), || cluster(&parent));
        }
    }

    #[test]
    fn every_admitted_parent_has_an_answer(parent in admitted()) {
        match pass(&parent, request(&parent)) {
            Ok(answer) => prop_assert!(answer.children().len() >= 2),
            Err(fault) => {
                prop_assert_eq!(fault.kind, FaultKind::Invalid);
                prop_assert!(fault.message.starts_with("spec."), "{}", fault.message);
            }
        }
    }

    /// The pass after an edit that is reverted before it affects any Pod.
    #[test]
    fn a_reverted_edit_restores_the_children(parent in admitted(), other in admitted()) {
        let is_formed = |answer: &Answer| answer.report().status.as_ref().unwrap()["clusterFormed"] == true;
        let Some(last) = settled(&parent).filter(is_formed) else {
            return Ok(());
        };
        if let Ok(edited) = Plugin::reconcile(&next(&other, &last).build(), &cluster(&parent)) {
            let back = pass(&parent, next(&parent, &edited)).unwrap();
            let again = pass(&parent, next(&parent, &back)).unwrap();
            prop_assert_eq!(last.children(), again.children());
        }
    }
}
