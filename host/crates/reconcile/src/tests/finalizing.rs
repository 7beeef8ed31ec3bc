//! Parents in deletion whose writes the API server rejects.

use innkeeper_sandbox::testing::{Description, finalized};

use super::*;

const GOES: &str = "2026-01-01T00:00:00Z";

/// Runs passes for a parent with its plugin's finalizer, in deletion if `deleted`; returns the first result that does
/// not wait for the cache.
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
    let reconciler = world.reconciler("web", serving_of(guest));
    let due = async {
        loop {
            reconciler.registration().triggers(99).await;
            match reconciler.pass(&parent("a"), Attempt::default()).await {
                Next::Parked(_) | Next::Again(_) | Next::Forget => {}
                next => return next,
            }
        }
    };
    timeout(PATIENCE, due).await.unwrap()
}

/// L1: once the guest has finalized the parent, a rejected status does not keep it.
#[tokio::test]
async fn l1_a_rejected_status_does_not_keep_a_finalized_parent() {
    let world = World::start().await;
    world.server.refuse(
        "PATCH webs/status ",
        422,
        json!({"message": "spec.size: is wrong"}),
    );
    pass_of(&world, guest().answering(finalized()), true).await;
    assert!(world.server.get("webs", "a", "web").is_none());
}

/// A10: a parent that goes with its namespace has no further pass. A parent in deletion is retried, because its guest
/// must finalize it first, and says how a user ends that.
#[tokio::test]
async fn a10_a_terminating_namespace_ends_only_the_passes_of_parents_that_go_with_it() {
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
