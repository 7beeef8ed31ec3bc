//! Kinds that an active plugin watches: parents, children, and kinds that it created earlier.

use std::{cmp::Reverse, collections::BTreeSet, sync::Arc};

use innkeeper_cluster::Interest;
use innkeeper_model::{GroupKind, Gvk, Limits, PluginName, error_chain};
use innkeeper_reconcile::{RecentFault, Reconciler, RecordError, Revision, Role, Shared};
use tracing::{info, warn};

use super::{Error, Loaded, crds::CheckedDefinitions, resource::Crds};

/// An active plugin.
pub struct PluginControllers {
    /// The plugin's name.
    pub name: PluginName,
    /// The controllers, one per parent kind.
    pub reconcilers: Vec<Arc<Reconciler>>,
}

impl PluginControllers {
    /// Starts a plugin's watches. The cluster must serve the parent kinds.
    pub(super) fn new(shared: &Arc<Shared>, name: &PluginName, serving: &Revision) -> Self {
        let reconcilers = serving
            .parents()
            .map(|parent| {
                let name = name.clone();
                let kind = parent.kind.clone();
                let reconciler = Reconciler::new(name, kind, serving.clone(), Arc::clone(shared));
                Arc::new(reconciler)
            })
            .collect();
        Self {
            reconcilers,
            name: name.clone(),
        }
    }

    /// Returns the parent kinds without versions.
    pub(super) fn kinds(&self) -> BTreeSet<GroupKind> {
        self.reconcilers
            .iter()
            .map(|reconciler| reconciler.parent().group_kind())
            .collect()
    }

    /// Returns true for a parent kind, in any version.
    pub fn parents(&self, kind: &Gvk) -> bool {
        let group_kind = kind.group_kind();
        self.reconcilers
            .iter()
            .any(|reconciler| reconciler.parent().group_kind() == group_kind)
    }

    /// Returns the last faults for all parent kinds, latest first.
    pub fn recent_faults(&self) -> Vec<RecentFault> {
        let mut faults: Vec<_> = self
            .reconcilers
            .iter()
            .flat_map(|reconciler| reconciler.recent_faults())
            .collect();
        faults.sort_by_key(|fault| Reverse(fault.time));
        faults
    }
}

/// Installs a plugin file's CRDs, records the parent kinds if the plugin finalizes, and starts the watches.
pub async fn serve(
    shared: &Arc<Shared>,
    loaded: &Loaded,
    limits: &Arc<Limits>,
) -> Result<PluginControllers, Error> {
    let serving = loaded.serving(limits);
    let mut definitions = CheckedDefinitions::default();
    definitions
        .install(shared, &loaded.name, &serving, Crds::Install, false)
        .await?;
    // Before the first pass, because a later process removes finalizers only from recorded kinds.
    if loaded.manifest().finalize {
        let parents = serving
            .parents()
            .map(|parent| parent.kind.clone())
            .collect();
        record_finalizing(shared, &loaded.name, &parents).await?;
    }
    let served = PluginControllers::new(shared, &loaded.name, &serving);
    info!(
        plugin = %loaded.name,
        version = loaded.manifest().version,
        revision = %loaded.plugin.revision(),
        file = %loaded.path.display(),
        "serving plugin"
    );
    Ok(served)
}

/// Records parent kinds that will have a plugin's finalizer; a follower waits until the leader has.
async fn record_finalizing(
    shared: &Shared,
    plugin: &PluginName,
    parents: &BTreeSet<Gvk>,
) -> Result<(), Error> {
    let failed = |source| Error::RecordParents {
        plugin: plugin.clone(),
        source: Box::new(source),
    };
    let inventory = &shared.inventory;
    let leader = shared.writers.leader();
    if leader.has_claim() {
        let recorded = inventory.record(leader, plugin, Role::Finalizing, parents);
        return recorded.await.map_err(failed);
    }
    let refreshed = inventory.refresh().await.map_err(RecordError::from);
    refreshed.map_err(failed)?;
    if parents.is_subset(&inventory.kinds(plugin, Role::Finalizing)) {
        return Ok(());
    }
    Err(Error::AwaitsLeader {
        plugin: plugin.clone(),
        what: "its parent kinds are not recorded".to_owned(),
    })
}

/// Returns a plugin file's interests once it is active, one for each parent kind.
pub fn interests(loaded: &Loaded, once_made: &BTreeSet<Gvk>) -> Vec<Interest> {
    // Only the cache bound depends on the limits, and the highest one registered counts.
    loaded
        .serving(&Arc::default())
        .interests(&loaded.name, once_made)
}

/// Removes child kinds from the inventory once the plugin does not create them any more and no child is left.
pub async fn forget_unused_kinds(shared: &Shared, served: &PluginControllers) {
    // With several shards this host sees only some of the children.
    if !shared.writers.shards().is_one() {
        return;
    }
    for kind in shared.inventory.kinds(&served.name, Role::Child) {
        let unused = |reconciler: &Arc<Reconciler>| {
            // The host watches recorded kinds to prune earlier revisions' children, so an unknown count keeps the kind.
            !reconciler.may_make(&kind)
                && reconciler.registration().child_count(&kind.group_kind()) == Some(0)
        };
        if !served.reconcilers.iter().all(unused) {
            continue;
        }
        let kinds = BTreeSet::from([kind.clone()]);
        if let Err(error) = shared
            .inventory
            .remove(shared.writers.leader(), &served.name, Role::Child, &kinds)
            .await
        {
            warn!(plugin = %served.name, %kind, error = %error_chain(&error), "failed to remove a kind from the inventory");
            continue;
        }
        for reconciler in &served.reconcilers {
            reconciler.watch_anew();
        }
    }
}
