//! What the elections of one group share: the store, the clocks, the claims, and the view of all Leases.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use innkeeper_metrics::{Metrics, ShardMove};
use innkeeper_model::{ResourceVersion, ShardSet};
use jiff::Timestamp;
use parking_lot::Mutex;

use super::{
    Claims, Lease, LeaseRecord,
    balance::{Observer, Slot, View, lease_name},
    clock::since_boot,
};

/// Lease times: `duration` > `renew_deadline`, and four fifths of `renew_deadline` > `retry`.
///
/// The host has client-go's defaults: 15 s, 10 s and 2 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The time without a renewal after which the lease is free, in whole seconds.
    pub duration: Duration,
    /// The time without a renewal after which the holder gives up.
    pub renew_deadline: Duration,
    /// The time between two renewals.
    pub retry: Duration,
}

impl Times {
    /// Returns the duration in seconds, as in the lease.
    pub fn duration_s(&self) -> u32 {
        self.duration.as_secs().try_into().unwrap_or(u32::MAX)
    }
}

/// A failed request's cause.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// The stored Leases in the host's namespace, with separate clients: renewals must not queue behind other requests.
///
/// The writes need no claim, because the claims follow from them.
pub trait LeaseStore: Send + Sync + 'static {
    /// Reads a Lease from a quorum; none if it does not exist.
    fn read(&self, name: &str) -> impl Future<Output = Result<Option<Lease>, Source>> + Send;

    /// Lists the Leases of all hosts in the namespace from a quorum, by name.
    ///
    /// With one shard, it is called only if the Lease states another number of shards.
    fn list(&self) -> impl Future<Output = Result<BTreeMap<String, Lease>, Source>> + Send;

    /// Replaces exactly this version; creates the Lease if there is none to replace.
    fn write(
        &self,
        name: &str,
        replaces: Option<ResourceVersion>,
        record: &LeaseRecord,
    ) -> impl Future<Output = Result<ResourceVersion, WriteError>> + Send;
}

/// A failed write.
#[derive(Debug)]
pub struct WriteError {
    /// True if another client has created, written or deleted the Lease since it was read.
    pub is_outdated: bool,
    /// The cause.
    pub source: Source,
}

/// Follows the shards that this process holds, for example with its cache.
pub trait ShardUser: Send + Sync + 'static {
    /// Serves exactly these shards. Called after each change, one call at a time, with all held shards.
    ///
    /// The claim to a gained shard is held already. No write for a shard that was given up is under way any more, and its
    /// Lease is released, for another host to take it, when this returns. The call may be dropped when the process stops,
    /// or when another change follows.
    fn hold(&self, held: ShardSet) -> impl Future<Output = ()> + Send;
}

/// For a process whose shards nobody follows.
impl ShardUser for () {
    async fn hold(&self, _: ShardSet) {}
}

/// The parts of a [`ShardKeeper`](super::ShardKeeper).
pub struct KeeperParts<S, U> {
    /// The stored Leases.
    pub store: S,
    /// Follows the held shards.
    pub user: U,
    /// The Leases' namespace, for the log.
    pub namespace: String,
    /// The group's name, which is the name of the leader's Lease.
    pub name: String,
    /// This process's identity, unique among all candidates.
    pub identity: String,
    /// The times of each Lease.
    pub times: Times,
    /// The wall clock, for the times in the Leases; they inform the user and decide nothing.
    pub now: fn() -> Timestamp,
    /// Seeds the jitter.
    pub seed: u64,
    /// Shows the held shards and the leader.
    pub metrics: Arc<Metrics>,
}

pub(super) struct Group<S, U> {
    pub(super) parts: KeeperParts<S, U>,
    pub(super) claims: Claims,
    pub(super) observer: Mutex<Observer>,
    /// True once the leader's Lease stated another number of shards than one, so a single Lease does not tell enough.
    must_list: AtomicBool,
    /// Orders the calls of the user.
    turn: tokio::sync::Mutex<()>,
}

impl<S: LeaseStore, U: ShardUser> Group<S, U> {
    pub(super) fn new(parts: KeeperParts<S, U>, claims: Claims) -> Self {
        let shards = claims.shards();
        let observer = Observer::new(&parts.name, &parts.identity, shards, parts.times);
        Self {
            observer: Mutex::new(observer),
            must_list: AtomicBool::new(!shards.is_one()),
            turn: tokio::sync::Mutex::default(),
            parts,
            claims,
        }
    }

    /// Reads the Leases.
    pub(super) async fn view(&self) -> Result<View, Source> {
        let leases = self.leases().await?;
        Ok(self.observer.lock().observe(&leases, since_boot()))
    }

    async fn leases(&self) -> Result<BTreeMap<String, Lease>, Source> {
        let KeeperParts { store, name, .. } = &self.parts;
        if !self.must_list.load(Ordering::Relaxed) {
            let lease = store.read(name).await?;
            if lease.as_ref().is_none_or(|lease| lease.shards.is_one()) {
                return Ok(lease
                    .into_iter()
                    .map(|lease| (name.clone(), lease))
                    .collect());
            }
            // Hosts that share the work: without a leader at the moment, they may still write.
            self.must_list.store(true, Ordering::Relaxed);
        }
        store.list().await
    }

    /// Returns false if a Lease that this process has just taken must not be used, because other hosts have another number
    /// of shards. The Leases are read again, see [`balance`](super::balance).
    pub(super) async fn confirms(&self, slot: Slot) -> Result<bool, Source> {
        if !self.must_list.load(Ordering::Relaxed) {
            return Ok(true);
        }
        Ok(slot == Slot::Next || self.view().await?.is_consistent())
    }

    /// Tells the user, the metrics and the readers of the claims which shards are held now.
    pub(super) async fn publish(&self) {
        let _turn = self.turn.lock().await;
        let held = self.claims.held();
        self.parts.user.hold(held.clone()).await;
        self.show(&held);
        let before = self.claims.publish(held.clone());
        for (moved, direction) in [
            (held.difference(&before), ShardMove::Gained),
            (before.difference(&held), ShardMove::GivenUp),
        ] {
            for _ in moved {
                self.parts.metrics.shard_moved(direction);
            }
        }
    }

    /// Shows the held shards in the metrics.
    pub(super) fn show(&self, held: &ShardSet) {
        let KeeperParts { metrics, name, .. } = &self.parts;
        metrics.shards(self.claims.shards().get());
        for shard in self.claims.shards().all() {
            let is_held = held.contains(&shard);
            metrics.leads(&lease_name(name, shard), is_held);
            metrics.shard_held(shard.index(), is_held);
        }
    }
}
