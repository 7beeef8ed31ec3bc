use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Prediction, predict};
use crate::answer::{Answer, Desired, Report};
use crate::child::Child;
use crate::children::Children;
use crate::fault::Fault;
use crate::host::Host;
use crate::request::Request;
use crate::testing::{FakeHost, TestRequest, holds, with_defaults};

/// What a reconciler reads from each child.
#[derive(Clone, Copy, Debug)]
enum Part {
    Existence,
    Deletion,
    Status,
    Generation,
    Staleness,
    Replicas,
    Labels,
    Uid,
    Whole,
    Text,
}

const PARTS: [Part; 10] = [
    Part::Existence,
    Part::Deletion,
    Part::Status,
    Part::Generation,
    Part::Staleness,
    Part::Replicas,
    Part::Labels,
    Part::Uid,
    Part::Whole,
    Part::Text,
];

impl Part {
    fn read(self, children: &Children, name: &str) -> Value {
        let Some(child) = children.iter().find(|child| child.name() == name) else {
            return Value::Null;
        };
        match self {
            Self::Existence => json!([child.key, child.retained, child.namespace()]),
            Self::Deletion => child.is_deleting().into(),
            Self::Status => child.status().unwrap_or_default(),
            Self::Generation => child.generation().into(),
            Self::Staleness => child.is_stale().into(),
            Self::Replicas => child.field("/spec/replicas").cloned().into(),
            Self::Labels => child.field("/metadata/labels").cloned().into(),
            Self::Uid => child.field("/metadata/uid").cloned().into(),
            Self::Whole => child.object().clone(),
            Self::Text => child.raw().into(),
        }
    }
}

fn parent() -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "north"}})
}

fn deployment(name: &str, replicas: u8) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "labels": {"app": "pond"}},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "web"}]}}},
    })
}

/// A reconciler that states Deployments and reports the parts that it reads.
fn reconcile(
    children: &[Child],
    reads: &[(String, Part)],
) -> impl Fn(&Request, &dyn Host) -> Result<Answer, Fault> {
    move |request, _host| {
        let read = |(name, part): &(String, Part)| part.read(&request.children, name);
        Ok(Desired {
            children: children.to_vec(),
            report: Report::new()
                .status(&json!({"read": reads.iter().map(read).collect::<Vec<_>>()})),
        }
        .into())
    }
}

/// What the API server, the host and perhaps a controller add to a written object.
fn completed(object: &Value, generation: i64, status: &Value) -> Value {
    let mut object = object.clone();
    let container =
        json!({"imagePullPolicy": "Always", "terminationMessagePath": "/dev/termination-log"});
    with_defaults(
        &mut object,
        &json!({
            "metadata": {
                "uid": "7f0c7a5e", "creationTimestamp": "2030-01-01T00:00:00Z", "namespace": "default",
                "annotations": {"innkeeper.dev/key": "web"},
            },
            "spec": {"replicas": 1, "revisionHistoryLimit": 10, "template": {"spec": {"containers": [container]}}},
        }),
    );
    object["metadata"]["generation"] = json!(generation);
    object["status"] = status.clone();
    object
}

fn status_of(answer: Answer) -> Option<Value> {
    let Answer::Desired(desired) = answer else {
        panic!("the reconciler should state children");
    };
    desired.report.status
}

proptest! {
    /// Whatever a reconciler reads and whatever the API server answers: a prediction that the host may use is what the
    /// next call reports.
    #[test]
    fn a_prediction_that_holds_is_the_next_report(
        reads in prop::collection::vec((0_usize..4, 0..PARTS.len()), 0..6),
        stated in prop::collection::vec((0_u8..3, any::<bool>()), 1..4),
        existing in prop::collection::vec(prop::option::of(0_u8..3), 4),
        statuses in prop::collection::vec(0_usize..3, 4),
        raced in prop::option::of(0_usize..4),
    ) {
        let name = |index: usize| format!("web-{index}");
        let reads: Vec<(String, Part)> = reads.iter().map(|(index, part)| (name(*index), PARTS[*part])).collect();
        let child = |(index, (replicas, retained)): (usize, &(u8, bool))| {
            let child = Child::untyped(name(index), &deployment(&name(index), *replicas));
            if *retained { child.retain() } else { child }
        };
        let children: Vec<Child> = stated.iter().enumerate().map(child).collect();
        let reconcile = reconcile(&children, &reads);
        let status = |index: usize| [json!({}), json!({"observedGeneration": 1}), json!({"readyReplicas": 2})][statuses[index]].clone();

        let mut before = TestRequest::new(&parent());
        let mut after = TestRequest::new(&parent());
        for (index, existing) in existing.iter().enumerate() {
            let key = name(index);
            let stated = children.get(index).zip(stated.get(index));
            let old = existing.map(|replicas| completed(&deployment(&key, replicas), 1, &status(index)));
            if let Some(old) = &old {
                before = before.observed(Some(&key), stated.is_some_and(|(_, (_, retained))| *retained), old);
            }
            let Some((child, (replicas, retained))) = stated else {
                // Pruned, unless another writer races.
                continue;
            };
            let new = match existing {
                Some(old) if old == replicas => completed(&child.object, 1, &status(index)),
                Some(_) => completed(&child.object, 2, &status(index)),
                None => completed(&child.object, 1, &json!({})),
            };
            let new = if raced == Some(index) { completed(&child.object, 3, &json!({"readyReplicas": 1})) } else { new };
            after = after.observed(Some(&key), *retained, &new);
        }
        let (before, after) = (before.build(), after.build());
        let host = FakeHost::new();
        let Ok(Answer::Desired(first)) = reconcile(&before, &host) else { unreachable!() };
        if let Some(prediction) = predict(&before, &host, &first, &reconcile)
            && holds(&prediction, &first.children, &before, &after)
        {
            let next = reconcile(&after, &host).unwrap();
            prop_assert_eq!(status_of(next), prediction.report.status);
        }
    }
}

/// Returns the prediction for a pond without children whose Deployment is read in this way.
fn prediction_of(part: Part) -> Option<Prediction> {
    let request = TestRequest::new(&parent()).build();
    let children = [Child::untyped("web", &deployment("web", 3))];
    let reads = [("web".to_owned(), part)];
    let reconcile = reconcile(&children, &reads);
    let host = FakeHost::new();
    let Ok(Answer::Desired(first)) = reconcile(&request, &host) else {
        panic!("the reconciler should state children");
    };
    predict(&request, &host, &first, &reconcile)
}

#[test]
fn predicts_the_report_about_a_new_child_with_the_parts_that_it_reads() {
    for (part, status, parts) in [
        (Part::Existence, json!([["web", false, "default"]]), vec![]),
        (Part::Deletion, json!([false]), vec![]),
        (
            Part::Status,
            json!([{}]),
            vec![("/status", Some(json!({})))],
        ),
        (
            Part::Generation,
            json!([1]),
            vec![("/metadata/generation", Some(json!(1)))],
        ),
        (
            Part::Staleness,
            json!([true]),
            vec![
                ("/metadata/generation", Some(json!(1))),
                ("/status/observedGeneration", None),
            ],
        ),
        (Part::Replicas, json!([3]), vec![("/spec/replicas", None)]),
        // The SDK leaves nulls out of a status.
        (Part::Uid, json!([]), vec![("/metadata/uid", None)]),
    ] {
        let prediction = prediction_of(part).unwrap();
        assert_eq!(
            prediction.report.status,
            Some(json!({"read": status})),
            "{part:?}"
        );
        let [child] = &*prediction.children else {
            panic!("{part:?}: one child should be predicted");
        };
        let parts = parts
            .into_iter()
            .map(|(pointer, value)| (pointer.to_owned(), value));
        assert_eq!(
            (&*child.key, &child.parts),
            ("web", &parts.collect()),
            "{part:?}"
        );
    }
}

#[test]
fn a_whole_object_is_not_predicted() {
    assert_eq!(prediction_of(Part::Whole), None);
    assert_eq!(prediction_of(Part::Text), None);
}

#[test]
fn nothing_is_predicted_from_the_time_a_prune_an_unchanged_child_or_a_fault() {
    let host = FakeHost::new();
    let web = Child::untyped("web", &deployment("web", 3));
    let desired = |children: &[Child]| Desired {
        children: children.to_vec(),
        report: Report::new(),
    };
    let answer = |children: &[Child]| Ok(Answer::from(desired(children)));
    let new = TestRequest::new(&parent()).build();
    let same = TestRequest::new(&parent())
        .child("web", &deployment("web", 3))
        .build();
    let other = TestRequest::new(&parent())
        .child("old", &deployment("old", 1))
        .build();
    let web = [web];
    let predicts = |request: &Request, reconcile: &dyn Fn(&dyn Host) -> Result<Answer, Fault>| {
        predict(request, &host, &desired(&web), |_, host| reconcile(host)).is_some()
    };
    assert!(predicts(&new, &|_| answer(&web)));
    let with_time = |host: &dyn Host| {
        host.now_ms();
        answer(&web)
    };
    assert!(!predicts(&new, &with_time), "the time");
    let with_random = |host: &dyn Host| {
        host.random(1);
        answer(&web)
    };
    assert!(!predicts(&new, &with_random), "random bytes");
    assert!(!predicts(&new, &|_| answer(&[])), "other children");
    assert!(!predicts(&new, &|_| Err(Fault::retry("later"))), "a fault");
    assert!(!predicts(&same, &|_| answer(&web)), "an unchanged child");
    assert!(!predicts(&other, &|_| answer(&web)), "a prune");
}

#[test]
fn a_changed_child_without_a_generation_is_predicted() {
    let service = |type_: &str| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"type": type_}});
    let request = TestRequest::new(&parent())
        .child("web", &service("ClusterIP"))
        .build();
    let children = [Child::untyped("web", &service("NodePort"))];
    let reads = [("web".to_owned(), Part::Generation)];
    let reconcile = reconcile(&children, &reads);
    let host = FakeHost::new();
    let Ok(Answer::Desired(first)) = reconcile(&request, &host) else {
        panic!("the reconciler should state children");
    };
    let prediction = predict(&request, &host, &first, &reconcile).unwrap();
    assert_eq!(
        prediction.children[0].parts,
        [("/metadata/generation".to_owned(), None)]
    );
}

#[test]
fn a_child_is_expected_once_the_children_before_it_are_ready() {
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let config = || Child::untyped("before", &config_map);
    let workload = || Child::untyped("before", &deployment("a", 1));
    for (before, is_observed, expected) in [
        (config(), true, &["web"][..]),
        (config(), false, &["before"]),
        (config().not_ready(), true, &[]),
        (workload(), true, &[]),
        (workload().ready(), true, &["web"]),
    ] {
        let mut request = TestRequest::new(&parent());
        if is_observed {
            request = request.child("before", &before.object);
        }
        let web = Child::untyped("web", &deployment("web", 1)).after(["before"]);
        let desired = Desired {
            children: vec![before, web],
            report: Report::new(),
        };
        let request = request.build();
        let predicted = predict(&request, &FakeHost::new(), &desired, |_, _| {
            Ok(desired.clone().into())
        });
        let children = predicted.map(|predicted| predicted.children);
        let keys: Vec<String> = children
            .into_iter()
            .flatten()
            .map(|child| child.key)
            .collect();
        assert_eq!(keys, expected, "{:?}", desired.children[0]);
    }
}
