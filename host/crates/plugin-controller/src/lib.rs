//! From a file to a plugin that serves: read, compile, describe, admit, install its CRDs, watch; and the
//! [Plugin resource](resource).
//!
//! Every step can fail for one plugin without concerning the others.
//! It does not run passes: it creates [`Reconciler`](innkeeper_reconcile::Reconciler)s, one per kind of parent.

mod crds;
mod finalizers;
mod kinds;
pub mod lifecycle;
pub mod manager;
mod orphans;
pub mod resource;
mod rivals;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use innkeeper_apply as apply;
use innkeeper_cluster as cluster;
use innkeeper_model::{GroupKind, Gvk, Limits, Manifest, PluginName, Retry};
use innkeeper_plan as plan;
use innkeeper_policy::Grants;
use innkeeper_reconcile::Serving;
use innkeeper_sandbox::{self as plugin, Described, Engine, Plugin, artifact};
use serde_json::{Map, Value};

pub use kinds::{Served, forget_unused_kinds, interests, serve};
pub use orphans::tend_orphans;

/// The reason for a plugin that is not served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read, or is no plugin.
    #[error("failed to load {}", path.display())]
    Artifact {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: artifact::Error,
    },
    /// The component has no valid description, or its configuration does not fit.
    #[error("failed to load {}", path.display())]
    Plugin {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: plugin::Error,
    },
    /// Loading panicked: an error of the host.
    #[error("failed to finish loading {}", path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: tokio::task::JoinError,
    },
    /// Another file holds a plugin of that name.
    #[error(
        "{} and {} both hold a plugin named {plugin}: the first is served; give each plugin a name of its own",
        first.display(),
        second.display()
    )]
    NameTaken {
        /// The name.
        plugin: PluginName,
        /// The file that is served.
        first: PathBuf,
        /// The file that is not.
        second: PathBuf,
    },
    /// Another plugin serves that kind of parent, or is to serve it.
    #[error(
        "{kind} belongs to plugin {by}, which comes first, so {plugin} is not served: run only one of them"
    )]
    ParentTaken {
        /// The kind of parent.
        kind: GroupKind,
        /// The plugin that serves it.
        by: PluginName,
        /// The plugin that is not served.
        plugin: PluginName,
    },
    /// The plugin requires grants that it does not have.
    #[error("plugin {plugin} asks for what it is not granted: {}", missing.join("; "))]
    NotGranted {
        /// The plugin.
        plugin: PluginName,
        /// The missing grants.
        missing: Vec<String>,
    },
    /// The grants of the plugin cannot be parsed.
    #[error("failed to read what plugin {plugin} may do")]
    Grants {
        /// The plugin.
        plugin: PluginName,
        /// The cause.
        #[source]
        source: Box<resource::Error>,
    },
    /// A CRD cannot be installed as it is, or does not fit the existing one.
    #[error("the CustomResourceDefinition {name} of plugin {plugin} cannot be installed")]
    CrdRefused {
        /// The plugin.
        plugin: PluginName,
        /// The CRD's name.
        name: String,
        /// The cause.
        #[source]
        source: Box<plan::crd::CrdRefusal>,
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
    /// It cannot be written down which kinds of parents will have the plugin's finalizer.
    #[error("failed to write down the kinds of parents of plugin {plugin}")]
    RecordParents {
        /// The plugin.
        plugin: PluginName,
        /// The cause.
        #[source]
        source: Box<apply::Error>,
    },
    /// The children of parents that are in no namespace may be in any.
    #[error(
        "{plugin} makes {child}, which lives in namespaces, for parents of {parent}, which live in none, and this host is limited to namespaces: run it by a host without --namespaces"
    )]
    BeyondNamespaces {
        /// The plugin.
        plugin: PluginName,
        /// The kind of parent.
        parent: Gvk,
        /// The kind of child.
        child: Gvk,
    },
    /// A kind of parent does not appear.
    #[error(
        "the cluster does not serve {kind}, a parent of plugin {plugin}, after {} s: install its CustomResourceDefinition or look at its conditions",
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
            Self::Artifact { .. }
            | Self::Plugin { .. }
            | Self::Load { .. }
            | Self::NameTaken { .. }
            | Self::ParentTaken { .. }
            | Self::NotGranted { .. }
            | Self::BeyondNamespaces { .. }
            | Self::Grants { .. } => Retry::Never,
            // An administrator may grant a permission, free a name or fix a CRD, and no event tells the host.
            Self::CrdRefused { .. } | Self::ReadCrd { .. } | Self::NotServed { .. } => {
                Retry::Backoff
            }
            Self::ApplyCrd { source, .. } | Self::RecordParents { source, .. } => {
                match source.retry() {
                    Retry::At(least) => Retry::At(least),
                    Retry::Never | Retry::OnChange | Retry::Backoff => Retry::Backoff,
                }
            }
        }
    }
}

/// A loaded plugin with its description.
pub struct Loaded {
    /// The name of the plugin in labels, field managers and the inventory.
    pub name: PluginName,
    /// The file that it came from.
    pub path: PathBuf,
    /// The plugin with its configuration.
    pub plugin: Arc<Plugin>,
    /// The grants.
    pub grants: Arc<Grants>,
}

impl Loaded {
    /// Returns the description of the plugin.
    pub fn manifest(&self) -> &Manifest {
        self.plugin.manifest()
    }

    /// Returns its name and its kinds of parents, which no other plugin may have.
    pub fn claims(&self) -> (PluginName, BTreeSet<GroupKind>) {
        (self.name.clone(), self.manifest().parent_kinds())
    }

    /// Returns the inputs of its passes.
    fn serving(&self, limits: &Arc<Limits>) -> Serving {
        Serving::new(
            Arc::clone(&self.plugin),
            Arc::clone(&self.grants),
            Arc::clone(limits),
        )
    }
}

/// The dependencies of loading.
pub struct Workshop {
    /// The engine.
    pub engine: Engine,
    /// The cache of plugins; none: no cache.
    pub cache: Option<artifact::Cache>,
    /// Compiles plugins, and keeps the results.
    pub compiler: artifact::Compiler,
    /// The limits of a file.
    pub artifact_limits: artifact::Limits,
    /// The limits of a plugin.
    pub limits: Limits,
    /// Configurations by the plugin's name.
    pub configs: BTreeMap<String, Map<String, Value>>,
    /// The grants of plugins by name, in the form of `spec.grants`.
    pub grants: BTreeMap<String, Map<String, Value>>,
}

/// Reads, compiles and describes one plugin.
/// Blocks for as long as compiling takes.
pub fn load(workshop: &Workshop, path: &Path) -> Result<Loaded, Error> {
    let artifact_error = |source| Error::Artifact {
        path: path.to_owned(),
        source,
    };
    let plugin_error = |source| Error::Plugin {
        path: path.to_owned(),
        source,
    };
    let Workshop {
        engine,
        cache: _,
        compiler,
        artifact_limits,
        limits,
        configs,
        grants,
    } = workshop;
    let bytes = artifact::read_file(path, artifact_limits.bytes_max).map_err(artifact_error)?;
    let compiled = compiler
        .compile(engine, &bytes, artifact_limits)
        .map_err(artifact_error)?;
    let described = Described::load(engine, &compiled, limits).map_err(plugin_error)?;
    let empty = Map::new();
    let config = configs
        .get(described.manifest().name.as_str())
        .unwrap_or(&empty);
    let plugin = described.configure(config).map_err(plugin_error)?;
    let grants = grants_of(plugin.manifest(), grants)?;
    let missing = grants.assess(plugin.manifest()).missing;
    if !missing.is_empty() {
        return Err(Error::NotGranted {
            plugin: plugin.manifest().name.clone(),
            missing: missing.iter().map(ToString::to_string).collect(),
        });
    }
    Ok(Loaded {
        // A file has no other name than the one that its component gives itself.
        name: plugin.manifest().name.clone(),
        path: path.to_owned(),
        plugin: Arc::new(plugin),
        grants: Arc::new(grants),
    })
}

/// Returns the grants of a plugin given as a file: those given for its name, else [`Grants::for_file`].
pub fn grants_of(
    manifest: &Manifest,
    given: &BTreeMap<String, Map<String, Value>>,
) -> Result<Grants, Error> {
    let Some(given) = given.get(manifest.name.as_str()) else {
        return Ok(Grants::for_file(manifest));
    };
    resource::grants_of_file(given).map_err(|source| Error::Grants {
        plugin: manifest.name.clone(),
        source: Box::new(source),
    })
}

/// Lets at most one plugin serve each name and each kind of parent: the first in the order given.
pub fn admit(loaded: Vec<Loaded>) -> (Vec<Loaded>, Vec<(PathBuf, Error)>) {
    let mut admitted: Vec<Loaded> = Vec::new();
    let mut refused = Vec::new();
    let mut taken: BTreeMap<GroupKind, PluginName> = BTreeMap::new();
    for candidate in loaded {
        let (name, parents) = candidate.claims();
        let namesake = admitted.iter().find(|other| other.name == name);
        let rival = parents
            .iter()
            .find_map(|kind| Some((kind.clone(), taken.get(kind)?.clone())));
        let error = match (namesake, rival) {
            (Some(other), _) => Error::NameTaken {
                plugin: name,
                first: other.path.clone(),
                second: candidate.path.clone(),
            },
            (None, Some((kind, by))) => Error::ParentTaken {
                kind,
                by,
                plugin: name,
            },
            (None, None) => {
                taken.extend(parents.into_iter().map(|kind| (kind, name.clone())));
                admitted.push(candidate);
                continue;
            }
        };
        refused.push((candidate.path, error));
    }
    (admitted, refused)
}
