//! The kinds that plugins have ever created, the kinds of parents that have got their finalizers, and those that Plugins
//! have served.
//!
//! A kind is recorded before its first child, finalizer or pass. A plugin that no longer declares a kind must still
//! find its children of that kind, even after a restart. A plugin that is removed must find its finalizers, because the
//! API server does not delete a parent that has one. The parents of a Plugin that is deleted while no host runs must be
//! found too, because they state that their children are as desired.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use innkeeper_apply::{self as apply, Writer};
use innkeeper_cluster::{self as cluster, Cluster};
use innkeeper_model::{Gvk, PluginName};
use parking_lot::Mutex;
use tracing::info;

/// The name of the ConfigMap in the host's namespace; up to three keys per plugin, one kind per line.
pub const CONFIG_MAP: &str = "innkeeper-inventory";

/// The suffix of the key with the kinds of parents that have a plugin's finalizer; unambiguous, because no plugin's name
/// has a dot.
const PARENTS: &str = ".parents";

/// The suffix of the key with the kinds of parents that a Plugin has served.
const SERVED: &str = ".served";

/// An inventory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("failed to read the inventory, ConfigMap {namespace}/{CONFIG_MAP}")]
    Read {
        /// The host's namespace.
        namespace: String,
        /// The cause.
        #[source]
        source: Box<cluster::Error>,
    },
    /// It has a line that the host does not write.
    #[error(
        "ConfigMap {namespace}/{CONFIG_MAP} is not an inventory at {at}: write one kind per line, \"apps/v1 Deployment\""
    )]
    Malformed {
        /// The host's namespace.
        namespace: String,
        /// The field with the line.
        at: String,
    },
}

/// The inventory: a copy in memory and the ConfigMap that it is written to.
pub struct Inventory {
    writer: Arc<Writer>,
    namespace: String,
    plugins: Mutex<BTreeMap<PluginName, PluginKinds>>,
    /// Locked during a write: two concurrent passes with new kinds would remove each other's kinds.
    writing: tokio::sync::Mutex<()>,
}

/// The recorded kinds of one plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PluginKinds {
    children: BTreeSet<Gvk>,
    /// The kinds of parents that may have its finalizer.
    parents: BTreeSet<Gvk>,
    /// The kinds of parents that it has served as a Plugin.
    served: BTreeSet<Gvk>,
}

impl Inventory {
    /// Reads the inventory from the cluster.
    pub async fn read(
        cluster: &Cluster,
        writer: Arc<Writer>,
        namespace: &str,
    ) -> Result<Self, Error> {
        Ok(Self {
            writer,
            namespace: namespace.to_owned(),
            plugins: Mutex::new(read(cluster, namespace).await?),
            writing: tokio::sync::Mutex::default(),
        })
    }

    /// The host's namespace, which holds the inventory.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Reads the kinds of one plugin again, for a host that takes the plugin over from another host.
    pub async fn refresh(&self, cluster: &Cluster, plugin: &PluginName) -> Result<(), Error> {
        let _writing = self.writing.lock().await;
        let found = read(cluster, &self.namespace).await?.remove(plugin);
        let mut plugins = self.plugins.lock();
        match found {
            Some(kinds) => plugins.insert(plugin.clone(), kinds),
            None => plugins.remove(plugin),
        };
        Ok(())
    }

    /// Returns true if no plugin has ever created a child.
    pub fn is_empty(&self) -> bool {
        let plugins = self.plugins.lock();
        plugins.values().all(|kinds| kinds.children.is_empty())
    }

    /// Returns the kinds that a plugin has ever created.
    pub fn of(&self, plugin: &PluginName) -> BTreeSet<Gvk> {
        self.kinds(plugin).children
    }

    /// Returns the kinds of parents that may have a plugin's finalizer.
    pub fn parents(&self, plugin: &PluginName) -> BTreeSet<Gvk> {
        self.kinds(plugin).parents
    }

    /// Returns the plugins whose finalizers may be on parents.
    pub fn finalizing(&self) -> Vec<PluginName> {
        let plugins = self.plugins.lock();
        let finalizing = plugins
            .iter()
            .filter(|(_, kinds)| !kinds.parents.is_empty());
        finalizing.map(|(plugin, _)| plugin.clone()).collect()
    }

    /// Returns the kinds of parents that a Plugin has served.
    pub fn served(&self, plugin: &PluginName) -> BTreeSet<Gvk> {
        self.kinds(plugin).served
    }

    /// Returns the Plugins that have served parents.
    pub fn once_served(&self) -> Vec<PluginName> {
        let plugins = self.plugins.lock();
        let served = plugins.iter().filter(|(_, kinds)| !kinds.served.is_empty());
        served.map(|(plugin, _)| plugin.clone()).collect()
    }

    /// Records kinds; writes only if one of them is new.
    pub async fn record(
        &self,
        plugin: &PluginName,
        kinds: &BTreeSet<Gvk>,
    ) -> Result<(), apply::Error> {
        // The usual case, without the lock: no pass waits for the write of another one.
        if kinds.is_subset(&self.of(plugin)) {
            return Ok(());
        }
        let extend = |all: &mut PluginKinds| all.children.extend(kinds.iter().cloned());
        self.change(plugin, extend).await.map(drop)
    }

    /// Records kinds of parents that are about to get the plugin's finalizer.
    pub async fn record_parents(
        &self,
        plugin: &PluginName,
        kinds: impl IntoIterator<Item = Gvk>,
    ) -> Result<(), apply::Error> {
        self.change(plugin, |all| all.parents.extend(kinds))
            .await
            .map(drop)
    }

    /// Records kinds of parents that a Plugin is about to serve.
    pub async fn record_served(
        &self,
        plugin: &PluginName,
        kinds: impl IntoIterator<Item = Gvk>,
    ) -> Result<(), apply::Error> {
        self.change(plugin, |all| all.served.extend(kinds))
            .await
            .map(drop)
    }

    /// Removes all kinds of parents that a Plugin has served.
    pub async fn remove_served(&self, plugin: &PluginName) -> Result<(), apply::Error> {
        let removed = self.change(plugin, |all| all.served.clear());
        removed.await.map(drop)
    }

    /// Removes a kind without remaining children.
    pub async fn remove(&self, plugin: &PluginName, kind: &Gvk) -> Result<(), apply::Error> {
        let removed = self.change(plugin, |all| {
            all.children.remove(kind);
        });
        if removed.await? {
            info!(%plugin, %kind, "removed an unused kind without objects from the inventory");
        }
        Ok(())
    }

    /// Removes kinds of parents of which none has the plugin's finalizer any more.
    pub async fn remove_parents(
        &self,
        plugin: &PluginName,
        kinds: &BTreeSet<Gvk>,
    ) -> Result<(), apply::Error> {
        let removed = self.change(plugin, |all| {
            all.parents.retain(|kind| !kinds.contains(kind));
        });
        removed.await.map(drop)
    }

    fn kinds(&self, plugin: &PluginName) -> PluginKinds {
        self.plugins.lock().get(plugin).cloned().unwrap_or_default()
    }

    /// Changes the kinds of a plugin; returns true if there was anything to write.
    async fn change(
        &self,
        plugin: &PluginName,
        change: impl FnOnce(&mut PluginKinds),
    ) -> Result<bool, apply::Error> {
        let _writing = self.writing.lock().await;
        let before = self.kinds(plugin);
        let mut kinds = before.clone();
        change(&mut kinds);
        if kinds == before {
            return Ok(false);
        }
        // A pass must not rely on a kind that is about to be removed: without it in the copy, the pass waits for this
        // write and then records the kind again.
        self.set(plugin, before.shared_with(&kinds));
        let written = self.write(plugin, &kinds).await;
        self.set(plugin, if written.is_ok() { kinds } else { before });
        written.map(|()| true)
    }

    fn set(&self, plugin: &PluginName, kinds: PluginKinds) {
        self.plugins.lock().insert(plugin.clone(), kinds);
    }

    async fn write(&self, plugin: &PluginName, kinds: &PluginKinds) -> Result<(), apply::Error> {
        let lines = |kinds: &BTreeSet<Gvk>| {
            let lines: Vec<String> = kinds.iter().map(ToString::to_string).collect();
            lines.join("\n")
        };
        let mut data = BTreeMap::from([(plugin.to_string(), lines(&kinds.children))]);
        for (suffix, kinds) in [(PARENTS, &kinds.parents), (SERVED, &kinds.served)] {
            if !kinds.is_empty() {
                data.insert(format!("{plugin}{suffix}"), lines(kinds));
            }
        }
        self.writer
            .inventory(&self.namespace, CONFIG_MAP, plugin, &data)
            .await
            .map(drop)
    }
}

impl PluginKinds {
    /// Returns the kinds that are in both.
    fn shared_with(&self, other: &Self) -> Self {
        Self {
            children: &self.children & &other.children,
            parents: &self.parents & &other.parents,
            served: &self.served & &other.served,
        }
    }
}

async fn read(
    cluster: &Cluster,
    namespace: &str,
) -> Result<BTreeMap<PluginName, PluginKinds>, Error> {
    let config_map = Gvk::new("", "v1", "ConfigMap");
    let found = cluster
        .live_get(&config_map, Some(namespace), CONFIG_MAP)
        .await
        .map_err(|source| Error::Read {
            namespace: namespace.to_owned(),
            source: Box::new(source),
        })?;
    let Some(object) = found else {
        return Ok(BTreeMap::new());
    };
    parse(&object.json).map_err(|at| Error::Malformed {
        namespace: namespace.to_owned(),
        at,
    })
}

/// Returns the kinds by plugin, or the field that is malformed.
fn parse(json: &str) -> Result<BTreeMap<PluginName, PluginKinds>, String> {
    #[derive(serde::Deserialize)]
    struct InventoryData {
        #[serde(default)]
        data: BTreeMap<String, String>,
    }
    let InventoryData { data } = serde_json::from_str(json).map_err(|_| "data".to_owned())?;
    let mut plugins: BTreeMap<PluginName, PluginKinds> = BTreeMap::new();
    for (key, lines) in data {
        let at = format!("data.{key}");
        let suffix = [PARENTS, SERVED]
            .into_iter()
            .find(|suffix| key.ends_with(suffix));
        let plugin = &key[..key.len() - suffix.map_or(0, str::len)];
        let plugin = PluginName::new(plugin).map_err(|_| at.clone())?;
        let parsed = lines
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| {
                let (api_version, kind) = line.trim().split_once(' ')?;
                Gvk::parse(api_version, kind).ok()
            })
            .collect::<Option<BTreeSet<Gvk>>>()
            .ok_or(at)?;
        let kinds = plugins.entry(plugin).or_default();
        match suffix {
            Some(SERVED) => kinds.served = parsed,
            Some(_) => kinds.parents = parsed,
            None => kinds.children = parsed,
        }
    }
    Ok(plugins)
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;
    use crate::tests::World;

    #[test]
    fn reads_what_it_writes() {
        let json = r#"{"data": {
            "web": "apps/v1 Deployment\nv1 Service", "web.parents": "example.com/v1 Web",
            "web.served": "example.com/v1 Site", "none": ""
        }}"#;
        let plugins = parse(json).unwrap();
        let kinds = &plugins[&PluginName::new("web").unwrap()];
        let lines = |kinds: &BTreeSet<Gvk>| -> Vec<String> {
            kinds.iter().map(ToString::to_string).collect()
        };
        assert_eq!(lines(&kinds.children), ["v1 Service", "apps/v1 Deployment"]);
        assert_eq!(lines(&kinds.parents), ["example.com/v1 Web"]);
        assert_eq!(lines(&kinds.served), ["example.com/v1 Site"]);
        let none = &plugins[&PluginName::new("none").unwrap()];
        assert_eq!(*none, PluginKinds::default());
        assert!(parse("{}").unwrap().is_empty());
    }

    #[test]
    fn rejects_lines_that_the_host_does_not_write() {
        for (json, at) in [
            (r#"{"data": {"web": "Deployment"}}"#, "data.web"),
            (r#"{"data": {"Web": ""}}"#, "data.Web"),
            (r#"{"data": {"web.kinds": ""}}"#, "data.web.kinds"),
            (r#"{"data": 1}"#, "data"),
        ] {
            assert_eq!(parse(json).unwrap_err(), at);
        }
    }

    /// A8: children of a kind that is missing in the inventory would not be found after the next start.
    #[tokio::test]
    async fn a_kind_that_is_created_while_it_is_removed_is_recorded_again() {
        let world = World::start().await;
        let inventory = &world.shared.inventory;
        let (web, kind) = (
            PluginName::new("web").unwrap(),
            Gvk::new("", "v1", "ConfigMap"),
        );
        let kinds = BTreeSet::from([kind.clone()]);
        inventory.record(&web, &kinds).await.unwrap();

        let held = world.server.hold_writes();
        let record = async {
            // The removal has begun by now, because it is polled first.
            yield_now().await;
            inventory.record(&web, &kinds).await
        };
        let release = async {
            for _ in 0..10 {
                yield_now().await;
            }
            drop(held);
        };
        let (removed, recorded, ()) = tokio::join!(inventory.remove(&web, &kind), record, release);
        removed.unwrap();
        recorded.unwrap();
        let written = world.server.get("configmaps", "host", CONFIG_MAP).unwrap();
        assert_eq!(written["data"]["web"], "v1 ConfigMap");
        assert_eq!(inventory.of(&web), kinds);
    }
}
