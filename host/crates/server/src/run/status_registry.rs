//! The state of a running host for its observers: `dev` and the endpoints of [`admin`](crate::admin).
//!
//! It is filled while the host starts. The only decision that reads it is `is_active`: the finalizers of an active
//! plugin are left to its own passes.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use innkeeper_cluster::{Cluster, Reviewer};
use innkeeper_metrics::{ControllerMetrics, Metrics};
use innkeeper_model::PluginName;
use innkeeper_plugin_controller::{CandidatePlans, DefinitionCheck, Served};
use innkeeper_reconcile::{Reconciler, Shared, controller::LoopTelemetry};
use opentelemetry_sdk::trace::SdkTracer;
use parking_lot::{Mutex, RwLock};

use super::process::Process;
use crate::admin::{Heartbeat, Heartbeats};

/// The longest silence of a heartbeat that still counts as alive.
/// Far longer than any step between two heartbeats takes in a healthy host.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// The state of a running host for its observers.
#[derive(Default)]
pub struct StatusRegistry {
    shared: OnceLock<Arc<Shared>>,
    /// The cache; none before the host has begun to read.
    pub(super) cluster: OnceLock<Cluster>,
    /// The reviewer of callers of the admin server; none before the host has found the API server.
    pub(super) reviewer: OnceLock<Arc<Reviewer>>,
    /// The maker of the traces of passes; none if the host sends none.
    pub(super) tracer: OnceLock<SdkTracer>,
    active: RwLock<Vec<Arc<Served>>>,
    controllers: RwLock<Vec<ControllerMetrics>>,
    /// The number of plugins from files that were tried and are not active.
    inactive: AtomicUsize,
    /// The number of plugins from files that are still to be tried; none before they are loaded.
    untried: OnceLock<AtomicUsize>,
    /// The problems of the definitions of plugins from files.
    definition_problems: Mutex<BTreeMap<PluginName, String>>,
    /// True while the host waits for the lease with loaded plugins and running watches.
    stands_by: AtomicBool,
    /// The check of the definition of Plugin resources.
    pub(super) definition: Arc<DefinitionCheck>,
    /// The plans of candidates; none if the admin server shows none.
    pub(super) plans: OnceLock<Arc<CandidatePlans>>,
    /// The metrics of the process.
    pub(super) metrics: Arc<Metrics>,
    /// The heartbeats of the process.
    pub(super) heartbeats: Heartbeats,
    /// The use of the system by the process.
    pub(super) process: Process,
}

impl StatusRegistry {
    /// The context that all plugins share; none before the API server has answered and this process may write.
    pub fn shared(&self) -> Option<&Arc<Shared>> {
        self.shared.get()
    }

    /// The active plugins.
    pub fn active(&self) -> Vec<Arc<Served>> {
        self.active.read().clone()
    }

    /// Returns true if the plugin is active: its passes run or may begin.
    pub(super) fn is_active(&self, name: &PluginName) -> bool {
        self.active.read().iter().any(|served| served.name == *name)
    }

    /// Returns true once every plugin from a file was tried, or while the host stands by.
    pub fn is_started(&self) -> bool {
        let untried = self.untried.get();
        self.stands_by() || untried.is_some_and(|untried| untried.load(Ordering::Relaxed) == 0)
    }

    /// The number of plugins from files that were tried and are not active.
    pub fn inactive_count(&self) -> usize {
        self.inactive.load(Ordering::Relaxed)
    }

    /// Returns true while the host waits for the lease.
    pub(super) fn stands_by(&self) -> bool {
        self.stands_by.load(Ordering::Relaxed)
    }

    /// Records the begin and the end of standby.
    pub(super) fn stand_by(&self, stands_by: bool) {
        self.stands_by.store(stands_by, Ordering::Relaxed);
    }

    /// Records that `loaded` of `given` plugins were loaded, and shows the shared context.
    pub(super) fn begin(&self, given: usize, loaded: usize, shared: &Arc<Shared>) {
        self.shared.get_or_init(|| Arc::clone(shared));
        self.expect_tries(given, loaded);
    }

    fn expect_tries(&self, given: usize, loaded: usize) {
        self.inactive.store(given - loaded, Ordering::Relaxed);
        self.untried.get_or_init(|| loaded.into());
    }

    /// Records the first outcome for a loaded plugin from a file.
    pub(super) fn note_tried(&self) {
        if let Some(untried) = self.untried.get() {
            untried.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Adds an active plugin.
    pub(super) fn add(&self, served: &Arc<Served>) {
        self.active.write().push(Arc::clone(served));
    }

    /// Removes a plugin that is no longer active.
    pub(super) fn remove(&self, served: &Arc<Served>) {
        let mut active = self.active.write();
        active.retain(|known| !Arc::ptr_eq(known, served));
    }

    /// Counts a plugin from a file that was tried and is not active.
    pub(super) fn count_inactive(&self) {
        self.inactive.fetch_add(1, Ordering::Relaxed);
    }

    /// Discounts a plugin that has become active after a failed attempt.
    pub(super) fn uncount_inactive(&self) {
        self.inactive.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records what keeps the definitions of a plugin from a file from being as it states them; none if they are.
    pub(super) fn report_definitions(&self, plugin: &PluginName, problem: Option<String>) {
        let mut problems = self.definition_problems.lock();
        match problem {
            Some(problem) => problems.insert(plugin.clone(), problem),
            None => problems.remove(plugin),
        };
    }

    /// Returns what keeps the definitions of a plugin from a file from being as it states them; none if they are.
    pub(super) fn definition_problem(&self, plugin: &PluginName) -> Option<String> {
        self.definition_problems.lock().get(plugin).cloned()
    }

    /// The metrics of all controllers since the start, one entry per controller name.
    pub(super) fn controllers(&self) -> Vec<ControllerMetrics> {
        self.controllers.read().clone()
    }

    /// Expects heartbeats from now on, until the returned value is dropped.
    pub(super) fn expect_heartbeat(&self, name: impl Into<String>) -> Heartbeat {
        self.heartbeats.expect(name, SILENCE_MAX)
    }

    /// Observes a controller from now on; it runs at most `passes_max` passes concurrently.
    pub(super) fn observe(&self, reconciler: &Reconciler, passes_max: usize) -> LoopTelemetry {
        let kind = reconciler.parent().kind.to_lowercase();
        self.observe_named(&format!("{}/{kind}", reconciler.plugin()), passes_max)
    }

    /// Observes the controller of this name, as [`Self::observe`] does.
    pub(super) fn observe_named(&self, name: &str, passes_max: usize) -> LoopTelemetry {
        let metrics = self.metrics.controller(name, passes_max);
        {
            // A controller that was stopped and restarted is shown once.
            let mut controllers = self.controllers.write();
            controllers.retain(|shown| shown.name() != name);
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
    fn a_host_has_started_once_all_plugins_from_files_were_tried() {
        let status = StatusRegistry::default();
        assert!(!status.is_started());
        // One file could not be loaded.
        status.expect_tries(3, 2);
        let of_resource = Served {
            name: PluginName::new("other").unwrap(),
            reconcilers: Vec::new(),
        };
        status.add(&Arc::new(of_resource));
        status.note_tried();
        assert!(!status.is_started());
        status.note_tried();
        assert!(status.is_started());
    }

    /// O2: a scrape with a duplicate series is invalid.
    #[test]
    fn a_controller_that_begins_again_is_shown_once() {
        let status = StatusRegistry::default();
        for name in ["web/web", "innkeeper/plugin", "web/web"] {
            status.observe_named(name, 1);
        }
        let shown = status.controllers();
        let names: Vec<&str> = shown.iter().map(ControllerMetrics::name).collect();
        assert_eq!(names, ["innkeeper/plugin", "web/web"]);
    }
}
