//! Again: the step from an applied plan back to the next plan of the same pass.

use std::ops::ControlFlow;

use innkeeper_apply::Execution;
use innkeeper_cluster as cluster;
use innkeeper_model::{Access, HashKey, Object, ObjectId, Operation};

use super::{
    apply::{Applied, live},
    plan::Planned,
    state::Pass,
};

/// The number of plans of one round: the second one follows if objects exist that the cache did not show.
const PLANS_MAX: u32 = 2;

impl<'a> Pass<'a, Applied> {
    /// Plans again if creates failed because their objects exist: their owners are read first.
    pub(crate) async fn plan_again(mut self) -> ControlFlow<Self, Pass<'a, Planned>> {
        let Ok(execution) = &self.state.result else {
            return ControlFlow::Break(self);
        };
        let conflicts: Vec<ObjectId> = execution.conflicts().cloned().collect();
        if conflicts.is_empty() || self.state.planned.plans == PLANS_MAX {
            return ControlFlow::Break(self);
        }
        let planned = &mut self.state.planned;
        planned.wrote |= execution.changed_children();
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
