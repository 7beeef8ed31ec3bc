//! A survey from the API server: the Plugin resources, the parent kinds, and the parents' conditions.
//!
//! Parent kinds are those that a Plugin's grants name, and those of CustomResourceDefinitions with the label of a
//! plugin. A plugin may also install kinds that it only reads. A labelled kind without a grant is therefore omitted if
//! none of its objects has the condition Synced.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_cluster::{ParentConditions, Viewer, labels};
use innkeeper_model::{Expression, GroupKind, LABEL_PLUGIN, Object, Selector, reason};
use innkeeper_plugin_controller::resource::{self, FaultReason, Plugin};
use innkeeper_policy::Selection;
use innkeeper_schema::kind_of_crd;
use serde_json::{Map, Value};

use super::{Error, FaultRow, ParentRow, PluginRow, Survey};
use crate::config::{self, ConnectionArgs};

/// Returns the survey of the cluster.
pub(super) async fn survey(
    connection: &ConnectionArgs,
    patience: Duration,
) -> Result<Survey, Error> {
    let mut config = config::client_config(connection)
        .await
        .map_err(Error::Config)?;
    config.connect_timeout = Some(patience);
    // The user waits at the terminal: report a failure at once instead of retrying.
    config.default_retry = false;
    let from = format!("cluster {}", config.cluster_url);
    let client =
        kube::Client::try_from(config).map_err(|source| Error::Client(Box::new(source)))?;
    let viewer = Viewer::open(client, patience).await.map_err(cluster)?;

    let all = Selector::default();
    let labelled = Expression::Exists(LABEL_PLUGIN.to_owned()).into();
    let mut found = ClusterSurvey::default();
    for object in list(&viewer, &plugin_kind(), &all).await? {
        found.plugin(&object);
    }
    let crds = GroupKind::new("apiextensions.k8s.io", "CustomResourceDefinition");
    for object in list(&viewer, &crds, &labelled).await? {
        found.crd(&object);
    }
    let kinds = std::mem::take(&mut found.kinds);
    let mut asks = kinds.values().flatten();
    if asks.any(|owner| owner.selection.asks_for_namespaces()) {
        let listed = list(&viewer, &GroupKind::new("", "Namespace"), &all).await;
        // Without permission to list namespaces, the parents' conditions tell which parents are selected.
        found.namespaces = listed.unwrap_or_default();
    }
    for (kind, owners) in kinds {
        let parents = list(&viewer, &kind, &all).await?;
        found.parents(&kind, &owners, &parents);
    }
    Ok(found.into_survey(from))
}

fn plugin_kind() -> GroupKind {
    GroupKind::new(resource::GROUP, "Plugin")
}

/// Lists the objects of a kind; empty if the cluster does not serve it.
async fn list(
    viewer: &Viewer,
    kind: &GroupKind,
    selector: &Selector,
) -> Result<Vec<Object>, Error> {
    let Some(served) = viewer.served(kind) else {
        return Ok(Vec::new());
    };
    let objects = viewer.list(served, selector).await;
    objects.map_err(cluster)
}

fn cluster(source: innkeeper_cluster::Error) -> Error {
    Error::Cluster(Box::new(source))
}

/// The intermediate result.
#[derive(Default)]
struct ClusterSurvey {
    plugins: BTreeMap<String, PluginRow>,
    /// The candidate plugins of each parent kind; never empty.
    kinds: BTreeMap<GroupKind, Vec<KindOwner>>,
    namespaces: Vec<Object>,
    /// The selected parents that are not Ready.
    parents: Vec<ParentRow>,
    faults: Vec<FaultRow>,
}

/// A plugin that may own the parents of a kind.
#[derive(Clone)]
struct KindOwner {
    plugin: String,
    /// True if the grants of the plugin name the kind as a parent kind.
    is_sure: bool,
    /// The selection of parents of the plugin.
    selection: Selection,
}

impl KindOwner {
    /// Returns whether the plugin selects the parent; none if the labels of its namespace are needed and unknown.
    fn selects(&self, parent: &Object, namespaces: &[Object]) -> Option<bool> {
        let own = labels(&parent.json);
        if self.selection.select(&own, None).is_err() {
            return Some(false);
        }
        let asks = self.selection.asks_for_namespaces();
        let Some(name) = parent.namespace.as_ref().filter(|_| asks) else {
            return Some(true);
        };
        let namespace = namespaces.iter().find(|one| one.name == *name)?;
        let selected = self.selection.select(&own, Some(&labels(&namespace.json)));
        Some(selected.is_ok())
    }
}

impl ClusterSurvey {
    fn plugin(&mut self, object: &Object) {
        let name = object.name.to_string();
        let mut row = PluginRow {
            name: name.clone(),
            ..PluginRow::default()
        };
        match Plugin::read(&object.json) {
            Ok(plugin) => {
                // An invalid spec is reported by the Plugin's conditions, so that the default is good enough here.
                let declared = plugin.declared().map(|declared| declared.terms.parents);
                let selection = declared.unwrap_or_default();
                let granted = plugin.spec.grants.iter().flat_map(|grants| &grants.parents);
                for parent in granted {
                    let kind = GroupKind::new(&*parent.group, &*parent.kind);
                    self.kinds.entry(kind).or_default().push(KindOwner {
                        plugin: name.clone(),
                        is_sure: true,
                        selection: selection.clone(),
                    });
                }
                let status = plugin.status.unwrap_or_default();
                row.revision = status.revision.unwrap_or_default();
                let faults = status.faults.unwrap_or_default();
                row.faults = Some(u64::try_from(faults.count).unwrap_or_default());
                let rows = faults.last.into_iter();
                self.faults
                    .extend(rows.map(|fault| fault_row(&name, fault)));
                let serving = status
                    .conditions
                    .into_iter()
                    .find(|one| one.type_ == "Serving");
                if let Some(serving) = serving {
                    row.serving = serving.status;
                    if row.serving != "True" {
                        (row.reason, row.message) = (serving.reason, serving.message);
                    }
                }
            }
            Err(error) => {
                "Unknown".clone_into(&mut row.serving);
                "Unreadable".clone_into(&mut row.reason);
                row.message = innkeeper_model::error_chain(&error).to_string();
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
                is_sure: false,
                selection: Selection::default(),
            }]
        };
        self.kinds.entry(kind).or_insert_with(found);
    }

    fn parents(&mut self, kind: &GroupKind, owners: &[KindOwner], parents: &[Object]) {
        let standings: Vec<ParentConditions> = parents.iter().map(ParentConditions::of).collect();
        let is_kind_of_parents = standings.iter().any(|standing| standing.synced.is_some());
        if !owners.iter().any(|owner| owner.is_sure) && !is_kind_of_parents {
            return;
        }
        for (parent, standing) in parents.iter().zip(&standings) {
            self.parent(kind, owners, parent, standing);
        }
    }

    /// Counts a parent for the first plugin that may select it, or else for the first candidate.
    fn parent(
        &mut self,
        kind: &GroupKind,
        owners: &[KindOwner],
        parent: &Object,
        standing: &ParentConditions,
    ) {
        let selects = |owner: &KindOwner| owner.selects(parent, &self.namespaces);
        let owner = owners.iter().find(|owner| selects(owner) != Some(false));
        let Some(owner) = owner.or_else(|| owners.first()) else {
            return;
        };
        let row = parent_row(kind, owner, parent, standing);
        let is_selected = selects(owner).unwrap_or(row.reason != reason::NOT_SELECTED);
        // A plugin without a Plugin resource was given to a host as a file, and only that host knows its state.
        let plugin = self
            .plugins
            .entry(owner.plugin.clone())
            .or_insert_with(|| PluginRow {
                name: owner.plugin.clone(),
                ..PluginRow::default()
            });
        if !is_selected {
            return;
        }
        plugin.parents += 1;
        if row.is_ready() {
            plugin.ready += 1;
        } else {
            self.parents.push(row);
        }
    }

    fn into_survey(self, from: String) -> Survey {
        let Self {
            plugins,
            kinds: _,
            namespaces: _,
            mut parents,
            mut faults,
        } = self;
        parents.sort();
        faults.sort_by(|a, b| b.time.cmp(&a.time));
        Survey {
            from,
            host: None,
            plugins: plugins.into_values().collect(),
            parents,
            parents_omitted: 0,
            faults,
        }
    }
}

fn parent_row(
    kind: &GroupKind,
    owner: &KindOwner,
    parent: &Object,
    standing: &ParentConditions,
) -> ParentRow {
    let shown = |status: Option<&str>| status.unwrap_or_default().to_owned();
    let why = standing.why().cloned().unwrap_or_default();
    ParentRow {
        plugin: owner.plugin.clone(),
        kind: kind.to_string(),
        namespace: parent.namespace.as_deref().map(str::to_owned),
        name: parent.name.to_string(),
        ready: shown(standing.ready_status()),
        synced: shown(standing.synced_status()),
        reason: why.reason,
        message: why.message,
        last_pass: None,
    }
}

fn fault_row(plugin: &str, fault: FaultReason) -> FaultRow {
    let FaultReason {
        reason,
        message,
        parent,
        time,
    } = fault;
    let kind = GroupKind::new(parent.group, parent.kind);
    let place = parent.namespace.map(|namespace| format!("{namespace}/"));
    FaultRow {
        plugin: plugin.to_owned(),
        parent: format!("{kind} {}{}", place.unwrap_or_default(), parent.name),
        reason,
        message,
        time: time.0.to_string(),
    }
}
