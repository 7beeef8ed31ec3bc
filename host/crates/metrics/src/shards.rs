//! Metrics of shards.

use prometheus_client::{metrics::gauge::Gauge, registry::Registry};

use super::{Counters, Gauges, Metrics, Registrar};

pub(super) struct ShardFamilies {
    count: Gauge,
    held: Gauges<1>,
    moves: Counters<1>,
    selector_honoured: Gauge,
}

/// A shard's move to or from this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum ShardMove {
    /// This process acquired the Lease.
    Gained,
    /// This process gave the shard up for another host.
    GivenUp,
}

impl ShardFamilies {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let mut registrar = Registrar::new(registry, "innkeeper");
        let families = Self {
            count: registrar.family(
                "shards",
                "Shards of which each parent is in one, by its namespace; 1 if one host does all the work",
            ),
            held: registrar.family(
                "shard_held",
                "1 if this process holds the shard and serves its parents, otherwise 0",
            ),
            moves: registrar.family(
                "shard_moves",
                "Shards that this process gained, or has given up for another host",
            ),
            selector_honoured: registrar.family(
                "shard_selector_honoured",
                "1 if the API server sends only objects in the shards that this process holds, 0 if the process drops the others itself",
            ),
        };
        // For a host without an election.
        families.count.set(1);
        families
    }
}

impl Metrics {
    /// Sets the configured number of shards.
    pub fn shards(&self, count: u8) {
        self.shards.count.set(count.into());
    }

    /// Sets whether this process holds a shard.
    pub fn shard_held(&self, shard: usize, is_held: bool) {
        let labels = [("shard", shard.to_string())];
        self.shards
            .held
            .get_or_create_owned(&labels)
            .set(is_held.into());
    }

    /// Counts a shard that this process gained or gave up.
    pub fn shard_moved(&self, direction: ShardMove) {
        let labels = [("direction", direction.to_string())];
        self.shards.moves.get_or_create_owned(&labels).inc();
    }

    /// Sets whether the API server selects objects by shard.
    pub fn shard_selector_honoured(&self, is_honoured: bool) {
        self.shards.selector_honoured.set(is_honoured.into());
    }
}
