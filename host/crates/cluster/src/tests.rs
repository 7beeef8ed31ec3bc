//! The whole module against a scripted API server on loopback.

mod server;

use std::{collections::BTreeSet, time::Duration};

use innkeeper_model::{
    ObjectId, ObjectRef, PluginName, ReadFailure, ReadKind, ReadScope, Reads, ResourceVersion,
    Selector,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use self::server::{Exchange, PATIENCE, Server, status};
use super::*;

fn cache_kind() -> Gvk {
    Gvk::new("example.com", "v1", "Cache")
}

fn service_kind() -> Gvk {
    Gvk::new("", "v1", "Service")
}

fn pod_kind() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

fn options() -> Options {
    Options {
        retry_min: Duration::from_millis(5),
        retry_max: Duration::from_millis(50),
        discovery_interval: Duration::from_millis(50),
        request_timeout: Duration::from_secs(5),
        ..Options::new(1)
    }
}

/// Returns a client that does not retry by itself.
fn client(url: &str) -> kube::Client {
    let mut config = kube::Config::new(url.parse().unwrap());
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

/// A cluster of a scripted server with caches as parents, services as children, and reads of pods.
struct World {
    server: Server,
    cluster: Cluster,
    registration: Registration,
    _tasks: JoinSet<()>,
}

impl World {
    async fn start(options: Options) -> Self {
        let server = Server::start(&[cache_kind(), service_kind(), pod_kind()]).await;
        let (cluster, driver) = Cluster::new(client(&server.url), options);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let Err(error) = driver.run(|| {}).await;
            panic!("{error}");
        });
        let registration = cluster.register(interest());
        Self {
            server,
            cluster,
            registration,
            _tasks: tasks,
        }
    }

    /// Lists one parent, one child and no pods, and answers with the three watches.
    async fn synced(&self) -> [Exchange; 3] {
        self.list("caches", 10, &[cache()]).await;
        self.list("services", 11, &[service("s", 11)]).await;
        self.list("pods", 12, &[]).await;
        let watches = [
            self.server.watch("caches").await.open().await,
            self.watch().await,
            self.server.watch("pods").await.open().await,
        ];
        self.sees(&["s"]).await;
        self.drain();
        watches
    }

    /// Answers the next list of a resource.
    async fn list(&self, plural: &str, version: u64, objects: &[Value]) {
        self.server.list(plural).await.items(version, objects).await;
    }

    /// Answers the next check of the services: they are at this version.
    async fn check(&self, version: u64) {
        self.server
            .check("services")
            .await
            .items(version, &[])
            .await;
    }

    /// Opens the next watch of the services.
    async fn watch(&self) -> Exchange {
        self.server.watch("services").await.open().await
    }

    /// Waits for a trigger of the parent, and checks its cause.
    async fn told(&self, cause: Cause) {
        assert_eq!(self.trigger().await, ("web".to_owned(), cause));
    }

    /// Returns the answer of a live read of a service, for which the server does this.
    async fn live_get(&self, served: impl Future<Output = ()>) -> Result<Option<Object>, Error> {
        let kind = service_kind();
        let read = self.cluster.live_get(&kind, Some("demo"), "x");
        tokio::join!(read, served).0
    }

    fn pass_reads(&self, parent: &Object) -> PassReads {
        self.registration.reads(parent, &interest().reads.into())
    }

    async fn children(&self) -> Option<Vec<String>> {
        let Observed::Ready(observation) = self.registration.observe(&web()).await else {
            return None;
        };
        let names = observation
            .children
            .iter()
            .map(|child| child.name.to_string());
        Some(names.collect())
    }

    /// Waits until exactly these children are observed.
    async fn sees(&self, names: &[&str]) {
        let expected: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut seen = None;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            seen = self.children().await;
            if seen.as_ref() == Some(&expected) {
                return;
            }
            sleep(Duration::from_millis(2)).await;
        }
        panic!(
            "{seen:?} instead of {expected:?}: {:#?}",
            self.cluster.watches()
        );
    }

    async fn until(&self, what: &str, fits: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !fits(self) {
            assert!(
                Instant::now() < deadline,
                "{what}: {:#?}",
                self.cluster.watches()
            );
            sleep(Duration::from_millis(2)).await;
        }
    }

    fn why(&self, kind: &Gvk) -> Option<Why> {
        let watches = self.cluster.watches().into_iter();
        watches
            .filter(|watch| watch.kind == *kind)
            .find_map(|watch| watch.why)
    }

    /// Returns true if a watch has reached this version.
    fn is_at(&self, version: u64) -> bool {
        let watches = self.cluster.watches();
        watches
            .iter()
            .any(|watch| watch.version == ResourceVersion(version))
    }

    fn drain(&self) {
        while let Some(taken) = futures::FutureExt::now_or_never(self.registration.triggers(99)) {
            assert!(!taken.is_empty());
        }
    }

    /// The next trigger.
    async fn trigger(&self) -> (String, Cause) {
        let taken = timeout(PATIENCE, self.registration.triggers(1))
            .await
            .unwrap();
        let (parent, trigger) = taken.into_iter().next().unwrap();
        (parent.name.to_string(), trigger.cause)
    }
}

fn interest() -> Interest {
    Interest {
        plugin: PluginName::new("cache").unwrap(),
        parent: cache_kind(),
        children: vec![ChildInterest {
            kind: service_kind(),
            required: true,
            access: Access::Full,
        }],
        reads: vec![ReadKind {
            kind: pod_kind(),
            access: Access::Metadata,
            scope: ReadScope::ParentNamespace,
            label_selector: Selector::default(),
        }],
        selector: Selector::default(),
        field_managers: BTreeSet::new(),
    }
}

fn web() -> ObjectId {
    ObjectId::new(cache_kind().group_kind(), Some("demo"), "web")
}

fn service_id(name: &str) -> ObjectId {
    ObjectId::new(service_kind().group_kind(), Some("demo"), name)
}

fn cache() -> Value {
    json!({"metadata": {
        "namespace": "demo", "name": "web", "uid": "uid-web", "resourceVersion": "10", "generation": 1,
    }, "spec": {}})
}

fn service(name: &str, version: u64) -> Value {
    json!({"metadata": {
        "namespace": "demo", "name": name, "uid": format!("uid-{name}"),
        "resourceVersion": version.to_string(), "labels": {"innkeeper.dev/plugin": "cache"},
        "ownerReferences": [{"uid": "uid-web", "controller": true}],
    }})
}

#[tokio::test]
async fn w1_lists_in_pages_and_selects_on_our_label() {
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
async fn f7_lines_are_read_however_they_are_cut() {
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
async fn f7_f20_a_line_that_is_cut_off_again_is_not_waited_for_a_third_time() {
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
async fn f7_a_watch_that_brought_something_is_followed_by_a_short_pause() {
    const MIN: Duration = Duration::from_millis(20);
    let world = World::start(Options {
        retry_min: MIN,
        retry_max: Duration::from_secs(10),
        ..options()
    })
    .await;
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
    assert!(begun.elapsed() < MIN * 250, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn w6_f7_a_broken_watch_continues_from_the_last_seen_version() {
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
async fn w4_a_watch_that_held_is_followed_by_a_short_pause_however_it_ends() {
    const MIN: Duration = Duration::from_millis(20);
    let world = World::start(Options {
        retry_min: MIN,
        retry_max: Duration::from_secs(10),
        watch_held: Duration::ZERO,
        ..options()
    })
    .await;
    let [_, mut services, _] = world.synced().await;
    let begun = Instant::now();
    for _ in 0..10 {
        services.reset();
        world.check(25).await;
        services = world.watch().await;
    }
    // Pauses that grow would add up to a thousand times the first one.
    assert!(begun.elapsed() < MIN * 250, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn w3_f8_after_410_the_difference_is_told() {
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
async fn f8_an_expired_continuation_is_followed_by_one_whole_list() {
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
async fn w4_a_page_with_too_many_bytes_is_asked_for_with_fewer_objects() {
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
async fn w4_every_failure_of_a_list_is_survived() {
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
async fn w4_a_server_that_is_behind_is_asked_for_the_truth() {
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
async fn w4_malformed_and_oversized_lines_are_followed_by_a_list() {
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
async fn f12_lost_and_regained_permission() {
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
async fn w6_f9_time_that_went_back_resets_the_cache() {
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
async fn w6_an_old_list_is_refused() {
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
async fn w7_bookmarks_move_a_watch_on() {
    let world = World::start(options()).await;
    let [_, mut services, _] = world.synced().await;
    services.bookmark(70).await;
    drop(services);
    world.check(71).await;
    let watch = world.server.watch("services").await;
    assert_eq!(watch.query("resourceVersion"), Some("70"));
}

#[tokio::test]
async fn w5_a_frozen_watch_is_cut_off() {
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
async fn w9_a_kind_that_vanishes_takes_its_objects_along() {
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

#[tokio::test]
async fn q5_own_writes_that_stay_unseen_are_read_live() {
    let world = World::start(Options {
        own_writes_timeout: Duration::from_millis(100),
        ..options()
    })
    .await;
    let [_, mut services, _] = world.synced().await;
    let note = |name: &str, version| {
        world
            .registration
            .note_write(&web(), &service_id(name), ResourceVersion(version));
    };
    note("new", 60);
    assert!(matches!(
        world.registration.observe(&web()).await,
        Observed::Behind { .. }
    ));
    services.send("ADDED", &service("new", 60)).await;
    world.told(Cause::ChildChanged).await;
    world.sees(&["new", "s"]).await;

    let parent = web();
    note("late", 61);
    let Observed::Behind { until } = world.registration.observe(&web()).await else {
        panic!("behind")
    };
    tokio::time::sleep_until(until).await;
    let (observed, ()) = tokio::join!(world.registration.observe(&parent), async {
        let read = world.server.next_object("late").await;
        assert!(
            read.path.ends_with("/namespaces/demo/services/late"),
            "{}",
            read.path
        );
        read.answer(200, "", &service("late", 61).to_string()).await;
    });
    assert!(matches!(observed, Observed::Ready(_)), "{observed:?}");
    world.sees(&["late", "new", "s"]).await;

    world.registration.note_unknown(&web(), &service_id("late"));
    let (observed, ()) = tokio::join!(world.registration.observe(&parent), async {
        world.server.next_object("late").await.refuse(404, "").await;
    });
    assert!(matches!(observed, Observed::Ready(_)), "{observed:?}");
    world.sees(&["new", "s"]).await;

    world.registration.note_unknown(&web(), &service_id("late"));
    let (observed, ()) = tokio::join!(world.registration.observe(&parent), async {
        world.server.next_object("late").await.refuse(500, "").await;
    });
    assert!(matches!(observed, Observed::Behind { .. }), "{observed:?}");
}

/// Q1: a change during a pass causes another one, also if someone else has looked at the parent meanwhile, as the table
/// of `innkeeper dev` does.
#[tokio::test]
async fn q1_only_the_observation_of_a_pass_itself_drops_its_triggers() {
    let world = World::start(options()).await;
    let [_, mut services, _] = world.synced().await;
    let running = world.registration.begin(&web());
    services.send("ADDED", &service("new", 60)).await;
    world.sees(&["new", "s"]).await;
    drop(running);
    world.told(Cause::ChildChanged).await;

    let running = world.registration.begin(&web());
    services.send("ADDED", &service("newer", 61)).await;
    world.sees(&["new", "newer", "s"]).await;
    assert!(matches!(running.observe().await, Observed::Ready(_)));
    drop(running);
    let triggers = world.registration.triggers(1);
    assert!(futures::FutureExt::now_or_never(triggers).is_none());
}

#[tokio::test]
async fn reads_of_a_pass_are_recorded_and_subscribed_to() {
    let world = World::start(options()).await;
    world.list("caches", 10, &[cache()]).await;
    world.list("services", 11, &[]).await;
    world.sees(&[]).await;
    let Observed::Ready(observation) = world.registration.observe(&web()).await else {
        panic!("ready")
    };
    let pod = ObjectRef {
        kind: pod_kind(),
        namespace: None,
        name: "p".into(),
    };
    let mut reads = world.pass_reads(&observation.parent);
    assert_eq!(reads.get(&pod), Err(ReadFailure::NotSynced(pod_kind())));
    let recording = reads.into_recording();
    assert_eq!(recording.parked, Some(pod_kind()));
    world.registration.commit(&web(), &recording);
    world.drain();

    let list = world.server.list("pods").await;
    list.items(12, &[]).await;
    world.told(Cause::KindChanged).await;
    let mut reads = world.pass_reads(&observation.parent);
    assert_eq!(reads.get(&pod), Ok(None));
    assert_eq!(reads.get(&pod), Ok(None));
    let recording = reads.into_recording();
    assert_eq!(recording.reads.len(), 1, "each read once");
    assert_eq!(recording.reads[0].1, Answer::Object(None));
    world.registration.commit(&web(), &recording);

    let mut pods = world.server.watch("pods").await.open().await;
    let object = json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"namespace": "demo", "name": "p", "uid": "u", "resourceVersion": "13"},
    });
    pods.send("ADDED", &object).await;
    world.told(Cause::RelatedChanged).await;
    let mut reads = world.pass_reads(&observation.parent);
    let shown = reads.get(&pod).unwrap().unwrap();
    assert_eq!(
        &*shown,
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"demo","uid":"u"}}"#
    );
}

#[tokio::test]
async fn live_reads_show_the_whole_object_and_report_failures() {
    let world = World::start(options()).await;
    let next = || world.server.next_object("x");
    let shown = async {
        let mut object = service("x", 5);
        object["data"] = json!({"password": "c2VjcmV0"});
        next().await.answer(200, "", &object.to_string()).await;
    };
    let found = world.live_get(shown).await.unwrap().unwrap();
    assert!(found.json.contains("c2VjcmV0"));
    assert_eq!(found.resource_version, ResourceVersion(5));
    let found = world.live_get(async { next().await.refuse(404, "").await });
    assert!(found.await.unwrap().is_none());
    for (code, expected) in [
        (500, "failed to read v1 Service x"),
        (
            403,
            "failed to read v1 Service x: the host is not allowed to, apply the roles of its chart, and those of the plugin that `innkeeper manifests` prints",
        ),
    ] {
        let found = world.live_get(async { next().await.refuse(code, "").await });
        let error = found.await.unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.is_forbidden(), code == 403);
    }
    let unknown = Gvk::new("g", "v1", "Unknown");
    let failed = world
        .cluster
        .live_get(&unknown, None, "x")
        .await
        .unwrap_err();
    assert!(matches!(failed, Error::NotServed { .. }));
}

#[tokio::test]
async fn f10_a_server_that_is_down_at_the_start_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = client(&format!("http://{address}"));
    let (cluster, driver) = Cluster::new(client, options());
    let mut tasks = JoinSet::new();
    tasks.spawn(driver.run(|| {}));
    let registration = cluster.register(interest());
    let deadline = Instant::now() + PATIENCE;
    while cluster.0.discovery_error.lock().is_none() {
        assert!(Instant::now() < deadline, "no error was noticed");
        sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(registration.waiting()[0].why, Why::Discovering);
    assert!(cluster.0.state.lock().kinds().is_none());
    assert!(tasks.try_join_next().is_none(), "it tries again");
}

/// The metadata of an object in a list from a quorum.
fn in_metadata(name: &str, uid: &str, version: u64) -> Value {
    json!({"metadata": {
        "namespace": "demo", "name": name, "uid": uid, "resourceVersion": version.to_string(),
    }})
}

#[tokio::test]
async fn a10_discovery_waits_as_long_as_the_api_server_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let options = Options {
        retry_max: Duration::from_secs(5),
        ..options()
    };
    let (_cluster, driver) = Cluster::new(client(&url), options);
    let mut tasks = JoinSet::new();
    tasks.spawn(driver.run(|| {}));
    let mut asked = Vec::new();
    while asked.len() < 2 {
        let (mut stream, _) = listener.accept().await.unwrap();
        asked.push(Instant::now());
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        let answer =
            b"HTTP/1.1 429 X\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
    }
    assert!(asked[1] - asked[0] >= Duration::from_secs(1));
}

#[tokio::test]
async fn l2_cached_objects_are_used_only_after_a_freshness_check() {
    let world = World::start(options()).await;
    let [_caches, mut services, _pods] = world.synced().await;
    world.cluster.require_freshness_checks();
    assert_eq!(world.children().await, None);
    assert_eq!(world.why(&service_kind()), Some(Why::Unchecked));
    let checks = world.cluster.check_freshness();
    let freshness = async {
        let server = &world.server;
        // The version that was seen last is the present one.
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
        assert_eq!(world.children().await, None, "the objects differ");
        // An hour passes without an event; then the watch shows only the missed one.
        let mut new = service("s", 30);
        new["metadata"]["uid"] = json!("uid-new");
        services.send("MODIFIED", &new).await;
        world.until("it is seen", |world| world.is_at(30)).await;
        again.items(900, &[]).await;
        let list = server.list("services").await;
        assert_eq!(world.children().await, None, "not compared yet");
        list.items(900, &[in_metadata("s", "uid-new", 30)]).await;
    };
    futures::future::join(checks, freshness).await;
    world.sees(&["s"]).await;
}

#[tokio::test]
async fn l2_a_busy_kind_passes_its_freshness_check_by_its_events() {
    let world = World::start(options()).await;
    let [_caches, mut services, _pods] = world.synced().await;
    world.cluster.require_freshness_checks();
    world.drain();
    let checks = world.cluster.check_freshness();
    let freshness = async {
        let server = &world.server;
        server.check("caches").await.items(10, &[]).await;
        server.check("pods").await.items(12, &[]).await;
        services.bookmark(31).await;
        world.until("it is seen", |world| world.is_at(31)).await;
        server.check("services").await.items(30, &[]).await;
    };
    futures::future::join(checks, freshness).await;
    world.sees(&["s"]).await;
    world.told(Cause::KindChanged).await;
    assert!(!world.server.is_asked("services"), "nothing was listed");
}
