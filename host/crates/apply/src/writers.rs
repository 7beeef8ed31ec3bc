//! One writer for each shard: a write to a parent, or for it, needs the claim to the parent's shard.

use std::sync::Arc;

use innkeeper_lease::Claim;
use innkeeper_model::{Shard, Shards};

use super::Writer;

/// The process's writers. They share one client and one limit for concurrent writes.
pub struct Writers {
    shards: Shards,
    /// One for each shard, by index.
    writers: Vec<Arc<Writer>>,
}

impl Writers {
    /// Creates a writer for each shard with the shard's claim. The client must not retry, as for [`Writer::new`].
    pub fn new(client: kube::Client, shards: Shards, claim: impl Fn(Shard) -> Claim) -> Self {
        let leader = Writer::new(client, claim(Shard::LEADER));
        let others = shards.all().skip(1);
        let others: Vec<_> = others
            .map(|shard| Arc::new(leader.with_claim(claim(shard))))
            .collect();
        Self {
            shards,
            writers: [Arc::new(leader)].into_iter().chain(others).collect(),
        }
    }

    /// The number of shards.
    pub const fn shards(&self) -> Shards {
        self.shards
    }

    /// Returns the writer for everything that is not about a namespaced parent.
    pub fn leader(&self) -> &Arc<Writer> {
        self.of_shard(Shard::LEADER)
    }

    /// Returns the writer for parents in a namespace; none: cluster-scoped parents.
    pub fn for_namespace(&self, namespace: Option<&str>) -> &Arc<Writer> {
        self.of_shard(self.shards.of(namespace))
    }

    fn of_shard(&self, shard: Shard) -> &Arc<Writer> {
        &self.writers[shard.index()]
    }
}
