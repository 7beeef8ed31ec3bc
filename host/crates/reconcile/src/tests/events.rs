//! Events are written beside the passes that made them: O3.

use std::pin::pin;

use innkeeper_sandbox::testing::{keep, report_events};

use super::*;

/// Returns a world with a plugin that reports `count` events for each parent.
async fn making(count: usize) -> (World, Arc<Reconciler>) {
    let reasons: Vec<String> = (0..count).map(|number| format!("Reason{number}")).collect();
    let world = World::start().await;
    let guest = guest().answering(keep(report_events(&reasons)));
    let reconciler = world.reconciler("web", revision_of(guest));
    (world, reconciler)
}

fn dropped(world: &World) -> Option<String> {
    let text = world.shared.metrics.encode().unwrap();
    let name = "innkeeper_plugin_events_dropped_total{plugin=\"web\"} ";
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::to_owned)
}

#[tokio::test]
async fn a_pass_does_not_wait_for_its_events_and_the_end_does() {
    let (world, reconciler) = making(1).await;
    world.server.hold_recording();
    let mut writing = pin!(reconciler.write_events());
    world.put_parent("a", 1);
    let passes = world.drive(&reconciler, "reported", |world| {
        !world.synced("a").is_empty()
    });
    tokio::select! {
        () = passes => {}
        () = &mut writing => panic!("events were written before they could be"),
    }
    reconciler.end_events();
    let soon = timeout(Duration::from_millis(20), &mut writing).await;
    assert!(soon.is_err(), "the end should wait for the event");
    assert!(world.server.recorded().is_empty());

    world.server.record();
    timeout(PATIENCE, writing).await.unwrap();
    assert_eq!(world.server.recorded(), ["Reason0"]);
    assert_eq!(dropped(&world), None);
}

#[tokio::test]
async fn events_that_find_a_thousand_waiting_are_dropped_and_counted() {
    // A parent may make 25 at once.
    let (world, reconciler) = making(25).await;
    let writing = reconciler.write_events();
    let namespaces: Vec<String> = (0..41).map(|number| format!("n{number}")).collect();
    for namespace in &namespaces {
        world.put_parent(namespace, 1);
    }
    let all = |world: &World| namespaces.iter().all(|name| !world.synced(name).is_empty());
    world.drive(&reconciler, "reported", all).await;
    assert_eq!(dropped(&world).unwrap(), "25");

    reconciler.end_events();
    timeout(PATIENCE, writing).await.unwrap();
    assert_eq!(world.server.recorded().len(), 1000);
}

/// An Event reports a status that the host may not write, because no condition can.
#[tokio::test]
async fn a_forbidden_status_is_an_event_with_the_remedy() {
    let (world, reconciler) = making(0).await;
    let cannot = "User \"host\" cannot patch resource \"webs/status\" in API group \"example.com\"";
    let answer = json!({"reason": "Forbidden", "message": cannot});
    world.server.refuse("PATCH webs/status ", 403, answer);
    let writing = reconciler.write_events();
    world.put_parent("a", 1);
    let recorded = |world: &World| !world.server.recorded().is_empty();
    tokio::select! {
        () = world.drive(&reconciler, "recorded", recorded) => {}
        () = writing => panic!("the events ended"),
    }
    assert_eq!(world.server.recorded()[0], "StatusForbidden");
}
