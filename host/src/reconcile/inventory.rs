//! The kinds that plugins ever made, written down before the first child of a kind exists.
//!
//! A plugin that no longer declares a kind still has to find its children of that kind, also after a restart.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use tracing::info;

use crate::{
    apply::{self, Writer},
    cluster::{self, Cluster},
    model::{Gvk, PluginName},
};

/// The ConfigMap of the host's namespace; one key per plugin, one kind per line.
pub const CONFIG_MAP: &str = "innkeeper-inventory";

/// Why the inventory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("failed to read the inventory, ConfigMap {namespace}/{CONFIG_MAP}")]
    Read {
        /// The host's namespace.
        namespace: String,
        /// Why.
        #[source]
        source: Box<cluster::Error>,
    },
    /// It holds what the host never wrote.
    #[error(
        "ConfigMap {namespace}/{CONFIG_MAP} is not an inventory at {at}: write one kind per line, \"apps/v1 Deployment\""
    )]
    Malformed {
        /// The host's namespace.
        namespace: String,
        /// The place.
        at: String,
    },
}

/// What is written down.
pub struct Inventory {
    writer: Arc<Writer>,
    namespace: String,
    kinds: Mutex<BTreeMap<PluginName, BTreeSet<Gvk>>>,
    /// Held while writing: two passes that find new kinds at once must not cross each other's out.
    writing: tokio::sync::Mutex<()>,
}

impl Inventory {
    /// Reads what is written down.
    pub async fn read(
        cluster: &Cluster,
        writer: Arc<Writer>,
        namespace: &str,
    ) -> Result<Self, Error> {
        let config_map = Gvk::new("", "v1", "ConfigMap");
        let found = cluster
            .live_get(&config_map, Some(namespace), CONFIG_MAP)
            .await
            .map_err(|source| Error::Read {
                namespace: namespace.to_owned(),
                source: Box::new(source),
            })?;
        let kinds = match found {
            Some(object) => parse(&object.json).map_err(|at| Error::Malformed {
                namespace: namespace.to_owned(),
                at,
            })?,
            None => BTreeMap::new(),
        };
        Ok(Self {
            writer,
            namespace: namespace.to_owned(),
            kinds: Mutex::new(kinds),
            writing: tokio::sync::Mutex::default(),
        })
    }

    /// Whether no plugin ever made anything.
    pub fn is_empty(&self) -> bool {
        self.kinds.lock().values().all(BTreeSet::is_empty)
    }

    /// The kinds that a plugin ever made.
    pub fn of(&self, plugin: &PluginName) -> BTreeSet<Gvk> {
        self.kinds.lock().get(plugin).cloned().unwrap_or_default()
    }

    /// Writes down the kinds that are not yet there; without new ones there is no write.
    pub async fn record(
        &self,
        plugin: &PluginName,
        kinds: &BTreeSet<Gvk>,
    ) -> Result<(), apply::Error> {
        if kinds.is_subset(&self.of(plugin)) {
            return Ok(());
        }
        let _writing = self.writing.lock().await;
        let mut all = self.of(plugin);
        all.extend(kinds.iter().cloned());
        self.store(plugin, all).await
    }

    /// Crosses out a kind of which nothing is left.
    pub async fn remove(&self, plugin: &PluginName, kind: &Gvk) -> Result<(), apply::Error> {
        let _writing = self.writing.lock().await;
        let mut kinds = self.of(plugin);
        if !kinds.remove(kind) {
            return Ok(());
        }
        info!(%plugin, %kind, "nothing is left of a kind that is no longer made");
        self.store(plugin, kinds).await
    }

    async fn store(&self, plugin: &PluginName, kinds: BTreeSet<Gvk>) -> Result<(), apply::Error> {
        let lines: Vec<String> = kinds.iter().map(ToString::to_string).collect();
        let data = BTreeMap::from([(plugin.to_string(), lines.join("\n"))]);
        self.writer
            .inventory(&self.namespace, CONFIG_MAP, plugin, &data)
            .await?;
        self.kinds.lock().insert(plugin.clone(), kinds);
        Ok(())
    }
}

/// The kinds by plugin, or the place that is wrong.
fn parse(json: &str) -> Result<BTreeMap<PluginName, BTreeSet<Gvk>>, String> {
    #[derive(serde::Deserialize)]
    struct ConfigMap {
        #[serde(default)]
        data: BTreeMap<String, String>,
    }
    let ConfigMap { data } = serde_json::from_str(json).map_err(|_| "data".to_owned())?;
    let mut kinds = BTreeMap::new();
    for (key, lines) in data {
        let at = format!("data.{key}");
        let plugin = PluginName::new(&key).map_err(|_| at.clone())?;
        let parsed = lines
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| {
                let (api_version, kind) = line.trim().split_once(' ')?;
                Gvk::parse(api_version, kind).ok()
            })
            .collect::<Option<BTreeSet<Gvk>>>()
            .ok_or(at)?;
        kinds.insert(plugin, parsed);
    }
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let json = r#"{"data": {"web": "apps/v1 Deployment\nv1 Service", "none": ""}}"#;
        let kinds = parse(json).unwrap();
        let web = &kinds[&PluginName::new("web").unwrap()];
        let lines: Vec<String> = web.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["v1 Service", "apps/v1 Deployment"]);
        assert!(kinds[&PluginName::new("none").unwrap()].is_empty());
        assert!(parse("{}").unwrap().is_empty());
    }

    #[test]
    fn rejects_what_it_never_wrote() {
        for (json, at) in [
            (r#"{"data": {"web": "Deployment"}}"#, "data.web"),
            (r#"{"data": {"Web": ""}}"#, "data.Web"),
            (r#"{"data": 1}"#, "data"),
        ] {
            assert_eq!(parse(json).unwrap_err(), at);
        }
    }
}
