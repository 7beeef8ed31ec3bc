//! A read-only host, for commands that plan: it never acquires the claim, so the writer refuses all writes.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use innkeeper_apply::Writers;
use innkeeper_cluster::Cluster;
use innkeeper_command::{Definitions, Exit, Failure, HASH_KEY_SECRET, OrFail as _};
use innkeeper_lease::Claim;
use innkeeper_metrics::Metrics;
use innkeeper_model::{HashKey, Shards};
use innkeeper_reconcile::{Inventory, Shared};
use innkeeper_sandbox::Pool;
use tokio::time::timeout;
use tracing::warn;

use super::{
    SANDBOX,
    clients::Clients,
    key, shared,
    tasks::{TASK_ENDED, Tasks, joined, wait_for_namespaces},
};
use crate::{
    admin::Heartbeats,
    args::{ConnectionArgs, ScopeArgs},
};

/// The time limit for the API server's first response: longer than discovery takes in a large cluster.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs work with the context for dry runs, once the host's objects are read; fails if the cache ends first. All
/// threads are for dry runs.
pub async fn read_only<T, F: Future<Output = Result<T, Failure>>>(
    client: kube::Client,
    namespaces: Option<&Vec<String>>,
    host_namespace: &str,
    threads: NonZeroUsize,
    work: impl FnOnce(Arc<Shared>) -> F,
) -> Result<T, Failure> {
    let scope = ScopeArgs {
        namespaces: namespaces.cloned(),
        // Only a host that installs definitions watches them.
        crds: Definitions::Ignore,
    };
    let mut tasks = Tasks::default();
    // Nobody checks it: there is no admin server.
    let heartbeat = Heartbeats::default().expect("watches", Duration::MAX);
    let cluster = tasks.read(client.clone(), &scope, Shards::ONE, heartbeat);
    let writers = Writers::new(client, Shards::ONE, |_| Claim::awaited());
    timeout(CONNECT_TIMEOUT, wait_for_namespaces(&cluster))
        .await
        .or_fail(
            Exit::Failure,
            format!(
                "the API server did not answer within {} s: check its address and the network",
                CONNECT_TIMEOUT.as_secs()
            ),
        )??;
    let inventory = Inventory::read(&cluster, host_namespace).await.or_fail(
        Exit::Failure,
        "failed to read the inventory of kinds that plugins have created",
    )?;
    let hash_key = hash_key(&cluster, &inventory).await?;
    let pool = Pool::start(threads).or_fail(Exit::Failure, SANDBOX)?;
    let metrics = Arc::<Metrics>::default();
    let shared = Arc::new(Shared {
        host_namespaces: vec![host_namespace.to_owned()],
        ..shared(cluster, writers, pool.for_dry_runs(), inventory, &metrics)
    });
    key::set(&shared, hash_key);
    tokio::select! {
        result = work(shared) => result,
        Some(result) = tasks.background.join_next() => {
            joined(result)?;
            Err(Failure::new(Exit::Failure, TASK_ENDED))
        }
    }
}

/// Returns a client for a cluster.
pub async fn client(connection: &ConnectionArgs) -> Result<kube::Client, Failure> {
    Clients::new(connection, None, Arc::default())
        .await?
        .client()
}

/// Reads the hash key. A cluster without children needs none, so it gets a random one.
async fn hash_key(cluster: &Cluster, inventory: &Inventory) -> Result<HashKey, Failure> {
    let namespace = inventory.namespace();
    let key = key::read(cluster, namespace).await.or_fail(
        Exit::Failure,
        format!("failed to read the hash key, Secret {namespace}/{HASH_KEY_SECRET}"),
    )?;
    match key {
        Some(key) => Ok(key),
        None if inventory.is_empty() => {
            warn!(
                "no host in the namespace {namespace} has created children: if yours runs in another namespace, give --host-namespace"
            );
            Ok(key::random())
        }
        None => {
            let message = format!(
                "the Secret {namespace}/{HASH_KEY_SECRET} is missing although plugins have created children: restore it"
            );
            Err(Failure::new(Exit::Failure, message))
        }
    }
}
