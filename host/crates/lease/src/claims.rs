//! The claims of one process: one per shard, for the life of the process.

use std::sync::Arc;

use innkeeper_model::{Shard, ShardSet, Shards};
use tokio::sync::watch;

use super::Claim;

/// The claims to the shards; clones share them.
#[derive(Clone, Debug)]
pub struct Claims {
    shards: Shards,
    /// By index of the shard.
    by_shard: Arc<[Claim]>,
    /// The shards whose user has been told that they are held.
    served: Arc<watch::Sender<ShardSet>>,
}

impl Claims {
    /// Returns claims that are not held yet, for a [`ShardKeeper`](super::ShardKeeper).
    pub fn awaited(shards: Shards) -> Self {
        Self {
            shards,
            by_shard: shards.all().map(|_| Claim::awaited()).collect(),
            served: Arc::default(),
        }
    }

    /// Returns the claim of a process that is alone: one shard that is held for ever.
    pub fn unlimited() -> Self {
        let held = ShardSet::from([Shard::LEADER]);
        Self {
            shards: Shards::ONE,
            by_shard: [Claim::unlimited()].into(),
            served: Arc::new(watch::Sender::new(held)),
        }
    }

    /// Returns the number of shards.
    pub const fn shards(&self) -> Shards {
        self.shards
    }

    /// Returns the claim to a shard, which must be below the [number](Self::shards) of shards.
    pub fn of(&self, shard: Shard) -> &Claim {
        &self.by_shard[shard.index()]
    }

    /// Returns the leader's claim.
    pub fn leader(&self) -> &Claim {
        self.of(Shard::LEADER)
    }

    /// Returns the shards for which writes may be under way now.
    pub fn held(&self) -> ShardSet {
        let held = |shard: &Shard| self.of(*shard).is_held();
        self.shards.all().filter(held).collect()
    }

    /// Returns the held shards over time, each set after [`ShardUser::hold`](super::ShardUser::hold) returned for it.
    pub fn changed(&self) -> watch::Receiver<ShardSet> {
        self.served.subscribe()
    }

    /// Publishes the set for which the user has been prepared, and returns the set before.
    pub(super) fn publish(&self, held: ShardSet) -> ShardSet {
        self.served.send_replace(held)
    }

    /// Ends every claim for ever.
    pub(super) fn end(&self) {
        for claim in &*self.by_shard {
            claim.end();
        }
    }
}
