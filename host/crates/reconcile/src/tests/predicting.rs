//! Predictions: which passes need one call.

use futures::future::join;
use innkeeper_sandbox::testing::{Description, predicting, report_of};

use super::*;

/// Ends a call with children: the second one of a pass.
const NO_SECOND_CALL: &str = "(if (local.get $children-len) (then (unreachable)))";

/// Ends a call that asks for a prediction.
const NO_PREDICTION: &str = "(if (local.get $predict) (then (unreachable)))";

/// Returns a guest with one child, and a prediction that depends on one part of it. The call reports `ready` 1, the
/// prediction 2.
fn guest_predicting(pointer: &str, value: Option<&str>, instructions: &str) -> Guest {
    let child = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child"}, "data": {"says": "hello"},
    });
    let children = vec![owned_child("child", &child.to_string())];
    let next = report_of(Some(r#"{"ready":2}"#), Vec::new(), None);
    guest()
        .answering(predicting(children, next, ("child", pointer, value)))
        .doing(instructions, &[])
}

/// Returns the parent's status after its first pass.
async fn status_after(guest: Guest) -> Value {
    let world = World::start().await;
    world.put_parent("a", 1);
    let reconciler = world.reconciler("web", revision_of(guest));
    world
        .drive(&reconciler, "reported", |world| {
            !world.synced("a").is_empty()
        })
        .await;
    let parent = world.server.get("webs", "a", "web").unwrap();
    parent["status"].clone()
}

#[tokio::test]
async fn a_prediction_that_holds_is_reported_without_a_second_call() {
    for (pointer, value) in [
        ("/data/says", Some(r#""hello""#)),
        ("/data", Some(r#"{"says":"hello"}"#)),
        ("/data/says", None),
        ("/status", None),
    ] {
        let status = status_after(guest_predicting(pointer, value, NO_SECOND_CALL)).await;
        assert_eq!(status["ready"], 2, "{pointer}: {status}");
        assert_eq!(synced(&status), "Applied", "{pointer}");
    }
}

#[tokio::test]
async fn a_prediction_that_does_not_hold_costs_a_call() {
    for (pointer, value) in [
        ("/data/says", Some(r#""other""#)),
        ("/metadata/uid", None),
        ("/status", Some("{}")),
        ("", Some(r#"{"data":{"says":"hello"}}"#)),
    ] {
        let status = status_after(guest_predicting(pointer, value, "")).await;
        assert_eq!(status["ready"], 1, "{pointer}: {status}");
        let status = status_after(guest_predicting(pointer, value, NO_SECOND_CALL)).await;
        assert_eq!(synced(&status), "GuestTrapped", "{pointer}: {status}");
    }
}

#[tokio::test]
async fn a_fault_while_predicting_does_not_stop_the_pass() {
    let status = status_after(guest_predicting("/status", None, NO_PREDICTION)).await;
    assert_eq!(synced(&status), "Applied");
    // The second call reports.
    assert_eq!(status["ready"], 1);
}

/// A change between the call and the round that reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    Parent,
    Read,
    Revision,
}

#[tokio::test]
async fn a_prediction_does_not_outlive_what_it_was_made_from() {
    let description = Description {
        reads: vec![["v1", "Pod", ""].map(str::to_owned)],
        ..Description::default()
    };
    let reads = "(call $get {0} {1} (i32.const 0) (i32.const 0) (i32.const 0) {2} (i32.const 16))";
    let guest = guest_predicting("/data/says", Some(r#""hello""#), "")
        .describing(description)
        .doing(reads, &["v1", "Pod", "pod"]);
    let world = World::start().await;
    world.put_parent("a", 1);
    let reconciler = world.reconciler("web", revision_of(guest.clone()));
    // By then the host has recorded the child kinds, whose writes would wait too.
    let applied = |world: &World| world.synced("a") == "Applied";
    world.drive(&reconciler, "applied", applied).await;

    let changes = [
        Change::Nothing,
        Change::Parent,
        Change::Read,
        Change::Revision,
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let namespace = format!("b{index}");
        world.put_parent(&namespace, 1);
        triggered(&reconciler, &namespace).await;
        world.server.hold_answers();
        let edit = async {
            while world.child_says(&namespace).is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            match change {
                Change::Nothing => {}
                Change::Parent => world.put_parent(&namespace, 2),
                Change::Read => world.server.put("pods", &namespace, "pod", json!({})),
                Change::Revision => reconciler.swap(revision_of(guest.clone().with_pages(3)), None),
            }
            while !is_cached(&world, &reconciler, &namespace, change) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            world.server.answer();
        };
        let id = parent(&namespace);
        let both = join(reconciler.pass(&id, Attempt::default()), edit);
        timeout(PATIENCE, both).await.expect("should end in time");
        let parent = world.server.get("webs", &namespace, "web").unwrap();
        let expected = if change == Change::Nothing { 2 } else { 1 };
        assert_eq!(parent["status"]["ready"], expected, "{change:?}");
    }
}

/// Returns true if the cache shows the change.
fn is_cached(world: &World, reconciler: &Reconciler, namespace: &str, change: Change) -> bool {
    match change {
        Change::Nothing | Change::Revision => true,
        Change::Parent => reconciler
            .registration()
            .parent(&parent(namespace))
            .is_some_and(|parent| parent.generation == Some(2)),
        Change::Read => world
            .shared
            .cluster
            .watches()
            .iter()
            .any(|watch| &*watch.kind.kind == "Pod" && watch.objects == 1),
    }
}

/// Waits until the parent in this namespace is due for its first pass.
async fn triggered(reconciler: &Reconciler, namespace: &str) {
    let waiting = async {
        let is_named = |(id, _): &(ObjectId, _)| *id == parent(namespace);
        while !reconciler
            .registration()
            .triggers(99)
            .await
            .iter()
            .any(is_named)
        {}
    };
    timeout(PATIENCE, waiting)
        .await
        .expect("should trigger in time");
}

fn synced(status: &Value) -> &str {
    let conditions = status["conditions"].as_array().unwrap();
    let synced = conditions
        .iter()
        .find(|condition| condition["type"] == "Synced");
    synced.unwrap()["reason"].as_str().unwrap()
}
