//! Metrics after real passes.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{FileExt as _, PermissionsExt as _},
};

use innkeeper_sandbox::{artifact, testing::fault};

use super::{remembering::until_skipped, *};

#[tokio::test]
async fn writes_calls_skips_and_faults_are_counted_under_the_plugins_name() {
    let (world, reconciler) = applied("east", revision_of(saying("hello"))).await;
    until_skipped(&world, &reconciler).await;
    let counted = world.shared.metrics.encode().unwrap();
    assert!(!counted.contains("plugin_faults_total{"), "{counted}");

    let traps = revision_of(saying("bye").doing("(unreachable)", &[]));
    reconciler.swap(traps, Some(Instant::now()));
    world
        .drive(&reconciler, "trapped", |world| {
            world.synced("a") == "GuestTrapped"
        })
        .await;
    let counted = world.shared.metrics.encode().unwrap();
    for sample in [
        "writes_total{plugin=\"east\",verb=\"create\"} 1",
        "writes_total{plugin=\"east\",verb=\"status\"} ",
        "passes_skipped_total{plugin=\"east\"} 1",
        "faults_total{plugin=\"east\",reason=\"GuestTrapped\"} ",
        "call_cpu_seconds_count{plugin=\"east\"} ",
        "swaps_total{plugin=\"east\"} 1",
        // Only the new revision's first pass.
        "swap_seconds_count{plugin=\"east\"} 1",
        "memory_peak_bytes{plugin=\"east\"} ",
    ] {
        let line = format!("innkeeper_plugin_{sample}");
        let shown = counted.lines().any(|counted| counted.starts_with(&line));
        assert!(shown, "{line}\n{counted}");
    }
}

#[tokio::test]
async fn a_failure_to_map_code_again_counts_neither_as_a_fault_nor_in_the_rollout() {
    let (world, reconciler) = applied("east", revision_of(saying("hello"))).await;
    let directory = tempfile::tempdir().unwrap();
    let cache = artifact::Cache::open(directory.path()).unwrap();
    let engine = engine(Metering::Epochs);
    let bytes = saying("bye").build();
    let limits = artifact::Limits::default();
    let compiled = artifact::compile(&engine, &bytes, &limits, Some(&cache)).unwrap();
    let next = Described::load(&engine, &compiled, &Limits::default()).unwrap();
    reconciler.swap(revision(next), Some(Instant::now()));

    // Without its first bytes, the file is no compiled code.
    assert_eq!(engine.unmap_idle(Duration::ZERO), 1);
    let code = code_in(directory.path());
    let mut magic = [0; 4];
    code.read_exact_at(&mut magic, 0).unwrap();
    code.write_all_at(&[0; 4], 0).unwrap();
    let next = reconciler.pass(&parent("a"), Attempt::default()).await;
    assert!(matches!(next, Next::Backoff), "{next:?}");
    let counts = || {
        let analysis = reconciler.analysis();
        (analysis.well(), analysis.faulted(), analysis.pending())
    };
    assert_eq!(counts(), (0, 0, 1));
    let counted = world.shared.metrics.encode().unwrap();
    assert!(!counted.contains("plugin_faults_total{"), "{counted}");

    code.write_all_at(&magic, 0).unwrap();
    reconciler.pass(&parent("a"), Attempt::default()).await;
    assert_eq!(world.child_says("a").as_deref(), Some("bye"));
    assert_eq!(counts(), (1, 0, 0));
}

/// Otherwise a tenant could force a rollback by edits that no revision can serve.
#[tokio::test]
async fn a_fault_for_an_edit_during_a_rollout_does_not_count() {
    let traps = || revision_of(saying("bye").doing("(unreachable)", &[]));
    for edits_before_the_swap in [true, false] {
        let (world, reconciler) = applied("east", revision_of(saying("hello"))).await;
        let edit = async {
            world.put_parent("a", 2);
            let is_cached = || {
                reconciler
                    .registration()
                    .parent(&parent("a"))
                    .is_some_and(|parent| parent.json.contains("\"size\":2"))
            };
            while !is_cached() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if edits_before_the_swap {
            timeout(PATIENCE, edit).await.unwrap();
            reconciler.swap(traps(), None);
            assert_eq!(reconciler.analysis().pending(), 0);
        } else {
            reconciler.swap(traps(), None);
            assert_eq!(reconciler.analysis().pending(), 1);
            timeout(PATIENCE, edit).await.unwrap();
        }
        world
            .drive(&reconciler, "trapped", |world| {
                world.synced("a") == "GuestTrapped"
            })
            .await;
        let analysis = reconciler.analysis();
        assert_eq!((analysis.pending(), analysis.faulted()), (0, 0));
    }
}

/// A revision that breaks a good parent is to blame, also if its guest reports the parent as invalid; for a parent that was
/// invalid before, it is not.
#[tokio::test]
async fn a_parent_that_was_good_and_is_found_invalid_counts_as_a_fault() {
    let (world, reconciler) = applied("east", revision_of(saying("hello"))).await;
    let invalid = |why: &str| revision_of(guest().answering(fault(1, why)));
    let has_passed = |why| {
        let candidate = reconciler.candidate(invalid(why));
        reconciler.has_passed(&parent("a"), &candidate)
    };
    assert!(has_passed("first"));
    reconciler.swap(invalid("first"), None);
    assert_eq!(reconciler.analysis().pending(), 1);
    world
        .drive(&reconciler, "invalid", |world| {
            world.synced("a") == "Invalid"
        })
        .await;
    let analysis = reconciler.analysis();
    assert_eq!((analysis.well(), analysis.faulted()), (0, 1));
    assert_eq!(analysis.first_fault().unwrap().reason, "Invalid");
    assert_eq!(reconciler.faults(), 0, "the guest works");
    assert!(!has_passed("second"));
    reconciler.swap(invalid("second"), None);
    assert_eq!(reconciler.analysis().pending(), 0);
}

/// Opens the only compiled file in a cache for writing.
fn code_in(cache: &std::path::Path) -> File {
    let path = fs::read_dir(cache)
        .unwrap()
        .map(|entry| entry.unwrap())
        .find(|entry| entry.metadata().unwrap().len() > 1000)
        .unwrap()
        .path();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    File::options().read(true).write(true).open(path).unwrap()
}
