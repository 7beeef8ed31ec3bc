//! Children that are applied with a field manager other than the plugin's own.

use super::{remembering::until_skipped, *};

/// Returns the managers that have applied a parent's child.
fn managers(world: &World, namespace: &str) -> Vec<String> {
    let child = world.server.get("configmaps", namespace, "child").unwrap();
    let entries = child["metadata"]["managedFields"].as_array().unwrap();
    let manager = |entry: &Value| entry["manager"].as_str().unwrap().to_owned();
    entries.iter().map(manager).collect()
}

/// Returns the writes after the first `before` ones.
fn written(world: &World, before: usize) -> Vec<String> {
    world.server.writes().split_off(before)
}

#[tokio::test]
async fn a_changed_field_manager_applies_each_child_once_and_a_restart_applies_none() {
    let (world, reconciler) = applied("web", revision_of(saying("hello"))).await;
    until_skipped(&world, &reconciler).await;
    assert_eq!(managers(&world, "a"), ["innkeeper:web"]);

    for (revision, expected) in [
        (
            revision_of(saying("hello")).applying_as("operator"),
            vec!["innkeeper:web", "operator"],
        ),
        (
            revision_of(saying("hello")).applying_as("another"),
            vec!["another", "innkeeper:web", "operator"],
        ),
    ] {
        let before = world.server.writes().len();
        let changed = revision.clone();
        reconciler.swap(revision, None);
        world
            .drive(&reconciler, "applied once more", |world| {
                managers(world, "a") == expected
            })
            .await;
        until_skipped(&world, &reconciler).await;
        assert_eq!(written(&world, before), ["PATCH configmaps a/child"]);

        // A host that starts with this manager writes nothing.
        let before = world.server.writes().len();
        let restarted = world.reconciler("web", changed);
        until_skipped(&world, &restarted).await;
        assert_eq!(written(&world, before), [""; 0]);
    }

    // The plugin's own managed fields are still there and unchanged.
    let before = world.server.writes().len();
    reconciler.swap(revision_of(saying("hello")), None);
    until_skipped(&world, &reconciler).await;
    assert_eq!(written(&world, before), [""; 0]);
}
