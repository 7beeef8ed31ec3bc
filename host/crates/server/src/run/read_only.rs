//! A host that only reads, for commands that plan: it has no claim to write, so the writer refuses every write.

use std::{
    num::NonZeroUsize,
    sync::{Arc, OnceLock},
    time::Duration,
};

use innkeeper_apply::{Events, Writer};
use innkeeper_cluster::Cluster;
use innkeeper_command::{Definitions, Exit, Failure, HASH_KEY_SECRET, OrFail as _};
use innkeeper_lease::Claim;
use innkeeper_model::HashKey;
use innkeeper_reconcile::{Inventory, NamespaceBudgets, Recordings, Shared};
use innkeeper_sandbox::Pool;
use jiff::Timestamp;
use tokio::{sync::Notify, time::timeout};
use tracing::warn;

use super::{
    SANDBOX, StatusRegistry,
    clients::Clients,
    key, namespaces,
    random::fill_random,
    tasks::{TASK_ENDED, Tasks, joined},
};
use crate::args::{ConnectionArgs, ScopeArgs};

/// The time limit for the first answer of the API server: longer than the discovery of a large cluster takes.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// The parts of a host that reads a cluster.
pub struct ReadOnlyHost {
    /// The context of its dry runs.
    pub shared: Arc<Shared>,
    tasks: Tasks,
}

impl ReadOnlyHost {
    /// Reads the objects of the cluster's host; all threads are for dry runs.
    pub async fn start(
        client: kube::Client,
        namespaces: Option<&Vec<String>>,
        host_namespace: &str,
        threads: NonZeroUsize,
    ) -> Result<Self, Failure> {
        let status = StatusRegistry::default();
        let scope = ScopeArgs {
            namespaces: namespaces.cloned(),
            crds: Definitions::Ignore,
        };
        let mut tasks = Tasks::default();
        let heartbeat = status.expect_heartbeat("watches");
        let cluster = tasks.read(client.clone(), &scope, heartbeat);
        let writer = Arc::new(Writer::new(client, Claim::awaited()));
        timeout(ANSWERS_WITHIN, namespaces::wait_for_all(&cluster))
            .await
            .or_fail(
                Exit::Failure,
                format!(
                    "the API server did not answer within {} s: check its address and the network",
                    ANSWERS_WITHIN.as_secs()
                ),
            )??;
        let inventory = Inventory::read(&cluster, Arc::clone(&writer), host_namespace)
            .await
            .or_fail(
                Exit::Failure,
                "failed to read the inventory of kinds that plugins have created",
            )?;
        let hash_key = hash_key(&cluster, &inventory).await?;
        let pool = Pool::start(threads).or_fail(Exit::Failure, SANDBOX)?;
        let shared = Arc::new(Shared {
            cluster,
            writer,
            pool: pool.for_dry_runs(),
            inventory,
            host_namespaces: vec![host_namespace.to_owned()],
            metrics: Arc::clone(&status.metrics),
            events: Events::default(),
            tracer: None,
            namespace_budgets: NamespaceBudgets::default(),
            hash_key: OnceLock::new(),
            recordings: Recordings::default(),
            analyses: Notify::new(),
            remember_passes: false,
            pass_files: None,
            resync_period: Duration::MAX,
            now: Timestamp::now,
            random: fill_random,
        });
        key::set(&shared, hash_key);
        Ok(Self { shared, tasks })
    }

    /// Runs work that needs the cache, and fails if the cache ends before it.
    pub async fn run<T>(
        mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            ended = work => ended,
            Some(died) = self.tasks.background.join_next() => {
                joined(died)?;
                Err(Failure::new(Exit::Failure, TASK_ENDED))
            }
        }
    }
}

/// Returns a client of a cluster.
pub async fn client(connection: &ConnectionArgs) -> Result<kube::Client, Failure> {
    let metrics = Arc::default();
    Clients::of(connection, None, metrics).await?.client()
}

/// Reads the hash key. A cluster without any child of a plugin needs none, so it gets a random one.
async fn hash_key(cluster: &Cluster, inventory: &Inventory) -> Result<HashKey, Failure> {
    let namespace = inventory.namespace();
    let found = key::read(cluster, namespace).await.or_fail(
        Exit::Failure,
        format!("failed to read the hash key, Secret {namespace}/{HASH_KEY_SECRET}"),
    )?;
    match found {
        Some(key) => Ok(key),
        None if inventory.is_empty() => {
            warn!(
                "no host has made children from the namespace {namespace}: if one runs in another namespace, give --host-namespace"
            );
            let mut key = vec![0; key::LENGTH];
            fill_random(&mut key);
            Ok(HashKey::new(key))
        }
        None => {
            let message = format!(
                "the Secret {namespace}/{HASH_KEY_SECRET} is missing although plugins have created children: restore it"
            );
            Err(Failure::new(Exit::Failure, message))
        }
    }
}
