//! What every pass of a Plugin shares: the dependencies, the watch of Plugins and the claims.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use innkeeper_cluster::{Cause, Cluster, Interest, Registration};
use innkeeper_model::{
    GroupKind, Gvk, Object, ObjectId, PluginName, Resource, Retry, Scope, Selector,
};
use innkeeper_reconcile::Shared;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    act::Start,
    claims::{Age, Claims},
    definition::DefinitionCheck,
    finalizers::parents_of,
    load::Loader,
    resource::{self, Declared},
    rollout::{CandidatePlans, Moment},
    stage::{Stage, StageFailure},
    unserved::ToldParents,
};

/// The dependencies of the manager.
pub struct ManagerContext {
    /// The state shared by all plugins.
    pub shared: Arc<Shared>,
    /// The loader of declared components.
    pub loader: Arc<Loader>,
    /// The plugins that the same host serves from files, with their kinds of parents.
    pub files: BTreeMap<PluginName, BTreeSet<GroupKind>>,
    /// The label selector for the Plugins of this host; none: all.
    pub selector: Option<Selector>,
    /// The check of the installed definition, which has to run.
    pub definition: Arc<DefinitionCheck>,
    /// The plans of candidates for the admin server; none if it shows none.
    pub plans: Option<Arc<CandidatePlans>>,
    /// Takes plugins whose passes are to run.
    pub starts: mpsc::Sender<Start>,
    /// Ends the passes of all plugins.
    pub stop: CancellationToken,
}

/// The dependencies of the manager, and the state that the Plugins share.
///
/// No lock is held across an await, and none is taken while another one is held.
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(crate) loader: Arc<Loader>,
    pub(crate) files: BTreeMap<PluginName, BTreeSet<GroupKind>>,
    pub(crate) selector: Option<Selector>,
    pub(crate) definition: Arc<DefinitionCheck>,
    pub(crate) plans: Option<Arc<CandidatePlans>>,
    pub(crate) starts: mpsc::Sender<Start>,
    pub(crate) stop: CancellationToken,
    /// The name of the host, under which the watch of Plugins is registered.
    pub(crate) name: PluginName,
    /// The watch of Plugins.
    pub(crate) registration: Registration,
    /// The claims of plugins to kinds of parents.
    claims: Mutex<Claims>,
    /// The deleted Plugins whose parents do not all state it yet.
    pub(crate) gone: Mutex<BTreeMap<PluginName, ToldParents>>,
}

impl Context {
    /// Starts to watch Plugins. The definition of the resource may be installed later.
    pub(crate) fn new(dependencies: ManagerContext, name: PluginName) -> Self {
        let ManagerContext {
            shared,
            loader,
            files,
            selector,
            definition,
            plans,
            starts,
            stop,
        } = dependencies;
        let mut claims = Claims::default();
        for (name, kinds) in &files {
            // Succeeds: no two files claim the same kind, and no Plugin has claimed one yet.
            drop(claims.take(name, Age::File, kinds, true));
        }
        Self {
            registration: shared
                .cluster
                .register(interest(name.clone(), selector.clone())),
            shared,
            loader,
            files,
            selector,
            definition,
            plans,
            starts,
            stop,
            name,
            claims: Mutex::new(claims),
            gone: Mutex::default(),
        }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.shared.cluster
    }

    /// Runs an operation on the claims, and triggers the Plugins that it affects.
    pub(crate) fn with_claims<T>(&self, operation: impl FnOnce(&mut Claims) -> T) -> T {
        let (result, affected) = {
            let mut claims = self.claims.lock();
            (operation(&mut claims), claims.take_affected())
        };
        self.registration
            .trigger(affected.iter().map(id_of), Cause::Swapped);
        result
    }

    /// Returns the present moment in the life of a Plugin.
    pub(crate) fn moment(&self, generation: Option<i64>) -> Moment {
        Moment {
            now: (self.shared.now)(),
            generation,
        }
    }
}

/// The kind of the resource.
pub fn plugin_kind() -> Gvk {
    Gvk::new(resource::GROUP, "v1alpha1", "Plugin")
}

/// Returns the interest in the Plugins of a host of this name.
pub(crate) fn interest(name: PluginName, selector: Option<Selector>) -> Interest {
    Interest {
        selector: selector.unwrap_or_default(),
        ..parents_of(name, plugin_kind())
    }
}

/// Returns the identity of the Plugin of a name.
pub(crate) fn id_of(name: &PluginName) -> ObjectId {
    ObjectId::new(plugin_kind().group_kind(), None, name.as_str())
}

/// Returns the resource of a Plugin.
pub(crate) fn resource_of(object: &Object) -> Resource {
    Resource {
        kind: object.kind.clone(),
        plural: "plugins".into(),
        scope: Scope::Cluster,
    }
}

/// Returns the declaration of a Plugin.
pub(crate) fn declared(object: &Object) -> Result<Declared, StageFailure> {
    let plugin = resource::Plugin::read(&object.json);
    let declared = plugin.and_then(|plugin| plugin.declared());
    declared
        .map_err(|error| StageFailure::of(Stage::Fetched, "InvalidSpec", &error, Retry::OnChange))
}
