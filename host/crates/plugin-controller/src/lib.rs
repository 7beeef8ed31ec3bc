//! From bytes to an active plugin: load, admit, install its CRDs, watch.
//!
//! A plugin comes from a [file](load()) or from a [Plugin resource](resource), which the [`Manager`] serves.
//! Every step can fail for one plugin without affecting the others.
//! It does not run passes: it creates [`Reconciler`](innkeeper_reconcile::Reconciler)s, one per kind of parent.

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
mod gone;
mod kinds;
mod load;
mod manager;
mod missing;
mod orphans;
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
use innkeeper_sandbox::{Engine, artifact};
use serde_json::{Map, Value};

pub use act::Start;
pub use context::{ManagerContext, plugin_kind};
pub use crds::keep_definitions;
pub use definition::DefinitionCheck;
pub use files::{Loaded, admit, grants_of, load};
pub use kinds::{PluginControllers, forget_unused_kinds, interests, serve};
pub use load::Loader;
pub use manager::Manager;
pub use orphans::tend_orphans;
pub use rollout::{CandidatePlans, FleetPlan, Forecast, ParentPlan, Writes};
pub use standby::{OnceMade, Warm, Warmer};

/// The reason for a plugin that is not active.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is unreadable or no plugin, or the component does not accept its configuration.
    #[error("failed to load {}", path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another file holds a plugin of that name.
    #[error(
        "{} and {} both hold a plugin named {plugin}, and only the first is active: give each plugin a name of its own",
        first.display(),
        second.display()
    )]
    NameTaken {
        /// The name.
        plugin: PluginName,
        /// The file of the active plugin.
        first: PathBuf,
        /// The other file.
        second: PathBuf,
    },
    /// Another plugin is active for that kind of parent, or comes first for it.
    #[error(
        "{kind} belongs to plugin {by}, which comes first, so {plugin} is not active: run only one of them"
    )]
    ParentTaken {
        /// The kind of parent.
        kind: GroupKind,
        /// The plugin that comes first.
        by: PluginName,
        /// The plugin that is not active.
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
    /// The grants of the plugin cannot be parsed.
    #[error("failed to read the grants of plugin {plugin}")]
    Grants {
        /// The plugin.
        plugin: PluginName,
        /// The cause.
        #[source]
        source: Box<resource::Error>,
    },
    /// A CRD cannot be installed as it is, or does not fit the existing one.
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
    /// The kinds of parents that will have the plugin's finalizer cannot be recorded.
    #[error("failed to record the kinds of parents of plugin {plugin}")]
    RecordParents {
        /// The plugin.
        plugin: PluginName,
        /// The cause.
        #[source]
        source: Box<apply::Error>,
    },
    /// The children of cluster-scoped parents may be in any namespace, and the host sees only some.
    #[error(
        "plugin {plugin} makes namespaced {child} for cluster-scoped {parent}, but this host is limited to namespaces: run the plugin in a host without --namespaces"
    )]
    BeyondNamespaces {
        /// The plugin.
        plugin: PluginName,
        /// The kind of parent.
        parent: Gvk,
        /// The kind of child.
        child: Gvk,
    },
    /// The cluster does not serve a kind of parent in time.
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
    /// Returns the time at which the same step may succeed.
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
            | Self::NotServed { .. } => Retry::Backoff,
            // Also a rejected write is retried, for the same reason.
            Self::ApplyCrd { source, .. } | Self::RecordParents { source, .. } => {
                source.retry().max(Retry::Backoff)
            }
        }
    }
}

/// The dependencies of loading.
pub struct LoaderContext {
    /// The engine.
    pub engine: Engine,
    /// The cache of plugins.
    pub cache: artifact::Cache,
    /// Compiles plugins, and caches the results.
    pub compiler: artifact::Compiler,
    /// Checks configurations.
    pub config_checker: artifact::ConfigChecker,
    /// The limits of a file.
    pub artifact_limits: artifact::Limits,
    /// The limits of a plugin.
    pub limits: Limits,
    /// Configurations by the plugin's name.
    pub configs: BTreeMap<String, Map<String, Value>>,
    /// The grants of plugins by name, in the form of `spec.grants`.
    pub grants: BTreeMap<String, Map<String, Value>>,
    /// The grants of the other plugins: [`Grants::for_file`], or [`Grants::requested`] in a cluster for development.
    pub usual_grants: fn(&Manifest) -> Grants,
}
