//! Observe: everything that the cache holds of a parent, under the revision that is active now.

use std::sync::Arc;

use innkeeper_cluster::{self as cluster, Observation, Registration, Running};
use innkeeper_model::{Object, ObjectId};
use innkeeper_plan::{self as plan, PassEntry};
use tokio::time::Instant;

use super::state::{Pass, Step, Stopped};
use crate::{
    pass::context::Context, pass::selection::may_be_told, pass::skip::Stop, revision::epoch::Epoch,
};

/// A pass that has observed its parent.
pub(crate) struct Observed {
    pub(crate) observation: Observation,
}

impl<'a> Pass<'a, Observed> {
    /// Begins a pass of the active revision.
    pub(crate) async fn observe(
        context: &'a Context,
        running: &Running,
        id: &'a ObjectId,
    ) -> Step<'a, Self> {
        let registration = &context.registration;
        let (epoch, observed) = loop {
            let epoch = context.active.current();
            let observed = running.observe().await;
            // A swap in between may have changed the watched kinds: then this is not the view of the new revision.
            if context.active.is_current(&epoch) {
                break (epoch, observed);
            }
        };
        let pass = Pass::of(context, registration, epoch, id).observed(observed)?;
        if let Some(change) = pass.epoch.take_change() {
            context.metrics.took_over(change.elapsed());
        }
        let revision = pass.epoch.serving.plugin.revision();
        pass.epoch
            .begin_analysis(|| context.analysed_parents(revision));
        Ok(pass)
    }

    /// Begins a pass of a candidate revision, which has its own registration.
    pub(crate) async fn observe_as(
        context: &'a Context,
        registration: &'a Registration,
        epoch: Arc<Epoch>,
        id: &'a ObjectId,
    ) -> Step<'a, Self> {
        let pass = Pass::of(context, registration, epoch, id);
        // Children that the cache does not show yet would seem to be missing.
        if context.registration.is_behind(id) {
            let until = Instant::now();
            return Err(pass.stop(|()| None, Stop::Behind { until }));
        }
        pass.observed(registration.observe(id).await)
    }
}

impl<'a> Pass<'a, ()> {
    fn of(
        context: &'a Context,
        registration: &'a Registration,
        epoch: Arc<Epoch>,
        id: &'a ObjectId,
    ) -> Self {
        Self {
            context,
            registration,
            epoch,
            id,
            state: (),
        }
    }

    fn observed(self, observed: cluster::Observed) -> Step<'a, Pass<'a, Observed>> {
        match observed {
            cluster::Observed::Ready(observation) => {
                Ok(self.advance(|()| Observed { observation }))
            }
            cluster::Observed::Gone => Err(self.stop(|()| None, Stop::Gone)),
            cluster::Observed::Behind { until } => {
                Err(self.stop(|()| None, Stop::Behind { until }))
            }
            cluster::Observed::NotReady { parent, waiting } => {
                Err(self.stop_unobserved(parent, Stop::NotCached(waiting)))
            }
            cluster::Observed::NamespaceFull { parent, full } => {
                Err(self.stop_unobserved(Some(parent), Stop::CacheFull(full)))
            }
        }
    }

    /// Ends a pass whose parent may not have been selected yet.
    fn stop_unobserved(self, parent: Option<Object>, stop: Stop) -> Box<Pass<'a, Stopped>> {
        let (context, epoch) = (self.context, &self.epoch);
        // A release needs nothing but the parent.
        let manifest = epoch.serving.plugin.manifest();
        let is_released =
            |parent: &Object| plan::enter(parent, &context.plugin, manifest) == PassEntry::Release;
        if parent.as_ref().is_some_and(is_released) {
            return self.stop(|()| parent, Stop::Released);
        }
        let host_namespaces = &*context.shared.host_namespaces;
        let parent = parent.filter(|parent| {
            let (plugin, serving) = (&context.plugin, &epoch.serving);
            may_be_told(plugin, serving, host_namespaces, self.registration, parent)
        });
        self.stop(|()| parent, stop)
    }
}
