//! Real passes that are left out because they would do nothing.

use futures::FutureExt;
use innkeeper_sandbox::fixture::Description;

use super::*;

/// A guest that reads one Pod in every pass.
fn reading() -> Guest {
    let description = Description {
        reads: vec![["v1", "Pod", ""].map(str::to_owned)],
        ..Description::default()
    };
    let instructions =
        "(call $get {0} {1} (i32.const 0) (i32.const 0) (i32.const 0) {2} (i32.const 16))";
    saying("hello")
        .describing(description)
        .doing(instructions, &["v1", "Pod", "pod"])
}

/// Passes until one is left out; what that one says about the next.
pub(super) async fn until_skipped(world: &World, reconciler: &Reconciler) -> Next {
    let skipped = reconciler.passes_skipped();
    let running = async {
        loop {
            let next = reconciler.pass(&parent("a"), Turn::default()).await;
            if reconciler.passes_skipped() > skipped {
                return next;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = timeout(PATIENCE, running).await;
    ended.unwrap_or_else(|_| panic!("{:?}", world.server.writes()))
}

#[tokio::test]
async fn a_pass_that_depends_on_what_the_last_one_did_is_left_out_until_that_changes() {
    let world = World::start().await;
    world.put_parent("a", 1);
    let reconciler = world.reconciler("web", serving_of(reading()));
    world
        .drive(&reconciler, "applied", |world| {
            world.synced("a") == "Applied"
        })
        .await;
    let requeue = Next::RequeueAfter(Duration::from_secs(5));
    assert_eq!(until_skipped(&world, &reconciler).await, requeue);
    let skipped = reconciler.passes_skipped();
    assert_eq!(
        reconciler.pass(&parent("a"), Turn::default()).await,
        requeue
    );
    assert_eq!(reconciler.passes_skipped(), skipped + 1);

    // What was read in the pass that is remembered triggers and changes the next one.
    while let Some(due) = reconciler.registration().triggers(99).now_or_never() {
        assert!(!due.is_empty());
    }
    world.server.put("pods", "a", "pod", json!({"spec": {}}));
    let seen = async {
        loop {
            let due = reconciler.registration().triggers(99).await;
            if due
                .iter()
                .any(|(_, trigger)| trigger.cause == Cause::RelatedChanged)
            {
                return;
            }
        }
    };
    timeout(PATIENCE, seen)
        .await
        .expect("the read is still subscribed to");
    let skipped = reconciler.passes_skipped();
    reconciler.pass(&parent("a"), Turn::default()).await;
    assert_eq!(reconciler.passes_skipped(), skipped);
    until_skipped(&world, &reconciler).await;

    // What somebody did to a child is seen and mended.
    world.server.delete("configmaps", "a", "child");
    world
        .drive(&reconciler, "mended", |world| {
            world.child_says("a").is_some()
        })
        .await;
    until_skipped(&world, &reconciler).await;

    // Another revision begins without memory.
    reconciler.swap(serving_of(reading().with_pages(3)), None);
    let skipped = reconciler.passes_skipped();
    reconciler.pass(&parent("a"), Turn::default()).await;
    assert_eq!(reconciler.passes_skipped(), skipped);
}

#[tokio::test]
async fn a_guest_that_asks_for_the_time_is_called_in_every_pass() {
    let world = World::start().await;
    world.put_parent("a", 1);
    let timely = saying("hello").doing("(drop (call $now))", &[]);
    let reconciler = world.reconciler("web", serving_of(timely));
    world
        .drive(&reconciler, "applied", |world| {
            world.synced("a") == "Applied"
        })
        .await;
    for _ in 0..20 {
        reconciler.pass(&parent("a"), Turn::default()).await;
    }
    assert_eq!(reconciler.passes_skipped(), 0);
}

#[tokio::test]
async fn nothing_is_left_out_when_passes_are_to_be_forgotten() {
    let mut world = World::start().await;
    Arc::get_mut(&mut world.shared).unwrap().remember_passes = false;
    world.put_parent("a", 1);
    let reconciler = world.reconciler("web", serving_of(saying("hello")));
    world
        .drive(&reconciler, "applied", |world| {
            world.synced("a") == "Applied"
        })
        .await;
    for _ in 0..20 {
        reconciler.pass(&parent("a"), Turn::default()).await;
    }
    assert_eq!(reconciler.passes_skipped(), 0);
}
