//! What there is to see of a running host, for those who look on: `dev`, and whoever asks [`admin`](crate::admin).
//!
//! It is filled while the host starts, and decides nothing.

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

/// How long what has to move may be silent: far longer than anything that must not block it ever takes.
const BEAT_PATIENCE: Duration = Duration::from_secs(15);

/// What there is to see, for those who look on.
#[derive(Default)]
pub struct Gallery {
    shared: OnceLock<Arc<Shared>>,
    cluster: OnceLock<Cluster>,
    serving: RwLock<Vec<Arc<Served>>>,
    controllers: RwLock<Vec<ControllerMetrics>>,
    /// Plugins that are given up or will take long.
    left_out: AtomicUsize,
    /// How many plugins were given; none before they were loaded.
    given: OnceLock<usize>,
    /// Plugins are loaded and watches run, and another process writes.
    stands_by: AtomicBool,
    metrics: Arc<Metrics>,
    heart: Heart,
}

impl Gallery {
    /// What all plugins share; none before the API server has answered and this process may write.
    pub fn shared(&self) -> Option<&Arc<Shared>> {
        self.shared.get()
    }

    /// The plugins that serve now.
    pub fn serving(&self) -> Vec<Arc<Served>> {
        self.serving.read().clone()
    }

    /// Whether passes of a plugin run, or may begin.
    pub(super) fn serves(&self, name: &PluginName) -> bool {
        self.serving
            .read()
            .iter()
            .any(|served| served.name == *name)
    }

    /// Whether every plugin serves, or was tried and does not, or all of them wait for the lease.
    pub fn is_started(&self) -> bool {
        let settled = self.serving.read().len() + self.left_out();
        self.stands_by() || self.given.get().is_some_and(|given| settled >= *given)
    }

    /// How many plugins were tried and do not serve.
    pub fn left_out(&self) -> usize {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Whether this process waits for the lease, with plugins and watches.
    pub(super) fn stands_by(&self) -> bool {
        self.stands_by.load(Ordering::Relaxed)
    }

    pub(super) fn stand_by(&self, stands_by: bool) {
        self.stands_by.store(stands_by, Ordering::Relaxed);
    }

    /// What is read; none before the host has begun to.
    pub(super) fn cluster(&self) -> Option<&Cluster> {
        self.cluster.get()
    }

    pub(super) fn reads(&self, cluster: &Cluster) {
        // Nobody else sets it.
        self.cluster.get_or_init(|| cluster.clone());
    }

    /// Of so many plugins that were given so many could be loaded.
    pub(super) fn begin(&self, given: usize, loaded: usize, shared: &Arc<Shared>) {
        self.left_out.store(given - loaded, Ordering::Relaxed);
        self.given.get_or_init(|| given);
        self.shared.get_or_init(|| Arc::clone(shared));
    }

    /// One plugin more serves.
    pub(super) fn serve(&self, served: &Arc<Served>) {
        self.serving.write().push(Arc::clone(served));
    }

    /// One plugin does not serve any more.
    pub(super) fn hide(&self, served: &Arc<Served>) {
        let mut serving = self.serving.write();
        serving.retain(|shown| !Arc::ptr_eq(shown, served));
    }

    /// One plugin was tried and does not serve.
    pub(super) fn leave_out(&self) {
        self.left_out.fetch_add(1, Ordering::Relaxed);
    }

    /// One plugin serves that did not.
    pub(super) fn take_in(&self) {
        self.left_out.fetch_sub(1, Ordering::Relaxed);
    }

    /// What is counted.
    pub(super) const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// What has to move.
    pub(super) const fn heart(&self) -> &Heart {
        &self.heart
    }

    /// The controllers that there ever were, by the name that each is known by once.
    pub(super) fn controllers(&self) -> Vec<ControllerMetrics> {
        self.controllers.read().clone()
    }

    /// Expects signs of life from now on, as long as the beat is held.
    pub(super) fn expect(&self, name: impl Into<String>) -> Beat {
        self.heart.expect(name, BEAT_PATIENCE)
    }

    /// Looks at a controller from now on; its passes are at most so many at the same time.
    pub(super) fn witness(&self, reconciler: &Reconciler, passes_max: usize) -> Witness {
        let kind = reconciler.parent().kind.to_lowercase();
        self.witness_of(&format!("{}/{kind}", reconciler.plugin()), passes_max)
    }

    /// The same for a controller of this name.
    pub(super) fn witness_of(&self, name: &str, passes_max: usize) -> Witness {
        let metrics = self.metrics.controller(name, passes_max);
        {
            // One that was stopped and begins again is shown once.
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

    /// O2: a series that is shown twice makes what is scraped wrong.
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
