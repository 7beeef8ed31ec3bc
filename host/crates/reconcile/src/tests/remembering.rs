//! Real passes that are skipped because they would do nothing.

use std::fs::{self, File};

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

/// Runs passes until one is skipped, and returns its next pass.
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
    timeout(PATIENCE, running)
        .await
        .unwrap_or_else(|_| panic!("{:?}", world.server.writes()))
}

#[tokio::test]
async fn a_pass_with_the_inputs_of_the_last_one_is_skipped_until_an_input_changes() {
    let (world, reconciler) = applied("web", revision_of(reading())).await;
    let requeue = Next::RequeueAfter(Duration::from_secs(5));
    assert_eq!(until_skipped(&world, &reconciler).await, requeue);
    let skipped = reconciler.passes_skipped();
    assert_eq!(
        reconciler.pass(&parent("a"), Attempt::default()).await,
        requeue
    );
    assert_eq!(reconciler.passes_skipped(), skipped + 1);

    // Changing an object that the remembered pass read triggers a pass that is not skipped.
    while let Some(due) = reconciler.registration().triggers(99).now_or_never() {
        assert!(!due.is_empty());
    }
    world.server.put("pods", "a", "pod", json!({"spec": {}}));
    let triggered = async {
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
    timeout(PATIENCE, triggered)
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

    // Another revision's first pass is not skipped.
    reconciler.swap(revision_of(reading().with_pages(3)), None);
    let skipped = reconciler.passes_skipped();
    reconciler.pass(&parent("a"), Attempt::default()).await;
    assert_eq!(reconciler.passes_skipped(), skipped);
}

#[tokio::test]
async fn a_pass_that_ends_with_its_own_status_is_not_repeated() {
    let guests = [(false, 1), (true, 0)];
    for (reads_own_status, skipped) in guests {
        let description = Description {
            reads_own_status,
            ..Description::default()
        };
        let guest = saying("hello").describing(description);
        let (world, reconciler) = applied("web", revision_of(guest)).await;
        let before = reconciler.passes_skipped();
        let id = parent("a");
        let pass = || reconciler.pass(&id, Attempt::default());
        pass().await;
        assert_eq!(reconciler.passes_skipped() - before, skipped);

        world.put_parent("a", 2);
        let is_cached = || {
            reconciler
                .registration()
                .parent(&id)
                .is_some_and(|parent| parent.json.contains("\"size\":2"))
        };
        world.drive(&reconciler, "changed", |_| is_cached()).await;
        let before = reconciler.passes_skipped();
        pass().await;
        assert_eq!(reconciler.passes_skipped(), before + skipped);
    }
}

#[tokio::test]
async fn a_skipped_pass_counts_in_the_rollout_analysis() {
    let (world, reconciler) = applied("web", revision_of(saying("hello"))).await;
    until_skipped(&world, &reconciler).await;
    reconciler.restart_analysis();
    let skipped = reconciler.passes_skipped();
    reconciler.pass(&parent("a"), Attempt::default()).await;
    assert_eq!(reconciler.passes_skipped(), skipped + 1);
    let analysis = reconciler.analysis();
    assert_eq!((analysis.well(), analysis.pending()), (1, 0));
}

/// Starts the plugin, and returns true if the parent's first pass is skipped.
async fn begins_with_a_skip(world: &World, revision: Revision) -> bool {
    let reconciler = world.reconciler("web", revision);
    let triggers = timeout(PATIENCE, reconciler.registration().triggers(99)).await;
    assert_eq!(triggers.unwrap()[0].0, parent("a"));
    let passes = async {
        while let Next::AwaitCache(_) = reconciler.pass(&parent("a"), Attempt::default()).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, passes).await.unwrap();
    reconciler.passes_skipped() == 1
}

#[tokio::test]
async fn a_restarted_host_skips_what_the_last_one_would_have_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::start().await;
    let files = PassFiles::open(directory.path()).unwrap();
    Arc::get_mut(&mut world.shared).unwrap().pass_files = Some(files);
    let revision = || revision_of(reading());
    let (world, reconciler) = applied_in(world, "web", revision()).await;
    until_skipped(&world, &reconciler).await;
    let passes = directory.path().join("passes");
    fs::remove_dir(&passes).unwrap();
    reconciler.keep_passes().unwrap_err();
    fs::create_dir(&passes).unwrap();
    reconciler.keep_passes().unwrap();
    let file = passes.join("web_Web.example.com.json");
    let text = fs::read_to_string(&file).unwrap();
    // Nothing has changed.
    fs::remove_file(&file).unwrap();
    reconciler.keep_passes().unwrap();
    assert!(!file.exists());
    fs::write(&file, &text).unwrap();
    drop(reconciler);

    assert!(begins_with_a_skip(&world, revision()).await);
    // Grants, limits and accounts are no inputs, but they decide on the result.
    let user = Some("somebody".to_owned());
    assert!(!begins_with_a_skip(&world, revision().acting_as(user)).await);
    assert!(!begins_with_a_skip(&world, revision_of(reading().with_pages(3))).await);

    for damaged in [
        "",
        &text[..text.len() - 9],
        &text.replace("\"key\":\"", "\"key\":\"x"),
    ] {
        fs::write(&file, damaged).unwrap();
        assert!(!begins_with_a_skip(&world, revision()).await, "{damaged}");
    }
    fs::write(&file, &text).unwrap();
    assert!(begins_with_a_skip(&world, revision()).await);
    world.server.put("pods", "a", "pod", json!({"spec": {}}));
    assert!(!begins_with_a_skip(&world, revision()).await);

    let opened = File::open(&file).unwrap();
    let now = opened.metadata().unwrap().modified().unwrap();
    let long_ago = now - Duration::from_hours(31 * 24);
    opened.set_modified(long_ago).unwrap();
    PassFiles::open(directory.path()).unwrap();
    assert!(!file.exists());
}

#[tokio::test]
async fn a_guest_that_asks_for_the_time_is_called_in_every_pass() {
    let timely = saying("hello").doing("(drop (call $now))", &[]);
    let (_world, reconciler) = applied("web", revision_of(timely)).await;
    for _ in 0..20 {
        reconciler.pass(&parent("a"), Attempt::default()).await;
    }
    assert_eq!(reconciler.passes_skipped(), 0);
}

#[tokio::test]
async fn no_pass_is_skipped_without_the_memory_of_passes() {
    let mut world = World::start().await;
    Arc::get_mut(&mut world.shared).unwrap().remember_passes = false;
    let (_world, reconciler) = applied_in(world, "web", revision_of(saying("hello"))).await;
    for _ in 0..20 {
        reconciler.pass(&parent("a"), Attempt::default()).await;
    }
    assert_eq!(reconciler.passes_skipped(), 0);
}
