//! Whole passes with real guests and an in-memory API server.

mod counting;
mod dry_runs;
mod events;
mod finalizing;
mod managers;
mod predicting;
mod remembering;
mod rounds;
mod selecting;
mod server;
mod throttling;
mod two_hosts;

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use innkeeper_apply::{Events, Writers};
use innkeeper_cluster::{Cause, Cluster, Options};
use innkeeper_lease::Claim;
use innkeeper_model::{GroupKind, Gvk, HashKey, Limits, ObjectId, PluginName, Shards};
use innkeeper_policy::Grants;
use innkeeper_sandbox::{
    Described, Metering, Plugin, Pool,
    testing::{Guest, checker, described, desired, engine, guest, owned_child},
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use super::*;

pub(crate) use server::Server;

/// Long enough for a busy machine; only a failing test waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// An API server and what its reconcilers share.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl World {
    pub(crate) async fn start() -> Self {
        let server = Server::start().await;
        let client = || {
            let url = format!("http://127.0.0.1:{}", server.port).parse().unwrap();
            let mut config = kube::Config::new(url);
            config.default_retry = false;
            kube::Client::try_from(config).unwrap()
        };
        let (cluster, driver) = Cluster::new(client(), Options::new(1));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let Err(error) = driver.run(|| {}).await;
            panic!("{error}");
        });
        let writers = Writers::new(client(), Shards::ONE, |_| Claim::unlimited());
        let inventory = Inventory::read(&cluster, "host").await;
        let hash_key = HashKey::new(*b"the key of this cluster");
        cluster.set_hash_key(Some(hash_key.clone()));
        let shared = Shared {
            cluster,
            writers,
            pool: Pool::start(NonZeroUsize::new(4).unwrap()).unwrap(),
            inventory: inventory.unwrap(),
            host_namespaces: vec!["host".to_owned(), "host-pod".to_owned()],
            metrics: Arc::default(),
            events: Events::default(),
            tracer: None,
            namespace_budgets: NamespaceBudgets::default(),
            hash_key: hash_key.into(),
            recordings: Recordings::default(),
            analyses: tokio::sync::Notify::new(),
            remember_passes: true,
            check_predictions: false,
            pass_files: None,
            resync_period: Duration::from_hours(10),
            now: Timestamp::now,
            random: |bytes| bytes.fill(7),
        };
        Self {
            server,
            shared: Arc::new(shared),
            _tasks: tasks,
        }
    }

    /// Creates a reconciler of Webs.
    pub(crate) fn reconciler(&self, name: &str, revision: Revision) -> Arc<Reconciler> {
        Arc::new(Reconciler::new(
            PluginName::new(name).unwrap(),
            Gvk::new("example.com", "v1", "Web"),
            revision,
            Arc::clone(&self.shared),
        ))
    }

    /// Creates or changes the parent in a namespace.
    pub(crate) fn put_parent(&self, namespace: &str, size: u32) {
        let stated = json!({"spec": {"size": size}});
        self.server.put("webs", namespace, "web", stated);
    }

    /// Returns the text in a parent's child, if there is one.
    pub(crate) fn child_says(&self, namespace: &str) -> Option<String> {
        let child = self.server.get("configmaps", namespace, "child")?;
        child["data"]["says"].as_str().map(str::to_owned)
    }

    /// Returns the reason in a parent's condition `Synced`.
    pub(crate) fn synced(&self, namespace: &str) -> String {
        let parent = self
            .server
            .get("webs", namespace, "web")
            .unwrap_or_default();
        parent["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == "Synced")
            .map(|synced| synced["reason"].as_str().unwrap().to_owned())
            .unwrap_or_default()
    }

    /// Runs the triggered passes until the predicate holds; a failure shows `what`.
    pub(crate) async fn drive(
        &self,
        reconciler: &Reconciler,
        what: &str,
        holds: impl Fn(&Self) -> bool,
    ) {
        let running = async {
            while !holds(self) {
                let soon = Duration::from_millis(20);
                let due = timeout(soon, reconciler.registration().triggers(99)).await;
                for (parent, _) in due.unwrap_or_default() {
                    reconciler.pass(&parent, Attempt::default()).await;
                }
            }
        };
        timeout(PATIENCE, running)
            .await
            .unwrap_or_else(|_| panic!("{what}: {:#?}", self.shared.cluster.watches()));
    }
}

/// A world with the parent in namespace `a`, to which the plugin `name` has applied its children.
pub(crate) async fn applied(name: &str, revision: Revision) -> (World, Arc<Reconciler>) {
    let world = World::start().await;
    applied_in(world, name, revision).await
}

async fn applied_in(world: World, name: &str, revision: Revision) -> (World, Arc<Reconciler>) {
    world.put_parent("a", 1);
    let reconciler = world.reconciler(name, revision);
    world
        .drive(&reconciler, "applied", |world| {
            world.synced("a") == "Applied"
        })
        .await;
    (world, reconciler)
}

pub(crate) fn parent(namespace: &str) -> ObjectId {
    ObjectId::new(GroupKind::new("example.com", "Web"), Some(namespace), "web")
}

/// Loads a guest with all the grants that it requests.
pub(crate) fn revision_of(guest: Guest) -> Revision {
    revision(described(&engine(Metering::Epochs), &guest.build()))
}

fn revision(described: Described) -> Revision {
    let plugin: Plugin = described.configure(&Map::new(), &checker()).unwrap();
    let grants = Grants::proposed(plugin.manifest());
    Revision::new(
        Arc::new(plugin),
        Arc::new(grants),
        Arc::new(Limits::default()),
    )
}

/// Returns a guest with one child, which contains this text.
pub(crate) fn saying(text: &str) -> Guest {
    let child = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "child"},
        "data": {"says": text},
    });
    guest().answering(desired(vec![owned_child("child", &child.to_string())]))
}

#[tokio::test]
async fn labels_managers_and_the_inventory_have_the_name_of_the_plugin_not_of_its_component() {
    // The component has the name "web".
    let (world, _reconciler) = applied("east", revision_of(saying("hello"))).await;
    let child = world.server.get("configmaps", "a", "child").unwrap();
    let managers = |object: &Value| -> Vec<String> {
        object["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["manager"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(child["metadata"]["labels"]["innkeeper.dev/plugin"], "east");
    assert_eq!(managers(&child), ["innkeeper:east"]);
    let parent = world.server.get("webs", "a", "web").unwrap();
    assert_eq!(managers(&parent), ["innkeeper:east:status"]);
    let inventory = world.server.get("configmaps", "host", INVENTORY).unwrap();
    assert_eq!(inventory["data"], json!({"east": "v1 ConfigMap"}));
}
