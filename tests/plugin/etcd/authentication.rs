//! Authentication that a user has enabled: Jobs without a user report the cause, and recover when it is off.

use innkeeper_tests::process::is_full;
use serde_json::json;

use super::{V34, V35, V36, V37, check_first, check_members, formed, inspect, spec, world::World};

const CAUSE: &str = "authentication is on: give Jobs a client certificate of the user root, by tls.client, or run etcdctl auth \
                     disable";

const ROOT: [&str; 2] = ["--user", "root:secret"];

/// Makes the schedule due, and waits until the inspection ends.
#[track_caller]
fn inspected(world: &mut World) {
    world.inspect();
    world.until("the inspection has ended", |world| {
        world.inspections.iter().all(|job| !job["status"].is_null())
    });
}

#[test]
fn authentication_that_is_on_is_named_and_switched_off() {
    if !is_full() {
        return;
    }
    // etcd 3.4 shows alarms to everyone.
    for (image, asks_user) in [(V34, false), (V35, true), (V36, true), (V37, true)] {
        let mut inspection = spec(3, image);
        inspection["inspection"] = json!({ "schedule": "*/10 * * * *" });
        let mut world = formed(inspection);
        world.etcdctl(&["user", "add", "root:secret"]).unwrap();
        world
            .etcdctl(&["user", "grant-role", "root", "root"])
            .unwrap();
        world.etcdctl(&["auth", "enable"]).unwrap();
        for _ in 0..3 {
            inspected(&mut world);
        }
        world.until("the inspections are told", |world| {
            let (.., reason, message) = world.condition("Degraded");
            if asks_user {
                reason == "InspectionFailed" && message.ends_with(CAUSE)
            } else {
                reason == "NotDegraded"
            }
        });
        world.lose_disk(1);
        world.until("the survey is told", |world| {
            let (.., reason, message) = world.condition("Progressing");
            reason == "OperationFailed" && message.ends_with(CAUSE)
        });
        assert!(
            world
                .operations
                .iter()
                .all(|operation| operation.contains("survey")),
            "{:?}",
            world.operations
        );
        world
            .etcdctl(&[&ROOT[..], &["auth", "disable"]].concat())
            .unwrap();
        world.until_ready();
        inspect(&mut world, "NotDegraded");
        check_members(&world, 3);
        check_first(&world, 3);
    }
}
