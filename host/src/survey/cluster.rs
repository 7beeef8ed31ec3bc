//! A survey from the API server: the Plugin resources, the parent kinds, and the parents' conditions.
//!
//! Parent kinds are those that a Plugin's grants name, and those of CustomResourceDefinitions with the label of a
//! plugin. A plugin may also install kinds that it only reads. A labelled kind without a grant is therefore omitted if
//! none of its objects has the condition Synced.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_cluster::{ParentConditions, Viewer, labels};
use innkeeper_command::{Exit, Failure, HOST_NAMESPACE, OrFail as _};
use innkeeper_lease::{LABEL_LEASE, Lease, LeaseRecord};
use innkeeper_model::{
    Expression, GroupKind, LABEL_PLUGIN, Object, ObjectId, Selector, error_chain, kind_of_crd,
    reason,
};
use innkeeper_plugin_controller::resource::{self, FaultReason, Plugin, PluginStatus};
use innkeeper_policy::{Grants, Selection};
use innkeeper_server::{
    ConnectionArgs,
    admin::{FaultState, ParentState},
    client_config,
};
use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::time::sleep;

use super::{OfPlugin, PluginRow, Survey};

/// The failure of a request to the API server.
const ASK: &str = "failed to ask the cluster";

/// No host has reported on this generation of the Plugin.
///
/// Remedy: Check that a host runs, and that its `--plugin-selector` selects the Plugin.
const NOT_OBSERVED: &str = "NotObserved";

/// The parent is being deleted, and a finalizer keeps it.
///
/// Remedy: Check that a host runs and serves its plugin; the page about the installation has the way out if the host is gone
/// for good.
const DELETING: &str = "Deleting";

/// The Plugin resource cannot be read.
///
/// Remedy: Correct the field in the message, or upgrade the definition of Plugins and the command to one version.
const UNREADABLE: &str = "Unreadable";

/// The time in which a host renews its lease, even after a lost request: twice the default of `--lease-retry`.
const RENEWED_WITHIN: Duration = Duration::from_secs(4);

/// Returns the address of a cluster, and a client for a user who waits at the terminal.
pub(crate) async fn client(
    connection: &ConnectionArgs,
    patience: Duration,
) -> Result<(String, kube::Client), Failure> {
    let mut client = client_config(connection)
        .await
        .or_fail(Exit::Usage, "failed to find the cluster")?;
    client.config.connect_timeout = Some(patience);
    let address = client.config.cluster_url.to_string();
    Ok((address, client.builder()?.build()))
}

/// Returns the survey of the cluster.
pub(super) async fn survey(
    connection: &ConnectionArgs,
    patience: Duration,
) -> Result<Survey, Failure> {
    let (address, client) = client(connection, patience).await?;
    let mut found = ClusterSurvey::default();
    found.survey.from = format!("cluster {address}");
    let viewer = Viewer::open(client, patience)
        .await
        .or_fail(Exit::Failure, ASK)?;

    let plugins = GroupKind::new(resource::GROUP, "Plugin");
    found.survey.problems = problems(&viewer, viewer.served(&plugins).is_some()).await;
    let all = Selector::default();
    for object in list(&viewer, &plugins, &all).await? {
        found.plugin(&object);
    }
    let crds = GroupKind::new("apiextensions.k8s.io", "CustomResourceDefinition");
    let labelled = Expression::Exists(LABEL_PLUGIN.to_owned()).into();
    for object in list(&viewer, &crds, &labelled).await? {
        found.crd(&object);
    }
    let owners = found.kinds.values().flatten();
    let mut selections = owners.filter_map(|owner| owner.selection.as_ref());
    if selections.any(Selection::asks_for_namespaces) {
        let listed = list(&viewer, &GroupKind::new("", "Namespace"), &all).await;
        // Without permission to list namespaces, the parents' conditions tell which parents are selected.
        found.namespaces = listed.unwrap_or_default();
    }
    let kinds: Vec<GroupKind> = found.kinds.keys().cloned().collect();
    for kind in kinds {
        let parents = list(&viewer, &kind, &all).await?;
        found.parents(&kind, &parents);
    }
    found.survey.plugins = found.plugins.into_values().collect();
    Ok(found.survey.sorted())
}

/// Returns the problems of the installed hosts. A host without a lease leaves no trace in the cluster.
async fn problems(viewer: &Viewer, has_plugins: bool) -> Vec<String> {
    // A user who may not list leases sees the rest.
    let Ok(seen) = leases(viewer).await else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    if seen.is_empty() {
        let (key, value) = LABEL_LEASE;
        problems.push(format!(
            "no host runs: no Lease has the label {key}={value}; install a host, or ask one that runs without a lease by --admin-address"
        ));
    } else if !has_plugins {
        problems.push(format!(
            "the CustomResourceDefinition {} is missing: install it, or Plugin resources are not served",
            resource::CRD_NAME
        ));
    }
    let time = Timestamp::now();
    let lapsed: Vec<_> = seen
        .iter()
        .filter_map(|(name, lease)| {
            let problem = lapse(name, &lease.record, time)?;
            Some((name, lease.version, problem))
        })
        .collect();
    if lapsed.is_empty() {
        return problems;
    }
    // Clocks differ: only a lease that nothing renews has lapsed.
    sleep(RENEWED_WITHIN).await;
    let now = leases(viewer).await.unwrap_or_default();
    for (name, version, problem) in lapsed {
        if now.get(name).is_some_and(|now| now.version == version) {
            problems.push(problem);
        }
    }
    problems
}

/// Returns the leases of all hosts by namespace and name, as `namespace/name`.
async fn leases(viewer: &Viewer) -> Result<BTreeMap<String, Lease>, Failure> {
    let kind = GroupKind::new("coordination.k8s.io", "Lease");
    let (key, value) = LABEL_LEASE;
    let labelled = Expression::Equal(key.to_owned(), value.to_owned()).into();
    let leases = list(viewer, &kind, &labelled).await?;
    let named = leases.iter().map(|lease| {
        let namespace = lease.namespace.as_deref().unwrap_or_default();
        (format!("{namespace}/{}", lease.name), Lease::from(lease))
    });
    Ok(named.collect())
}

/// Returns the reason why no host holds the lease of this name, as far as its times tell.
pub(crate) fn lapse(name: &str, lease: &LeaseRecord, now: Timestamp) -> Option<String> {
    let problem = |seen: String| {
        Some(format!(
            "no host runs: {seen}; check the Pods of the host, or delete the Lease if that host was removed"
        ))
    };
    if lease.holder.is_empty() {
        return problem(format!("the last one released the Lease {name}"));
    }
    let Some(renewed) = lease.renewed else {
        return problem(format!("the Lease {name} was never renewed"));
    };
    let age = now.duration_since(renewed).as_secs();
    if age <= i64::from(lease.duration_s) {
        return None;
    }
    let holder = &lease.holder;
    problem(format!(
        "{holder} renewed the Lease {name} last at {renewed}"
    ))
}

/// Lists the objects of a kind; empty if the cluster does not serve it.
async fn list(
    viewer: &Viewer,
    kind: &GroupKind,
    selector: &Selector,
) -> Result<Vec<Object>, Failure> {
    let Some(served) = viewer.served(kind) else {
        return Ok(Vec::new());
    };
    let objects = viewer.list(served, selector).await;
    objects.or_fail(Exit::Failure, ASK)
}

impl PluginRow {
    /// Takes over the conditions of a Plugin of this generation.
    fn judge(&mut self, status: &PluginStatus, generation: Option<i64>) {
        let condition = |kind| status.conditions.iter().find(|one| one.type_ == kind);
        let serving = condition("Serving").map_or("Unknown", |one| &*one.status);
        serving.clone_into(&mut self.serving);
        if status.observed_generation != generation {
            NOT_OBSERVED.clone_into(&mut self.reason);
            "no host has reported on this generation: check that a host runs and selects the Plugin"
                .clone_into(&mut self.message);
        } else if let Some(ready) = condition("Ready")
            && ready.status != "True"
        {
            self.reason.clone_from(&ready.reason);
            self.message.clone_from(&ready.message);
        }
    }
}

/// The intermediate result.
#[derive(Default)]
pub(super) struct ClusterSurvey {
    pub(super) plugins: BTreeMap<String, PluginRow>,
    /// The candidate plugins of each parent kind; never empty.
    kinds: BTreeMap<GroupKind, Vec<KindOwner>>,
    namespaces: Vec<Object>,
    /// The rows of parents and faults.
    pub(super) survey: Survey,
}

/// A plugin that may own the parents of a kind.
#[derive(Clone)]
struct KindOwner {
    plugin: String,
    /// The selection of parents of the plugin, if its grants name the kind as a parent kind.
    selection: Option<Selection>,
    /// The grants of the plugin; none if they are not known.
    grants: Option<Grants>,
}

impl KindOwner {
    /// Returns whether the plugin selects the parent; none if the labels of its namespace are needed and unknown.
    fn selects(&self, parent: &Object, namespaces: &[Object]) -> Option<bool> {
        let Some(selection) = &self.selection else {
            return Some(true);
        };
        let own = labels(&parent.json);
        // The default, because the host's own setting is not known here.
        if let (Some(grants), Some(name)) = (&self.grants, &parent.namespace)
            && !grants.allows_namespace(name, &[HOST_NAMESPACE])
        {
            return Some(false);
        }
        if selection.select(&own, None).is_err() {
            return Some(false);
        }
        let asks = selection.asks_for_namespaces();
        let Some(name) = parent.namespace.as_ref().filter(|_| asks) else {
            return Some(true);
        };
        let namespace = namespaces.iter().find(|one| one.name == *name)?;
        let selected = selection.select(&own, Some(&labels(&namespace.json)));
        Some(selected.is_ok())
    }
}

impl ClusterSurvey {
    pub(super) fn plugin(&mut self, object: &Object) {
        let name = object.name.to_string();
        let mut row = PluginRow::unknown(&name);
        match Plugin::read(&object.json) {
            Ok(plugin) => {
                // An invalid spec is reported by the Plugin's conditions, so that the default is good enough here.
                let terms = plugin.declared().ok().map(|declared| declared.terms);
                let (selection, grants) = terms.map(|it| (it.parents, it.grants)).unzip();
                let selection = selection.unwrap_or_default();
                let granted = plugin.spec.grants.iter().flat_map(|grants| &grants.parents);
                for parent in granted {
                    let kind = GroupKind::new(&*parent.group, &*parent.kind);
                    self.kinds.entry(kind).or_default().push(KindOwner {
                        plugin: name.clone(),
                        selection: Some(selection.clone()),
                        grants: grants.clone(),
                    });
                }
                let status = plugin.status.unwrap_or_default();
                row.judge(&status, object.generation);
                row.revision = status.revision.unwrap_or_default();
                let faults = status.faults.unwrap_or_default();
                row.faults = Some(u64::try_from(faults.count).unwrap_or_default());
                let faults = faults.last.into_iter().map(fault_state);
                self.survey
                    .faults
                    .extend(faults.map(|fault| OfPlugin::by(&name, fault)));
            }
            Err(error) => {
                "Unknown".clone_into(&mut row.serving);
                UNREADABLE.clone_into(&mut row.reason);
                row.message = error_chain(&error).to_string();
            }
        }
        self.plugins.insert(name, row);
    }

    fn crd(&mut self, object: &Object) {
        let crd: Option<Map<String, Value>> = serde_json::from_str(&object.json).ok();
        let kind = crd.as_ref().and_then(kind_of_crd);
        let (Some(kind), Some(plugin)) = (kind, object.labels.get(LABEL_PLUGIN)) else {
            return;
        };
        let found = || {
            vec![KindOwner {
                plugin: plugin.to_string(),
                selection: None,
                grants: None,
            }]
        };
        self.kinds.entry(kind).or_insert_with(found);
    }

    pub(super) fn parents(&mut self, kind: &GroupKind, parents: &[Object]) {
        let owners = &self.kinds.remove(kind).unwrap_or_default();
        let all_conditions: Vec<ParentConditions> =
            parents.iter().map(ParentConditions::new).collect();
        let is_kind_of_parents = all_conditions
            .iter()
            .any(|conditions| conditions.synced.is_some());
        if !owners.iter().any(|owner| owner.selection.is_some()) && !is_kind_of_parents {
            return;
        }
        for (parent, conditions) in parents.iter().zip(&all_conditions) {
            self.parent(owners, parent, conditions);
        }
    }

    /// Counts a parent for the first plugin that may select it, or else for the first candidate.
    fn parent(&mut self, owners: &[KindOwner], parent: &Object, conditions: &ParentConditions) {
        let selects = |owner: &KindOwner| owner.selects(parent, &self.namespaces);
        let owner = owners.iter().find(|owner| selects(owner) != Some(false));
        let Some(owner) = owner.or_else(|| owners.first()) else {
            return;
        };
        let mut state = ParentState::new(&parent.id(), conditions, None);
        if parent.is_deleting() && state.reason.is_empty() && !parent.finalizers.is_empty() {
            DELETING.clone_into(&mut state.reason);
            state.message = format!(
                "is being deleted and waits for the finalizer {}",
                parent.finalizers.join(", ")
            );
        }
        let is_selected = selects(owner).unwrap_or(state.reason != reason::NOT_SELECTED);
        if conditions.synced_status().is_none() && state.reason.is_empty() {
            NOT_OBSERVED.clone_into(&mut state.reason);
            "no pass has reported on this generation: check that a host runs, and look at the Events of the parent"
                .clone_into(&mut state.message);
        }
        // A plugin without a Plugin resource was given to a host as a file, and only that host knows its state.
        let plugin = self
            .plugins
            .entry(owner.plugin.clone())
            .or_insert_with(|| PluginRow::unknown(&owner.plugin));
        if !is_selected {
            return;
        }
        plugin.parents += 1;
        if conditions.is_ready() {
            plugin.ready += 1;
        } else {
            self.survey.parents.push(OfPlugin::by(&owner.plugin, state));
        }
    }
}

fn fault_state(fault: FaultReason) -> FaultState {
    let parent = fault.parent;
    let kind = GroupKind::new(parent.group, parent.kind);
    let parent = ObjectId::new(kind, parent.namespace.as_deref(), &parent.name);
    FaultState {
        parent: parent.to_string(),
        reason: fault.reason,
        message: fault.message,
        time: fault.time.0.to_string(),
    }
}
