//! The only reader of the API server: discovery, watches, the cache with its indexes, tracked reads.
//!
//! A controller registers what it needs and is told which parents are due; a pass observes its parent from memory, and
//! its reads are answered from memory and subscribed to.
//! It does not decide when a pass runs, knows no plan and writes nothing.
//! `run` owns the [`Driver`], which owns every task.
//!
//! ```text
//!   API server ---> watch task ---> store ---> changes ---> parents that are due ---> controller
//!                  (one per kind     |
//!                   and selector)    +--> observe, reads <--- pass
//! ```

mod discovery;
mod driver;
mod error;
mod fields;
mod interest;
mod lease;
mod lines;
mod machine;
mod options;
mod parent_conditions;
mod present;
mod proof;
mod reads;
mod registration;
mod report;
mod shared;
mod shelf;
mod state;
mod store;
mod stored;
mod subscriptions;
mod triggers;
mod viewer;
mod watch;
mod wire;

use std::sync::Arc;

use tokio::time::Instant;

pub use self::{
    driver::Driver,
    error::Error,
    interest::{ChildInterest, Interest, Observation, Observed, Unavailable, Waiting, Why},
    lease::LeaseReader,
    options::Options,
    parent_conditions::{ParentConditions, Said},
    present::{labels, present},
    reads::{Answer, PassReads, Recording},
    registration::Registration,
    report::{Status, WatchStatus},
    shelf::Shelf,
    stored::Malformed,
    triggers::{Cause, Trigger},
    viewer::Viewer,
    wire::Failure,
};
use innkeeper_model::{Access, GroupKind, Gvk, HashKey, Object, Resource, Resources};

use self::{
    present::object_of,
    shared::Shared,
    stored::{Shape, keep},
    wire::Wire,
};

/// A handle to everything that is read; clones share it.
#[derive(Clone)]
pub struct Cluster(Arc<Shared>);

impl Cluster {
    /// Makes a cache that stays empty until the driver runs.
    ///
    /// The client must not retry by itself, and must not be the one that writes: every watch takes a connection.
    pub fn new(client: kube::Client, options: Options) -> (Self, Driver) {
        let wire = Wire::new(client, options.clone());
        let shared = Arc::new(Shared::new(wire, options));
        if shared.options.watch_definitions {
            let crds = watch::crd_kind();
            shared.state.lock().watch_metadata(&crds, Instant::now());
        }
        let driver = Driver::new(Arc::clone(&shared));
        (Self(shared), driver)
    }

    /// The namespaces of which objects are seen; none: all.
    pub fn namespaces(&self) -> Option<&[Arc<str>]> {
        self.0.options.namespaces.as_deref()
    }

    /// Whether CustomResourceDefinitions may be read; where they are left to others, the host need not be allowed to.
    pub fn reads_definitions(&self) -> bool {
        self.0.options.watch_definitions
    }

    /// Gives the key of hashes, or takes it away: what is shown as hashes cannot be read without it.
    pub fn set_hash_key(&self, key: Option<HashKey>) {
        self.0.state.lock().set_hash_key(key, Instant::now());
        self.0.rearrange.notify_one();
    }

    /// Registers what one plugin needs for one kind of parent.
    ///
    /// Watches that run already are shared; parents that are known already are triggered at once.
    pub fn register(&self, interest: Interest) -> Registration {
        Registration::new(&self.0, interest)
    }

    /// A kind in exactly this version; none if it is not served, or not yet known to be.
    pub fn served(&self, kind: &Gvk) -> Option<Resource> {
        self.0.state.lock().kinds()?.get(kind).cloned()
    }

    /// A kind in the version that the API server prefers.
    pub fn served_kind(&self, kind: &GroupKind) -> Option<Resource> {
        self.0.state.lock().kinds()?.preferred(kind).cloned()
    }

    /// Waits until the API server has said once which kinds it serves.
    pub async fn wait_discovered(&self) {
        let mut discovered = self.0.discovered.subscribe();
        // The sender lives as long as `self`.
        if discovered.wait_for(|count| *count > 0).await.is_err() {
            std::future::pending().await
        }
    }

    /// Waits until a kind is served; give it a timeout.
    pub async fn wait_served(&self, kind: &Gvk) -> Resource {
        let mut discovered = self.0.discovered.subscribe();
        let _expectant = self.0.expect_kind();
        loop {
            if let Some(resource) = self.served(kind) {
                return resource;
            }
            if discovered.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Asks soon which kinds are served: for whoever has changed that, or was told of a kind that there is not.
    pub fn refresh_discovery(&self) {
        self.0.rediscover.notify_one();
    }

    /// Reads one object from the API server itself, in full and with the entries of all field managers; none if it does
    /// not exist.
    ///
    /// For the few questions that the cache must not answer: what is in the way of a create, what a Secret holds, what
    /// became of a write.
    pub async fn live_get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Object>, Error> {
        self.wait_discovered().await;
        let name_text = || name.to_owned();
        let served = self.served(kind).ok_or_else(|| Error::NotServed {
            kind: kind.clone(),
            name: name_text(),
        })?;
        let text = self.0.wire.object(&served, namespace, name).await;
        let text = text.map_err(|source| Error::Read {
            kind: kind.clone(),
            name: name_text(),
            source,
        })?;
        let Some(text) = text else {
            return Ok(None);
        };
        let shape = Shape {
            kind: kind.clone(),
            form: Access::Full,
            managers: None,
            hash_key: None,
        };
        keep(&text, &shape)
            .and_then(|stored| object_of(&stored, kind, Access::Full))
            .map(Some)
            .map_err(|source| Error::Understand {
                kind: kind.clone(),
                name: name_text(),
                source,
            })
    }

    /// Doubts everything that is cached: another process has written until now, and what it wrote may not be here yet.
    ///
    /// No pass runs on a kind before [`prove`](Self::prove) has shown that it is current.
    pub fn doubt(&self) {
        self.0.state.lock().doubt_all(Instant::now());
        self.0.rearrange.notify_one();
    }

    /// Compares what is in doubt with the cluster, until nothing is.
    pub async fn prove(&self) {
        let doubted = self.0.state.lock().doubted();
        let proofs = doubted.into_iter().map(|id| proof::prove(&self.0, id));
        futures::future::join_all(proofs).await;
    }

    /// How reading is going, for people and metrics.
    pub fn status(&self) -> Status {
        self.0.status()
    }
}

impl Resources for Cluster {
    fn resource(&self, kind: &Gvk) -> Option<Resource> {
        self.served(kind)
    }
}

#[cfg(test)]
mod tests;
