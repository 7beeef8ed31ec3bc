//! Two hosts that reconcile the same parents by mistake.

use super::*;

/// Each host overwrites the other one's child and status, less and less often, and names the other one.
#[tokio::test]
async fn a_second_host_is_named_and_both_slow_down() {
    let world = World::start().await;
    world.put_parent("a", 1);
    let hosts = ["one", "two"].map(|text| world.reconciler("web", revision_of(saying(text))));
    let child_writes = || {
        world
            .server
            .writes()
            .iter()
            .filter(|write| *write == "PATCH configmaps a/child")
            .count()
    };
    let fight = async {
        for host in hosts.iter().cycle() {
            let soon = Duration::from_millis(20);
            let due = timeout(soon, host.registration().triggers(99)).await;
            for (parent, _) in due.unwrap_or_default() {
                host.pass(&parent, Attempt::default()).await;
            }
            let parent = world.server.get("webs", "a", "web").unwrap_or_default();
            let status = parent["status"].to_string();
            if status.contains("by another host of Innkeeper with the field manager innkeeper:web")
            {
                assert_eq!(world.synced("a"), "FieldConflict");
                return;
            }
        }
    };
    timeout(PATIENCE, fight).await.unwrap();
    // The create, and five repetitions of each host.
    assert!(
        (10..=14).contains(&child_writes()),
        "{:?}",
        world.server.writes()
    );
}
