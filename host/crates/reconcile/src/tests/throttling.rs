//! Parents that exceed their write limit.

use innkeeper_sandbox::testing::fault;

use super::*;

fn limited(guest: Guest, writes_per_minute_max: u32) -> Revision {
    let revision = revision_of(guest);
    let limits = Limits {
        writes_per_minute_max,
        ..Limits::default()
    };
    Revision::new(revision.plugin, revision.grants, Arc::new(limits))
}

fn creates(world: &World, namespace: &str) -> usize {
    let line = format!("PATCH configmaps {namespace}/child");
    world
        .server
        .writes()
        .iter()
        .filter(|write| write.starts_with(&line))
        .count()
}

fn name(index: u32) -> String {
    format!("child-{index}")
}

/// Returns a guest with this number of children, each with this text.
fn having(count: u32, text: &str) -> Guest {
    let children = (0..count).map(|index| {
        let child = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name(index)},
            "data": {"text": text},
        });
        owned_child(&name(index), &child.to_string())
    });
    guest().answering(desired(children.collect()))
}

/// Q6: a user deletes the child again and again; a condition reports the limit, and other parents are not limited.
#[tokio::test]
async fn a_parent_that_never_settles_is_throttled() {
    let world = World::start().await;
    world.put_parent("a", 1);
    // Fewer writes than make a contested child.
    let reconciler = world.reconciler("web", limited(saying("hello"), 4));
    world
        .drive(&reconciler, "throttled", |world| {
            world.server.delete("configmaps", "a", "child");
            world.synced("a") == "Throttled"
        })
        .await;
    // One of the four writes is the guest's status; every fifteen seconds there is one more token.
    assert!(
        (3..=5).contains(&creates(&world, "a")),
        "{}",
        creates(&world, "a")
    );
    let writes = world.server.writes().len();
    for _ in 0..20 {
        let next = reconciler.pass(&parent("a"), Attempt::default()).await;
        match next {
            Next::RequeueAfter(wait) => assert!(wait <= Duration::from_secs(30), "{wait:?}"),
            // The cache has not shown the last write yet.
            Next::AwaitOwnWrites(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        world.server.writes().len(),
        writes,
        "a throttled parent should have no write at all"
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

/// An answer's first creates have a separate limit; updates do not.
#[tokio::test]
async fn a_plan_over_the_write_limit_is_applied_up_to_the_limit() {
    let world = World::start().await;
    world.put_parent("a", 1);
    let saying = |text| world.reconciler("web", limited(having(5, text), 3));
    world
        .drive(&saying("old"), "applied", |world| {
            world.synced("a") == "Applied"
        })
        .await;
    world
        .drive(&saying("new"), "throttled", |world| {
            world.synced("a") == "Throttled"
        })
        .await;
    let is_new = |index: &u32| {
        let child = world.server.get("configmaps", "a", &name(*index)).unwrap();
        child["data"]["text"] == "new"
    };
    assert_eq!((0..5).filter(is_new).collect::<Vec<_>>(), [0, 1, 2]);
    let parent = world.server.get("webs", "a", "web").unwrap().to_string();
    for part in ["update v1 ConfigMap a/child-3", " and 1 more"] {
        assert!(parent.contains(part), "{parent}");
    }
}

/// A condition that differs in every pass triggers the next pass by its write.
#[tokio::test]
async fn conditions_that_change_in_every_pass_are_throttled() {
    let world = World::start().await;
    world.put_parent("a", 1);
    // Two revisions in turn make a guest whose message differs in every pass.
    let revisions = ["expired one second ago", "expired long ago"]
        .map(|message| limited(guest().answering(fault(1, message)), 12));
    let reconciler = world.reconciler("web", revisions[0].clone());
    world
        .drive(&reconciler, "invalid", |world| {
            world.synced("a") == "Invalid"
        })
        .await;
    let writes = || world.server.writes().len();
    let mut last = writes();
    let mut quiet = 0;
    let mut waits = Vec::new();
    let until_quiet = async {
        for revision in revisions.iter().cycle() {
            reconciler.swap(revision.clone(), None);
            match reconciler.pass(&parent("a"), Attempt::default()).await {
                // The cache has not shown the other parent's write yet.
                Next::AwaitOwnWrites(_) | Next::Backoff => {
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
    // Twelve writes, and one with the reason `Throttled`.
    assert!((12..=15).contains(&last), "{last}");
    assert!(waits.len() >= 20, "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(30)));
    assert_eq!(world.synced("a"), "Throttled");
    let parent = world.server.get("webs", "a", "web").unwrap().to_string();
    assert!(parent.contains("(Invalid: expired "), "{parent}");
}

/// Returns a revision with these limits.
fn bounded(guest: Guest, limits: Limits) -> Revision {
    let revision = revision_of(guest);
    Revision::new(revision.plugin, revision.grants, Arc::new(limits))
}

/// The parents in a namespace share its writes; a condition names the limit, and another namespace is not limited.
#[tokio::test]
async fn a_namespace_over_its_writes_is_throttled_and_others_are_not() {
    let world = World::start().await;
    let limits = Limits {
        // A burst is 100 writes: enough for the children once, but not twice.
        writes_per_second_max: 1,
        writes_per_minute_max: 6000,
        ..Limits::default()
    };
    world.put_parent("a", 1);
    let reconciler = world.reconciler("web", bounded(having(60, "hello"), limits));
    world
        .drive(&reconciler, "throttled", |world| {
            for index in 0..60 {
                world.server.delete("configmaps", "a", &name(index));
            }
            world.synced("a") == "Throttled"
        })
        .await;
    assert!(
        (60..=110).contains(&creates(&world, "a")),
        "{}",
        creates(&world, "a")
    );
    let parent = world.server.get("webs", "a", "web").unwrap().to_string();
    assert!(
        parent.contains("plugin web in namespace a has reached its limit of 1 writes per second"),
        "{parent}"
    );
    let usage = reconciler.usage();
    let writes = usage
        .iter()
        .find(|usage| usage.limit == "writesPerSecond")
        .unwrap();
    assert_eq!(
        (&*writes.namespace, writes.share.percent() >= 80),
        ("a", true),
        "{usage:?}"
    );
    world.put_parent("b", 1);
    world
        .drive(&reconciler, "another", |world| {
            world.synced("b") == "Applied"
        })
        .await;
}

/// A plugin keeps as many children as it may have, and a waiting parent continues after one is deleted.
#[tokio::test]
async fn a_plugin_over_its_objects_in_a_namespace_keeps_them_and_creates_no_more() {
    let world = World::start().await;
    let limits = Limits {
        namespace_objects_max: 1,
        ..Limits::default()
    };
    world.put_parent("a", 1);
    let reconciler = world.reconciler("web", bounded(saying("hello"), limits.clone()));
    world
        .drive(&reconciler, "the first child", |world| {
            world.synced("a") == "Applied"
        })
        .await;
    let none = Limits {
        namespace_objects_max: 0,
        ..limits
    };
    reconciler.swap(bounded(saying("hello"), none), None);
    world.put_parent("b", 1);
    world
        .drive(&reconciler, "held back", |world| {
            world.synced("b") == "QuotaExceeded"
        })
        .await;
    assert_eq!(creates(&world, "b"), 0);
    assert!(
        world.child_says("a").is_some(),
        "a child of a plugin over its bound is kept"
    );
    assert_eq!(world.synced("a"), "Applied");
    let next = reconciler.pass(&parent("b"), Attempt::default()).await;
    assert!(
        matches!(next, Next::RequeueAfter(_) | Next::AwaitOwnWrites(_)),
        "{next:?}"
    );
    reconciler.swap(bounded(saying("hello"), Limits::default()), None);
    world
        .drive(&reconciler, "goes on", |world| {
            world.synced("b") == "Applied"
        })
        .await;
}
