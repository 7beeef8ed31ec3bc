//! Real passes that are skipped because they would do nothing.

use futures::FutureExt;
use innkeeper_sandbox::testing::Description;

use super::*;

/// Returns a guest that reads one Pod in every pass.
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

/// Runs passes until one is skipped, and returns the time of the next pass from that one.
pub(super) async fn until_skipped(world: &World, reconciler: &Reconciler) -> Next {
    let skipped = reconciler.passes_skipped();
    let running = async {
        loop {
            let next = reconciler.pass(&parent("a"), Attempt::default()).await;
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
async fn a_pass_with_the_inputs_of_the_last_one_is_skipped_until_an_input_changes() {
    let (world, reconciler) = applied("web", serving_of(reading())).await;
    let requeue = Next::RequeueAfter(Duration::from_secs(5));
    assert_eq!(until_skipped(&world, &reconciler).await, requeue);
    let skipped = reconciler.passes_skipped();
    assert_eq!(
        reconciler.pass(&parent("a"), Attempt::default()).await,
        requeue
    );
    assert_eq!(reconciler.passes_skipped(), skipped + 1);

    // A change of an object that the remembered pass read triggers a pass, which is not skipped.
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
        .expect("a skipped pass should keep its subscriptions");
    let skipped = reconciler.passes_skipped();
    reconciler.pass(&parent("a"), Attempt::default()).await;
    assert_eq!(reconciler.passes_skipped(), skipped);
    until_skipped(&world, &reconciler).await;

    // A deleted child is created again.
    world.server.delete("configmaps", "a", "child");
    world
        .drive(&reconciler, "created again", |world| {
            world.child_says("a").is_some()
        })
        .await;
    until_skipped(&world, &reconciler).await;

    // The first pass of another revision is not skipped.
    reconciler.swap(serving_of(reading().with_pages(3)), None);
    let skipped = reconciler.passes_skipped();
    reconciler.pass(&parent("a"), Attempt::default()).await;
    assert_eq!(reconciler.passes_skipped(), skipped);
}

#[tokio::test]
async fn a_guest_that_asks_for_the_time_is_called_in_every_pass() {
    let timely = saying("hello").doing("(drop (call $now))", &[]);
    let (_world, reconciler) = applied("web", serving_of(timely)).await;
    for _ in 0..20 {
        reconciler.pass(&parent("a"), Attempt::default()).await;
    }
    assert_eq!(reconciler.passes_skipped(), 0);
}

#[tokio::test]
async fn no_pass_is_skipped_without_the_memory_of_passes() {
    let mut world = World::start().await;
    Arc::get_mut(&mut world.shared).unwrap().remember_passes = false;
    let (_world, reconciler) = applied_in(world, "web", serving_of(saying("hello"))).await;
    for _ in 0..20 {
        reconciler.pass(&parent("a"), Attempt::default()).await;
    }
    assert_eq!(reconciler.passes_skipped(), 0);
}
