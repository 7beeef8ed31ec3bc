//! Throttle: leaves the operations in a plan that quotas and rate limits allow now.

use std::collections::BTreeSet;

use innkeeper_model::{
    GroupKind, Limits, Manifest, Object, ObjectId, Operation, Outcome, Resources as _,
};
use innkeeper_plan::Plan;
use tokio::time::Instant;

use super::{
    context::{Context, Pass},
    plan::Planned,
};
use crate::limits::{
    budget::{Allowance, namespace_rate},
    exceeded::LimitExceeded,
    first_writes::ParentLimits,
    quota::{ChildUsage, Quota},
    throttled::{Permit, Throttled},
};

/// Removes the operations from `plan` that have to wait, and returns why.
pub(super) fn throttle(
    pass: &Pass<'_>,
    planned: &Planned<'_>,
    plan: &mut Plan,
) -> Option<Throttled> {
    // The only write for any other answer removes the finalizer.
    let Outcome::Desired(_) = &**planned.outcome else {
        return None;
    };
    let context = pass.context;
    // Limits apply at once, also to a pass that began under others.
    let epoch = context.slot.current();
    let nested = nested_kinds(context, planned.parent, epoch.revision.plugin.manifest());
    let quota = Quota {
        plugin: &context.plugin,
        limits: &epoch.revision.limits,
        observed: &planned.children,
        nested: &nested,
    };
    let registration = &context.registration;
    let over_quota = quota.throttle(plan, |namespace| ChildUsage {
        all: registration.child_usage(namespace, |_| true),
        nested: registration
            .child_usage(namespace, |kind| nested.contains(kind))
            .objects,
    });
    // Quota and round come before the rate limits, which charge for every operation that is still in the plan.
    let rest = Throttled::by_round(plan);
    let permit = permit_operations(context, planned.parent, &plan.operations);
    let over_rate = Throttled::by_permit(permit, plan, &planned.children);
    Throttled::merge(over_quota, over_rate.or(rest))
}

/// Returns the kinds of children that are parents and could multiply. Parents of other plugins do so only in a ring, in
/// which a plugin has made this parent as well.
fn nested_kinds(context: &Context, parent: &Object, manifest: &Manifest) -> BTreeSet<GroupKind> {
    let mut nested = manifest.parent_kinds();
    if parent.depth() > 0 {
        nested.extend(
            manifest
                .children
                .iter()
                .map(|child| child.kind.group_kind())
                .filter(|kind| context.shared.cluster.has_parents(kind)),
        );
    }
    nested
}

/// Takes up to `count` status writes from the limits of a parent and its namespace.
pub(super) fn permit_status(context: &Context, parent: &ObjectId, count: usize) -> Permit {
    permit(context, parent, count, |own, count, limits, now| {
        own.take(count, limits, now)
    })
}

/// Takes the first operations of a plan from the limits, up to the first one that has to wait.
fn permit_operations(context: &Context, parent: &Object, operations: &[Operation]) -> Permit {
    let epoch = context.slot.current();
    let cause = (parent.generation, epoch.revision.plugin.revision().clone());
    let mut by_first_writes = false;
    let count = operations.len();
    let mut permit = permit(context, &parent.id(), count, |own, count, limits, now| {
        let operations = operations.get(..count).unwrap_or(operations);
        let (allowance, by_firsts) = own.take_operations(operations, &cause, limits, now);
        by_first_writes = by_firsts;
        allowance
    });
    if by_first_writes && let Some((_, exceeded)) = &mut permit.wait {
        *exceeded = LimitExceeded::first_writes(&epoch.revision.limits);
    }
    permit
}

fn permit(
    context: &Context,
    parent: &ObjectId,
    count: usize,
    from_own: impl FnOnce(&mut ParentLimits, usize, &Limits, Instant) -> Allowance,
) -> Permit {
    let epoch = context.slot.current();
    let limits = &epoch.revision.limits;
    let now = Instant::now();
    let place = (&context.plugin, parent.namespace.as_deref());
    let budgets = &context.shared.namespace_budgets;
    let (allowance, by_namespace) =
        budgets.take(place, namespace_rate(limits), count, now, |count| {
            let mut ledger = context.ledger.lock();
            from_own(ledger.limits(parent), count, limits, now)
        });
    Permit {
        writes: allowance.writes,
        wait: allowance.wait.map(|wait| {
            let exceeded = if by_namespace {
                LimitExceeded::namespace_writes(place, limits)
            } else {
                LimitExceeded::parent_writes(limits)
            };
            (wait, exceeded)
        }),
    }
}
