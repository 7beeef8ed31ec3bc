//! From bytes to an active plugin: load, admit, install its CRDs, watch.
//!
//! A plugin comes from a [file](load()) or from a [Plugin resource](resource), which the [`Manager`] serves. Every step
//! can fail for one plugin without affecting the others. This crate does not run passes: it creates
//! [`Reconciler`](innkeeper_reconcile::Reconciler)s, one per parent kind.

mod accounts;
mod act;
mod active;
mod claims;
mod conditions;
mod context;
mod crds;
mod decide;
mod definition;
mod files;
mod finalizers;
mod follow;
mod gone;
mod kinds;
mod load;
mod manager;
mod missing;
mod orphans;
mod parent_watches;
mod pass;
mod publish;
mod refusals;
pub mod resource;
mod rollout;
mod setback;
mod stage;
mod standby;
mod state;
mod status;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod unserved;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use innkeeper_apply as apply;
use innkeeper_cluster as cluster;
use innkeeper_crd as crd;
use innkeeper_model::{GroupKind, Gvk, Limits, Manifest, PluginName, Retry};
use innkeeper_policy::Grants;
use innkeeper_reconcile::RecordError;
use innkeeper_sandbox::{Engine, artifact};
use serde_json::{Map, Value};

pub use act::Start;
pub use context::{ManagerContext, plugin_kind};
pub use crds::keep_definitions;
pub use definition::DefinitionCheck;
pub use files::{Loaded, admit, grants_of, load};
pub use follow::{Follower, FollowerContext};
pub use kinds::{PluginControllers, forget_unused_kinds, interests, serve};
pub use load::Loader;
pub use manager::Manager;
pub use orphans::tend_orphans;
pub use rollout::{CandidatePlans, FleetPlan, Forecast, ParentPlan, Writes};
pub use standby::{OnceMade, Warm, Warmer};

/// The reason for an inactive plugin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is unreadable or no plugin, or the component rejects the configuration.
    #[error("failed to load {}", path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another file holds a plugin with the same name.
    #[error(
        "{} and {} both hold a plugin named {plugin}, and only the first is active: give each plugin a name of its own",
        first.display(),
        second.display()
    )]
    NameTaken {
        /// The name.
        plugin: PluginName,
        /// The active plugin's file.
        first: PathBuf,
        /// The other file.
        second: PathBuf,
    },
    /// Another plugin is active for this parent kind, or comes first for it.
    #[error(
        "{kind} belongs to plugin {by}, which comes first, so {plugin} is not active: run only one of them"
    )]
    ParentTaken {
        /// The parent kind.
        kind: GroupKind,
        /// The plugin that comes first.
        by: PluginName,
        /// The inactive plugin.
        plugin: PluginName,
    },
    /// The plugin requires grants that it does not have.
    #[error(
        "plugin {plugin} lacks required grants: {}; give them by --grants {plugin}=FILE, `innkeeper manifests --print-grants` prints such a file",
        missing.join("; ")
    )]
    NotGranted {
        /// The plugin.
        plugin: PluginName,
        /// The missing grants.
        missing: Vec<String>,
    },
    /// The plugin's grants cannot be parsed.
    #[error("failed to read the grants of plugin {plugin}")]
    Grants {
        /// The plugin.
        plugin: PluginName,
        /// The cause.
        #[source]
        source: Box<resource::Error>,
    },
    /// A CRD is not installable as it is, or does not fit the existing one.
    #[error("failed to install the CustomResourceDefinition {name} of plugin {plugin}")]
    CrdRefused {
        /// The plugin.
        plugin: PluginName,
        /// The CRD's name.
        name: String,
        /// The cause.
        #[source]
        source: Box<crd::Refusal>,
    },
    /// A plugin without grants serves only kinds whose definition it has installed, and the host cannot tell if it has.
    #[error(
        "plugin {plugin} has no grants, so it serves only kinds whose CustomResourceDefinition it has installed, and this host cannot compare definitions: give the host its hash key and the right to read definitions, or grant the plugin its parents by --grants {plugin}=FILE"
    )]
    DefinitionsUnknown {
        /// The plugin.
        plugin: PluginName,
    },
    /// A CRD in the cluster cannot be read.
    #[error("failed to read the CustomResourceDefinition {name}")]
    ReadCrd {
        /// The CRD's name.
        name: String,
        /// The cause.
        #[source]
        source: Box<cluster::Error>,
    },
    /// A CRD cannot be written.
    #[error("failed to install the CustomResourceDefinition {name} of plugin {plugin}")]
    ApplyCrd {
        /// The plugin.
        plugin: PluginName,
        /// The CRD's name.
        name: String,
        /// The cause.
        #[source]
        source: Box<apply::Error>,
    },
    /// Only the leader installs definitions and records kinds.
    #[error(
        "the leader among the hosts has not installed plugin {plugin} yet: {what}; if it does not, read its log"
    )]
    AwaitsLeader {
        /// The plugin.
        plugin: PluginName,
        /// The missing part.
        what: String,
    },
    /// Failed to record the parent kinds that will have the plugin's finalizer.
    #[error("failed to record the kinds of parents of plugin {plugin}")]
    RecordParents {
        /// The plugin.
        plugin: PluginName,
        /// The cause.
        #[source]
        source: Box<RecordError>,
    },
    /// The children of cluster-scoped parents may be in any namespace, but the host sees only some.
    #[error(
        "plugin {plugin} makes namespaced {child} for cluster-scoped {parent}, but this host is limited to namespaces: run the plugin in a host without --namespaces"
    )]
    BeyondNamespaces {
        /// The plugin.
        plugin: PluginName,
        /// The parent kind.
        parent: Gvk,
        /// The child kind.
        child: Gvk,
    },
    /// The cluster did not serve a parent kind in time.
    #[error(
        "the cluster does not serve {kind}, a parent of plugin {plugin}, after {} s: install its CustomResourceDefinition, or read the conditions of the installed one",
        waited.as_secs()
    )]
    NotServed {
        /// The plugin.
        plugin: PluginName,
        /// The kind.
        kind: Gvk,
        /// For how long the host waited.
        waited: Duration,
    },
}

impl Error {
    /// Returns true if this host is not the leader, and waits for the leader's work.
    pub const fn awaits_leader(&self) -> bool {
        matches!(self, Self::AwaitsLeader { .. })
    }

    /// Returns when the same step may succeed.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Load { source, .. } => source
                .downcast_ref::<artifact::Error>()
                .map_or(Retry::Never, artifact::Error::retry),
            Self::NameTaken { .. }
            | Self::ParentTaken { .. }
            | Self::NotGranted { .. }
            | Self::BeyondNamespaces { .. }
            | Self::Grants { .. } => Retry::Never,
            // An administrator may grant a permission, free a name or fix a CRD, and no event reports that.
            Self::CrdRefused { .. }
            | Self::DefinitionsUnknown { .. }
            | Self::ReadCrd { .. }
            | Self::NotServed { .. }
            | Self::AwaitsLeader { .. } => Retry::Backoff,
            // Also a rejected write is retried, for the same reason.
            Self::ApplyCrd { source, .. } => source.retry().max(Retry::Backoff),
            Self::RecordParents { source, .. } => source.retry().max(Retry::Backoff),
        }
    }
}

/// Dependencies for loading.
pub struct LoaderContext {
    /// The engine.
    pub engine: Engine,
    /// The plugin cache.
    pub cache: artifact::Cache,
    /// Compiles plugins, and caches the results.
    pub compiler: artifact::Compiler,
    /// Checks configurations.
    pub config_checker: artifact::ConfigChecker,
    /// Limits for a plugin file.
    pub artifact_limits: artifact::Limits,
    /// Limits for a plugin.
    pub limits: Limits,
    /// Configurations by the plugin's name.
    pub configs: BTreeMap<String, Map<String, Value>>,
    /// Grants by plugin name, in `spec.grants` form.
    pub grants: BTreeMap<String, Map<String, Value>>,
    /// Grants for all other plugins: [`Grants::for_file`], or [`Grants::requested`] in a development cluster.
    pub usual_grants: fn(&Manifest) -> Grants,
}
