//! The writes that a parent may not make at the moment, because of a limit.

use std::time::Duration;

use innkeeper_model::{Condition, ConditionStatus, Object, Operation, reason};
use innkeeper_plan::{self as plan, Plan};

use crate::limits::exceeded::Bound;

/// The writes that a parent may make now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permit {
    pub(crate) writes: usize,
    /// The time until more writes are allowed, and the limit; none if all wanted writes are.
    pub(crate) held: Option<(Duration, Bound)>,
}

/// The most operations of one round. The others follow at once, after a condition that counts them: a round of more may
/// take so long that a user asks what happens.
const OPERATIONS_MAX: usize = 100;

/// Writes that have to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldBack {
    /// The time until the next write.
    pub(crate) wait: Duration,
    /// The reason of the condition `Synced`.
    reason: &'static str,
    /// It stays equal while the same writes wait; otherwise each pass would write the condition again.
    message: String,
}

impl HeldBack {
    /// Holds operations back; none: there are none.
    pub(crate) fn of_operations(
        (wait, bound): (Duration, Bound),
        rest: &[Operation],
        observed: &[Object],
    ) -> Option<Self> {
        let (first, others) = rest.split_first()?;
        let writes = match (described(first, observed), others.len()) {
            (first, 0) => first,
            (first, more) => format!("{first} and {more} more"),
        };
        Some(Self::by(wait, &bound, &writes))
    }

    /// Leaves the operations of one round in a plan; none: all of them.
    pub(crate) fn of_long_plan(plan: &mut Plan) -> Option<Self> {
        if plan.operations.len() <= OPERATIONS_MAX {
            return None;
        }
        let rest = plan.operations.split_off(OPERATIONS_MAX);
        let left = rest.len();
        let message = if matches!(rest.first(), Some(Operation::Prune { .. })) {
            format!("{left} children are left to be deleted")
        } else {
            let children = plan.children.len();
            format!("{children} children are being written, {left} left")
        };
        Some(Self {
            wait: Duration::ZERO,
            reason: reason::APPLYING,
            message,
        })
    }

    /// Leaves the granted operations in a plan; none: all of them.
    pub(crate) fn of_plan(permit: Permit, plan: &mut Plan, observed: &[Object]) -> Option<Self> {
        let held = permit.held?;
        let rest = plan.operations.split_off(permit.writes);
        Self::of_operations(held, &rest, observed)
    }

    /// Holds a status with the condition `synced` back; none: it may be written now.
    pub(crate) fn of_status(permit: Permit, synced: &Condition) -> Option<Self> {
        let (wait, bound) = permit.held?;
        let writes = if synced.status == ConditionStatus::True {
            "the status".to_owned()
        } else {
            format!("the status ({}: {})", synced.reason, synced.message)
        };
        Some(Self::by(wait, &bound, &writes))
    }

    fn by(wait: Duration, bound: &Bound, writes: &str) -> Self {
        let Bound {
            reason,
            because,
            remedy,
        } = bound;
        Self {
            wait,
            reason,
            message: format!("held back, because {because}: {writes}; {remedy}"),
        }
    }

    /// Merges two limits on one plan: the first one is told, and the earlier time counts.
    pub(crate) fn of_both(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(second)) => Some(Self {
                wait: first.wait.min(second.wait),
                ..first
            }),
            (first, second) => first.or(second),
        }
    }

    /// Returns the condition of the parent.
    pub(crate) fn synced(&self) -> Condition {
        plan::synced(ConditionStatus::False, self.reason, self.message.as_str())
    }
}

/// Describes an operation, with the field that differs if it can be found.
fn described(operation: &Operation, observed: &[Object]) -> String {
    let Operation::Update { id, body, .. } = operation else {
        return operation.to_string();
    };
    let object = observed.iter().find(|object| object.id() == *id);
    match object.and_then(|object| plan::first_difference(body, object)) {
        Some(field) => format!("{operation} ({field} differs)"),
        None => operation.to_string(),
    }
}
