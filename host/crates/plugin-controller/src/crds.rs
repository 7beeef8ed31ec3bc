//! The CustomResourceDefinitions that a plugin brings.

use std::time::Duration;

use futures::future::try_join_all;
use innkeeper_model::{
    GroupKind, Gvk, HashKey, Manifest, Object, ParentKind, PluginName, Scope, kind_of_crd,
};
use innkeeper_plan::crd;
use innkeeper_reconcile::{Serving, Shared};
use serde_json::{Map, Value};
use tokio::time::timeout;
use tracing::{debug, info};

use super::{
    Error,
    resource::{Crds, Terms},
};

/// The time limit for the API server to serve a new kind. Chosen, not measured: after it the plugin reports the missing
/// kind, and the installation is retried.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// Installs granted definitions that are missing or differ, unless `crds` is Ignore, and waits until the cluster serves
/// every kind of parent.
pub(super) async fn install(
    shared: &Shared,
    plugin: &PluginName,
    serving: &Serving,
    crds: Crds,
) -> Result<(), Error> {
    let manifest = serving.plugin.manifest();
    // A host without permission to read CRDs, or without the hash key, cannot compare them with the installed ones.
    let may_install = crds == Crds::Install && shared.cluster.reads_definitions();
    let hash_key = shared.hash_key.get().filter(|_| may_install);
    if hash_key.is_none() && serving.grants.own_definitions {
        return Err(Error::DefinitionsUnknown {
            plugin: plugin.clone(),
        });
    }
    if let Some(hash_key) = hash_key {
        let is_granted = |crd: &&Map<String, Value>| {
            kind_of_crd(crd).is_some_and(|kind| serving.grants.allows_crd(&kind))
        };
        let granted = manifest.crds.iter().filter(is_granted);
        let applied = granted.map(|crd| apply(shared, plugin, crd, hash_key));
        if try_join_all(applied).await?.contains(&true) {
            shared.cluster.refresh_discovery();
        }
    }
    for parent in serving.parents() {
        let served = timeout(SERVED_WITHIN, shared.cluster.wait_served(&parent.kind)).await;
        served.map_err(|_| Error::NotServed {
            plugin: plugin.clone(),
            kind: parent.kind.clone(),
            waited: SERVED_WITHIN,
        })?;
        check_parent(shared, plugin, manifest, parent).await?;
    }
    check_scope(shared, plugin, serving)
}

/// Returns true if the host installs the definition of a kind for a plugin, unless it may not read definitions.
pub(super) fn installs(terms: &Terms, manifest: &Manifest, kind: &GroupKind) -> bool {
    let mut own = manifest.crds.iter();
    terms.crds == Crds::Install
        && terms.grants.allows_crd(kind)
        && own.any(|crd| kind_of_crd(crd).as_ref() == Some(kind))
}

/// Checks that a host that is limited to namespaces can see all children of the parents.
fn check_scope(shared: &Shared, plugin: &PluginName, serving: &Serving) -> Result<(), Error> {
    if shared.cluster.namespaces().is_none() {
        return Ok(());
    }
    let scope = |kind: &Gvk| Some(shared.cluster.served(kind)?.scope);
    let cluster_scoped = serving
        .parents()
        .find(|parent| parent.scope == Scope::Cluster);
    let mut children = serving
        .plugin
        .manifest()
        .children
        .iter()
        .map(|child| &child.kind);
    let namespaced = children.find(|kind| scope(kind) == Some(Scope::Namespaced));
    match cluster_scoped.zip(namespaced) {
        None => Ok(()),
        Some((parent, child)) => Err(Error::BeyondNamespaces {
            plugin: plugin.clone(),
            parent: parent.kind.clone(),
            child: child.clone(),
        }),
    }
}

/// Checks that the installed definition of a parent kind fits the plugin's manifest.
async fn check_parent(
    shared: &Shared,
    plugin: &PluginName,
    manifest: &Manifest,
    parent: &ParentKind,
) -> Result<(), Error> {
    let name = format!("{}.{}", parent.plural, parent.kind.group);
    let mut own = manifest.crds.iter();
    let is_own = own.any(|crd| name_of(crd) == Some(&*name));
    // The plugin's own definitions were checked when it was loaded.
    if is_own || !shared.cluster.reads_definitions() {
        return Ok(());
    }
    // It belongs to another owner; a built-in kind has none.
    let Some(existing) = read(shared, &name).await? else {
        return Ok(());
    };
    // Never fails: the cluster client returns only JSON objects.
    let crd = serde_json::from_str(&existing.json).unwrap_or_default();
    crd::check_parent(&crd, parent).map_err(|cause| refused(plugin, &name, cause))
}

async fn apply(
    shared: &Shared,
    plugin: &PluginName,
    desired: &Map<String, Value>,
    hash_key: &HashKey,
) -> Result<bool, Error> {
    let name = name_of(desired).unwrap_or_default().to_owned();
    let existing = read(shared, &name).await?;
    let write = crd::plan(plugin, hash_key, existing.as_ref(), desired);
    let Some(write) = write.map_err(|cause| refused(plugin, &name, cause))? else {
        debug!(%plugin, crd = name, "skipped the CRD: it is up to date");
        return Ok(false);
    };
    info!(%plugin, crd = name, "installing the CRD");
    for rule in &write.new_rules {
        info!(
            %plugin,
            crd = name,
            rule,
            "the CRD gets a new rule: existing objects that break it stay until the broken field is changed"
        );
    }
    let written = shared.writer.crd(plugin, &write).await;
    written.map_err(|source| Error::ApplyCrd {
        plugin: plugin.clone(),
        name,
        source: Box::new(source),
    })?;
    Ok(true)
}

fn refused(plugin: &PluginName, name: &str, source: crd::CrdRefusal) -> Error {
    Error::CrdRefused {
        plugin: plugin.clone(),
        name: name.to_owned(),
        source: Box::new(source),
    }
}

async fn read(shared: &Shared, name: &str) -> Result<Option<Object>, Error> {
    let kind = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let found = shared.cluster.live_get(&kind, None, name).await;
    found.map_err(|source| Error::ReadCrd {
        name: name.to_owned(),
        source: Box::new(source),
    })
}

fn name_of(crd: &Map<String, Value>) -> Option<&str> {
    crd.get("metadata")?.get("name")?.as_str()
}
