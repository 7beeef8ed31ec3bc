//! Records which kinds plugins have created, finalized and served.
//!
//! The host records a kind before the first child, finalizer or pass. A plugin that no longer declares a kind must still
//! find the children, even after a restart. A removed plugin must find the finalizers, because the API server does not
//! delete parents that have one. A Plugin that is deleted while no host runs has parents whose conditions are out of date.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_apply::{self as apply, ErrorKind, Writer};
use innkeeper_cluster::{self as cluster, Cluster};
use innkeeper_model::{Gvk, PluginName, ResourceVersion, Retry, Uid};
use parking_lot::Mutex;
use tracing::info;

/// The most attempts at one change: each is one more host that recorded a kind at the same moment.
const ATTEMPTS_MAX: u32 = 8;

/// The name of the ConfigMap in the host's namespace; up to three keys per plugin, one kind per line.
pub const CONFIG_MAP: &str = "innkeeper-inventory";

/// An unusable inventory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The read failed.
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

/// A change that was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The inventory is unusable.
    #[error(transparent)]
    Read(#[from] Error),
    /// The write failed.
    #[error(transparent)]
    Write(#[from] apply::Error),
}

impl RecordError {
    /// Returns when to retry.
    pub const fn retry(&self) -> Retry {
        match self {
            Self::Read(_) => Retry::Backoff,
            Self::Write(error) => error.retry(),
        }
    }
}

/// A plugin's reason to record a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The plugin has created children of the kind.
    Child,
    /// Parents of the kind may have the plugin's finalizer.
    Finalizing,
    /// The Plugin has served parents of the kind.
    Served,
}

impl Role {
    // `Child` is last: its empty suffix fits every key.
    const ALL: [Self; 3] = [Self::Finalizing, Self::Served, Self::Child];

    /// Returns the suffix of the ConfigMap key; unambiguous, because plugin names have no dots.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Child => "",
            Self::Finalizing => ".parents",
            Self::Served => ".served",
        }
    }
}

type Kinds = BTreeMap<(PluginName, Role), BTreeSet<Gvk>>;

/// The ConfigMap's identity and version.
type Observed = (Uid, ResourceVersion);

/// The inventory: a ConfigMap and its copy in memory.
///
/// Several hosts may record kinds at once, so each change reads the ConfigMap first, and its write replaces only what
/// it has read.
pub struct Inventory {
    cluster: Cluster,
    namespace: String,
    kinds: Mutex<Kinds>,
    /// Locked during a change: two concurrent passes with new kinds would remove each other's kinds.
    changing: tokio::sync::Mutex<()>,
}

impl Inventory {
    /// Reads the inventory from the cluster.
    pub async fn read(cluster: &Cluster, namespace: &str) -> Result<Self, Error> {
        let (kinds, _) = read(cluster, namespace).await?;
        Ok(Self {
            cluster: cluster.clone(),
            namespace: namespace.to_owned(),
            kinds: Mutex::new(kinds),
            changing: tokio::sync::Mutex::default(),
        })
    }

    /// The host's namespace, which contains the inventory.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Reads all kinds again, for a host that takes parents or plugins over from another host.
    pub async fn refresh(&self) -> Result<(), Error> {
        // A write during the read would be missing in what is read, and then in the copy.
        let _changing = self.changing.lock().await;
        let (latest, _) = read(&self.cluster, &self.namespace).await?;
        *self.kinds.lock() = latest;
        Ok(())
    }

    /// Returns true if no plugin has ever created a child.
    pub fn is_empty(&self) -> bool {
        self.plugins(Role::Child).is_empty()
    }

    /// Returns a plugin's kinds in a role.
    pub fn kinds(&self, plugin: &PluginName, role: Role) -> BTreeSet<Gvk> {
        let kinds = self.kinds.lock();
        kinds
            .get(&(plugin.clone(), role))
            .cloned()
            .unwrap_or_default()
    }

    /// Returns the plugins with any kinds in a role.
    pub fn plugins(&self, role: Role) -> Vec<PluginName> {
        let kinds = self.kinds.lock();
        kinds
            .iter()
            .filter(|((_, other), kinds)| *other == role && !kinds.is_empty())
            .map(|((plugin, _), _)| plugin.clone())
            .collect()
    }

    /// Records kinds; writes only if one of them is new.
    ///
    /// `writer` is that of the parent whose pass needs them, or the leader's.
    pub async fn record(
        &self,
        writer: &Writer,
        plugin: &PluginName,
        role: Role,
        kinds: &BTreeSet<Gvk>,
    ) -> Result<(), RecordError> {
        // The usual case, without the lock: no pass waits for another one's write.
        if kinds.is_subset(&self.kinds(plugin, role)) {
            return Ok(());
        }
        let change = |recorded: &BTreeSet<Gvk>| recorded | kinds;
        self.change(writer, plugin, role, change).await.map(drop)
    }

    /// Removes kinds that no object needs any more. Only the leader does so.
    pub async fn remove(
        &self,
        writer: &Writer,
        plugin: &PluginName,
        role: Role,
        kinds: &BTreeSet<Gvk>,
    ) -> Result<(), RecordError> {
        let change = |recorded: &BTreeSet<Gvk>| recorded - kinds;
        if self.change(writer, plugin, role, change).await? && role == Role::Child {
            let kinds = kinds
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ");
            info!(%plugin, kinds, "removed unused child kinds from the inventory");
        }
        Ok(())
    }

    /// Returns true if there was anything to write.
    async fn change(
        &self,
        writer: &Writer,
        plugin: &PluginName,
        role: Role,
        change: impl Fn(&BTreeSet<Gvk>) -> BTreeSet<Gvk>,
    ) -> Result<bool, RecordError> {
        let _changing = self.changing.lock().await;
        // Under the lock: while this change waited for it, another pass may have made the same one.
        let before = self.kinds(plugin, role);
        let after = change(&before);
        if after == before {
            return Ok(false);
        }
        // No pass may rely on a kind that is about to be removed: without it in the copy, the pass waits for this write and
        // then records the kind again.
        self.set(plugin, role, &before & &after);
        let changed = self.change_stored(writer, plugin, role, change).await;
        if changed.is_err() {
            self.set(plugin, role, before);
        }
        changed
    }

    /// Changes the ConfigMap, and makes the copy equal to it.
    async fn change_stored(
        &self,
        writer: &Writer,
        plugin: &PluginName,
        role: Role,
        change: impl Fn(&BTreeSet<Gvk>) -> BTreeSet<Gvk>,
    ) -> Result<bool, RecordError> {
        let mut attempt = 1;
        loop {
            let (mut latest, observed) = read(&self.cluster, &self.namespace).await?;
            let key = (plugin.clone(), role);
            let before = latest.remove(&key).unwrap_or_default();
            let after = change(&before);
            latest.insert(key, &before & &after);
            *self.kinds.lock() = latest;
            if after == before {
                return Ok(false);
            }
            let written = self.write(writer, plugin, role, &after, observed.as_ref());
            match written.await {
                Ok(()) => {
                    self.set(plugin, role, after);
                    return Ok(true);
                }
                // Another host has changed it since the read.
                Err(error)
                    if attempt < ATTEMPTS_MAX
                        && (error.is_stale() || error.kind == ErrorKind::Exists) =>
                {
                    attempt += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn set(&self, plugin: &PluginName, role: Role, kinds: BTreeSet<Gvk>) {
        self.kinds.lock().insert((plugin.clone(), role), kinds);
    }

    /// Writes all kinds of a plugin.
    async fn write(
        &self,
        writer: &Writer,
        plugin: &PluginName,
        role: Role,
        kinds: &BTreeSet<Gvk>,
        observed: Option<&Observed>,
    ) -> Result<(), apply::Error> {
        let mut data = BTreeMap::new();
        // All roles: an apply removes the keys that this manager no longer states.
        for other in Role::ALL {
            let kinds = if other == role {
                kinds.clone()
            } else {
                self.kinds(plugin, other)
            };
            if other == Role::Child || !kinds.is_empty() {
                let lines: Vec<String> = kinds.iter().map(ToString::to_string).collect();
                data.insert(format!("{plugin}{}", other.suffix()), lines.join("\n"));
            }
        }
        writer
            .inventory(&self.namespace, CONFIG_MAP, plugin, &data, observed)
            .await
            .map(drop)
    }
}

/// Reads the ConfigMap; without one, there are no kinds.
async fn read(cluster: &Cluster, namespace: &str) -> Result<(Kinds, Option<Observed>), Error> {
    let config_map = Gvk::new("", "v1", "ConfigMap");
    let object = cluster
        .live_get(&config_map, Some(namespace), CONFIG_MAP)
        .await
        .map_err(|source| Error::Read {
            namespace: namespace.to_owned(),
            source: Box::new(source),
        })?;
    let Some(object) = object else {
        return Ok((Kinds::new(), None));
    };
    let kinds = parse(&object.json).map_err(|at| Error::Malformed {
        namespace: namespace.to_owned(),
        at,
    })?;
    Ok((kinds, Some((object.uid, object.resource_version))))
}

/// Returns the kinds by plugin and role, or the field that is malformed.
fn parse(json: &str) -> Result<Kinds, String> {
    #[derive(serde::Deserialize)]
    struct InventoryData {
        #[serde(default)]
        data: BTreeMap<String, String>,
    }
    let InventoryData { data } = serde_json::from_str(json).map_err(|_| "data".to_owned())?;
    let mut all = Kinds::new();
    for (key, lines) in data {
        let at = format!("data.{key}");
        let plugin_and_role = Role::ALL
            .into_iter()
            .find_map(|role| Some((key.strip_suffix(role.suffix())?, role)));
        let (plugin, role) = plugin_and_role.ok_or_else(|| at.clone())?;
        let plugin = PluginName::new(plugin).map_err(|_| at.clone())?;
        let kinds = lines
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| {
                let (api_version, kind) = line.trim().split_once(' ')?;
                Gvk::parse(api_version, kind).ok()
            })
            .collect::<Option<BTreeSet<Gvk>>>()
            .ok_or(at)?;
        all.insert((plugin, role), kinds);
    }
    Ok(all)
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
        let kinds = |plugin, role| -> Vec<String> {
            let plugin = PluginName::new(plugin).unwrap();
            plugins[&(plugin, role)]
                .iter()
                .map(ToString::to_string)
                .collect()
        };
        assert_eq!(
            kinds("web", Role::Child),
            ["v1 Service", "apps/v1 Deployment"]
        );
        assert_eq!(kinds("web", Role::Finalizing), ["example.com/v1 Web"]);
        assert_eq!(kinds("web", Role::Served), ["example.com/v1 Site"]);
        assert_eq!(kinds("none", Role::Child), [""; 0]);
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

    /// A restarted host would not find the children of a kind that is missing in the inventory.
    #[tokio::test]
    async fn a_kind_that_is_created_while_it_is_removed_is_recorded_again() {
        let world = World::start().await;
        let inventory = &world.shared.inventory;
        let writer = world.shared.writers.leader();
        let web = PluginName::new("web").unwrap();
        let kinds = BTreeSet::from([Gvk::new("", "v1", "ConfigMap")]);
        inventory
            .record(writer, &web, Role::Child, &kinds)
            .await
            .unwrap();

        let hold = world.server.hold_writes();
        let record = async {
            // The removal has begun by now, because it is polled first.
            yield_now().await;
            inventory.record(writer, &web, Role::Child, &kinds).await
        };
        let release = async {
            for _ in 0..10 {
                yield_now().await;
            }
            drop(hold);
        };
        let (removed, recorded, ()) = tokio::join!(
            inventory.remove(writer, &web, Role::Child, &kinds),
            record,
            release
        );
        removed.unwrap();
        recorded.unwrap();
        let written = world.server.get("configmaps", "host", CONFIG_MAP).unwrap();
        assert_eq!(written["data"]["web"], "v1 ConfigMap");
        assert_eq!(inventory.kinds(&web, Role::Child), kinds);
    }
}
