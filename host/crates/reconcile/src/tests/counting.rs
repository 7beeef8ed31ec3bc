//! The metrics of real passes.

use super::{remembering::until_skipped, *};

#[tokio::test]
async fn o2_writes_calls_skips_and_faults_are_counted_under_the_plugins_name() {
    let (world, reconciler) = applied("east", serving_of(saying("hello"))).await;
    until_skipped(&world, &reconciler).await;
    let counted = world.shared.metrics.encode().unwrap();
    assert!(!counted.contains("plugin_faults_total{"), "{counted}");

    let traps = serving_of(saying("bye").doing("(unreachable)", &[]));
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
        // Only the first pass of the new revision.
        "swap_seconds_count{plugin=\"east\"} 1",
        "memory_peak_bytes{plugin=\"east\"} ",
    ] {
        let line = format!("innkeeper_plugin_{sample}");
        let shown = counted.lines().any(|found| found.starts_with(&line));
        assert!(shown, "{line}\n{counted}");
    }
}
