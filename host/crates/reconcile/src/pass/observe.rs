//! Observe: everything that the cache holds of a parent, under the revision that is active now.

use std::{ops::ControlFlow, sync::Arc};

use innkeeper_apply::Execution;
use innkeeper_cluster::{self as cluster, Observation, Registration};
use innkeeper_model::{Access, Gvk, HashKey, Object, ObjectId, Operation};

use super::{
    apply::{Applied, Error},
    plan::Planned,
    state::{Pass, Step},
};
use crate::{context::Context, epoch::Epoch, selection::may_be_told, stop::Stop};

/// The number of plans of one pass: the second one follows if objects exist that the cache did not show.
const PLANS_MAX: u32 = 2;

/// A pass that has observed its parent.
pub(crate) struct Observed {
    pub(crate) observation: Observation,
}

impl<'a> Pass<'a, Observed> {
    /// Begins a pass of the active revision.
    pub(crate) async fn observe(context: &'a Context, id: &'a ObjectId) -> Step<'a, Self> {
        let registration = &context.registration;
        let (epoch, observed) = loop {
            let epoch = context.active.current();
            let observed = registration.observe(id).await;
            // A swap in between may have changed the watched kinds: then this is not the view of the new revision.
            if context.active.is_current(&epoch) {
                break (epoch, observed);
            }
        };
        let pass = Pass::of(context, registration, epoch, id).observed(observed)?;
        if let Some(change) = pass.epoch.begin_pass() {
            context.metrics.took_over(change.elapsed());
        }
        pass.epoch.begin_analysis(|| registration.parents());
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
            return Err(pass.stop(|()| None, Stop::Behind { until: None }));
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
                Err(self.stop(|()| None, Stop::Behind { until: Some(until) }))
            }
            cluster::Observed::NotReady { parent, waiting } => {
                let (context, epoch) = (self.context, &self.epoch);
                let parent = parent.filter(|parent| {
                    may_be_told(&context.plugin, &epoch.serving, self.registration, parent)
                });
                Err(self.stop(|()| parent, Stop::NotCached(waiting)))
            }
        }
    }
}

impl<'a> Pass<'a, Applied> {
    /// Plans again if creates failed because their objects exist: their owners are read first.
    pub(crate) async fn observe_again(mut self) -> ControlFlow<Self, Pass<'a, Planned>> {
        let Ok(execution) = &self.state.result else {
            return ControlFlow::Break(self);
        };
        let conflicts: Vec<ObjectId> = execution.conflicts().cloned().collect();
        if conflicts.is_empty() || self.state.planned.round == PLANS_MAX {
            return ControlFlow::Break(self);
        }
        let planned = &mut self.state.planned;
        fold(&mut planned.observed, execution, &planned.entered.hash_key);
        for id in conflicts {
            let kind = planned
                .plan
                .operations
                .iter()
                .find(|operation| operation.child() == Some(&id))
                .and_then(Operation::kind);
            let Some(kind) = kind else { continue };
            match live(self.context, kind, &id).await {
                Ok(Some(object)) => replace(&mut planned.observed, object),
                Ok(None) => {}
                Err(error) => {
                    self.state.result = Err(error);
                    return ControlFlow::Break(self);
                }
            }
        }
        ControlFlow::Continue(self.advance(|applied| applied.planned).replan())
    }
}

/// Reads an object from the API server.
pub(super) async fn live(
    context: &Context,
    kind: &Gvk,
    id: &ObjectId,
) -> Result<Option<Object>, Error> {
    let cluster = &context.shared.cluster;
    cluster
        .live_get(kind, id.namespace.as_deref(), &id.name)
        .await
        .map_err(|source| Error::Read {
            id: id.clone(),
            source,
        })
}

/// Adds the objects that this pass has written to the observed ones.
fn fold(observed: &mut Vec<Object>, execution: &Execution, hash_key: &HashKey) {
    for (operation, result) in &execution.results {
        let (Some(kind), Ok(Some(written))) = (operation.kind(), result) else {
            continue;
        };
        let shown = serde_json::from_str(&written.json)
            .ok()
            .and_then(|object| cluster::present(&object, kind, Access::Full, hash_key).ok());
        if let Some(object) = shown {
            replace(observed, object);
        }
    }
}

fn replace(observed: &mut Vec<Object>, object: Object) {
    let id = object.id();
    observed.retain(|other| other.id() != id);
    observed.push(object);
}
