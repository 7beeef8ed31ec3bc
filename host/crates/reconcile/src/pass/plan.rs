//! Plan: computes the operations that turn the observed children into the accepted answer.

use std::borrow::Cow;

use innkeeper_apply::Target;
use innkeeper_cluster::Observation;
use innkeeper_model::{Object, Outcome};
use innkeeper_plan::{self as plan, Plan};
use innkeeper_policy::Checked;

use super::{context::Pass, enter::Entered};

/// A plan with the values that it follows from. `apply` takes one by value, and only `plan` and `replan` make one.
pub(crate) struct Planned<'a> {
    pub(crate) parent: &'a Object,
    pub(super) entered: &'a Entered,
    pub(super) outcome: &'a Checked<Outcome>,
    /// The children as observed, with the writes of this pass.
    pub(super) children: Cow<'a, [Object]>,
    pub(crate) plan: Plan,
    /// True if an earlier plan of the round changed children.
    pub(super) has_written: bool,
    /// The parent as the last write left it.
    pub(super) target: Target,
}

/// Plans the accepted answer.
pub(crate) fn plan<'a>(
    pass: &Pass<'_>,
    observed: &'a Observation,
    entered: &'a Entered,
    outcome: &'a Checked<Outcome>,
) -> Planned<'a> {
    let mut planned = Planned {
        parent: &observed.parent,
        entered,
        outcome,
        children: Cow::Borrowed(&observed.children),
        plan: Plan::default(),
        has_written: false,
        target: pass.context.target(&observed.parent),
    };
    planned.plan = operations(pass, &planned);
    planned
}

/// Computes the plan for the children as they are known now.
pub(super) fn operations(pass: &Pass<'_>, planned: &Planned<'_>) -> Plan {
    let Planned {
        parent,
        entered,
        outcome,
        children,
        ..
    } = planned;
    // `Keep` leaves the finalizer, too.
    if let Outcome::Keep(_) = &***outcome {
        return Plan::default();
    }
    let revision = &pass.epoch.revision;
    let context = plan::Context {
        plugin: &pass.context.plugin,
        manager: &entered.manager,
        manifest: revision.plugin.manifest(),
        hash_key: &entered.hash_key,
        parent,
        phase: entered.phase,
        namespace_terminating: entered.namespace_terminating,
        resources: &pass.context.shared.cluster,
        unreadable: &entered.unreadable,
        grants: &revision.grants,
    };
    plan::plan(&context, children, outcome)
}
