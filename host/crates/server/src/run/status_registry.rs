//! A running host's state for observers: `dev` and [`admin`](crate::admin).
//!
//! It exists before the host, because the admin server answers while the host starts. Only `is_active` is read for a
//! decision: an active plugin's passes handle its finalizers.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use innkeeper_cluster::{Cluster, Reviewer, WatchStatus};
use innkeeper_metrics::{ControllerMetrics, Metrics};
use innkeeper_model::{PluginName, ShardSet};
use innkeeper_plugin_controller::{CandidatePlans, DefinitionCheck, PluginControllers};
use innkeeper_reconcile::{Reconciler, Shared, controller::LoopTelemetry};
use parking_lot::{Mutex, RwLock};

use super::process::Process;
use crate::{
    admin::{Heartbeat, Heartbeats},
    args::AdminArgs,
};

/// The maximum silence: far longer than any step between two heartbeats in a healthy host.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// The part of the host that has started.
#[derive(Clone, Default)]
enum Phase {
    /// The API server is not known yet.
    #[default]
    Connecting,
    /// The cache runs, and the plugins are loading.
    Loading(Connection),
    /// The host waits for the lease with loaded plugins and running watches.
    StandingBy(Connection),
    /// The plugins have tasks.
    Serving(Connection, Arc<Shared>),
}

/// The host's access to the API server.
#[derive(Clone)]
struct Connection {
    cluster: Cluster,
    /// None without `--admin-tls`.
    reviewer: Option<Arc<Reviewer>>,
}

/// A running host's state for observers.
#[derive(Default)]
pub struct StatusRegistry {
    phase: RwLock<Phase>,
    active: RwLock<Vec<Arc<PluginControllers>>>,
    controllers: RwLock<Vec<ControllerMetrics>>,
    /// The number of plugin files that failed at least once and are not active.
    inactive: AtomicUsize,
    /// The number of loaded plugin files before their first installation; none before they are loaded.
    pending_files: Mutex<Option<usize>>,
    /// Problems with plugin files' CRDs.
    definition_problems: Mutex<BTreeMap<PluginName, String>>,
    /// The shards whose parents this host serves.
    held_shards: Mutex<ShardSet>,
    /// The check of the Plugin CRD.
    pub(super) definition: Arc<DefinitionCheck>,
    /// Candidates' plans; none without `--debug-endpoints`.
    pub(super) plans: Option<Arc<CandidatePlans>>,
    /// All metrics.
    pub(super) metrics: Arc<Metrics>,
    /// All heartbeats.
    pub(super) heartbeats: Heartbeats,
    /// Resource usage.
    pub(super) process: Process,
}

impl StatusRegistry {
    /// Creates the state that these endpoints show.
    pub(super) fn for_admin(args: &AdminArgs) -> Self {
        Self {
            // Without the endpoint nobody reads plans, which take memory.
            plans: args.debug.then(Arc::default),
            ..Self::default()
        }
    }

    /// The context that all plugins share; none before this process may write.
    pub fn shared(&self) -> Option<Arc<Shared>> {
        match &*self.phase.read() {
            Phase::Serving(_, shared) => Some(Arc::clone(shared)),
            _ => None,
        }
    }

    fn connection(&self) -> Option<Connection> {
        match &*self.phase.read() {
            Phase::Connecting => None,
            Phase::Loading(connection)
            | Phase::StandingBy(connection)
            | Phase::Serving(connection, _) => Some(connection.clone()),
        }
    }

    /// The state of every watch; empty before the host has begun to read.
    pub(super) fn watches(&self) -> Vec<WatchStatus> {
        self.connection()
            .map(|connection| connection.cluster.watches())
            .unwrap_or_default()
    }

    /// The reviewer of callers of the admin server; none before the host has found the API server.
    pub(super) fn reviewer(&self) -> Option<Arc<Reviewer>> {
        self.connection()?.reviewer
    }

    /// Returns whether the API server selects objects by shard; none without shards, or before its first answer.
    pub(super) fn shard_selection(&self) -> Option<bool> {
        self.connection()?.cluster.shard_selection()
    }

    /// The shards whose parents this host serves.
    pub(super) fn held_shards(&self) -> ShardSet {
        self.held_shards.lock().clone()
    }

    /// Records the shards whose parents this host serves.
    pub(super) fn set_held_shards(&self, held: ShardSet) {
        *self.held_shards.lock() = held;
    }

    /// The active plugins.
    pub fn active(&self) -> Vec<Arc<PluginControllers>> {
        self.active.read().clone()
    }

    /// Returns true if the plugin is active: its passes run or may start.
    pub(super) fn is_active(&self, name: &PluginName) -> bool {
        self.active.read().iter().any(|served| served.name == *name)
    }

    /// Returns true once the first installation of every plugin file has ended, or while the host stands by.
    pub fn is_started(&self) -> bool {
        self.stands_by() || *self.pending_files.lock() == Some(0)
    }

    /// The number of plugin files that are not active.
    pub fn inactive_count(&self) -> usize {
        self.inactive.load(Ordering::Relaxed)
    }

    /// Returns true while the host waits for the lease.
    pub(super) fn stands_by(&self) -> bool {
        matches!(*self.phase.read(), Phase::StandingBy(_))
    }

    /// Records the start of the cache.
    pub(super) fn connected(&self, cluster: Cluster, reviewer: Option<Arc<Reviewer>>) {
        *self.phase.write() = Phase::Loading(Connection { cluster, reviewer });
    }

    /// Records the start or the end of standby.
    pub(super) fn standing_by(&self, stands_by: bool) {
        let phase = if stands_by {
            Phase::StandingBy
        } else {
            Phase::Loading
        };
        if let Some(connection) = self.connection() {
            *self.phase.write() = phase(connection);
        }
    }

    /// Records that the host serves `loaded` of `files`.
    pub(super) fn serving(&self, files: usize, loaded: usize, shared: &Arc<Shared>) {
        self.expect_files(files, loaded);
        if let Some(connection) = self.connection() {
            *self.phase.write() = Phase::Serving(connection, Arc::clone(shared));
        }
    }

    fn expect_files(&self, files: usize, loaded: usize) {
        self.inactive.store(files - loaded, Ordering::Relaxed);
        *self.pending_files.lock() = Some(loaded);
    }

    /// Records the result of the first installation of a plugin file.
    pub(super) fn file_done(&self, is_active: bool) {
        if !is_active {
            self.inactive.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(pending) = self.pending_files.lock().as_mut() {
            *pending -= 1;
        }
    }

    /// Records that a plugin file has become active after a failed installation.
    pub(super) fn file_recovered(&self) {
        self.inactive.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds an active plugin.
    pub(super) fn add(&self, served: &Arc<PluginControllers>) {
        self.active.write().push(Arc::clone(served));
    }

    /// Removes a plugin that is no longer active.
    pub(super) fn remove(&self, served: &Arc<PluginControllers>) {
        self.active
            .write()
            .retain(|active| !Arc::ptr_eq(active, served));
    }

    /// Records why a plugin file's CRDs are not as the plugin states them; none if they are.
    pub(super) fn report_definitions(&self, plugin: &PluginName, problem: Option<String>) {
        let mut problems = self.definition_problems.lock();
        match problem {
            Some(problem) => problems.insert(plugin.clone(), problem),
            None => problems.remove(plugin),
        };
    }

    /// Returns why a plugin file's CRDs are not as the plugin states them; none if they are.
    pub(super) fn definition_problem(&self, plugin: &PluginName) -> Option<String> {
        self.definition_problems.lock().get(plugin).cloned()
    }

    /// Metrics of all controllers since the start, one entry per name.
    pub(super) fn controllers(&self) -> Vec<ControllerMetrics> {
        self.controllers.read().clone()
    }

    /// Expects heartbeats from now on, until the returned value is dropped.
    pub(super) fn expect_heartbeat(&self, name: impl Into<String>) -> Heartbeat {
        self.heartbeats.expect(name, SILENCE_MAX)
    }

    /// Observes a controller, which runs at most `passes_max` concurrent passes.
    pub(super) fn observe(&self, reconciler: &Reconciler, passes_max: usize) -> LoopTelemetry {
        let kind = reconciler.parent().kind.to_lowercase();
        self.observe_named(&format!("{}/{kind}", reconciler.plugin()), passes_max)
    }

    /// Observes the controller with this name, like [`Self::observe`].
    pub(super) fn observe_named(&self, name: &str, passes_max: usize) -> LoopTelemetry {
        let metrics = self.metrics.controller(name, passes_max);
        {
            // Shows a restarted controller once.
            let mut controllers = self.controllers.write();
            controllers.retain(|controller| controller.name() != name);
            controllers.push(metrics.clone());
        }
        let heartbeat = self.expect_heartbeat(format!("controller/{name}"));
        LoopTelemetry {
            metrics,
            heartbeat: Box::new(move || heartbeat.send()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_started_once_every_plugin_file_is_done() {
        let status = StatusRegistry::default();
        assert!(!status.is_started());
        // One file could not be loaded.
        status.expect_files(3, 2);
        let plugin = PluginControllers {
            name: PluginName::new("other").unwrap(),
            reconcilers: Vec::new(),
        };
        status.add(&Arc::new(plugin));
        status.file_done(true);
        assert!(!status.is_started());
        status.file_done(false);
        assert!(status.is_started());
        assert_eq!(status.inactive_count(), 2);
        status.file_recovered();
        assert_eq!(status.inactive_count(), 1);
    }

    /// O2: a scrape with a duplicate series is invalid.
    #[test]
    fn a_restarted_controller_is_shown_once() {
        let status = StatusRegistry::default();
        for name in ["web/web", "innkeeper/plugin", "web/web"] {
            status.observe_named(name, 1);
        }
        let shown = status.controllers();
        let names: Vec<&str> = shown.iter().map(ControllerMetrics::name).collect();
        assert_eq!(names, ["innkeeper/plugin", "web/web"]);
    }
}
