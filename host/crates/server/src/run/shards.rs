//! Shards: a host serves the parents of those that it holds, whether it is the leader or not.
//!
//! Without shards a host serves only as the leader. With shards it starts as a follower: plugin files run once the leader
//! has installed their definitions, and Plugin resources run the revisions that the leader has published.

use std::{sync::Arc, time::Duration};

use innkeeper_cluster::Cluster;
use innkeeper_command::Failure;
use innkeeper_lease::{Claim, ShardUser};
use innkeeper_model::ShardSet;
use innkeeper_reconcile::Shared;
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{StatusRegistry, key, tasks::joined};

/// How long a shard waits for a new cluster's hash key.
const KEY_WAIT: Duration = Duration::from_secs(5);

const KEY_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Set once this host is the leader and has the inventory and the hash key; clones share it.
#[derive(Clone, Default)]
pub(super) struct Leadership(CancellationToken);

impl Leadership {
    /// Returns the leadership of a host that begins as the leader.
    pub(super) fn begun() -> Self {
        let leadership = Self::default();
        leadership.0.cancel();
        leadership
    }

    /// Returns true if this host is the leader.
    pub(super) fn has_begun(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until this host is the leader; the process ends with the leadership.
    pub(super) async fn begins(&self) {
        self.0.cancelled().await;
    }
}

/// Waits until this host is the leader, and prepares it.
pub(super) async fn lead(
    shared: Arc<Shared>,
    claim: Claim,
    leadership: Leadership,
) -> Result<(), Failure> {
    claim.acquired().await;
    info!(
        "leading: this host also serves Plugin resources, definitions and cluster-scoped parents"
    );
    key::prepare_leader(&shared).await?;
    leadership.0.cancel();
    Ok(())
}

/// Gives the held shards to the cache.
pub(super) struct HeldShards {
    cluster: Cluster,
    status: Arc<StatusRegistry>,
    /// Asks for a freshness check.
    gained: Arc<Notify>,
}

impl HeldShards {
    /// Returns the shards' user, and the checks that follow each gain.
    pub(super) fn new(
        cluster: Cluster,
        status: Arc<StatusRegistry>,
    ) -> (Self, impl Future<Output = Result<(), Failure>> + use<>) {
        let gained = Arc::new(Notify::new());
        let checks = check(cluster.clone(), Arc::clone(&gained));
        let user = Self {
            cluster,
            status,
            gained,
        };
        (user, checks)
    }

    /// Waits for the hash key, and updates the kinds to watch, because the last holder may have created children of kinds that are new to this host.
    async fn refresh_kinds(&self) {
        let Some(shared) = self.status.shared() else {
            // The inventory is not read yet.
            return;
        };
        // Without the key, passes would report that it is missing; a new cluster's leader creates it within a second.
        let key = async {
            while shared.hash_key.get().is_none() {
                sleep(KEY_CHECK_INTERVAL).await;
            }
        };
        drop(timeout(KEY_WAIT, key).await);
        if let Err(error) = key::read_inventory(|| shared.inventory.refresh()).await {
            warn!(%error, "failed to read the inventory again: children of undeclared kinds are not pruned");
        }
        for served in self.status.active() {
            for reconciler in &served.reconcilers {
                reconciler.watch_anew();
            }
        }
    }
}

impl ShardUser for HeldShards {
    async fn hold(&self, held: ShardSet) {
        let has_gained = !held.is_subset(&self.status.held_shards());
        if has_gained && !self.cluster.shards().is_one() {
            // First, so that no pass of a new parent misses a kind.
            self.refresh_kinds().await;
        }
        self.cluster.hold(held.clone());
        self.status.set_held_shards(held);
        if has_gained {
            self.gained.notify_one();
        }
    }
}

/// Checks watches after each gain, because other hosts wrote for the shard until then.
async fn check(cluster: Cluster, gained: Arc<Notify>) -> Result<(), Failure> {
    let mut checks = JoinSet::new();
    loop {
        tokio::select! {
            () = gained.notified() => {
                let cluster = cluster.clone();
                checks.spawn(async move { cluster.check_freshness().await });
            }
            Some(result) = checks.join_next() => joined(result.map(Ok))?,
        }
    }
}
