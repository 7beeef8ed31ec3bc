//! The only crate that reads from the API server: discovery, watches, an indexed cache and tracked reads.
//!
//! A controller registers an interest and receives queued parents. A pass observes and reads from memory, and each read
//! is a subscription.
//! This crate does not decide when a pass runs, knows no plan and writes nothing.
//! `run` owns the [`Driver`], which owns every task.
//!
//! ```text
//!   API server ---> watch task ---> store ---> changes ---> queued parents ---> controller
//!                  (one per kind     |
//!                   and selector)    +--> observe, reads <--- pass
//! ```

mod discovery;
mod driver;
mod error;
mod fields;
mod freshness;
mod interest;
mod lease;
mod machine;
mod options;
mod parent_conditions;
mod present;
mod reader;
mod reads;
mod registration;
mod report;
mod reviews;
mod section;
mod shared;
mod state;
mod store;
mod stored;
mod subscriptions;
#[cfg(feature = "testing")]
#[path = "tests/testing.rs"]
pub mod testing;
mod triggers;
mod viewer;
mod watch;
mod wire;

use std::sync::{Arc, atomic::Ordering};

use tokio::time::Instant;

pub use self::{
    driver::Driver,
    error::Error,
    interest::{ChildInterest, Interest, NamespaceFull, Observation, Observed, Waiting, Why},
    lease::LeaseReader,
    options::Options,
    parent_conditions::{ConditionContent, ParentConditions},
    present::{hash_values, labels, present},
    reads::{PassReads, Recording},
    registration::{Registration, Running},
    report::WatchStatus,
    reviews::{Permission, Reviewer},
    store::CacheSize,
    stored::Malformed,
    triggers::{Cause, Trigger},
    viewer::Viewer,
    wire::WireFailure,
};
use innkeeper_model::{
    Access, GroupKind, Gvk, HashKey, Object, Resource, ResourceVersion, Resources, ShardSet, Shards,
};

use self::{
    present::object_of,
    section::Section,
    shared::CacheShared,
    stored::{Shape, keep},
    wire::Wire,
};

/// A handle to the cache; clones share it.
///
/// The driver fills the cache, so it must run as long as a handle is in use.
///
/// ```
/// use innkeeper_cluster::{Cluster, Error, Options};
/// use innkeeper_model::GroupKind;
///
/// async fn serves_pods(client: kube::Client) -> Result<bool, Error> {
///     let (cluster, driver) = Cluster::new(client, Options::new(1));
///     tokio::select! {
///         // Returns only when one of its tasks panics.
///         died = driver.run(|| {}) => match died? {},
///         () = cluster.wait_discovered() => {}
///     }
///     Ok(cluster.served_kind(&GroupKind::new("", "Pod")).is_some())
/// }
/// ```
#[derive(Clone)]
pub struct Cluster(Arc<CacheShared>);

impl Cluster {
    /// Creates a cache that stays empty until the driver runs.
    ///
    /// The client must not retry, because the watch tasks have their own backoff. Writes need another client, because
    /// every watch occupies a connection.
    pub fn new(client: kube::Client, options: Options) -> (Self, Driver) {
        let wire = Wire::new(client, options.clone());
        let shared = Arc::new(CacheShared::new(wire, options));
        if shared.options.watch_definitions {
            let crds = watch::crd_kind();
            shared.state.lock().watch_metadata(&crds, Instant::now());
        }
        let driver = Driver::new(Arc::clone(&shared));
        (Self(shared), driver)
    }

    /// The namespaces that the host is limited to; none: all.
    pub fn namespaces(&self) -> Option<&[Arc<str>]> {
        self.0.options.namespaces.as_deref()
    }

    /// The number of shards.
    pub fn shards(&self) -> Shards {
        self.0.options.shards
    }

    /// Sets the shards whose parents this process serves. None are held at first; a single shard is always held.
    ///
    /// # Guarantees
    ///
    /// On return, nothing observes parents of a shard that was given up, and those that were cached are triggered, to be
    /// forgotten.
    /// Parents of a new shard wait for lists that show at least the present state.
    ///
    /// # Assumptions
    ///
    /// The caller holds the claims on all these shards. For a new shard, it calls
    /// [`check_freshness`](Self::check_freshness) next: watches that other users need in whole may lack the last holder's
    /// writes.
    pub fn hold(&self, held: ShardSet) {
        self.0.state.lock().hold(held, Instant::now());
        self.0.rearrange.notify_one();
    }

    /// Returns true if this process serves the parents in a namespace; without a namespace, cluster-scoped parents.
    pub fn holds(&self, namespace: Option<&str>) -> bool {
        self.0.state.lock().table.is_held(namespace)
    }

    /// Returns true if the API server selects objects by shard, and false if it sends all, so that the host drops those
    /// of other shards. None before the first list of a shard.
    pub fn shard_selection(&self) -> Option<bool> {
        self.0.state.lock().table.selects
    }

    /// Returns true if the host watches CustomResourceDefinitions; otherwise it needs no permission to read them.
    pub fn reads_definitions(&self) -> bool {
        self.0.options.watch_definitions
    }

    /// Returns the last seen version of a CustomResourceDefinition; none if it does not exist or is not watched.
    pub fn definition_version(&self, name: &str) -> Option<ResourceVersion> {
        self.0
            .state
            .lock()
            .table
            .version_of(&watch::crd_kind(), name)
    }

    /// Sets or removes the hash key. Without it, kinds that guests see as hashes are unreadable, and no object counts
    /// as retained.
    pub fn set_hash_key(&self, key: Option<HashKey>) {
        self.0.state.lock().set_hash_key(key, Instant::now());
        self.0.rearrange.notify_one();
    }

    /// Registers what one plugin needs for one kind of parent.
    ///
    /// Shares existing watches. Cached parents are triggered at once.
    pub fn register(&self, interest: Interest) -> Registration {
        Registration::new(&self.0, interest)
    }

    /// Returns a kind in exactly this version; none if it is not served or not discovered yet.
    pub fn served(&self, kind: &Gvk) -> Option<Resource> {
        self.0.state.lock().table.kinds()?.get(kind).cloned()
    }

    /// Returns a kind in the version that the API server prefers.
    pub fn served_kind(&self, kind: &GroupKind) -> Option<Resource> {
        self.0.state.lock().table.kinds()?.preferred(kind).cloned()
    }

    /// Waits for the first complete discovery.
    pub async fn wait_discovered(&self) {
        let mut discovered = self.0.discovered.subscribe();
        // The sender lives as long as `self`, so this never ends early.
        if discovered.wait_for(|count| *count > 0).await.is_err() {
            std::future::pending().await
        }
    }

    /// Waits until a kind is served. Callers add a timeout.
    pub async fn wait_served(&self, kind: &Gvk) -> Resource {
        let mut discovered = self.0.discovered.subscribe();
        // After the receiver exists: discovery counts the receivers.
        self.0.rediscover.notify_one();
        loop {
            if let Some(resource) = self.served(kind) {
                return resource;
            }
            if discovered.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Requests a new discovery soon, for callers that changed the served kinds or need an unknown one.
    pub fn refresh_discovery(&self) {
        self.0.rediscover.notify_one();
    }

    /// Reads one object from the API server, in full and with all managedFields entries; none if it does not exist.
    ///
    /// For the few questions that the cache must not answer: which object blocks a create, the values in a Secret, the
    /// outcome of a write.
    pub async fn live_get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Object>, Error> {
        self.wait_discovered().await;
        let served = self.served(kind).ok_or_else(|| Error::NotServed {
            kind: kind.clone(),
            name: name.to_owned(),
        })?;
        let shape = Shape {
            // The object that blocks a create may be a retained child, and only the key proves that.
            hash_key: self.0.state.lock().table.hash_key().cloned(),
            ..Shape::whole(kind)
        };
        let parse = |text: &str| object_of(&keep(text, &shape)?, kind, Access::Full);
        self.0
            .wire
            .object(&served, namespace, name, parse)
            .await
            .map_err(|source| Error::for_read(kind, name, source))
    }

    /// Marks the whole cache for a freshness check, because another process was the writer until now and the cache may
    /// lack the last writes.
    ///
    /// No pass uses a kind before [`check_freshness`](Self::check_freshness) has shown that it is current.
    pub fn require_freshness_checks(&self) {
        self.0
            .state
            .lock()
            .require_freshness_checks(&Section::Whole, Instant::now());
        self.0.rearrange.notify_one();
    }

    /// Checks every marked watch, and returns when all have passed or are gone.
    pub async fn check_freshness(&self) {
        let unchecked = self.0.state.lock().table.unchecked();
        let checks = unchecked
            .into_iter()
            .map(|id| freshness::check(&self.0, id));
        futures::future::join_all(checks).await;
    }

    /// Returns true if discovery fails because the API server refuses the credentials.
    pub fn is_unauthorized(&self) -> bool {
        self.0.unauthorized.load(Ordering::Relaxed)
    }

    /// Returns the watch status for users and metrics: one entry for each request that lists and watches.
    pub fn watches(&self) -> Vec<WatchStatus> {
        self.0.state.lock().table.statuses()
    }
}

impl Resources for Cluster {
    fn resource(&self, kind: &Gvk) -> Option<Resource> {
        self.served(kind)
    }

    fn has_parents(&self, kind: &GroupKind) -> bool {
        self.0.state.lock().table.has_parents(kind)
    }
}

#[cfg(test)]
mod tests;
