//! Parents in deletion whose writes the API server rejects.

use innkeeper_sandbox::testing::{Description, finalized};

use super::*;

const GOES: &str = "2026-01-01T00:00:00Z";

/// Runs passes for a parent with the plugin's finalizer, which is being deleted if `deleted`; returns the first result
/// that does not wait for the cache.
async fn pass_of(world: &World, guest: Guest, deleted: bool) -> Next {
    let mut stated =
        json!({"metadata": {"finalizers": ["innkeeper.dev/web"]}, "spec": {"size": 1}});
    if deleted {
        stated["metadata"]["deletionTimestamp"] = GOES.into();
    }
    world.server.put("webs", "a", "web", stated);
    let guest = guest.describing(Description {
        finalizes: true,
        ..Description::default()
    });
    let reconciler = world.reconciler("web", revision_of(guest));
    let due = async {
        loop {
            reconciler.registration().triggers(99).await;
            match reconciler.pass(&parent("a"), Attempt::default()).await {
                Next::AwaitCache(_) | Next::AwaitOwnWrites(_) | Next::Forget => {}
                next => return next,
            }
        }
    };
    timeout(PATIENCE, due).await.unwrap()
}

/// L1: once the guest has finalized the parent, a rejected status does not keep it.
#[tokio::test]
async fn a_rejected_status_does_not_keep_a_finalized_parent() {
    let world = World::start().await;
    world.server.refuse(
        "PATCH webs/status ",
        422,
        json!({"message": "spec.size: is wrong"}),
    );
    pass_of(&world, guest().answering(finalized()), true).await;
    assert!(world.server.get("webs", "a", "web").is_none());
}

/// A status that admission denies in any form does not keep it either.
#[tokio::test]
async fn a_denied_status_does_not_keep_a_finalized_parent() {
    let world = World::start().await;
    let answer = json!({"message": "policy 'p' denied request: no status for you"});
    world.server.refuse("PATCH webs/status ", 403, answer);
    pass_of(&world, guest().answering(finalized()), true).await;
    assert!(world.server.get("webs", "a", "web").is_none());
}

/// A10: a finalizer that cannot come off is a condition that stays as it is until the write succeeds.
#[tokio::test]
async fn a_condition_explains_a_refused_finalizer_and_the_remedy() {
    let world = World::start().await;
    let answer = json!({"message": "spec.must: Required value"});
    world.server.refuse("PATCH webs ", 422, answer);
    let status_writes = || {
        world
            .server
            .writes()
            .iter()
            .filter(|write| write.starts_with("PATCH webs/status "))
            .count()
    };
    for (pass, expected) in [(1, 2), (2, 2)] {
        let next = pass_of(&world, guest().answering(finalized()), true).await;
        assert_eq!(next, Next::Backoff);
        assert_eq!(status_writes(), expected, "pass {pass}");
        assert_eq!(world.synced("a"), "FinalizerRefused");
    }
    let parent = world.server.get("webs", "a", "web").unwrap();
    let status = parent["status"].to_string();
    for words in ["spec.must: Required value", "innkeeper.dev/skip-finalize"] {
        assert!(status.contains(words), "{status}");
    }
}

/// A parent that cannot get its finalizer gets no child.
#[tokio::test]
async fn a_condition_reports_a_finalizer_that_cannot_be_added() {
    let world = World::start().await;
    let answer = json!({"message": "spec.must: Required value"});
    world.server.refuse("PATCH webs a/web", 422, answer);
    world
        .server
        .put("webs", "a", "web", json!({"spec": {"size": 1}}));
    let guest = saying("hello").describing(Description {
        finalizes: true,
        ..Description::default()
    });
    let reconciler = world.reconciler("web", revision_of(guest));
    world
        .drive(&reconciler, "reported", |world| {
            world.synced("a") == "FinalizerRefused"
        })
        .await;
    assert_eq!(world.child_says("a"), None);
    let next = reconciler.pass(&parent("a"), Attempt::default()).await;
    assert_eq!(next, Next::Backoff);
}

/// A10: the host's conditions alone are tried once after a denial, and not while they get the same answer.
#[tokio::test]
async fn a_denied_status_is_tried_once_in_each_pass() {
    let (world, reconciler) = applied("web", revision_of(saying("hello"))).await;
    let answer = json!({"message": "policy 'p' denied request: no status for you"});
    world.server.refuse("PATCH webs/status ", 403, answer);
    world.put_parent("a", 2);
    let status_writes = || {
        world
            .server
            .writes()
            .iter()
            .filter(|write| write.starts_with("PATCH webs/status "))
            .count()
    };
    let before = status_writes();
    world
        .drive(&reconciler, "denied", |_| status_writes() > before)
        .await;
    assert_eq!(status_writes() - before, 2);
    for pass in 1..=3 {
        let next = reconciler.pass(&parent("a"), Attempt::default()).await;
        assert_eq!(next, Next::Backoff);
        assert_eq!(status_writes() - before, 2 + pass);
    }
}

/// A parent that disappears with the namespace has no further pass. A parent that is being deleted is retried, because
/// the guest must finalize it first, and a condition says how a user can end that.
#[tokio::test]
async fn a_terminating_namespace_ends_only_the_passes_of_parents_that_go_with_it() {
    for (deleted, expected) in [(false, Next::UntilChanged), (true, Next::Backoff)] {
        let world = World::start().await;
        let cause = json!({"reason": "NamespaceTerminating", "field": "metadata.namespace"});
        world.server.refuse(
            "PATCH configmaps a/",
            403,
            json!({"details": {"causes": [cause]}}),
        );
        let next = pass_of(&world, saying("farewell"), deleted).await;
        assert_eq!(next, expected, "deleted: {deleted}");
        let parent = world.server.get("webs", "a", "web").unwrap_or_default();
        let status = parent["status"].to_string();
        let says = |part: &str| assert_eq!(status.contains(part), deleted, "{status}");
        says("NamespaceTerminating");
        says("annotate the parent with innkeeper.dev/skip-finalize: ");
    }
}
