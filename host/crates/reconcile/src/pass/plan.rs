//! Plan: the operations that bring the children to the accepted answer.

use std::mem;

use innkeeper_apply::Target;
use innkeeper_model::{Answer, Object, Outcome, ReadKey};
use innkeeper_plan::{self as plan, Plan};
use innkeeper_policy::Checked as Accepted;
use tracing::info;

use super::{check::Checked, enter::Entered, state::Pass};
use crate::memory::Inputs;

/// A pass with a plan that has not been applied.
pub(crate) struct Planned {
    /// The observation without its children, which are in `observed`.
    pub(crate) entered: Entered,
    pub(crate) outcome: Accepted<Outcome>,
    pub(super) reads: Option<Vec<(ReadKey, Answer)>>,
    pub(super) inputs: Option<Inputs>,
    /// The children as observed, and as this pass has changed them since.
    pub(crate) observed: Vec<Object>,
    pub(crate) plan: Plan,
    /// True if an earlier plan of the round changed children.
    pub(super) wrote: bool,
    /// The number of plans of the round so far.
    pub(super) plans: u32,
    /// The parent as the last write left it.
    pub(super) target: Target,
}

impl<'a> Pass<'a, Checked> {
    /// Plans the accepted answer.
    pub(crate) fn plan(self) -> Pass<'a, Planned> {
        let context = self.context;
        self.advance(|mut checked| Planned {
            target: context.target(&checked.entered.observation.parent),
            observed: mem::take(&mut checked.entered.observation.children),
            entered: checked.entered,
            outcome: checked.outcome,
            reads: checked.reads,
            inputs: checked.inputs,
            plan: Plan::default(),
            wrote: false,
            plans: 0,
        })
        .replan()
    }
}

impl Pass<'_, Planned> {
    /// Plans with the children as they are known now.
    pub(super) fn replan(mut self) -> Self {
        // `Keep` leaves the finalizer, too.
        let plan = match &*self.state.outcome {
            Outcome::Keep(_) => Plan::default(),
            outcome => plan::plan(&self.plan_context(), &self.state.observed, outcome),
        };
        self.state.plan = plan;
        self.state.plans += 1;
        self
    }

    /// Logs the operations of the plan before they are written.
    pub(super) fn log(&self) {
        let Planned { plan, plans, .. } = &self.state;
        if !plan.is_settled() {
            let plan = plan.to_string().trim_end().replace('\n', "; ");
            info!(plan, plans, "applying");
        }
    }

    pub(super) fn plan_context(&self) -> plan::Context<'_> {
        let serving = &self.epoch.serving;
        let Entered {
            observation,
            phase,
            namespace_terminating,
            hash_key,
            manager,
            unreadable,
            ..
        } = &self.state.entered;
        plan::Context {
            plugin: &self.context.plugin,
            manager,
            manifest: serving.plugin.manifest(),
            hash_key,
            parent: &observation.parent,
            phase: *phase,
            namespace_terminating: *namespace_terminating,
            resources: &self.context.shared.cluster,
            unreadable,
            grants: &serving.grants,
        }
    }
}
