//! The whole crate against a scripted API server on loopback.

mod discovery;
mod reads;
mod server;
mod shards;
mod watches;

use std::{collections::BTreeSet, time::Duration};

use innkeeper_model::{
    Answer, ObjectId, ObjectRef, PluginName, ReadFailure, ReadKind, ReadScope, Reads,
    ResourceVersion, Selector,
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

/// A cluster on a scripted server, with caches as parents, services as children, and reads of pods.
struct Harness {
    server: Server,
    cluster: Cluster,
    registration: Registration,
    _tasks: JoinSet<()>,
}

impl Harness {
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

    /// Lists one parent, one child and no pods, and opens the three watches.
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

    /// Answers the next check of services with this version.
    async fn check(&self, version: u64) {
        self.server
            .check("services")
            .await
            .items(version, &[])
            .await;
    }

    /// Opens the next watch of services.
    async fn watch(&self) -> Exchange {
        self.server.watch("services").await.open().await
    }

    /// Waits for the parent's trigger, and checks the cause.
    async fn is_triggered(&self, cause: Cause) {
        assert_eq!(self.trigger().await, ("web".to_owned(), cause));
    }

    /// Reads a service live, while the server does this.
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
        let mut names = None;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            names = self.children().await;
            if names.as_ref() == Some(&expected) {
                return;
            }
            sleep(Duration::from_millis(2)).await;
        }
        panic!(
            "{names:?} instead of {expected:?}: {:#?}",
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
            recorded: true,
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
        all_shards: false,
        namespace_max: CacheSize::UNBOUNDED,
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
