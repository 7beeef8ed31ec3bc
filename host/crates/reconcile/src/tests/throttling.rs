//! Parents that write too much.

use innkeeper_sandbox::fixture::fault;

use super::*;

fn limited(guest: Guest, writes_per_minute_max: u32) -> Serving {
    let serving = serving_of(guest);
    let limits = Limits {
        writes_per_minute_max,
        ..Limits::default()
    };
    Serving::new(serving.plugin, serving.grants, Arc::new(limits))
}

fn creates(world: &World, namespace: &str) -> usize {
    let line = format!("PATCH configmaps {namespace}/child");
    world
        .server
        .writes()
        .iter()
        .filter(|write| **write == line)
        .count()
}

/// Q6: somebody removes the child as soon as it is there; the parent says so, and others are not held back.
#[tokio::test]
async fn q6_a_parent_that_writes_again_and_again_is_held_back() {
    let world = World::start().await;
    world.put_parent("a", 1);
    let reconciler = world.reconciler("web", limited(saying("hello"), 12));
    world
        .drive(&reconciler, "throttled", |world| {
            world.server.delete("configmaps", "a", "child");
            world.synced("a") == "Throttled"
        })
        .await;
    // The guest's status is one of the twelve; every five seconds there is one more.
    assert!(
        (11..=14).contains(&creates(&world, "a")),
        "{}",
        creates(&world, "a")
    );
    let writes = world.server.writes().len();
    for _ in 0..20 {
        let next = reconciler.pass(&parent("a"), Turn::default()).await;
        match next {
            Next::RequeueAfter(wait) => assert!(wait <= Duration::from_secs(30), "{wait:?}"),
            // The cache has not shown the last write yet.
            Next::Again(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        world.server.writes().len(),
        writes,
        "not even the condition"
    );
    let parent = world.server.get("webs", "a", "web").unwrap().to_string();
    assert!(parent.contains("create v1 ConfigMap a/child"), "{parent}");

    world.put_parent("b", 1);
    world
        .drive(&reconciler, "another", |world| {
            world.synced("b") == "Applied"
        })
        .await;
}

#[tokio::test]
async fn a_plan_that_is_too_large_is_written_as_far_as_it_goes() {
    let world = World::start().await;
    world.put_parent("a", 1);
    let name = |index: u32| format!("child-{index}");
    let children = (0..5).map(|index| {
        let child = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name(index)},
        });
        owned_child(&name(index), &child.to_string())
    });
    let many = guest().answering(desired(children.collect()));
    let reconciler = world.reconciler("web", limited(many, 3));
    world
        .drive(&reconciler, "throttled", |world| {
            world.synced("a") == "Throttled"
        })
        .await;
    let there = |index: &u32| world.server.get("configmaps", "a", &name(*index)).is_some();
    assert_eq!((0..5).filter(there).collect::<Vec<_>>(), [0, 1, 2]);
    let parent = world.server.get("webs", "a", "web").unwrap().to_string();
    assert!(
        parent.contains("create v1 ConfigMap a/child-3 and 1 more"),
        "{parent}"
    );
}

/// Q6: a condition that is another one in every pass brings the next pass by being written.
#[tokio::test]
async fn q6_conditions_that_never_stay_the_same_are_held_back() {
    let world = World::start().await;
    world.put_parent("a", 1);
    let invalid = |message: &str| {
        let wrong = guest().answering(fault(1, message));
        world.reconciler("web", limited(wrong, 12))
    };
    // One after the other is one that says another thing every time.
    let reconcilers = [
        invalid("expired one second ago"),
        invalid("expired long ago"),
    ];
    world
        .drive(&reconcilers[0], "invalid", |world| {
            world.synced("a") == "Invalid"
        })
        .await;
    let writes = || world.server.writes().len();
    let (mut last, mut quiet) = (writes(), 0);
    let mut waits = Vec::new();
    let until_quiet = async {
        for reconciler in reconcilers.iter().cycle() {
            match reconciler.pass(&parent("a"), Turn::default()).await {
                // The cache has not shown yet what the other wrote.
                Next::Again(_) | Next::Backoff => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Next::RequeueAfter(wait) => waits.push(wait),
                Next::UntilChanged => {}
                other => panic!("{other:?}"),
            }
            quiet = if writes() == last { quiet + 1 } else { 0 };
            last = writes();
            if quiet == 50 {
                break;
            }
        }
    };
    timeout(PATIENCE, until_quiet).await.unwrap();
    // Twelve of each, and one that says what is going on.
    assert!((24..=30).contains(&last), "{last}");
    assert!(waits.len() >= 20, "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(30)));
    assert_eq!(world.synced("a"), "Throttled");
    let parent = world.server.get("webs", "a", "web").unwrap().to_string();
    assert!(parent.contains("(Invalid: expired "), "{parent}");
}
