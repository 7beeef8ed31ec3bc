//! Lists and watches: each failure, and the next step.

use super::*;

/// The first pause, where pauses grow to ten seconds. Ten constant pauses take far less than 250 times as long, and ten
/// growing ones a thousand times as long.
const PAUSE: Duration = Duration::from_millis(20);

fn growing_pauses() -> Options {
    Options {
        retry_min: PAUSE,
        retry_max: Duration::from_secs(10),
        ..options()
    }
}

#[tokio::test]
async fn lists_in_pages_and_selects_on_our_label() {
    let harness = Harness::start(Options {
        page_objects_max: 2,
        ..options()
    })
    .await;
    harness.list("caches", 10, &[cache()]).await;
    let first = harness.server.list("services").await;
    assert_eq!(
        first.query("labelSelector"),
        Some("innkeeper.dev/plugin=cache")
    );
    assert_eq!(
        (first.query("limit"), first.query("resourceVersion")),
        (Some("2"), None)
    );
    let page = json!({"metadata": {"resourceVersion": "11", "continue": "next"}, "items": [service("a", 5)]});
    first.answer(200, "", &page.to_string()).await;
    let second = harness.server.list("services").await;
    assert_eq!(second.query("continue"), Some("next"));
    assert_eq!(
        harness.why(&service_kind()),
        Some(Why::Listing),
        "half of it is not synced"
    );
    second.items(11, &[service("b", 6)]).await;
    harness.sees(&["a", "b"]).await;
    let watch = harness.server.watch("services").await;
    assert_eq!(watch.query("resourceVersion"), Some("11"));
    assert_eq!(watch.query("allowWatchBookmarks"), Some("true"));
    let seconds: u64 = watch.query("timeoutSeconds").unwrap().parse().unwrap();
    assert!((100..=170).contains(&seconds), "{seconds}");

    // Another plugin with the same name and kinds needs nothing new.
    let late = harness.cluster.register(interest());
    assert!(matches!(late.observe(&web()).await, Observed::Ready(_)));
    assert_eq!(late.triggers(9).await[0].1.cause, Cause::Listed);
    assert!(!harness.server.is_asked("services"));
}

#[tokio::test]
async fn lines_are_read_however_they_are_cut() {
    let harness = Harness::start(options()).await;
    let [_, mut services, _] = harness.synced().await;
    let mut object = service("é漢", 20);
    object["spec"] = json!("ü".repeat(3000));
    let line = format!("{}\n\n", json!({"type": "ADDED", "object": object}));
    for chunk in line.as_bytes().chunks(701) {
        services.write(chunk).await;
        tokio::task::yield_now().await;
    }
    harness.sees(&["s", "é漢"]).await;
    // A line that was cut off never counts; the watch continues after the last complete one.
    services
        .write(br#"{"type":"DELETED","object":{"metadata":{"name":"s""#)
        .await;
    drop(services);
    harness.check(21).await;
    let mut services = harness.server.watch("services").await;
    assert_eq!(services.query("resourceVersion"), Some("20"));
    services = services.open().await;
    services.send("DELETED", &service("s", 22)).await;
    harness.sees(&["é漢"]).await;
}

#[tokio::test]
async fn a_line_that_is_cut_off_again_is_not_waited_for_a_third_time() {
    let harness = Harness::start(options()).await;
    let [_, mut services, _] = harness.synced().await;
    let begun = br#"{"type":"ADDED","object":{"metadata":{"name":"t""#;
    services.write(begun).await;
    drop(services);
    harness.check(20).await;
    services = harness.watch().await;
    services.write(begun).await;
    drop(services);
    let list = harness.server.list("services").await;
    assert_eq!(list.query("resourceVersion"), Some("11"));
    list.items(20, &[service("s", 11), service("t", 20)]).await;
    harness.sees(&["s", "t"]).await;
}

#[tokio::test]
async fn a_watch_that_brought_something_is_followed_by_a_short_pause() {
    let harness = Harness::start(growing_pauses()).await;
    let [_, mut services, _] = harness.synced().await;
    let begun = Instant::now();
    for version in 20..30 {
        services.send("MODIFIED", &service("s", version)).await;
        harness
            .until("the event is seen", |harness| harness.is_at(version))
            .await;
        services.reset();
        harness.check(40).await;
        services = harness.watch().await;
    }
    assert!(begun.elapsed() < PAUSE * 250, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_broken_watch_continues_from_the_last_seen_version() {
    let harness = Harness::start(options()).await;
    let [_, mut services, _] = harness.synced().await;
    for (name, version) in [("t", 20), ("u", 21)] {
        services.send("ADDED", &service(name, version)).await;
    }
    harness.sees(&["s", "t", "u"]).await;
    services.reset();
    harness.check(25).await;
    let services = harness.server.watch("services").await;
    assert_eq!(services.query("resourceVersion"), Some("21"));
}

#[tokio::test]
async fn a_watch_that_held_is_followed_by_a_short_pause_however_it_ends() {
    let harness = Harness::start(Options {
        watch_held: Duration::ZERO,
        ..growing_pauses()
    })
    .await;
    let [_, mut services, _] = harness.synced().await;
    let begun = Instant::now();
    for _ in 0..10 {
        services.reset();
        harness.check(25).await;
        services = harness.watch().await;
    }
    assert!(begun.elapsed() < PAUSE * 250, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn after_410_the_difference_is_told() {
    let harness = Harness::start(options()).await;
    let [_, mut services, _] = harness.synced().await;
    services.send("ERROR", &status(410)).await;
    drop(services);
    let list = harness.server.list("services").await;
    assert_eq!(list.query("resourceVersion"), Some("11"));
    assert_eq!(list.query("resourceVersionMatch"), Some("NotOlderThan"));
    list.items(30, &[service("t", 29)]).await;
    harness.is_triggered(Cause::ChildChanged).await;
    harness.sees(&["t"]).await;

    // The same as an HTTP status, where no watch begins at all.
    harness.server.watch("services").await.refuse(410, "").await;
    let list = harness.server.list("services").await;
    assert_eq!(list.query("resourceVersion"), Some("30"));
    list.items(31, &[]).await;
    harness.sees(&[]).await;
    assert_eq!(
        harness
            .server
            .watch("services")
            .await
            .query("resourceVersion"),
        Some("31")
    );
}

#[tokio::test]
async fn an_expired_continuation_is_followed_by_one_whole_list() {
    let harness = Harness::start(options()).await;
    harness.list("caches", 10, &[cache()]).await;
    let page =
        json!({"metadata": {"resourceVersion": "11", "continue": "x"}, "items": [service("a", 5)]});
    harness
        .server
        .list("services")
        .await
        .answer(200, "", &page.to_string())
        .await;
    harness.server.list("services").await.refuse(410, "").await;
    let whole = harness.server.list("services").await;
    assert_eq!(
        (whole.query("limit"), whole.query("resourceVersion")),
        (None, None)
    );
    whole.items(12, &[service("b", 6)]).await;
    harness.sees(&["b"]).await;
}

#[tokio::test]
async fn a_page_with_too_many_bytes_is_asked_for_with_fewer_objects() {
    let harness = Harness::start(Options {
        page_objects_max: 4,
        page_objects_min: 2,
        page_bytes_max: 1024,
        list_bytes_max: 4096,
        ..options()
    })
    .await;
    harness.list("caches", 10, &[cache()]).await;
    let large = |name: &str| {
        let mut object = service(name, 6);
        object["spec"] = json!("x".repeat(1024));
        object
    };
    let first = harness.server.list("services").await;
    let page = json!({"metadata": {"resourceVersion": "11", "continue": "next"}, "items": [service("a", 5)]});
    first.answer(200, "", &page.to_string()).await;
    for limit in ["4", "2"] {
        let list = harness.server.list("services").await;
        let page = (list.query("limit"), list.query("continue"));
        assert_eq!(page, (Some(limit), Some("next")));
        list.items(11, &[large("b")]).await;
    }
    // The server ignores the limit: it sends the rest at once, which has a larger bound.
    let rest = harness.server.list("services").await;
    let page = (rest.query("limit"), rest.query("continue"));
    assert_eq!(page, (None, Some("next")));
    rest.items(11, &[large("b")]).await;
    harness.sees(&["a", "b"]).await;
}

#[tokio::test]
async fn every_failure_of_a_list_is_survived() {
    let harness = Harness::start(options()).await;
    harness.list("caches", 10, &[cache()]).await;
    for (code, headers, body) in [
        (429, "retry-after: 0\r\n", None),
        (500, "", None),
        (503, "", Some("not even JSON")),
        (200, "", Some("{\"items\":[{\"meta")),
        (200, "", Some("\u{fffd}")),
    ] {
        let list = harness.server.list("services").await;
        match body {
            Some(body) => list.answer(code, headers, body).await,
            None => list.refuse(code, headers).await,
        }
    }
    harness.server.list("services").await.reset();
    drop(harness.server.list("services").await);
    let Observed::NotReady { parent, waiting } = harness.registration.observe(&web()).await else {
        panic!("not ready")
    };
    assert!(parent.is_some());
    assert!(matches!(waiting[0].why, Why::Failing { .. }), "{waiting:?}");
    harness.list("services", 11, &[service("s", 11)]).await;
    harness.sees(&["s"]).await;
}

#[tokio::test]
async fn a_server_that_is_behind_is_asked_for_the_truth() {
    let harness = Harness::start(options()).await;
    let [_, mut services, _] = harness.synced().await;
    services.send("ERROR", &status(410)).await;
    drop(services);
    let list = harness.server.list("services").await;
    assert_eq!(list.query("resourceVersionMatch"), Some("NotOlderThan"));
    list.refuse(504, "").await;
    let list = harness.server.list("services").await;
    assert_eq!(list.query("resourceVersion"), None, "from a quorum");
    list.items(40, &[service("t", 39)]).await;
    harness.sees(&["t"]).await;
}

#[tokio::test]
async fn malformed_and_oversized_lines_are_followed_by_a_list() {
    let harness = Harness::start(Options {
        object_bytes_max: 4096,
        ..options()
    })
    .await;
    let [_, mut services, _] = harness.synced().await;
    services
        .write(b"{\"type\":\"ADDED\",\"object\":{}}\n")
        .await;
    harness.list("services", 12, &[service("t", 12)]).await;
    harness.sees(&["t"]).await;
    let mut services = harness.watch().await;
    services.write(&[b'x'; 10_000]).await;
    harness.list("services", 13, &[service("u", 13)]).await;
    harness.sees(&["u"]).await;
    let mut services = harness.watch().await;
    services.write(b"\"\xff\xfe\"\n").await;
    harness.list("services", 14, &[]).await;
    harness.sees(&[]).await;
}

#[tokio::test]
async fn lost_and_regained_permission() {
    let harness = Harness::start(options()).await;
    let [_, services, _] = harness.synced().await;
    drop(services);
    harness.server.check("services").await.refuse(403, "").await;
    harness
        .until("forbidden", |harness| {
            matches!(harness.why(&service_kind()), Some(Why::Forbidden { .. }))
        })
        .await;
    harness.is_triggered(Cause::KindChanged).await;
    assert_eq!(
        harness.children().await,
        None,
        "stale children are not shown"
    );
    harness.server.list("services").await.refuse(403, "").await;
    harness.list("services", 50, &[service("t", 49)]).await;
    harness.sees(&["t"]).await;
    assert_eq!(harness.trigger().await.0, "web");
}

#[tokio::test]
async fn time_that_went_back_resets_the_cache() {
    let harness = Harness::start(options()).await;
    let [_, mut services, _] = harness.synced().await;
    // An event that is older than the known state.
    services.send("MODIFIED", &service("s", 7)).await;
    let list = harness.server.list("services").await;
    assert_eq!(
        list.query("resourceVersion"),
        None,
        "only a quorum can tell"
    );
    list.items(8, &[service("t", 7)]).await;
    harness.sees(&["t"]).await;
    let mut services = harness.server.watch("services").await;
    assert_eq!(services.query("resourceVersion"), Some("8"));

    // A bookmark that is older.
    services = services.open().await;
    services.bookmark(6).await;
    harness.list("services", 6, &[service("u", 5)]).await;
    harness.sees(&["u"]).await;

    // Silence: the check before the next watch notices it.
    drop(harness.server.watch("services").await.open().await);
    harness.check(3).await;
    harness.list("services", 3, &[service("v", 2)]).await;
    harness.sees(&["v"]).await;
}

#[tokio::test]
async fn an_old_list_is_refused() {
    let harness = Harness::start(options()).await;
    let [_, services, _] = harness.synced().await;
    drop(services);
    harness.check(20).await;
    harness.server.watch("services").await.refuse(410, "").await;
    harness.list("services", 4, &[]).await;
    let list = harness.server.list("services").await;
    assert_eq!(list.query("resourceVersion"), None);
    assert_eq!(
        harness.children().await,
        Some(vec!["s".to_owned()]),
        "nothing was taken from it"
    );
    list.items(21, &[service("s", 11)]).await;
    harness.server.watch("services").await;
}

#[tokio::test]
async fn bookmarks_move_a_watch_on() {
    let harness = Harness::start(options()).await;
    let [_, mut services, _] = harness.synced().await;
    services.bookmark(70).await;
    drop(services);
    harness.check(71).await;
    let watch = harness.server.watch("services").await;
    assert_eq!(watch.query("resourceVersion"), Some("70"));
}

#[tokio::test]
async fn a_frozen_watch_is_cut_off() {
    let harness = Harness::start(Options {
        watch_min: Duration::from_secs(1),
        watch_max: Duration::from_secs(1),
        watch_grace: Duration::from_millis(100),
        ..options()
    })
    .await;
    let frozen = harness.synced().await;
    harness.check(12).await;
    harness.server.watch("services").await;
    drop(frozen);
}

#[tokio::test]
async fn a_kind_that_vanishes_takes_its_objects_along() {
    let harness = Harness::start(options()).await;
    let [_, services, _] = harness.synced().await;
    harness.server.serve(&[cache_kind(), pod_kind()]);
    harness
        .until("not served", |harness| {
            harness.why(&service_kind()) == Some(Why::NotServed)
        })
        .await;
    harness.is_triggered(Cause::ChildChanged).await;
    assert!(harness.cluster.served(&service_kind()).is_none());
    drop(services);

    harness
        .server
        .serve(&[cache_kind(), pod_kind(), service_kind()]);
    let served = timeout(PATIENCE, harness.cluster.wait_served(&service_kind()))
        .await
        .unwrap();
    assert_eq!(&*served.plural, "services");
    let list = harness.server.list("services").await;
    assert_eq!(
        list.query("resourceVersion"),
        None,
        "nothing is known of the new one"
    );
    list.items(90, &[service("t", 89)]).await;
    harness.sees(&["t"]).await;
}
