//! The command `status`: the conditions of Plugins and parents, and the leases of hosts, as tables or JSON.

use std::{
    collections::BTreeSet,
    io::{IsTerminal, stdout},
    time::Duration,
};

use innkeeper_cluster::{self as cluster, ParentConditions, Viewer};
use innkeeper_command::{Exit, Failure, OrFail as _, Output, ResultFormat, Streams, runtime};
use innkeeper_lease::{LABEL_LEASE, Lease, LeaseRecord};
use innkeeper_model::{
    Expression, GroupKind, LABEL_PLUGIN, Object, Selector, error_chain, kind_of_crd, reason,
};
use innkeeper_plugin_controller::resource::{self, Plugin};
use innkeeper_server::{ConnectionArgs, client_config};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio::time::sleep;

use crate::{config::StatusArgs, table::table};
use shards::{Leases, Role, ShardRow, shard_table};

/// The time limit of a request. A busy API server lists thousands of parents within seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a renewal may take, even after a lost request: twice the default of `--lease-retry`.
const RENEWED_WITHIN: Duration = Duration::from_secs(4);

const REQUEST: &str = "failed to ask the cluster";

const SELECTED_BY_HOST: &str = "The API server sends each host all objects, and the host drops those in other shards: \
    Kubernetes with the feature gate ShardedListAndWatch sends fewer.";

/// The message for conditions that describe an earlier generation.
const OUTDATED: &str = "no host has observed this generation yet";

/// The state of plugins and parents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    /// The cluster's address.
    cluster: String,
    /// Missing and expired leases.
    problems: Vec<String>,
    /// The shards of hosts that share parents.
    shards: Vec<ShardRow>,
    /// Whether the API server sends a host only the objects in its shards; none if that is unknown, or without shards.
    shards_selected_by_server: Option<bool>,
    plugins: Vec<PluginRow>,
    /// The parents that are not Ready.
    parents: Vec<ParentRow>,
}

/// A Plugin resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct PluginRow {
    name: String,
    /// The status of the condition Serving.
    serving: String,
    /// The reason and message of the condition Ready; empty if it is True.
    reason: String,
    message: String,
    parents: i32,
    /// The number of parents that are Synced and Ready.
    ready: i32,
    faults: i64,
    revision: String,
}

/// A parent that is not Ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct ParentRow {
    kind: String,
    namespace: Option<String>,
    name: String,
    /// The statuses of the conditions Ready and Synced.
    ready: String,
    synced: String,
    /// The reason and message of the condition that is not True.
    reason: String,
    message: String,
}

impl PluginRow {
    fn new(object: &Object) -> Self {
        let unknown = |message: String| Self {
            name: object.name.to_string(),
            serving: "Unknown".to_owned(),
            message,
            ..Self::default()
        };
        let plugin = match Plugin::read(&object.json) {
            Ok(plugin) => plugin,
            Err(error) => return unknown(error_chain(&error).to_string()),
        };
        let status = plugin.status.unwrap_or_default();
        if status.observed_generation != object.generation {
            return unknown(OUTDATED.to_owned());
        }
        let condition = |kind| status.conditions.iter().find(|found| found.type_ == kind);
        let not_ready = condition("Ready").filter(|ready| ready.status != "True");
        let parents = status.parents.unwrap_or_default();
        Self {
            name: object.name.to_string(),
            serving: condition("Serving")
                .map_or_else(|| "Unknown".to_owned(), |serving| serving.status.clone()),
            reason: not_ready
                .map(|ready| ready.reason.clone())
                .unwrap_or_default(),
            message: not_ready
                .map(|ready| ready.message.clone())
                .unwrap_or_default(),
            parents: parents.total,
            ready: parents.ready,
            faults: status.faults.unwrap_or_default().count,
            revision: status.revision.unwrap_or_default(),
        }
    }

    fn is_well(&self) -> bool {
        self.serving == "True" && self.reason.is_empty() && self.ready == self.parents
    }
}

impl ParentRow {
    /// Returns none for a parent that is Ready or not selected, or that no host has reported on: it may belong to none.
    fn new(parent: &Object) -> Option<Self> {
        let conditions = ParentConditions::new(parent);
        let why = conditions.why().cloned().unwrap_or_default();
        if conditions.is_ready() || why.reason == reason::NOT_SELECTED || !has_report(parent) {
            return None;
        }
        let is_outdated = conditions.synced.is_none();
        let status = |status: Option<&str>| status.unwrap_or("Unknown").to_owned();
        Some(Self {
            kind: parent.id().kind.to_string(),
            namespace: parent.namespace.as_deref().map(str::to_owned),
            name: parent.name.to_string(),
            ready: status(conditions.ready_status()),
            synced: status(conditions.synced_status()),
            reason: why.reason,
            message: if is_outdated {
                OUTDATED.to_owned()
            } else {
                why.message
            },
        })
    }
}

/// Returns true if a host has reported on any generation of the parent.
fn has_report(parent: &Object) -> bool {
    let json: Value = serde_json::from_str(&parent.json).unwrap_or_default();
    json["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == reason::SYNCED)
}

impl Status {
    /// Reads the cluster.
    async fn read(connection: &ConnectionArgs) -> Result<Self, Failure> {
        let (cluster, client) = client(connection, REQUEST_TIMEOUT).await?;
        let viewer = Viewer::open(client, REQUEST_TIMEOUT)
            .await
            .or_fail(Exit::Failure, REQUEST)?;
        // A user who may not list leases sees the rest.
        let leases = leases(&viewer).await.ok();
        let shards = leases.as_ref().map(shards::rows).unwrap_or_default();
        let problems = match &leases {
            Some(leases) => lease_problems(&viewer, leases, &shards).await,
            None => Vec::new(),
        };
        let shards_selected_by_server = match shards::count(&shards) {
            // A user who may not list leases sees the rest.
            Some(count) => viewer.selects_shards(count).await.ok().flatten(),
            None => None,
        };
        let all = Selector::default();
        let plugins = list(&viewer, &GroupKind::new(resource::GROUP, "Plugin"), &all).await?;
        let mut parents = Vec::new();
        for kind in parent_kinds(&viewer, &plugins).await? {
            let objects = list(&viewer, &kind, &all).await?;
            parents.extend(objects.iter().filter_map(ParentRow::new));
        }
        parents.sort();
        let mut plugins: Vec<_> = plugins.iter().map(PluginRow::new).collect();
        plugins.sort();
        Ok(Self {
            cluster,
            problems,
            shards,
            shards_selected_by_server,
            plugins,
            parents,
        })
    }

    fn exit(&self) -> Exit {
        let is_well = self.problems.is_empty()
            && self.parents.is_empty()
            && self.plugins.iter().all(PluginRow::is_well);
        if is_well {
            Exit::Success
        } else {
            Exit::Finding
        }
    }

    fn text(&self) -> Output {
        let mut out = Output::from_line(format!("cluster {}", self.cluster));
        for problem in &self.problems {
            out.line(format!("Problem: {problem}"));
        }
        if !self.shards.is_empty() {
            out.line("");
            out.append(&shard_table(&self.shards));
            match self.shards_selected_by_server {
                Some(true) => {
                    out.line("The API server sends each host only the objects in its shards.")
                }
                Some(false) => out.line(SELECTED_BY_HOST),
                None => {}
            }
        }
        out.line("");
        if self.plugins.is_empty() {
            out.line("There are no Plugins.");
        } else {
            out.append(&self.plugin_table());
        }
        out.line("");
        match self.parents.len() {
            0 => out.line("No parent is unready."),
            1 => out.line("1 parent is not Ready:"),
            many => out.line(format!("{many} parents are not Ready:")),
        }
        if !self.parents.is_empty() {
            out.append(&self.parent_table());
        }
        out
    }

    fn plugin_table(&self) -> Output {
        let rows = self.plugins.iter().map(|plugin| {
            [
                plugin.name.clone(),
                plugin.serving.clone(),
                plugin.parents.to_string(),
                plugin.ready.to_string(),
                plugin.faults.to_string(),
                plugin.revision.clone(),
                why(&plugin.reason, &plugin.message),
            ]
        });
        let headings = [
            "PLUGIN", "SERVING", "PARENTS", "READY", "FAULTS", "REVISION", "WHY",
        ];
        table(headings, rows)
    }

    fn parent_table(&self) -> Output {
        let rows = self.parents.iter().map(|parent| {
            let name = match &parent.namespace {
                Some(namespace) => format!("{namespace}/{}", parent.name),
                None => parent.name.clone(),
            };
            [
                format!("{} {name}", parent.kind),
                parent.ready.clone(),
                parent.synced.clone(),
                why(&parent.reason, &parent.message),
            ]
        });
        table(["PARENT", "READY", "SYNCED", "WHY"], rows)
    }
}

fn why(reason: &str, message: &str) -> String {
    match (reason, message) {
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

/// Shows the conditions of Plugins and parents, once or until stopped.
pub fn show(args: &StatusArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    runtime::block_on(async {
        // A failure of the first request ends the command; later failures are reported and retried.
        let status = Status::read(&args.connection).await?;
        if args.watch {
            return watch(args, status, streams).await;
        }
        let output = match args.output {
            ResultFormat::Text => status.text(),
            ResultFormat::Json => Output::json(&status)?,
        };
        streams.print(&output)?;
        Ok(status.exit())
    })
}

/// Shows every change. Only a failure to write ends it.
async fn watch(
    args: &StatusArgs,
    mut status: Status,
    streams: &mut Streams<'_>,
) -> Result<Exit, Failure> {
    let mut last = None;
    loop {
        if last.as_ref() != Some(&status) {
            let mut output = Output::default();
            match args.output {
                ResultFormat::Json => output.append(&Output::json_line(&status)?),
                ResultFormat::Text => {
                    if stdout().is_terminal() {
                        output.erase_screen();
                    } else if last.is_some() {
                        output.line("");
                    }
                    output.append(&status.text());
                }
            }
            streams.print(&output)?;
            last = Some(status.clone());
        }
        sleep(args.interval).await;
        match Status::read(&args.connection).await {
            Ok(next) => status = next,
            Err(error) => streams.report(&error),
        }
    }
}

/// Returns a cluster's address, and a client for a user who waits at the terminal.
pub(crate) async fn client(
    connection: &ConnectionArgs,
    timeout: Duration,
) -> Result<(String, kube::Client), Failure> {
    let mut client = client_config(connection)
        .await
        .or_fail(Exit::Usage, "failed to find the cluster")?;
    client.config.connect_timeout = Some(timeout);
    let address = client.config.cluster_url.to_string();
    Ok((address, client.builder()?.build()))
}

/// Returns the kinds that Plugins' grants name as parents, and those of CustomResourceDefinitions that plugin files
/// installed.
async fn parent_kinds(viewer: &Viewer, plugins: &[Object]) -> Result<BTreeSet<GroupKind>, Failure> {
    let mut kinds = BTreeSet::new();
    for plugin in plugins
        .iter()
        // The table of Plugins shows those that do not parse.
        .filter_map(|object| Plugin::read(&object.json).ok())
    {
        let granted = plugin
            .spec
            .grants
            .into_iter()
            .flat_map(|grants| grants.parents);
        kinds.extend(granted.map(|parent| GroupKind::new(&*parent.group, &*parent.kind)));
    }
    let definition = GroupKind::new("apiextensions.k8s.io", "CustomResourceDefinition");
    let labelled = Expression::Exists(LABEL_PLUGIN.to_owned()).into();
    for object in list(viewer, &definition, &labelled).await? {
        let crd = serde_json::from_str(&object.json).ok();
        kinds.extend(crd.as_ref().and_then(kind_of_crd));
    }
    Ok(kinds)
}

/// Returns the problems of the hosts with a lease. A host without one leaves no trace in the cluster.
async fn lease_problems(viewer: &Viewer, all: &Leases, shards: &[ShardRow]) -> Vec<String> {
    if all.is_empty() {
        let (key, value) = LABEL_LEASE;
        return vec![format!(
            "no host runs: no Lease has the label {key}={value}; install a host, or check the process of one that runs without a lease"
        )];
    }
    let time = Timestamp::now();
    let expired: Vec<_> = all
        .iter()
        .filter_map(|(name, lease)| {
            let duty = match shards::role(all, name) {
                Role::Host => "no host runs".to_owned(),
                Role::Shard(shard) => format!("no host serves shard {shard}"),
                Role::Asking | Role::Outdated => return None,
            };
            let cause = expired(name, &lease.record, time)?;
            Some((name, lease.version, format!("{duty}: {cause}")))
        })
        .collect();
    let mut problems: Vec<String> = shards::missing(all, shards).collect();
    if expired.is_empty() {
        return problems;
    }
    // Clocks differ: a lease has expired only if nobody renews it.
    sleep(RENEWED_WITHIN).await;
    // Without a second answer nothing is certain, so nothing is reported.
    let later = leases(viewer).await.unwrap_or_default();
    let still_expired = expired.into_iter().filter(|(name, version, _)| {
        later
            .get(*name)
            .is_some_and(|lease| lease.version == *version)
    });
    problems.extend(still_expired.map(|(_, _, problem)| problem));
    problems
}

/// Returns the leases of all hosts by `namespace/name`.
async fn leases(viewer: &Viewer) -> Result<Leases, cluster::Error> {
    let leases = viewer.leases().await?;
    let by_name = leases.iter().map(|lease| {
        let namespace = lease.namespace.as_deref().unwrap_or_default();
        (format!("{namespace}/{}", lease.name), Lease::from(lease))
    });
    Ok(by_name.collect())
}

/// Returns why the lease has no holder, as far as the times tell; none if it has one.
pub(crate) fn expired(name: &str, lease: &LeaseRecord, now: Timestamp) -> Option<String> {
    let cause = if lease.holder.is_empty() {
        format!("the last one released the Lease {name}")
    } else if let Some(renewed) = lease.renewed {
        if now.duration_since(renewed).as_secs() <= i64::from(lease.duration_s) {
            return None;
        }
        format!(
            "{} renewed the Lease {name} last at {renewed}",
            lease.holder
        )
    } else {
        format!("the Lease {name} was never renewed")
    };
    Some(format!(
        "{cause}; check the Pods of the host, or delete the Lease if that host was removed"
    ))
}

/// Lists the objects of a kind; empty if the cluster does not serve it.
async fn list(
    viewer: &Viewer,
    kind: &GroupKind,
    selector: &Selector,
) -> Result<Vec<Object>, Failure> {
    match viewer.served(kind) {
        Some(served) => viewer
            .list(served, selector)
            .await
            .or_fail(Exit::Failure, REQUEST),
        None => Ok(Vec::new()),
    }
}

mod shards;
#[cfg(test)]
mod tests;
