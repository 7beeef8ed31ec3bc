//! Observations, live reads, and reads after a freshness check.

use super::*;

#[tokio::test]
async fn own_writes_that_stay_unseen_are_read_live() {
    let harness = Harness::start(Options {
        own_writes_timeout: Duration::from_millis(100),
        ..options()
    })
    .await;
    let [_, mut services, _] = harness.synced().await;
    let note = |name: &str, version| {
        harness
            .registration
            .expect_version(&web(), &service_id(name), ResourceVersion(version));
    };
    note("new", 60);
    assert!(matches!(
        harness.registration.observe(&web()).await,
        Observed::Behind { .. }
    ));
    services.send("ADDED", &service("new", 60)).await;
    harness.is_triggered(Cause::ChildChanged).await;
    harness.sees(&["new", "s"]).await;

    let parent = web();
    note("late", 61);
    let Observed::Behind { until } = harness.registration.observe(&web()).await else {
        panic!("behind")
    };
    tokio::time::sleep_until(until).await;
    let (observed, ()) = tokio::join!(harness.registration.observe(&parent), async {
        let read = harness.server.next_object("late").await;
        assert!(
            read.path.ends_with("/namespaces/demo/services/late"),
            "{}",
            read.path
        );
        read.answer(200, "", &service("late", 61).to_string()).await;
    });
    assert!(matches!(observed, Observed::Ready(_)), "{observed:?}");
    harness.sees(&["late", "new", "s"]).await;

    harness
        .registration
        .expect_unknown(&web(), &service_id("late"));
    let (observed, ()) = tokio::join!(harness.registration.observe(&parent), async {
        harness
            .server
            .next_object("late")
            .await
            .refuse(404, "")
            .await;
    });
    assert!(matches!(observed, Observed::Ready(_)), "{observed:?}");
    harness.sees(&["new", "s"]).await;

    harness
        .registration
        .expect_unknown(&web(), &service_id("late"));
    let (observed, ()) = tokio::join!(harness.registration.observe(&parent), async {
        harness
            .server
            .next_object("late")
            .await
            .refuse(500, "")
            .await;
    });
    assert!(matches!(observed, Observed::Behind { .. }), "{observed:?}");
}

/// Q1: a change during a pass triggers another one, even if `innkeeper dev` has observed the parent meanwhile.
#[tokio::test]
async fn only_the_observation_of_a_pass_itself_drops_its_triggers() {
    let harness = Harness::start(options()).await;
    let [_, mut services, _] = harness.synced().await;
    let running = harness.registration.begin(&web());
    services.send("ADDED", &service("new", 60)).await;
    harness.sees(&["new", "s"]).await;
    drop(running);
    harness.is_triggered(Cause::ChildChanged).await;

    let running = harness.registration.begin(&web());
    services.send("ADDED", &service("newer", 61)).await;
    harness.sees(&["new", "newer", "s"]).await;
    assert!(matches!(running.observe().await, Observed::Ready(_)));
    drop(running);
    let triggers = harness.registration.triggers(1);
    assert!(futures::FutureExt::now_or_never(triggers).is_none());
}

#[tokio::test]
async fn reads_of_a_pass_are_recorded_and_subscribed_to() {
    let harness = Harness::start(options()).await;
    harness.list("caches", 10, &[cache()]).await;
    harness.list("services", 11, &[]).await;
    harness.sees(&[]).await;
    let Observed::Ready(observation) = harness.registration.observe(&web()).await else {
        panic!("ready")
    };
    let pod = ObjectRef {
        kind: pod_kind(),
        namespace: None,
        name: "p".into(),
    };
    let mut reads = harness.pass_reads(&observation.parent);
    assert_eq!(reads.get(&pod), Err(ReadFailure::NotSynced(pod_kind())));
    let recording = reads.into_recording();
    assert_eq!(recording.not_cached, Some(pod_kind()));
    harness.registration.commit(&web(), &recording);
    harness.drain();

    harness.server.list("pods").await.items(12, &[]).await;
    harness.is_triggered(Cause::KindChanged).await;
    let mut reads = harness.pass_reads(&observation.parent);
    assert_eq!(reads.get(&pod), Ok(None));
    assert_eq!(reads.get(&pod), Ok(None));
    let recording = reads.into_recording();
    assert_eq!(recording.reads.len(), 1, "each read once");
    assert_eq!(recording.reads[0].1, Answer::Object(None));
    harness.registration.commit(&web(), &recording);

    let mut pods = harness.server.watch("pods").await.open().await;
    let object = json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"namespace": "demo", "name": "p", "uid": "u", "resourceVersion": "13"},
    });
    pods.send("ADDED", &object).await;
    harness.is_triggered(Cause::RelatedChanged).await;
    let mut reads = harness.pass_reads(&observation.parent);
    let shown = reads.get(&pod).unwrap().unwrap();
    assert_eq!(
        &*shown,
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"demo","uid":"u"}}"#
    );
}

#[tokio::test]
async fn live_reads_show_the_whole_object_and_report_failures() {
    let harness = Harness::start(options()).await;
    let next = || harness.server.next_object("x");
    let shown = async {
        let mut object = service("x", 5);
        object["data"] = json!({"password": "c2VjcmV0"});
        next().await.answer(200, "", &object.to_string()).await;
    };
    let object = harness.live_get(shown).await.unwrap().unwrap();
    assert!(object.json.contains("c2VjcmV0"));
    assert_eq!(object.resource_version, ResourceVersion(5));
    let object = harness.live_get(async { next().await.refuse(404, "").await });
    assert!(object.await.unwrap().is_none());
    for (code, expected) in [
        (500, "failed to read v1 Service x"),
        (
            403,
            "failed to read v1 Service x: the host is not allowed to, apply the roles of its chart, and those of the plugin that `innkeeper manifests` prints",
        ),
    ] {
        let object = harness.live_get(async { next().await.refuse(code, "").await });
        let error = object.await.unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.is_forbidden(), code == 403);
    }
    let unknown = Gvk::new("g", "v1", "Unknown");
    let failed = harness
        .cluster
        .live_get(&unknown, None, "x")
        .await
        .unwrap_err();
    assert!(matches!(failed, Error::NotServed { .. }));
}

/// An object's metadata in a list from a quorum.
fn in_metadata(name: &str, uid: &str, version: u64) -> Value {
    json!({"metadata": {
        "namespace": "demo", "name": name, "uid": uid, "resourceVersion": version.to_string(),
    }})
}

#[tokio::test]
async fn cached_objects_are_used_only_after_a_freshness_check() {
    let harness = Harness::start(options()).await;
    let [_caches, mut services, _pods] = harness.synced().await;
    harness.cluster.require_freshness_checks();
    assert_eq!(harness.children().await, None);
    assert_eq!(harness.why(&service_kind()), Some(Why::Unchecked));
    let checks = harness.cluster.check_freshness();
    let freshness = async {
        let server = &harness.server;
        // The cached version is the present one.
        server.check("caches").await.items(10, &[]).await;
        server.check("pods").await.items(12, &[]).await;
        // This kind lags: the previous writer has replaced its only object.
        server.check("services").await.items(30, &[]).await;
        let list = server.list("services").await;
        assert_eq!(list.query("resourceVersion"), None, "asked of a quorum");
        assert_eq!(
            list.query("labelSelector"),
            Some("innkeeper.dev/plugin=cache")
        );
        list.items(30, &[in_metadata("s", "uid-new", 30)]).await;
        let again = server.check("services").await;
        assert_eq!(harness.children().await, None, "the objects differ");
        // An hour passes without an event; then the watch shows only the missed one.
        let mut new = service("s", 30);
        new["metadata"]["uid"] = json!("uid-new");
        services.send("MODIFIED", &new).await;
        harness
            .until("it is seen", |harness| harness.is_at(30))
            .await;
        again.items(900, &[]).await;
        let list = server.list("services").await;
        assert_eq!(harness.children().await, None, "not compared yet");
        list.items(900, &[in_metadata("s", "uid-new", 30)]).await;
    };
    futures::future::join(checks, freshness).await;
    harness.sees(&["s"]).await;
}

#[tokio::test]
async fn a_busy_kind_passes_its_freshness_check_by_its_events() {
    let harness = Harness::start(options()).await;
    let [_caches, mut services, _pods] = harness.synced().await;
    harness.cluster.require_freshness_checks();
    harness.drain();
    let checks = harness.cluster.check_freshness();
    let freshness = async {
        let server = &harness.server;
        server.check("caches").await.items(10, &[]).await;
        server.check("pods").await.items(12, &[]).await;
        services.bookmark(31).await;
        harness
            .until("it is seen", |harness| harness.is_at(31))
            .await;
        server.check("services").await.items(30, &[]).await;
    };
    futures::future::join(checks, freshness).await;
    harness.sees(&["s"]).await;
    harness.is_triggered(Cause::KindChanged).await;
    assert!(!harness.server.is_asked("services"), "nothing was listed");
}

#[tokio::test]
async fn a_child_that_came_before_its_parent_is_read_once_by_its_pass() {
    let harness = Harness::start(options()).await;
    harness.list("caches", 10, &[]).await;
    let foreign = json!({"metadata": {
        "namespace": "demo", "name": "t", "uid": "uid-t", "resourceVersion": "11",
        "labels": {"innkeeper.dev/plugin": "cache"},
    }});
    harness
        .list("services", 11, &[service("s", 11), foreign])
        .await;
    harness.list("pods", 12, &[]).await;
    let mut caches = harness.server.watch("caches").await.open().await;
    caches.send("ADDED", &cache()).await;
    harness.is_triggered(Cause::ParentChanged).await;

    // Without a text, the child does not count as absent.
    let refused = async { harness.server.next_object("s").await.refuse(500, "").await };
    let parent = web();
    let (observed, ()) = tokio::join!(harness.registration.observe(&parent), refused);
    assert!(matches!(observed, Observed::Behind { .. }), "{observed:?}");

    let served = async {
        let body = service("s", 11).to_string();
        harness
            .server
            .next_object("s")
            .await
            .answer(200, "", &body)
            .await;
    };
    let (children, ()) = tokio::join!(harness.children(), served);
    assert_eq!(children, Some(vec!["s".to_owned()]));
    assert_eq!(harness.children().await, children);
    assert!(!harness.server.is_asked("/s") && !harness.server.is_asked("/t"));
}
