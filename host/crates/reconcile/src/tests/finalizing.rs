//! Parents that are being deleted, where the API server refuses what a pass wants to write.

use innkeeper_sandbox::fixture::{Description, finalized};

use super::*;

const GOES: &str = "2026-01-01T00:00:00Z";

/// Reconciles a parent that is being deleted and waits for its guest, or lives.
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
            match reconciler.pass(&parent("a"), Turn::default()).await {
                Next::Parked(_) | Next::Again(_) | Next::Forget => {}
                next => return next,
            }
        }
    };
    timeout(PATIENCE, due).await.unwrap()
}

/// L1: once the guest is done, what cannot be said of the parent is no reason to keep it.
#[tokio::test]
async fn l1_a_status_that_is_rejected_holds_no_parent_that_may_go() {
    let world = World::start().await;
    world.server.refuse(
        "PATCH webs/status ",
        422,
        json!({"message": "spec.size: is wrong"}),
    );
    pass_of(&world, guest().answering(finalized()), true).await;
    assert!(world.server.get("webs", "a", "web").is_none());
}

/// A10: who goes with its namespace has nothing more to do; who is to finalize first asks again.
#[tokio::test]
async fn a10_a_namespace_that_goes_ends_passes_only_of_parents_that_go_with_it() {
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
        assert_eq!(world.synced("a"), "");
    }
}
