//! Lists and watches: each failure, and the next step.

use super::*;

/// The first pause of a watch whose pauses grow to ten seconds. Ten that do not grow take far less than 250 times as long, and
/// ten that grow a thousand times as long.
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
    let world = World::start(Options {
        page_objects_max: 2,
        ..options()
    })
    .await;
    world.list("caches", 10, &[cache()]).await;
    let first = world.server.list("services").await;
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
    let second = world.server.list("services").await;
    assert_eq!(second.query("continue"), Some("next"));
    assert_eq!(
        world.why(&service_kind()),
        Some(Why::Listing),
        "half of it is not synced"
    );
    second.items(11, &[service("b", 6)]).await;
    world.sees(&["a", "b"]).await;
    let watch = world.server.watch("services").await;
    assert_eq!(watch.query("resourceVersion"), Some("11"));
    assert_eq!(watch.query("allowWatchBookmarks"), Some("true"));
    let seconds: u64 = watch.query("timeoutSeconds").unwrap().parse().unwrap();
    assert!((100..=170).contains(&seconds), "{seconds}");

    // Another plugin of the same name and kinds asks for nothing new.
    let late = world.cluster.register(interest());
    assert!(matches!(late.observe(&web()).await, Observed::Ready(_)));
    assert_eq!(late.triggers(9).await[0].1.cause, Cause::Listed);
    assert!(!world.server.is_asked("services"));
}

#[tokio::test]
async fn lines_are_read_however_they_are_cut() {
    let world = World::start(options()).await;
    let [_, mut services, _] = world.synced().await;
    let mut object = service("é漢", 20);
    object["spec"] = json!("ü".repeat(3000));
    let line = format!("{}\n\n", json!({"type": "ADDED", "object": object}));
    for chunk in line.as_bytes().chunks(701) {
        services.write(chunk).await;
        tokio::task::yield_now().await;
    }
    world.sees(&["s", "é漢"]).await;
    // A line that was cut off never counts; the watch continues after the last complete one.
    services
        .write(br#"{"type":"DELETED","object":{"metadata":{"name":"s""#)
        .await;
    drop(services);
    world.check(21).await;
    let mut services = world.server.watch("services").await;
    assert_eq!(services.query("resourceVersion"), Some("20"));
    services = services.open().await;
    services.send("DELETED", &service("s", 22)).await;
    world.sees(&["é漢"]).await;
}

#[tokio::test]
async fn a_line_that_is_cut_off_again_is_not_waited_for_a_third_time() {
    let world = World::start(options()).await;
    let [_, mut services, _] = world.synced().await;
    let begun = br#"{"type":"ADDED","object":{"metadata":{"name":"t""#;
    services.write(begun).await;
    drop(services);
    world.check(20).await;
    services = world.watch().await;
    services.write(begun).await;
    drop(services);
    let list = world.server.list("services").await;
    assert_eq!(list.query("resourceVersion"), Some("11"));
    list.items(20, &[service("s", 11), service("t", 20)]).await;
    world.sees(&["s", "t"]).await;
}

#[tokio::test]
async fn a_watch_that_brought_something_is_followed_by_a_short_pause() {
    let world = World::start(growing_pauses()).await;
    let [_, mut services, _] = world.synced().await;
    let begun = Instant::now();
    for version in 20..30 {
        services.send("MODIFIED", &service("s", version)).await;
        world
            .until("the event is seen", |world| world.is_at(version))
            .await;
        services.reset();
        world.check(40).await;
        services = world.watch().await;
    }
    assert!(begun.elapsed() < PAUSE * 250, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_broken_watch_continues_from_the_last_seen_version() {
    let world = World::start(options()).await;
    let [_, mut services, _] = world.synced().await;
    for (name, version) in [("t", 20), ("u", 21)] {
        services.send("ADDED", &service(name, version)).await;
    }
    world.sees(&["s", "t", "u"]).await;
    services.reset();
    world.check(25).await;
    let services = world.server.watch("services").await;
    assert_eq!(services.query("resourceVersion"), Some("21"));
}

#[tokio::test]
async fn a_watch_that_held_is_followed_by_a_short_pause_however_it_ends() {
    let world = World::start(Options {
        watch_held: Duration::ZERO,
        ..growing_pauses()
    })
    .await;
    let [_, mut services, _] = world.synced().await;
    let begun = Instant::now();
    for _ in 0..10 {
        services.reset();
        world.check(25).await;
        services = world.watch().await;
    }
    assert!(begun.elapsed() < PAUSE * 250, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn after_410_the_difference_is_told() {
    let world = World::start(options()).await;
    let [_, mut services, _] = world.synced().await;
    services.send("ERROR", &status(410)).await;
    drop(services);
    let list = world.server.list("services").await;
    assert_eq!(list.query("resourceVersion"), Some("11"));
    assert_eq!(list.query("resourceVersionMatch"), Some("NotOlderThan"));
    list.items(30, &[service("t", 29)]).await;
    world.told(Cause::ChildChanged).await;
    world.sees(&["t"]).await;

    // The same as an HTTP status, where no watch begins at all.
    world.server.watch("services").await.refuse(410, "").await;
    let list = world.server.list("services").await;
    assert_eq!(list.query("resourceVersion"), Some("30"));
    list.items(31, &[]).await;
    world.sees(&[]).await;
    assert_eq!(
        world
            .server
            .watch("services")
            .await
            .query("resourceVersion"),
        Some("31")
    );
}

#[tokio::test]
async fn an_expired_continuation_is_followed_by_one_whole_list() {
    let world = World::start(options()).await;
    world.list("caches", 10, &[cache()]).await;
    let page =
        json!({"metadata": {"resourceVersion": "11", "continue": "x"}, "items": [service("a", 5)]});
    world
        .server
        .list("services")
        .await
        .answer(200, "", &page.to_string())
        .await;
    world.server.list("services").await.refuse(410, "").await;
    let whole = world.server.list("services").await;
    assert_eq!(
        (whole.query("limit"), whole.query("resourceVersion")),
        (None, None)
    );
    whole.items(12, &[service("b", 6)]).await;
    world.sees(&["b"]).await;
}

#[tokio::test]
async fn a_page_with_too_many_bytes_is_asked_for_with_fewer_objects() {
    let world = World::start(Options {
        page_objects_max: 4,
        page_objects_min: 2,
        page_bytes_max: 1024,
        list_bytes_max: 4096,
        ..options()
    })
    .await;
    world.list("caches", 10, &[cache()]).await;
    let large = |name: &str| {
        let mut object = service(name, 6);
        object["spec"] = json!("x".repeat(1024));
        object
    };
    let first = world.server.list("services").await;
    let page = json!({"metadata": {"resourceVersion": "11", "continue": "next"}, "items": [service("a", 5)]});
    first.answer(200, "", &page.to_string()).await;
    for limit in ["4", "2"] {
        let list = world.server.list("services").await;
        let asked = (list.query("limit"), list.query("continue"));
        assert_eq!(asked, (Some(limit), Some("next")));
        list.items(11, &[large("b")]).await;
    }
    // The server ignores the limit: it sends the rest at once, which has a larger bound.
    let rest = world.server.list("services").await;
    let asked = (rest.query("limit"), rest.query("continue"));
    assert_eq!(asked, (None, Some("next")));
    rest.items(11, &[large("b")]).await;
    world.sees(&["a", "b"]).await;
}

#[tokio::test]
async fn every_failure_of_a_list_is_survived() {
    let world = World::start(options()).await;
    world.list("caches", 10, &[cache()]).await;
    for (code, headers, body) in [
        (429, "retry-after: 0\r\n", None),
        (500, "", None),
        (503, "", Some("not even JSON")),
        (200, "", Some("{\"items\":[{\"meta")),
        (200, "", Some("\u{fffd}")),
    ] {
        let list = world.server.list("services").await;
        match body {
            Some(body) => list.answer(code, headers, body).await,
            None => list.refuse(code, headers).await,
        }
    }
    world.server.list("services").await.reset();
    drop(world.server.list("services").await);
    let Observed::NotReady { parent, waiting } = world.registration.observe(&web()).await else {
        panic!("not ready")
    };
    assert!(parent.is_some());
    assert!(matches!(waiting[0].why, Why::Failing { .. }), "{waiting:?}");
    world.list("services", 11, &[service("s", 11)]).await;
    world.sees(&["s"]).await;
}

#[tokio::test]
async fn a_server_that_is_behind_is_asked_for_the_truth() {
    let world = World::start(options()).await;
    let [_, mut services, _] = world.synced().await;
    services.send("ERROR", &status(410)).await;
    drop(services);
    let list = world.server.list("services").await;
    assert_eq!(list.query("resourceVersionMatch"), Some("NotOlderThan"));
    list.refuse(504, "").await;
    let list = world.server.list("services").await;
    assert_eq!(list.query("resourceVersion"), None, "from a quorum");
    list.items(40, &[service("t", 39)]).await;
    world.sees(&["t"]).await;
}

#[tokio::test]
async fn malformed_and_oversized_lines_are_followed_by_a_list() {
    let world = World::start(Options {
        object_bytes_max: 4096,
        ..options()
    })
    .await;
    let [_, mut services, _] = world.synced().await;
    services
        .write(b"{\"type\":\"ADDED\",\"object\":{}}\n")
        .await;
    world.list("services", 12, &[service("t", 12)]).await;
    world.sees(&["t"]).await;
    let mut services = world.watch().await;
    services.write(&[b'x'; 10_000]).await;
    world.list("services", 13, &[service("u", 13)]).await;
    world.sees(&["u"]).await;
    let mut services = world.watch().await;
    services.write(b"\"\xff\xfe\"\n").await;
    world.list("services", 14, &[]).await;
    world.sees(&[]).await;
}

#[tokio::test]
async fn lost_and_regained_permission() {
    let world = World::start(options()).await;
    let [_, services, _] = world.synced().await;
    drop(services);
    world.server.check("services").await.refuse(403, "").await;
    world
        .until("forbidden", |world| {
            matches!(world.why(&service_kind()), Some(Why::Forbidden { .. }))
        })
        .await;
    world.told(Cause::KindChanged).await;
    assert_eq!(world.children().await, None, "stale children are not shown");
    world.server.list("services").await.refuse(403, "").await;
    world.list("services", 50, &[service("t", 49)]).await;
    world.sees(&["t"]).await;
    assert_eq!(world.trigger().await.0, "web");
}

#[tokio::test]
async fn time_that_went_back_resets_the_cache() {
    let world = World::start(options()).await;
    let [_, mut services, _] = world.synced().await;
    // An event that is older than the known state.
    services.send("MODIFIED", &service("s", 7)).await;
    let list = world.server.list("services").await;
    assert_eq!(
        list.query("resourceVersion"),
        None,
        "only a quorum can tell"
    );
    list.items(8, &[service("t", 7)]).await;
    world.sees(&["t"]).await;
    let mut services = world.server.watch("services").await;
    assert_eq!(services.query("resourceVersion"), Some("8"));

    // A bookmark that is older.
    services = services.open().await;
    services.bookmark(6).await;
    world.list("services", 6, &[service("u", 5)]).await;
    world.sees(&["u"]).await;

    // Silence: the check before the next watch finds it out.
    drop(world.server.watch("services").await.open().await);
    world.check(3).await;
    world.list("services", 3, &[service("v", 2)]).await;
    world.sees(&["v"]).await;
}

#[tokio::test]
async fn an_old_list_is_refused() {
    let world = World::start(options()).await;
    let [_, services, _] = world.synced().await;
    drop(services);
    world.check(20).await;
    world.server.watch("services").await.refuse(410, "").await;
    world.list("services", 4, &[]).await;
    let list = world.server.list("services").await;
    assert_eq!(list.query("resourceVersion"), None);
    assert_eq!(
        world.children().await,
        Some(vec!["s".to_owned()]),
        "nothing was taken from it"
    );
    list.items(21, &[service("s", 11)]).await;
    world.server.watch("services").await;
}

#[tokio::test]
async fn bookmarks_move_a_watch_on() {
    let world = World::start(options()).await;
    let [_, mut services, _] = world.synced().await;
    services.bookmark(70).await;
    drop(services);
    world.check(71).await;
    let watch = world.server.watch("services").await;
    assert_eq!(watch.query("resourceVersion"), Some("70"));
}

#[tokio::test]
async fn a_frozen_watch_is_cut_off() {
    let world = World::start(Options {
        watch_min: Duration::from_secs(1),
        watch_max: Duration::from_secs(1),
        watch_grace: Duration::from_millis(100),
        ..options()
    })
    .await;
    let frozen = world.synced().await;
    world.check(12).await;
    world.server.watch("services").await;
    drop(frozen);
}

#[tokio::test]
async fn a_kind_that_vanishes_takes_its_objects_along() {
    let world = World::start(options()).await;
    let [_, services, _] = world.synced().await;
    world.server.serve(&[cache_kind(), pod_kind()]);
    world
        .until("not served", |world| {
            world.why(&service_kind()) == Some(Why::NotServed)
        })
        .await;
    world.told(Cause::ChildChanged).await;
    assert!(world.cluster.served(&service_kind()).is_none());
    drop(services);

    world
        .server
        .serve(&[cache_kind(), pod_kind(), service_kind()]);
    let served = timeout(PATIENCE, world.cluster.wait_served(&service_kind()))
        .await
        .unwrap();
    assert_eq!(&*served.plural, "services");
    let list = world.server.list("services").await;
    assert_eq!(
        list.query("resourceVersion"),
        None,
        "nothing is known of the new one"
    );
    list.items(90, &[service("t", 89)]).await;
    world.sees(&["t"]).await;
}
