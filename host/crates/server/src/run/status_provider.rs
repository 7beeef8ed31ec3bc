//! A running host's answers for [`admin`](crate::admin).

use std::{sync::Arc, time::Duration};

use innkeeper_cluster::{Cause, ParentConditions, Reviewer, Waiting, WatchStatus, Why};
use innkeeper_command::LogControl;
use innkeeper_metrics::{ControllerMetrics, PluginSample, Sample, SampleSource, WatchSample};
use innkeeper_model::{Gvk, ObjectId, error_chain};
use innkeeper_plugin_controller::PluginControllers;
use innkeeper_reconcile::{Next, RecentFault, Reconciler, Wanted};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, interval},
};
use tracing::error;

use super::StatusRegistry;
use crate::admin::{
    Check, Heartbeat, OrderRefusal, RecordingOrder, RecordingTarget, StatusProvider,
};

/// The runtime's heartbeat interval.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of unready parents per kind in `/debug/state`.
const PARENTS_MAX: usize = 500;

/// The outcome when a pass waits for the cache.
const PARKED: &str = Next::AwaitCache(Duration::ZERO).word();

/// Shows the running host.
pub(super) struct RunningHost {
    status: Arc<StatusRegistry>,
    log: LogControl,
}

impl RunningHost {
    pub(super) fn new(status: Arc<StatusRegistry>, log: LogControl) -> Self {
        status.metrics.add_source(status.clone());
        Self { status, log }
    }
}

/// Sends heartbeats while the runtime runs tasks.
pub(super) async fn send_heartbeats(heartbeat: Heartbeat) -> std::convert::Infallible {
    let mut ticks = interval(HEARTBEAT_INTERVAL);
    loop {
        ticks.tick().await;
        heartbeat.send();
    }
}

impl StatusProvider for RunningHost {
    fn alive(&self) -> Vec<Check> {
        self.status.heartbeats.checks()
    }

    fn ready(&self) -> Vec<Check> {
        let started = Check {
            name: "start".to_owned(),
            problem: (!self.status.is_started()).then(|| {
                "the API server has not answered yet, or plugins are still loading".to_owned()
            }),
        };
        // On standby no plugin is active, so one check covers all watches. An active host has one check per plugin.
        let standby = self.status.stands_by().then(|| Check {
            name: "standby".to_owned(),
            problem: still_warming(&self.status.watches()),
        });
        let definition = self.status.definition.problem().map(|problem| Check {
            name: "plugin-resources".to_owned(),
            problem: Some(problem),
        });
        let active = self.status.active();
        let plugins = active.iter().map(|plugin| Check {
            name: format!("plugin/{}", plugin.name),
            problem: still_reading(plugin).or_else(|| self.status.definition_problem(&plugin.name)),
        });
        let rest = standby.into_iter().chain(definition).chain(plugins);
        std::iter::once(started).chain(rest).collect()
    }

    fn metrics(&self) -> String {
        if let Some(is_honoured) = self.status.shard_selection() {
            self.status.metrics.shard_selector_honoured(is_honoured);
        }
        self.status.metrics.encode().unwrap_or_else(|error| {
            error!(error = %error_chain(&error), "failed to encode the metrics");
            String::new()
        })
    }

    fn state(&self) -> Value {
        let plugins = self.status.active();
        let controllers = self.status.controllers();
        let watches = self.status.watches();
        json!({
            "started": self.status.is_started(),
            "standsBy": self.status.stands_by(),
            "shards": self.status.held_shards().iter().map(|shard| shard.index()).collect::<Vec<_>>(),
            "shardsSelectedByServer": self.status.shard_selection(),
            "pluginsNotServed": self.status.inactive_count(),
            "plugins": plugins.iter().map(|plugin| plugin_state(plugin)).collect::<Vec<_>>(),
            "controllers": controllers.iter().map(controller_state).collect::<Vec<_>>(),
            "watches": watches.iter().map(watch_state).collect::<Vec<_>>(),
        })
    }

    fn plan(&self, plugin: &str) -> Option<String> {
        self.status.plans.as_ref()?.json(plugin)
    }

    fn reviewer(&self) -> Option<Arc<Reviewer>> {
        self.status.reviewer()
    }

    fn log_filter(&self) -> String {
        self.log.filter()
    }

    fn set_log_filter(&self, filter: &str) -> Result<(), String> {
        self.log.set_filter(filter).map_err(|error| {
            format!("failed to parse the log filter \"{filter}\": {error}; write it as info,innkeeper=debug")
        })
    }

    fn record(&self, order: &RecordingOrder) -> Result<mpsc::Receiver<String>, OrderRefusal> {
        let active = self.status.active();
        let targets = targets(&active, &order.of);
        let Some(shared) = self.status.shared().filter(|_| !targets.is_empty()) else {
            return Err(OrderRefusal::Unknown(match &order.of {
                RecordingTarget::Parent(_) => "no active plugin reconciles this parent: GET /debug/state lists the active plugins".to_owned(),
                RecordingTarget::Faults { plugin } => format!("no plugin {plugin} is active: GET /debug/state lists the active plugins"),
            }));
        };
        let secret = targets
            .iter()
            .find(|(reconciler, _)| reconciler.revision().shows_secrets());
        if let Some((reconciler, _)) = secret {
            let plugin = reconciler.plugin();
            return Err(OrderRefusal::Refused(format!(
                "the host never records plugin {plugin}, because it may read Secret values: repeat its passes with innkeeper render"
            )));
        }
        let calls = targets.iter().map(|(reconciler, parent)| {
            let plugin = reconciler.plugin().clone();
            match parent {
                Some(parent) => Wanted::Parent(plugin, parent.clone()),
                None => Wanted::Faults(plugin),
            }
        });
        let number = usize::try_from(order.number).unwrap_or(usize::MAX);
        let until = Instant::now() + order.time();
        let from = shared
            .recordings
            .order(calls.collect(), number, until)
            .ok_or_else(|| {
                OrderRefusal::Refused(
                    "it has too many recording orders: end one of them".to_owned(),
                )
            })?;
        for (reconciler, parent) in targets {
            // An idle parent would have no pass before the next resync.
            reconciler.registration().trigger(parent, Cause::Resync);
        }
        Ok(from)
    }
}

/// Returns a target's reconcilers, with the parent if the target is one.
fn targets<'a>(
    active: &'a [Arc<PluginControllers>],
    of: &RecordingTarget,
) -> Vec<(&'a Reconciler, Option<ObjectId>)> {
    match of {
        // One reconciler stands for all kinds of a plugin.
        RecordingTarget::Faults { plugin } => active
            .iter()
            .filter(|served| served.name.as_str() == plugin)
            .filter_map(|served| Some((&**served.reconcilers.first()?, None)))
            .collect(),
        RecordingTarget::Parent(parent) => active
            .iter()
            .flat_map(|served| &served.reconcilers)
            .flat_map(|reconciler| {
                let mut parents = reconciler.registration().parents();
                parents.retain(|id| parent.matches(id));
                parents.into_iter().map(|id| (&**reconciler, Some(id)))
            })
            .collect(),
    }
}

/// Returns the temporary reasons why a plugin's passes do not run.
fn still_reading(plugin: &PluginControllers) -> Option<String> {
    let waiting = plugin
        .reconcilers
        .iter()
        .flat_map(|reconciler| reconciler.registration().waiting());
    temporary(waiting.map(|Waiting { kind, why, .. }| (kind, why)))
}

/// Returns the watches that a standby host waits for, except those that wait for the user.
fn still_warming(watches: &[WatchStatus]) -> Option<String> {
    let watches = watches.iter().filter(|watch| watch.is_awaited);
    temporary(watches.filter_map(|watch| Some((watch.kind.clone(), watch.why.clone()?))))
}

/// Returns the reasons that pass by themselves.
fn temporary(waiting: impl Iterator<Item = (Gvk, Why)>) -> Option<String> {
    let texts: Vec<String> = waiting
        // Lasting reasons, such as a missing permission, are conditions of the plugin's parents. They do not affect the
        // other plugins, so the host is ready.
        .filter(|(_, why)| !why.is_lasting())
        .map(|(kind, why)| format!("{kind} {why}"))
        .collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn plugin_state(plugin: &PluginControllers) -> Value {
    let kinds = plugin.reconcilers.iter();
    json!({
        "name": plugin.name.to_string(),
        "kinds": kinds.map(|reconciler| kind_state(reconciler)).collect::<Vec<_>>(),
        "lastFaults": plugin.recent_faults().iter().map(fault_state).collect::<Vec<_>>(),
    })
}

fn fault_state(fault: &RecentFault) -> Value {
    json!({
        "parent": fault.parent.to_string(),
        "reason": fault.reason,
        "message": fault.message,
        "time": fault.time.to_string(),
    })
}

fn kind_state(reconciler: &Reconciler) -> Value {
    let registration = reconciler.registration();
    let waiting = registration.waiting();
    let waiting_for = waiting
        .iter()
        .map(|waiting| format!("{} {}", waiting.kind, waiting.why));
    let mut selected = 0;
    let mut not_selected = 0;
    let mut parked = 0;
    let mut not_ready = Vec::new();
    for id in registration.parents() {
        let Some(parent) = registration.parent(&id) else {
            continue;
        };
        if reconciler.selects(&parent) == Some(false) {
            not_selected += 1;
            continue;
        }
        let last_pass = reconciler.last_pass(&id);
        let conditions = ParentConditions::new(&parent);
        selected += 1;
        parked += usize::from(last_pass.is_some_and(|(outcome, _)| outcome == PARKED));
        if !conditions.is_ready() {
            not_ready.push((id, conditions, last_pass));
        }
    }
    let ready = selected - not_ready.len();
    let omitted = not_ready.len().saturating_sub(PARENTS_MAX);
    not_ready.truncate(PARENTS_MAX);
    json!({
        "kind": reconciler.parent().to_string(),
        "revision": reconciler.revision().plugin.revision().to_string(),
        "passesSkipped": reconciler.passes_skipped(),
        "faults": reconciler.faults(),
        "parents": selected,
        "notSelected": not_selected,
        "ready": ready,
        "parked": parked,
        "waitingFor": waiting_for.collect::<Vec<_>>(),
        "notReady": not_ready.iter().map(parent_state).collect::<Vec<_>>(),
        "notReadyOmitted": omitted,
    })
}

/// A parent, its conditions, and its last pass's outcome and age.
type NotReady = (ObjectId, ParentConditions, Option<(&'static str, Duration)>);

fn parent_state((id, conditions, last_pass): &NotReady) -> Value {
    let why = conditions.why().cloned().unwrap_or_default();
    json!({
        "kind": id.kind.to_string(),
        "namespace": id.namespace.as_deref(),
        "name": id.name.to_string(),
        "ready": conditions.ready_status(),
        "synced": conditions.synced_status(),
        "reason": why.reason,
        "message": why.message,
        "lastPass": last_pass.map(|(outcome, age)| json!({
            "outcome": outcome,
            "secondsAgo": age.as_secs(),
        })),
    })
}

fn controller_state(controller: &ControllerMetrics) -> Value {
    let (_, longest) = controller.unfinished();
    json!({
        "name": controller.name(),
        "waiting": controller.waiting(),
        "running": controller.running(),
        "longestRunningPassSeconds": longest.as_secs_f64(),
    })
}

fn watch_state(watch: &WatchStatus) -> Value {
    json!({
        "kind": watch.kind.to_string(),
        "namespace": watch.namespace,
        "shards": watch.shards,
        "selector": watch.selector,
        "users": watch.users,
        "problem": watch.why.as_ref().map(ToString::to_string),
        "objects": watch.objects,
        "bytes": watch.bytes,
        "resourceVersion": watch.version.0,
        "secondsSinceLastEvent": watch.last_event.map(|at| at.elapsed().as_secs()),
        "lastError": watch.last_error,
        "lists": watch.lists,
    })
}

/// Metrics that are computed at each scrape.
impl SampleSource for StatusRegistry {
    fn sample(&self) -> Sample {
        let plugins = self.active();
        Sample {
            watches: self.watches().iter().map(watch_sample).collect(),
            plugins: plugins.iter().map(|plugin| plugin_sample(plugin)).collect(),
            left_out: self.inactive_count(),
            unfinished: self.controllers().iter().map(unfinished).collect(),
            process: self.process.sample(),
        }
    }
}

fn plugin_sample(plugin: &PluginControllers) -> PluginSample {
    let reconcilers = || plugin.reconcilers.iter();
    let waiting = reconcilers().map(|reconciler| reconciler.registration().waiting().len());
    // All parent kinds of a plugin share its limits.
    let first = reconcilers().next();
    PluginSample {
        plugin: plugin.name.to_string(),
        parents: reconcilers()
            .map(|reconciler| reconciler.parent_count())
            .sum(),
        waiting: waiting.sum(),
        full_namespaces: first.map_or(0, |reconciler| {
            reconciler.registration().full_namespaces().len()
        }),
        limits: first
            .map(|reconciler| reconciler.usage())
            .unwrap_or_default()
            .into_iter()
            .map(|usage| (usage.limit, usage.share.ratio()))
            .collect(),
    }
}

fn unfinished(controller: &ControllerMetrics) -> (String, Duration, Duration) {
    let (total, longest) = controller.unfinished();
    (controller.name().to_owned(), total, longest)
}

fn watch_sample(watch: &WatchStatus) -> WatchSample {
    WatchSample {
        group: watch.kind.group.to_string(),
        version: watch.kind.version.to_string(),
        kind: watch.kind.kind.to_string(),
        namespace: watch.namespace.clone().unwrap_or_default(),
        shards: watch.shards.clone().unwrap_or_default(),
        selector: watch.selector.clone().unwrap_or_default(),
        synced: watch.why.is_none(),
        objects: watch.objects,
        bytes: watch.bytes,
        lists: watch.lists,
        stale: watch
            .last_event
            .map(|at| Instant::now().saturating_duration_since(at)),
    }
}
