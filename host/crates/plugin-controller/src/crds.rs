//! The CustomResourceDefinitions that a plugin brings.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use futures::future::try_join_all;
use innkeeper_cluster::Cluster;
use innkeeper_crd::{self as crd, Installed, name_of};
use innkeeper_model::{
    Backoff, GroupKind, Gvk, HashKey, Limits, Manifest, Object, ParentKind, PluginName,
    ResourceVersion, Scope, error_chain, kind_of_crd,
};
use innkeeper_plan::plan_definition;
use innkeeper_reconcile::{Revision, Shared};
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, error, info};

use super::{
    Error, Loaded,
    resource::{Crds, Terms},
};

/// Timeout for the API server to serve a new kind. After that the plugin reports the missing kind and retries the
/// installation.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// Interval for comparing a plugin file's definitions with those from the last check. The comparison sends no request.
const CHECK_PERIOD: Duration = Duration::from_secs(2);

/// First and longest wait between two installations of a plugin's definitions. The longest is the one for field
/// conflicts, because another controller may insist on another definition.
const REINSTALL_WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(5));

/// A plugin's definitions at the last successful check. A later change or deletion by someone else makes the next check
/// due.
#[derive(Default)]
pub(super) struct CheckedDefinitions {
    versions: BTreeMap<String, Option<ResourceVersion>>,
    /// The earliest next check, with the waits after further installations; none before the first one.
    reinstall: Option<(Instant, Backoff)>,
}

impl CheckedDefinitions {
    /// Returns true if a definition has changed since the last check, and the wait after the last installation is over.
    pub(super) fn is_check_due(&self, cluster: &Cluster) -> bool {
        let is_waiting = matches!(&self.reinstall, Some((at, _)) if Instant::now() < *at);
        !is_waiting
            && self
                .versions
                .iter()
                .any(|(name, version)| cluster.definition_version(name) != *version)
    }

    /// Installs and checks a revision's definitions with [`install`], and remembers them.
    pub(super) async fn install(
        &mut self,
        shared: &Shared,
        plugin: &PluginName,
        serving: &Revision,
        crds: Crds,
        has_served: bool,
    ) -> Result<(), Error> {
        // Read before the check, so a change during it makes the next check due.
        let versions = names_of(serving)
            .into_iter()
            .map(|name| {
                let version = shared.cluster.definition_version(&name);
                (name, version)
            })
            .collect();
        if install(shared, plugin, serving, crds, has_served).await? {
            self.wait_longer(Instant::now());
        }
        self.versions = versions;
        Ok(())
    }

    fn wait_longer(&mut self, now: Instant) {
        let (min, max) = REINSTALL_WAITS;
        // A quiet time as long as the longest wait ends the series.
        let mut waits = self
            .reinstall
            .take()
            .filter(|(at, _)| now < *at + max)
            .map_or_else(|| Backoff::new(min, max), |(_, waits)| waits);
        self.reinstall = Some((now + waits.delay(), waits));
    }
}

/// Reinstalls a plugin file's definitions after someone changed or deleted them. Reports why that fails, until the
/// definitions match the plugin again.
pub async fn keep_definitions(
    shared: &Shared,
    loaded: &Loaded,
    limits: &Arc<Limits>,
    report: impl Fn(Option<String>),
) -> Infallible {
    let plugin = &loaded.name;
    let serving = loaded.serving(limits);
    let mut definitions = CheckedDefinitions::default();
    let mut problem: Option<String> = None;
    let mut failures = Backoff::new(CHECK_PERIOD, SERVED_WITHIN);
    loop {
        let missing = missing_parents(&shared.cluster, &serving);
        let is_known = !definitions.versions.is_empty();
        if is_known
            && missing.is_none()
            && problem.is_none()
            && !definitions.is_check_due(&shared.cluster)
        {
            sleep(CHECK_PERIOD).await;
            continue;
        }
        // Report this first: the installation waits until the kinds are served.
        if missing.is_some() && problem.is_none() {
            report(missing);
        }
        // `false`, because a plugin file has no history that shows what has served.
        let failure = definitions
            .install(shared, plugin, &serving, Crds::Install, false)
            .await
            .err()
            .map(|error| error_chain(&error).to_string());
        report(failure.clone());
        match &failure {
            Some(text) if failure != problem => {
                error!(%plugin, error = text, "the definitions of the plugin's kinds are not as it states them, retrying until they are");
            }
            None if problem.is_some() => {
                info!(%plugin, "the definitions of the plugin's kinds are as it states them again");
            }
            _ => {}
        }
        if failure.is_none() {
            failures = Backoff::new(CHECK_PERIOD, SERVED_WITHIN);
        }
        problem = failure;
        sleep(failures.delay()).await;
    }
}

/// Returns a sentence about parent kinds that the cluster does not serve, if there are any.
fn missing_parents(cluster: &Cluster, serving: &Revision) -> Option<String> {
    let missing: Vec<String> = serving
        .parents()
        .map(|parent| &parent.kind)
        .filter(|kind| cluster.served(kind).is_none())
        .map(ToString::to_string)
        .collect();
    (!missing.is_empty()).then(|| format!("the cluster does not serve {}", missing.join(", ")))
}

/// Returns the names of definitions that a revision has or needs.
fn names_of(serving: &Revision) -> Vec<String> {
    let own = serving.plugin.manifest().crds.iter().filter_map(name_of);
    let parents = serving.parents().map(definition_of);
    own.map(str::to_owned).chain(parents).collect()
}

/// Returns a parent kind's definition name; a built-in kind has none.
fn definition_of(parent: &ParentKind) -> String {
    format!("{}.{}", parent.plural, parent.kind.group)
}

/// Installs granted definitions that are missing or differ, unless `crds` is Ignore, and waits until the cluster serves
/// every parent kind. `has_served` is true if the plugin's bytes have served before. Returns true if it wrote a
/// definition.
async fn install(
    shared: &Shared,
    plugin: &PluginName,
    serving: &Revision,
    crds: Crds,
    has_served: bool,
) -> Result<bool, Error> {
    let manifest = serving.plugin.manifest();
    // A host without permission to read CRDs, or without the hash key, cannot compare them with the installed ones.
    let may_install = crds == Crds::Install && shared.cluster.reads_definitions();
    let hash_key = shared.hash_key.get().filter(|_| may_install);
    // A follower starts before a new cluster's leader has created the key.
    if may_install && hash_key.is_none() && !shared.writers.shards().is_one() {
        return Err(Error::AwaitsLeader {
            plugin: plugin.clone(),
            what: "the hash key is missing".to_owned(),
        });
    }
    if hash_key.is_none() && serving.grants.own_definitions {
        return Err(Error::DefinitionsUnknown {
            plugin: plugin.clone(),
        });
    }
    let mut has_written = false;
    if let Some(hash_key) = hash_key {
        let is_granted = |crd: &&Map<String, Value>| {
            kind_of_crd(crd).is_some_and(|kind| serving.grants.allows_crd(&kind))
        };
        let applied = manifest
            .crds
            .iter()
            .filter(is_granted)
            .map(|crd| apply(shared, plugin, crd, hash_key, has_served));
        has_written = try_join_all(applied).await?.contains(&true);
        if has_written {
            shared.cluster.refresh_discovery();
        }
    }
    for parent in serving.parents() {
        timeout(SERVED_WITHIN, shared.cluster.wait_served(&parent.kind))
            .await
            .map_err(|_| Error::NotServed {
                plugin: plugin.clone(),
                kind: parent.kind.clone(),
                waited: SERVED_WITHIN,
            })?;
        check_parent(shared, plugin, manifest, parent).await?;
    }
    // After the wait, because discovery has the child kinds' scopes.
    check_scope(shared, plugin, serving)?;
    Ok(has_written)
}

/// Returns true if the host installs this kind's definition for the plugin, provided that it may read definitions.
pub(super) fn installs(terms: &Terms, manifest: &Manifest, kind: &GroupKind) -> bool {
    terms.crds == Crds::Install && terms.grants.allows_crd(kind) && manifest.crd_for(kind).is_some()
}

/// Checks that a namespaced host can see all children.
fn check_scope(shared: &Shared, plugin: &PluginName, serving: &Revision) -> Result<(), Error> {
    if shared.cluster.namespaces().is_none() {
        return Ok(());
    }
    let scope = |kind: &Gvk| Some(shared.cluster.served(kind)?.scope);
    let cluster_scoped = serving
        .parents()
        .find(|parent| parent.scope == Scope::Cluster);
    let namespaced = serving
        .plugin
        .manifest()
        .children
        .iter()
        .map(|child| &child.kind)
        .find(|kind| scope(kind) == Some(Scope::Namespaced));
    match cluster_scoped.zip(namespaced) {
        None => Ok(()),
        Some((parent, child)) => Err(Error::BeyondNamespaces {
            plugin: plugin.clone(),
            parent: parent.kind.clone(),
            child: child.clone(),
        }),
    }
}

/// Checks that a parent kind's installed definition fits the plugin's manifest.
async fn check_parent(
    shared: &Shared,
    plugin: &PluginName,
    manifest: &Manifest,
    parent: &ParentKind,
) -> Result<(), Error> {
    let name = definition_of(parent);
    let is_own = manifest.crds.iter().any(|crd| name_of(crd) == Some(&*name));
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
    has_served: bool,
) -> Result<bool, Error> {
    let name = name_of(desired).unwrap_or_default().to_owned();
    let existing = read(shared, &name).await?;
    let installed = existing
        .as_ref()
        .map(|existing| crd::check_installed(plugin, existing, desired, has_served))
        .transpose()
        .map_err(|cause| refused(plugin, &name, cause))?;
    let write = match installed {
        // A later revision added optional fields, and parents may use them.
        Some(Installed::Stays) => None,
        _ => plan_definition(plugin, hash_key, &name, existing.as_ref(), desired),
    };
    let Some(write) = write else {
        debug!(%plugin, crd = name, "skipped the CRD: it needs no change");
        return Ok(false);
    };
    if !shared.writers.leader().has_claim() {
        return Err(Error::AwaitsLeader {
            plugin: plugin.clone(),
            what: format!("the CustomResourceDefinition {name} is missing or differs"),
        });
    }
    info!(%plugin, crd = name, "installing the CRD");
    let new_rules = match installed {
        Some(Installed::Replaceable { new_rules }) => new_rules,
        _ => Vec::new(),
    };
    for rule in new_rules {
        info!(
            %plugin,
            crd = name,
            rule,
            "the CRD gets a new rule: existing objects that break it stay until the broken field is changed"
        );
    }
    shared
        .writers
        .leader()
        .crd(plugin, &write)
        .await
        .map_err(|source| Error::ApplyCrd {
            plugin: plugin.clone(),
            name,
            source: Box::new(source),
        })?;
    Ok(true)
}

fn refused(plugin: &PluginName, name: &str, source: crd::Refusal) -> Error {
    Error::CrdRefused {
        plugin: plugin.clone(),
        name: name.to_owned(),
        source: Box::new(source),
    }
}

async fn read(shared: &Shared, name: &str) -> Result<Option<Object>, Error> {
    let kind = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    shared
        .cluster
        .live_get(&kind, None, name)
        .await
        .map_err(|source| Error::ReadCrd {
            name: name.to_owned(),
            source: Box::new(source),
        })
}
