//! Alarms from inspections.

use super::*;

fn inspected(size: i32) -> EtcdCluster {
    parent(json!({ "size": size, "image": IMAGE, "inspection": { "schedule": "*/10 * * * *" } }))
}

/// A formed cluster's CronJob.
pub(super) fn inspection() -> Child {
    let (outcome, _) = formed(&inspected(3));
    outcome.child("inspect").unwrap().clone()
}

/// An inspection Pod that was created in this minute, with the message.
fn result(minute: u32, message: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("demo-inspect-{minute}"), "namespace": "default",
            "labels": base_labels("etcd", "demo", "inspect"),
            "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z"),
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "demo-inspect", "uid": format!("j{minute}"),
                "controller": true,
            }],
        },
        "status": { "containerStatuses": [{
            "name": "etcdctl", "state": { "terminated": { "exitCode": 0, "message": message } },
        }] },
    })
}

#[test]
fn a_schedule_begins_with_the_formation_and_rests_during_a_pause() {
    let first = answer(TestRequest::new(&inspected(3)), &host());
    let second = answer(observing(&inspected(3), &settled(&first, 0)), &host());
    assert!(second.child("inspect").is_none());
    let (outcome, _) = formed(&inspected(3));
    let spec = &outcome.child("inspect").unwrap().object["spec"];
    assert_eq!(spec["schedule"], "*/10 * * * *");
    assert_eq!(spec["suspend"], false);
    let paused = answer(observing(&inspected(0), &settled(&outcome, 3)), &host());
    assert_eq!(
        paused.child("inspect").unwrap().object["spec"]["suspend"],
        true
    );
    // Without a schedule there is no CronJob, and an old result no longer counts.
    let (_, ready) = formed(&inspected(3));
    let full = ready.object(&result(1, "inspected\nmemberID:1 alarm:NOSPACE"));
    let without = answer(observing(&article(), &settled(&outcome, 3)), &full);
    assert!(without.child("inspect").is_none());
    assert_eq!(reason(&without, "Degraded"), "NotDegraded");
}

#[test]
fn the_last_result_tells_the_alarms() {
    let (outcome, _) = formed(&inspected(3));
    let children = settled(&outcome, 3);
    let none = "inspected";
    let full = "inspected\nmemberID:1 alarm:NOSPACE";
    let corrupt = "inspected\nmemberID:1 alarm:NOSPACE\nmemberID:2 alarm:CORRUPT";
    for (results, expected) in [
        (&[][..], "NotDegraded"),
        (&[none], "NotDegraded"),
        (&[full], "NoSpace"),
        (&[full, corrupt], "Corrupt"),
        (&[corrupt, full], "NoSpace"),
        (&[full, none], "NotDegraded"),
        // A failed inspection proves nothing; after three of them the last answer is too old.
        (&[full, "no member answers"], "NoSpace"),
        (&[full, ""], "NoSpace"),
        (&[full, "x", "x"], "NoSpace"),
        (&["x", "x", full], "NoSpace"),
        (&["x", "x"], "NotDegraded"),
        (&["x", "x", "x"], "InspectionFailed"),
        (&[full, "x", "x", "x"], "InspectionFailed"),
        (&["x", "x", "x", none], "NotDegraded"),
    ] {
        let pods: Vec<Value> = (0..)
            .zip(results.iter())
            .map(|(at, message)| result(at, message))
            .collect();
        let members = (0..3).map(|ordinal| pod(ordinal, true, IMAGE));
        let host = host().objects(members).objects(&pods);
        let outcome = answer(observing(&inspected(3), &children), &host);
        let degraded = outcome.report().find_condition("Degraded").unwrap();
        assert_eq!(degraded.reason, expected, "{results:?}");
        let is_problem = ["NoSpace", "Corrupt"].contains(&expected);
        assert_eq!(degraded.is_true(), is_problem, "{results:?}");
    }
}
