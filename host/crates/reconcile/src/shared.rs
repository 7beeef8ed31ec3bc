//! The parts that all reconcilers of the process share.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use innkeeper_apply::{Events, Writer};
use innkeeper_cluster::Cluster;
use innkeeper_metrics::Metrics;
use innkeeper_model::{HashKey, Object, Resource, Resources, Scope};
use innkeeper_sandbox::Pool;
use jiff::Timestamp;
use opentelemetry_sdk::trace::SdkTracer;
use tokio::sync::Notify;

use crate::{Inventory, NamespaceBudgets, PassFiles, Recordings};

/// The process-wide parts of a pass, including its clock and its source of randomness.
pub struct Shared {
    /// The reader of the cluster.
    pub cluster: Cluster,
    /// The writer to the API server.
    pub writer: Arc<Writer>,
    /// The guest threads.
    pub pool: Pool,
    /// The kinds that plugins have ever created.
    pub inventory: Inventory,
    /// The namespaces of the host, which plugins serve only by a grant: that of the inventory, and that of its Pod.
    pub host_namespaces: Vec<String>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The events about parents.
    pub events: Events,
    /// The maker of the traces of passes; none if there are no traces.
    pub tracer: Option<SdkTracer>,
    /// The write limits of the plugins in each namespace.
    pub namespace_budgets: NamespaceBudgets,
    /// The cluster's hash key; none while it is unknown.
    pub hash_key: OnceLock<HashKey>,
    /// The recordings that observers have ordered.
    pub recordings: Recordings,
    /// Notified when a rollout analysis should be evaluated.
    pub analyses: Notify,
    /// Skips a pass whose inputs are those of the last one, which wrote nothing.
    pub remember_passes: bool,
    /// The files that keep the memory of passes for the next start; none if the host keeps none.
    pub pass_files: Option<PassFiles>,
    /// The mean time between two passes of a parent without any known change.
    pub resync_period: Duration,
    /// The wall clock.
    pub now: fn() -> Timestamp,
    /// Fills a buffer with random bytes that are fit for secrets.
    pub random: fn(&mut [u8]),
}

impl Shared {
    /// Returns the address of a parent's kind.
    ///
    /// The parent was watched, so its kind was served. If discovery has lost the kind since, the plural is a guess and
    /// the scope is that of the parent: the API server then rejects the request, and the user gets its message.
    pub fn resource_of(&self, parent: &Object) -> Resource {
        self.cluster
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
