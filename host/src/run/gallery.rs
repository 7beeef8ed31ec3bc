//! The state of a running host for its observers: `dev` and the endpoints of [`admin`](crate::admin).
//!
//! It is filled while the host starts. The only decision that reads it is `serves`: the finalizers of an active plugin
//! are left to its own passes.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use innkeeper_cluster::Cluster;
use innkeeper_metrics::{ControllerMetrics, Metrics};
use innkeeper_model::PluginName;
use innkeeper_plugin_controller::Served;
use innkeeper_reconcile::{Reconciler, Shared, controller::Witness};
use parking_lot::RwLock;

use crate::admin::{Beat, Heart};

/// The longest silence of a heartbeat that still counts as alive.
/// Far longer than any step between two heartbeats takes in a healthy host.
const BEAT_PATIENCE: Duration = Duration::from_secs(15);

/// The state of a running host for its observers.
#[derive(Default)]
pub struct Gallery {
    shared: OnceLock<Arc<Shared>>,
    cluster: OnceLock<Cluster>,
    serving: RwLock<Vec<Arc<Served>>>,
    controllers: RwLock<Vec<ControllerMetrics>>,
    /// The number of plugins from files that were tried and are not active.
    left_out: AtomicUsize,
    /// The number of plugins from files; none before they are loaded.
    given: OnceLock<usize>,
    /// The host waits for the lease with loaded plugins and running watches.
    stands_by: AtomicBool,
    metrics: Arc<Metrics>,
    heart: Heart,
}

impl Gallery {
    /// The context that all plugins share; none before the API server has answered and this process may write.
    pub fn shared(&self) -> Option<&Arc<Shared>> {
        self.shared.get()
    }

    /// The active plugins.
    pub fn serving(&self) -> Vec<Arc<Served>> {
        self.serving.read().clone()
    }

    /// Returns true if the plugin is active: its passes run or may begin.
    pub(super) fn serves(&self, name: &PluginName) -> bool {
        self.serving
            .read()
            .iter()
            .any(|served| served.name == *name)
    }

    /// Returns true once every plugin from a file was tried, or while the host stands by.
    pub fn is_started(&self) -> bool {
        let settled = self.serving.read().len() + self.left_out();
        self.stands_by() || self.given.get().is_some_and(|given| settled >= *given)
    }

    /// The number of plugins that were tried and are not active.
    pub fn left_out(&self) -> usize {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Returns true while the host waits for the lease with loaded plugins and running watches.
    pub(super) fn stands_by(&self) -> bool {
        self.stands_by.load(Ordering::Relaxed)
    }

    pub(super) fn stand_by(&self, stands_by: bool) {
        self.stands_by.store(stands_by, Ordering::Relaxed);
    }

    /// The cache; none before the host has begun to read.
    pub(super) fn cluster(&self) -> Option<&Cluster> {
        self.cluster.get()
    }

    pub(super) fn reads(&self, cluster: &Cluster) {
        // `start` is the only caller, so the cell is empty here.
        self.cluster.get_or_init(|| cluster.clone());
    }

    /// Records that `loaded` of `given` plugins were loaded, and shows the shared context.
    pub(super) fn begin(&self, given: usize, loaded: usize, shared: &Arc<Shared>) {
        self.left_out.store(given - loaded, Ordering::Relaxed);
        self.given.get_or_init(|| given);
        self.shared.get_or_init(|| Arc::clone(shared));
    }

    /// Adds an active plugin.
    pub(super) fn serve(&self, served: &Arc<Served>) {
        self.serving.write().push(Arc::clone(served));
    }

    /// Removes a plugin that is no longer active.
    pub(super) fn hide(&self, served: &Arc<Served>) {
        let mut serving = self.serving.write();
        serving.retain(|shown| !Arc::ptr_eq(shown, served));
    }

    /// Counts a plugin that was tried and is not active.
    pub(super) fn leave_out(&self) {
        self.left_out.fetch_add(1, Ordering::Relaxed);
    }

    /// Discounts a plugin that has become active after a failed attempt.
    pub(super) fn take_in(&self) {
        self.left_out.fetch_sub(1, Ordering::Relaxed);
    }

    /// The metrics of the process.
    pub(super) const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The heartbeats of the process.
    pub(super) const fn heart(&self) -> &Heart {
        &self.heart
    }

    /// The metrics of all controllers since the start, one entry per controller name.
    pub(super) fn controllers(&self) -> Vec<ControllerMetrics> {
        self.controllers.read().clone()
    }

    /// Expects heartbeats from now on, until the returned value is dropped.
    pub(super) fn expect(&self, name: impl Into<String>) -> Beat {
        self.heart.expect(name, BEAT_PATIENCE)
    }

    /// Observes a controller from now on; it runs at most `passes_max` passes concurrently.
    pub(super) fn witness(&self, reconciler: &Reconciler, passes_max: usize) -> Witness {
        let kind = reconciler.parent().kind.to_lowercase();
        self.witness_of(&format!("{}/{kind}", reconciler.plugin()), passes_max)
    }

    /// Observes the controller of this name, as [`Self::witness`] does.
    pub(super) fn witness_of(&self, name: &str, passes_max: usize) -> Witness {
        let metrics = self.metrics.controller(name, passes_max);
        {
            // A controller that was stopped and restarted is shown once.
            let mut controllers = self.controllers.write();
            controllers.retain(|shown| shown.name() != name);
            controllers.push(metrics.clone());
        }
        let beat = self.expect(format!("controller/{name}"));
        Witness {
            metrics,
            beat: Box::new(move || beat.beat()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O2: a scrape with a duplicate series is invalid.
    #[test]
    fn o2_a_controller_that_begins_again_is_shown_once() {
        let gallery = Gallery::default();
        for name in ["web/web", "innkeeper/plugin", "web/web"] {
            gallery.witness_of(name, 1);
        }
        let shown = gallery.controllers();
        let names: Vec<&str> = shown.iter().map(ControllerMetrics::name).collect();
        assert_eq!(names, ["innkeeper/plugin", "web/web"]);
    }
}
