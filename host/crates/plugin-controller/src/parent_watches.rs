//! Watches on the parents of plugins that have no passes for them.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_cluster::{CacheSize, Cluster, Interest, Registration};
use innkeeper_model::{GroupKind, Gvk, Object, PluginName, Selector};
use tokio::time::Instant;

use crate::refusals::Refusals;

/// Concurrent writes to parents without passes. A deleted Plugin may have thousands of parents, and active plugins
/// write to the same API server.
pub(super) const CONCURRENT_WRITES: usize = 8;

/// Watches on some parent kinds, kept open, and the waits after rejected writes.
#[derive(Default)]
pub(crate) struct ParentWatches {
    watched: BTreeMap<GroupKind, Registration>,
    pub(super) refusals: Refusals,
}

impl ParentWatches {
    /// Ends the watches on all other kinds.
    pub(super) fn retain(&mut self, kinds: &BTreeSet<GroupKind>) {
        self.watched.retain(|kind, _| kinds.contains(kind));
    }

    /// Returns a kind's watch, and starts a new one. None for an unserved kind, which has no objects.
    pub(super) fn watch(
        &mut self,
        cluster: &Cluster,
        plugin: &PluginName,
        kind: &GroupKind,
    ) -> Option<&Registration> {
        // All versions share the same objects, and the cluster may have stopped serving a recorded version.
        let served = cluster.served_kind(kind)?;
        let registration = self
            .watched
            .entry(kind.clone())
            .or_insert_with(|| cluster.register(parents_of(plugin.clone(), served.kind)));
        Some(registration)
    }

    /// Returns when the next attempt may start, while it has to wait after a rejection.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.refusals.due(Instant::now())
    }
}

/// Returns the interest in parents alone, of all shards.
pub(super) fn parents_of(plugin: PluginName, parent: Gvk) -> Interest {
    Interest {
        plugin,
        parent,
        children: Vec::new(),
        reads: Vec::new(),
        selector: Selector::default(),
        field_managers: BTreeSet::new(),
        all_shards: true,
        namespace_max: CacheSize::UNBOUNDED,
    }
}

/// Returns the cached parents.
pub(super) fn parents(registration: &Registration) -> impl Iterator<Item = Object> {
    registration
        .parents()
        .into_iter()
        .filter_map(|id| registration.parent(&id))
}
