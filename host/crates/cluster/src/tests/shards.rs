//! Lists and watches of shards, with an API server that selects by shard and with one that does not know the parameter.

use innkeeper_model::{ShardSet, Shards};

use super::*;

fn set(indexes: &[usize]) -> ShardSet {
    let four = Shards::new(4).unwrap();
    let shard = |index: &usize| four.at(*index).unwrap();
    indexes.iter().map(shard).collect()
}

/// The parameter for a range of hashes, as it is in the URL.
fn selector(start: &str, end: &str) -> String {
    format!("shardRange(object.metadata.namespace,%270x{start}%27,%270x{end}%27)")
}

/// A parent in a namespace of the fourth shard; the others are in the third.
fn elsewhere(version: u64) -> Value {
    let mut parent = cache();
    parent["metadata"]["namespace"] = json!("blue");
    parent["metadata"]["uid"] = json!("uid-blue");
    parent["metadata"]["resourceVersion"] = json!(version.to_string());
    parent
}

/// Answers a list.
async fn answer(list: Exchange, selects: bool, version: u64, items: &[Value]) {
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if selects {
        metadata["shardInfo"] = json!({"selector": "shardRange()"});
    }
    let list_of = json!({"metadata": metadata, "items": items});
    list.answer(200, "", &list_of.to_string()).await;
}

async fn start() -> Harness {
    let harness = Harness::start(Options {
        shards: Shards::new(4).unwrap(),
        ..options()
    })
    .await;
    harness.list("pods", 5, &[]).await;
    assert_eq!(harness.cluster.shard_selection(), None);
    assert_eq!(
        harness.registration.observe(&web()).await,
        Observed::NotHeld
    );
    assert!(!harness.server.is_asked("caches"));
    harness
}

#[tokio::test]
async fn shards_are_selected_by_the_server_or_else_by_the_host() {
    let [demo, blue, end] = ["8000000000000000", "c000000000000000", "10000000000000000"];
    for selects in [true, false] {
        let harness = start().await;
        harness.cluster.hold(set(&[2]));
        let list = harness.server.list("caches").await;
        assert_eq!(list.query("shardSelector"), Some(&*selector(demo, blue)));
        let sent = [cache(), elsewhere(9)];
        let sent = if selects { &sent[..1] } else { &sent };
        answer(list, selects, 10, sent).await;
        let list = harness.server.list("services").await;
        assert_eq!(list.query("shardSelector"), Some(&*selector(demo, blue)));
        answer(list, selects, 11, &[service("s", 11)]).await;
        harness.sees(&["s"]).await;
        assert_eq!(harness.cluster.shard_selection(), Some(selects));
        assert!(harness.cluster.holds(Some("demo")) && !harness.cluster.holds(Some("blue")));

        let mut caches = harness.server.watch("caches").await.open().await;
        assert_eq!(caches.query("shardSelector"), Some(&*selector(demo, blue)));
        caches.send("MODIFIED", &elsewhere(20)).await;
        harness.until("event", |harness| harness.is_at(20)).await;
        assert_eq!(harness.registration.parents(), [web()]);

        harness.cluster.hold(set(&[2, 3]));
        let list = harness.server.list("caches").await;
        assert_eq!(list.query("shardSelector"), Some(&*selector(blue, end)));
        assert_eq!(list.query("resourceVersion"), None);
        let sent = [elsewhere(20), cache()];
        let sent = if selects { &sent[..1] } else { &sent };
        answer(list, selects, 30, sent).await;
        harness
            .until("parents", |harness| {
                harness.registration.parents().len() == 2
            })
            .await;
        let mut gained = harness.server.watch("caches").await.open().await;
        assert_eq!(gained.query("shardSelector"), Some(&*selector(blue, end)));
        if selects {
            continue;
        }
        // Both have shown the same, so one request goes on for both.
        for watch in [&mut caches, &mut gained] {
            watch.send("MODIFIED", &elsewhere(31)).await;
        }
        let watch = harness.server.watch("caches").await;
        assert_eq!(watch.query("shardSelector"), Some(&*selector(demo, end)));
        assert_eq!(watch.query("resourceVersion"), Some("31"));
        assert!(!harness.server.is_asked("caches"));
    }
}

#[tokio::test]
async fn a_watch_that_has_lost_a_shard_selects_less_when_it_starts_again() {
    let harness = start().await;
    harness.cluster.hold(set(&[2, 3]));
    let list = harness.server.list("caches").await;
    answer(list, true, 10, &[cache(), elsewhere(9)]).await;
    let caches = harness.server.watch("caches").await.open().await;
    harness.cluster.hold(set(&[2]));
    assert_eq!(harness.registration.parents(), [web()]);
    drop(caches);
    let check = harness.server.check("caches").await;
    assert_eq!(check.query("shardSelector"), None, "any version will do");
    check.items(11, &[]).await;
    let watch = harness.server.watch("caches").await;
    let expected = selector("8000000000000000", "c000000000000000");
    assert_eq!(watch.query("shardSelector"), Some(&*expected));
    assert_eq!(watch.query("resourceVersion"), Some("10"));
}

/// A watch in whole has shown the objects of a new shard all along, but perhaps not the last ones.
#[tokio::test]
async fn a_gained_shard_waits_until_reads_are_proven_current() {
    let harness = start().await;
    harness
        .until("pods", |harness| harness.why(&pod_kind()).is_none())
        .await;
    harness.cluster.hold(set(&[2]));
    assert_eq!(harness.why(&pod_kind()), Some(Why::Unchecked));
    let check = async {
        let version = harness.server.check("pods").await;
        version.items(5, &[]).await;
    };
    timeout(
        PATIENCE,
        futures::future::join(harness.cluster.check_freshness(), check),
    )
    .await
    .unwrap();
    assert_eq!(harness.why(&pod_kind()), None);
}
