//! The answers of a running host to requests at [`admin`](crate::admin).

use std::{sync::Arc, time::Duration};

use innkeeper_cluster::{ParentConditions, Waiting, WatchStatus};
use innkeeper_metrics::{ControllerMetrics, PluginSample, Sample, SampleSource, WatchSample};
use innkeeper_model::{ObjectId, error_chain};
use innkeeper_plugin_controller::Served;
use innkeeper_reconcile::{Next, RecentFault, Reconciler};
use tokio::time::{Instant, interval};
use tracing::error;

use super::StatusRegistry;
use crate::{
    admin::{
        Check, ControllerState, FaultState, Heartbeat, HostState, KindState, ParentState,
        PassState, PluginState, StatusProvider, WatchState,
    },
    config::LogControl,
};

/// Interval of the runtime's heartbeat.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// The largest number of parents per kind that are listed as not Ready.
/// More than a person reads; it bounds the size of the answer.
const PARENTS_MAX: usize = 500;

/// The outcome of a pass that waits for the cache.
const PARKED: &str = Next::Parked(Duration::ZERO).word();

/// The running host as [`admin`](crate::admin) shows it.
pub(super) struct RunningHost {
    status: Arc<StatusRegistry>,
    log: LogControl,
}

impl RunningHost {
    pub(super) fn new(status: Arc<StatusRegistry>, log: LogControl) -> Self {
        let source = Arc::new(StatusMetrics(Arc::clone(&status)));
        status.metrics().add_source(source);
        Self { status, log }
    }

    fn watches(&self) -> Vec<WatchStatus> {
        watches(&self.status)
    }
}

/// Sends heartbeats as long as the runtime still runs tasks.
pub(super) async fn send_heartbeats(heartbeat: Heartbeat) -> std::convert::Infallible {
    let mut ticks = interval(HEARTBEAT_INTERVAL);
    loop {
        ticks.tick().await;
        heartbeat.send();
    }
}

impl StatusProvider for RunningHost {
    fn alive(&self) -> Vec<Check> {
        self.status.heartbeats().checks()
    }

    fn ready(&self) -> Vec<Check> {
        let started = Check {
            name: "start".to_owned(),
            problem: (!self.status.is_started()).then(|| {
                "the API server has not answered yet, or plugins are still loading".to_owned()
            }),
        };
        // On standby, one check covers all watches, because no plugin is active. An active host has a check per plugin.
        let standby = self.status.stands_by().then(|| Check {
            name: "standby".to_owned(),
            problem: still_warming(&self.watches()),
        });
        let active = self.status.active();
        let plugins = active.iter().map(|plugin| Check {
            name: format!("plugin/{}", plugin.name),
            problem: still_reading(plugin),
        });
        let rest = standby.into_iter().chain(plugins);
        std::iter::once(started).chain(rest).collect()
    }

    fn metrics(&self) -> String {
        self.status.metrics().encode().unwrap_or_else(|error| {
            error!(error = %error_chain(&error), "failed to encode the metrics");
            String::new()
        })
    }

    fn state(&self) -> HostState {
        let active = self.status.active();
        let controllers = self.status.controllers();
        HostState {
            started: self.status.is_started(),
            stands_by: self.status.stands_by(),
            plugins_not_served: self.status.inactive_count(),
            plugins: active.iter().map(|plugin| plugin_state(plugin)).collect(),
            controllers: controllers.iter().map(controller_state).collect(),
            watches: self.watches().iter().map(watch_state).collect(),
        }
    }

    fn log_filter(&self) -> String {
        self.log.filter()
    }

    fn set_log_filter(&self, filter: &str) -> Result<(), String> {
        self.log.set_filter(filter).map_err(|error| {
            format!("failed to parse the log filter \"{filter}\": {error}; write it as info,innkeeper=debug")
        })
    }
}

/// Returns the temporary reasons for which a plugin's passes do not run.
/// A lasting reason, such as a missing permission, is reported as a condition of that plugin's parents.
/// It does not make the host unready, because the other plugins are not affected.
fn still_reading(plugin: &Served) -> Option<String> {
    let waiting = plugin
        .reconcilers
        .iter()
        .flat_map(|reconciler| reconciler.registration().waiting());
    let texts: Vec<String> = waiting
        .filter(|waiting| !waiting.why.is_lasting())
        .map(|waiting| text(&waiting))
        .collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Returns the watches that a standby host still waits for, without those that wait for a change by the user.
fn still_warming(watches: &[WatchStatus]) -> Option<String> {
    let texts: Vec<String> = watches
        .iter()
        .filter_map(|watch| Some((&watch.kind, watch.why.as_ref()?)))
        .filter(|(_, why)| !why.is_lasting())
        .map(|(kind, why)| format!("{kind} {why}"))
        .collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Returns the state of every watch; empty before the host has begun to read.
fn watches(status: &StatusRegistry) -> Vec<WatchStatus> {
    let cluster = status.cluster();
    cluster
        .map(|cluster| cluster.status().watches)
        .unwrap_or_default()
}

fn text(waiting: &Waiting) -> String {
    format!("{} {}", waiting.kind, waiting.why)
}

fn plugin_state(plugin: &Served) -> PluginState {
    let faults = plugin.recent_faults();
    PluginState {
        name: plugin.name.to_string(),
        kinds: plugin
            .reconcilers
            .iter()
            .map(|reconciler| kind_state(reconciler))
            .collect(),
        last_faults: faults.into_iter().map(fault_state).collect(),
    }
}

fn fault_state(fault: RecentFault) -> FaultState {
    let RecentFault {
        parent,
        reason,
        message,
        time,
    } = fault;
    FaultState {
        parent: parent.to_string(),
        reason,
        message,
        time: time.to_string(),
    }
}

fn kind_state(reconciler: &Reconciler) -> KindState {
    let registration = reconciler.registration();
    let ids = registration.parents();
    let mut state = KindState {
        kind: reconciler.parent().to_string(),
        revision: reconciler.serving().plugin.revision().to_string(),
        passes_skipped: reconciler.passes_skipped(),
        faults: reconciler.faults(),
        waiting_for: registration.waiting().iter().map(text).collect(),
        ..KindState::default()
    };
    for id in ids {
        let Some(parent) = registration.parent(&id) else {
            continue;
        };
        if reconciler.selects(&parent) == Some(false) {
            state.not_selected += 1;
            continue;
        }
        let last = reconciler.last_pass(&id);
        let standing = ParentConditions::of(&parent);
        state.parents += 1;
        state.ready += usize::from(standing.is_ready());
        state.parked += usize::from(last.is_some_and(|(outcome, _)| outcome == PARKED));
        if standing.is_ready() {
            continue;
        }
        if state.not_ready.len() < PARENTS_MAX {
            state.not_ready.push(parent_state(&id, &standing, last));
        } else {
            state.not_ready_omitted += 1;
        }
    }
    state
}

fn parent_state(
    id: &ObjectId,
    standing: &ParentConditions,
    last: Option<(&'static str, Duration)>,
) -> ParentState {
    let shown = |status: Option<&str>| status.unwrap_or_default().to_owned();
    let why = standing.why().cloned().unwrap_or_default();
    ParentState {
        kind: id.kind.to_string(),
        namespace: id.namespace.as_deref().map(str::to_owned),
        name: id.name.to_string(),
        ready: shown(standing.ready_status()),
        synced: shown(standing.synced_status()),
        reason: why.reason,
        message: why.message,
        last_pass: last.map(|(outcome, ago)| PassState {
            outcome: outcome.to_owned(),
            seconds_ago: ago.as_secs(),
        }),
    }
}

fn controller_state(controller: &ControllerMetrics) -> ControllerState {
    let (_, longest) = controller.unfinished();
    ControllerState {
        name: controller.name().to_owned(),
        waiting: controller.waiting(),
        running: controller.running(),
        longest_running_pass_seconds: longest.as_secs_f64(),
    }
}

fn watch_state(watch: &WatchStatus) -> WatchState {
    WatchState {
        kind: watch.kind.to_string(),
        namespace: watch.namespace.clone(),
        selector: watch.selector.clone(),
        users: watch.users,
        problem: watch.why.as_ref().map(ToString::to_string),
        objects: watch.objects,
        bytes: watch.bytes,
        resource_version: watch.version.0,
        seconds_since_last_event: watch.last_event.map(|at| at.elapsed().as_secs()),
        last_error: watch.last_error.clone(),
        lists: watch.lists,
    }
}

/// The metrics that are computed at each scrape.
struct StatusMetrics(Arc<StatusRegistry>);

impl SampleSource for StatusMetrics {
    fn sample(&self) -> Sample {
        let plugins = self.0.active();
        Sample {
            watches: watches(&self.0).iter().map(watch_sample).collect(),
            plugins: plugins
                .iter()
                .map(|plugin| PluginSample {
                    plugin: plugin.name.to_string(),
                    serving: true,
                    parents: plugin
                        .reconcilers
                        .iter()
                        .map(|reconciler| reconciler.parent_count())
                        .sum(),
                    waiting: plugin
                        .reconcilers
                        .iter()
                        .map(|reconciler| reconciler.registration().waiting().len())
                        .sum(),
                    limits: limits(plugin),
                })
                .collect(),
            left_out: self.0.inactive_count(),
            unfinished: self.0.controllers().iter().map(unfinished).collect(),
        }
    }
}

/// All kinds of parents of a plugin share its limits.
fn limits(plugin: &Served) -> Vec<(&'static str, f64)> {
    let usage = plugin
        .reconcilers
        .first()
        .map(|reconciler| reconciler.usage());
    let usage = usage.unwrap_or_default().into_iter();
    usage.map(|it| (it.limit, it.share.ratio())).collect()
}

fn unfinished(controller: &ControllerMetrics) -> (String, Duration, Duration) {
    let (together, longest) = controller.unfinished();
    (controller.name().to_owned(), together, longest)
}

fn watch_sample(watch: &WatchStatus) -> WatchSample {
    WatchSample {
        group: watch.kind.group.to_string(),
        version: watch.kind.version.to_string(),
        kind: watch.kind.kind.to_string(),
        namespace: watch.namespace.clone().unwrap_or_default(),
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
