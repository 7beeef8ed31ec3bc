//! The CustomResourceDefinitions that a plugin brings.

use std::time::Duration;

use futures::future::try_join_all;
use innkeeper_model::{Gvk, HashKey, Manifest, Object, ParentKind, PluginName, Scope};
use innkeeper_plan::crd;
use innkeeper_reconcile::{Serving, Shared};
use innkeeper_schema::kind_of_crd;
use serde_json::{Map, Value};
use tokio::time::timeout;
use tracing::{debug, info};

use super::{Error, resource::Crds};

/// The time limit for the API server to serve a new kind.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// Installs granted definitions that are missing or differ, unless `crds` is Ignore, and waits until every parent is
/// served.
pub(super) async fn install(
    shared: &Shared,
    plugin: &PluginName,
    serving: &Serving,
    crds: Crds,
) -> Result<(), Error> {
    let manifest = serving.plugin.manifest();
    // Without the key the host cannot compare a CRD with the desired one, and the existing one is served.
    let crds = if shared.cluster.reads_definitions() {
        crds
    } else {
        Crds::Ignore
    };
    let applied = match (crds, shared.hash_key.get()) {
        (Crds::Install, Some(hash_key)) => {
            let granted = |crd: &&Map<String, Value>| {
                kind_of_crd(crd).is_some_and(|kind| serving.grants.allows_crd(&kind))
            };
            let each = manifest
                .crds
                .iter()
                .filter(granted)
                .map(|crd| apply(shared, plugin, crd, &hash_key));
            try_join_all(each).await?.contains(&true)
        }
        (Crds::Install, None) | (Crds::Ignore, _) => false,
    };
    if applied {
        shared.cluster.refresh_discovery();
    }
    for parent in &manifest.parents {
        let served = timeout(SERVED_WITHIN, shared.cluster.wait_served(&parent.kind)).await;
        served.map_err(|_| Error::NotServed {
            plugin: plugin.clone(),
            kind: parent.kind.clone(),
            waited: SERVED_WITHIN,
        })?;
        check_parent(shared, plugin, manifest, parent).await?;
    }
    check_reach(shared, plugin, manifest)
}

/// Returns whether a host that is limited to namespaces can give the parents all of their children.
fn check_reach(shared: &Shared, plugin: &PluginName, manifest: &Manifest) -> Result<(), Error> {
    if shared.cluster.namespaces().is_none() {
        return Ok(());
    }
    let scope = |kind: &Gvk| Some(shared.cluster.served(kind)?.scope);
    let mut parents = manifest.parents.iter();
    let everywhere = parents.find(|parent| parent.scope == Scope::Cluster);
    let mut children = manifest.children.iter().map(|child| &child.kind);
    let somewhere = children.find(|kind| scope(kind) == Some(Scope::Namespaced));
    match everywhere.zip(somewhere) {
        None => Ok(()),
        Some((parent, child)) => Err(Error::BeyondNamespaces {
            plugin: plugin.clone(),
            parent: parent.kind.clone(),
            child: child.clone(),
        }),
    }
}

/// Returns whether the host can report on parents of this kind.
async fn check_parent(
    shared: &Shared,
    plugin: &PluginName,
    manifest: &Manifest,
    parent: &ParentKind,
) -> Result<(), Error> {
    let name = format!("{}.{}", parent.plural, parent.kind.group);
    let mut brought = manifest.crds.iter();
    let brought = brought.any(|crd| name_of(crd) == Some(&*name));
    let refused = |source| Error::CrdRefused {
        plugin: plugin.clone(),
        name: name.clone(),
        source: Box::new(source),
    };
    // Those that are brought were checked when the plugin was loaded.
    if brought || !shared.cluster.reads_definitions() {
        return Ok(());
    }
    // A CRD of another owner, or a built-in kind, which has none.
    let Some(existing) = read(shared, &name).await? else {
        return Ok(());
    };
    match serde_json::from_str(&existing.json) {
        Ok(Value::Object(crd)) => crd::check_parent(&crd, parent).map_err(refused),
        // The cache only hands out objects.
        Ok(_) | Err(_) => Ok(()),
    }
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
    let write = write.map_err(|source| Error::CrdRefused {
        plugin: plugin.clone(),
        name: name.clone(),
        source: Box::new(source),
    })?;
    let Some(write) = write else {
        debug!(%plugin, crd = name, "the CRD is as it should be");
        return Ok(false);
    };
    info!(%plugin, crd = name, "installing the CRD");
    for rule in &write.new_rules {
        info!(
            %plugin,
            crd = name,
            rule,
            "the CRD gets a rule: objects that break it stay until what breaks it is changed"
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
