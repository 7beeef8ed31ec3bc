//! What all reconcilers of the process share.

use std::{sync::Arc, time::Duration};

use innkeeper_apply::{Events, Writer};
use innkeeper_cluster::Cluster;
use innkeeper_metrics::Metrics;
use innkeeper_model::{HashKey, Object, Resource, Resources, Scope};
use innkeeper_sandbox::Pool;
use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::sync::Notify;

use super::Inventory;

/// The process-wide parts that a pass works with; time and randomness come in with them.
pub struct Shared {
    /// The reader.
    pub cluster: Cluster,
    /// The writer.
    pub writer: Arc<Writer>,
    /// The guest threads.
    pub pool: Pool,
    /// What the cluster serves.
    pub resources: Arc<dyn Resources>,
    /// The kinds that plugins ever made.
    pub inventory: Inventory,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Events about parents.
    pub events: Events,
    /// The cluster's hash key.
    pub hash_key: HashKeySlot,
    /// Rung when the trial of a revision should be looked at.
    pub trials: Notify,
    /// Whether a pass that would do nothing is left out.
    pub remember_passes: bool,
    /// How long it takes on average until a parent has a pass for nothing but time that has passed.
    pub resync_period: Duration,
    /// The clock.
    pub now: fn() -> Timestamp,
    /// Fills a buffer with bytes that nobody can guess.
    pub random: fn(&mut [u8]),
}

impl Shared {
    /// How to address a parent. The parent was watched, so its kind is served; should discovery have lost it since,
    /// the parent's own scope still says enough to be refused by the API server in its own words.
    pub fn resource_of(&self, parent: &Object) -> Resource {
        self.resources
            .resource(&parent.kind)
            .unwrap_or_else(|| Resource {
                kind: parent.kind.clone(),
                plural: Arc::from(format!("{}s", parent.kind.kind.to_lowercase())),
                scope: match parent.namespace {
                    Some(_) => Scope::Namespaced,
                    None => Scope::Cluster,
                },
            })
    }
}

/// Holds the cluster's hash key once it is known.
#[derive(Default)]
pub struct HashKeySlot(RwLock<Option<HashKey>>);

impl HashKeySlot {
    /// The key; none while it is lost.
    pub fn get(&self) -> Option<HashKey> {
        self.0.read().clone()
    }

    /// Puts the key in.
    pub fn set(&self, key: HashKey) {
        *self.0.write() = Some(key);
    }
}
