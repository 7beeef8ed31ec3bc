//! State shared by all Plugin passes: dependencies, the Plugin watch and claims.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use innkeeper_apply::Writer;
use innkeeper_cluster::{Cause, Cluster, Interest, Observed, Registration};
use innkeeper_model::{
    GroupKind, Gvk, Object, ObjectId, PluginName, PluginReason, Resource, Retry, Scope, Selector,
};
use innkeeper_reconcile::{Next, Shared};
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    act::Start,
    claims::{Age, Claims},
    definition::DefinitionCheck,
    load::Loader,
    parent_watches::{ParentWatches, parents_of},
    resource::{self, Declared},
    rollout::{CandidatePlans, Moment},
    stage::{Stage, StageFailure},
};

/// Retry interval for passes that cannot read their Plugin. A trigger follows once it can, so this is only a safety net.
pub(crate) const WAITING_RECHECK: Duration = Duration::from_secs(30);

/// The manager's dependencies.
pub struct ManagerContext {
    /// The state shared by all plugins.
    pub shared: Arc<Shared>,
    /// Loads declared components.
    pub loader: Arc<Loader>,
    /// Plugins that the same host serves from files, with their parent kinds.
    pub files: BTreeMap<PluginName, BTreeSet<GroupKind>>,
    /// Selects this host's Plugins by label; none selects all.
    pub selector: Option<Selector>,
    /// Checks the installed definition; the caller must run it.
    pub definition: Arc<DefinitionCheck>,
    /// Candidate plans for the admin server, if it shows any.
    pub plans: Option<Arc<CandidatePlans>>,
    /// Takes plugins whose passes are to run.
    pub starts: mpsc::Sender<Start>,
    /// Ends all plugins' passes.
    pub stop: CancellationToken,
}

/// The manager's dependencies and state shared between Plugins.
///
/// No lock is held across an await or while taking another.
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(crate) loader: Arc<Loader>,
    pub(crate) files: BTreeMap<PluginName, BTreeSet<GroupKind>>,
    pub(crate) selector: Option<Selector>,
    pub(crate) definition: Arc<DefinitionCheck>,
    pub(crate) plans: Option<Arc<CandidatePlans>>,
    pub(crate) starts: mpsc::Sender<Start>,
    pub(crate) stop: CancellationToken,
    /// The host name under which the Plugin watch is registered.
    pub(crate) name: PluginName,
    /// The Plugin watch.
    pub(crate) registration: Registration,
    /// Claims on parent kinds.
    claims: Mutex<Claims>,
    /// Deleted Plugins whose parents do not all have the condition yet.
    pub(crate) gone: Mutex<BTreeMap<PluginName, ParentWatches>>,
}

impl Context {
    /// Starts the Plugin watch. The resource definition may be installed later.
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
            drop(claims.acquire(name, Age::File, kinds, true));
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

    /// The writer for Plugins, which only the leader writes.
    pub(crate) fn writer(&self) -> &Writer {
        self.shared.writers.leader()
    }

    /// Runs an operation on the claims, and triggers the Plugins that it affects.
    pub(crate) fn with_claims<T>(&self, operation: impl FnOnce(&mut Claims) -> T) -> T {
        // In a block: the trigger locks the cache, and no lock is held while taking another.
        let (result, affected) = {
            let mut claims = self.claims.lock();
            (operation(&mut claims), claims.take_affected())
        };
        self.registration
            .trigger(affected.iter().map(id_of), Cause::Swapped);
        result
    }

    /// Returns the current time with a generation.
    pub(crate) fn moment(&self, generation: Option<i64>) -> Moment {
        Moment {
            now: (self.shared.now)(),
            generation,
        }
    }
}

/// The Plugin kind.
pub fn plugin_kind() -> Gvk {
    Gvk::new(resource::GROUP, "v1alpha1", "Plugin")
}

/// Returns a host's interest in Plugins.
pub(crate) fn interest(name: PluginName, selector: Option<Selector>) -> Interest {
    Interest {
        selector: selector.unwrap_or_default(),
        ..parents_of(name, plugin_kind())
    }
}

/// Returns a Plugin's object ID by name.
pub(crate) fn id_of(name: &PluginName) -> ObjectId {
    ObjectId::new(plugin_kind().group_kind(), None, name.as_str())
}

/// Returns an observed Plugin; otherwise the next pass, which is [`Next::Forget`] for one that is gone.
pub(crate) async fn observe(registration: &Registration, id: &ObjectId) -> Result<Object, Next> {
    match registration.observe(id).await {
        Observed::Ready(observation) => Ok(observation.parent),
        Observed::Gone | Observed::NotHeld => Err(Next::Forget),
        Observed::Behind { until } => Err(Next::AwaitOwnWrites(
            until.saturating_duration_since(Instant::now()),
        )),
        Observed::NotReady { .. } | Observed::NamespaceFull { .. } => {
            Err(Next::AwaitCache(WAITING_RECHECK))
        }
    }
}

/// Returns a Plugin's resource.
pub(crate) fn resource_of(object: &Object) -> Resource {
    Resource {
        kind: object.kind.clone(),
        plural: "plugins".into(),
        scope: Scope::Cluster,
    }
}

/// Returns a Plugin's declaration.
pub(crate) fn declared(object: &Object) -> Result<Declared, StageFailure> {
    let plugin = resource::Plugin::read(&object.json);
    plugin
        .and_then(|plugin| plugin.declared())
        .map_err(|error| Stage::Fetched.error(PluginReason::InvalidSpec, &error, Retry::OnChange))
}
