//! Plugins from files: read, compiled, described, and admitted in command-line order.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use innkeeper_model::{GroupKind, Limits, Manifest, PluginName};
use innkeeper_policy::{Assessment, Grants, Shortfall};
use innkeeper_reconcile::Revision;
use innkeeper_sandbox::{Described, Plugin, artifact};
use serde_json::{Map, Value};
use tracing::info;

use crate::{Error, LoaderContext, resource};

/// A loaded plugin with a description.
pub struct Loaded {
    /// The plugin name in labels, field managers and the inventory.
    pub name: PluginName,
    /// The file that it came from.
    pub path: PathBuf,
    /// The configured plugin.
    pub plugin: Arc<Plugin>,
    /// The grants.
    pub grants: Arc<Grants>,
}

impl Loaded {
    /// Returns the plugin's description.
    pub fn manifest(&self) -> &Manifest {
        self.plugin.manifest()
    }

    /// Returns the name and the parent kinds, which must be unique on the host.
    pub fn claims(&self) -> (PluginName, BTreeSet<GroupKind>) {
        let kinds = self.grants.parent_kinds_of(self.manifest());
        (self.name.clone(), kinds)
    }

    /// Returns the revision that the passes run.
    pub(crate) fn serving(&self, limits: &Arc<Limits>) -> Revision {
        Revision::new(
            Arc::clone(&self.plugin),
            Arc::clone(&self.grants),
            Arc::clone(limits),
        )
    }
}

/// Reads, compiles and describes one plugin.
/// Blocks for as long as compiling takes.
pub fn load(context: &LoaderContext, path: &Path) -> Result<Loaded, Error> {
    let plugin = read(context, path).map_err(|source| Error::Load {
        path: path.to_owned(),
        source,
    })?;
    let grants = grants_of(plugin.manifest(), &context.grants, context.usual_grants)?;
    let Assessment { missing, reduced } = grants.assess(plugin.manifest());
    let list = |shortfalls: &[Shortfall]| -> Vec<String> {
        shortfalls.iter().map(ToString::to_string).collect()
    };
    if !missing.is_empty() {
        return Err(Error::NotGranted {
            plugin: plugin.manifest().name.clone(),
            missing: list(&missing),
        });
    }
    if !reduced.is_empty() {
        let plugin = &plugin.manifest().name;
        let lacking = list(&reduced);
        info!(%plugin, ?lacking, "plugin runs with fewer grants than it asks for");
    }
    // The cache directory's size limit removes components that no owner needs.
    let needs = artifact::Needs {
        kept: [plugin.digest().clone()].into(),
        ..artifact::Needs::default()
    };
    context.cache.need(path.display().to_string(), needs);
    Ok(Loaded {
        // A plugin file has only the name that the component states.
        name: plugin.manifest().name.clone(),
        path: path.to_owned(),
        plugin: Arc::new(plugin),
        grants: Arc::new(grants),
    })
}

fn read(
    context: &LoaderContext,
    path: &Path,
) -> Result<Plugin, Box<dyn std::error::Error + Send + Sync>> {
    let engine = &context.engine;
    let limits = &context.artifact_limits;
    let bytes = artifact::read_file(path, limits.bytes_max)?;
    let compiled = context.compiler.compile(engine, &bytes, limits)?;
    let described = Described::load(engine, &compiled, &context.limits)?;
    let config = context.configs.get(described.manifest().name.as_str());
    let defaults = Map::new();
    Ok(described.configure(config.unwrap_or(&defaults), &context.config_checker)?)
}

/// Returns grants for a plugin file: those given for the plugin's name, else the default ones.
pub fn grants_of(
    manifest: &Manifest,
    given: &BTreeMap<String, Map<String, Value>>,
    usual: fn(&Manifest) -> Grants,
) -> Result<Grants, Error> {
    let Some(given) = given.get(manifest.name.as_str()) else {
        return Ok(usual(manifest));
    };
    resource::grants_of_file(given).map_err(|source| Error::Grants {
        plugin: manifest.name.clone(),
        source: Box::new(source),
    })
}

/// Admits at most one plugin for each name and parent kind: the first one on the command line.
pub fn admit(loaded: Vec<Loaded>) -> (Vec<Loaded>, Vec<(PathBuf, Error)>) {
    let mut admitted: Vec<Loaded> = Vec::new();
    let mut refused = Vec::new();
    for candidate in loaded {
        match conflict(&admitted, &candidate) {
            Some(error) => refused.push((candidate.path, error)),
            None => admitted.push(candidate),
        }
    }
    (admitted, refused)
}

fn conflict(admitted: &[Loaded], candidate: &Loaded) -> Option<Error> {
    let (plugin, parents) = candidate.claims();
    if let Some(first) = admitted.iter().find(|first| first.name == plugin) {
        return Some(Error::NameTaken {
            plugin,
            first: first.path.clone(),
            second: candidate.path.clone(),
        });
    }
    admitted.iter().find_map(|first| {
        let (by, taken) = first.claims();
        let kind = parents.intersection(&taken).next()?.clone();
        let plugin = plugin.clone();
        Some(Error::ParentTaken { kind, by, plugin })
    })
}
