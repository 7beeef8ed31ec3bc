//! The parts that all reconcilers in the process share.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use innkeeper_apply::{Events, Writer, Writers};
use innkeeper_cluster::Cluster;
use innkeeper_metrics::Metrics;
use innkeeper_model::{HashKey, Object, ObjectId, Resource, Resources, Scope};
use innkeeper_sandbox::Pool;
use jiff::Timestamp;
use opentelemetry_sdk::trace::SdkTracer;
use tokio::sync::Notify;

use crate::{Inventory, NamespaceBudgets, PassFiles, Recordings};

/// The process-wide parts of a pass, including clock and randomness.
pub struct Shared {
    /// Reads the cluster.
    pub cluster: Cluster,
    /// Write to the API server, one for each shard.
    pub writers: Writers,
    /// The guest threads.
    pub pool: Pool,
    /// The kinds that plugins have created, finalized or served.
    pub inventory: Inventory,
    /// The host's namespaces (the inventory's and the Pod's), which plugins serve only with a grant.
    pub host_namespaces: Vec<String>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The Events about parents.
    pub events: Events,
    /// Traces passes; `None` without tracing.
    pub tracer: Option<SdkTracer>,
    /// Each plugin's write limits in each namespace.
    pub namespace_budgets: NamespaceBudgets,
    /// The cluster's hash key, once it is known.
    pub hash_key: OnceLock<HashKey>,
    /// The recordings that clients wait for.
    pub recordings: Recordings,
    /// Notified when the plugin controller should evaluate a rollout analysis.
    pub analyses: Notify,
    /// Skips a pass with the same inputs as the last one, if that wrote nothing.
    pub remember_passes: bool,
    /// Also calls the guest where a prediction holds, and panics if the answers differ; for tests.
    pub check_predictions: bool,
    /// Stores the remembered passes for the next start; `None` if the host stores none.
    pub pass_files: Option<PassFiles>,
    /// The mean time between two passes of an unchanged parent.
    pub resync_period: Duration,
    /// The wall clock.
    pub now: fn() -> Timestamp,
    /// Fills a buffer with cryptographically secure random bytes.
    pub random: fn(&mut [u8]),
}

impl Shared {
    /// Returns the writer for a parent and everything that its passes write.
    pub fn writer_for(&self, parent: &ObjectId) -> &Arc<Writer> {
        self.writers.for_namespace(parent.namespace.as_deref())
    }

    /// Returns the API resource for a parent.
    ///
    /// If discovery has lost the kind since the parent was cached, the plural is a guess: the API server then rejects the
    /// request, and the user gets the server's message.
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
