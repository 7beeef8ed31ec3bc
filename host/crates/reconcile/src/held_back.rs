//! The writes that a parent may not make at the moment, because of a limit.

use std::time::Duration;

use innkeeper_model::{Condition, ConditionStatus, Object, Operation};
use innkeeper_plan::{self as plan, Plan};

use super::bound::Bound;

/// The writes that a parent may make now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permit {
    pub(crate) writes: usize,
    /// The time until more writes are allowed, and the limit; none if all wanted writes are.
    pub(crate) held: Option<(Duration, Bound)>,
}

/// Writes that have to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldBack {
    /// The time until the next write.
    pub(crate) wait: Duration,
    bound: Bound,
    /// The first of the writes, and the number of the others.
    writes: String,
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
        Some(Self {
            wait,
            bound,
            writes,
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
        Some(Self {
            wait,
            bound,
            writes,
        })
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

    /// Returns the condition of the parent. It stays equal while the same writes wait; otherwise each pass would write it
    /// again.
    pub(crate) fn synced(&self) -> Condition {
        let Self { bound, writes, .. } = self;
        let message = format!(
            "held back, because {}: {writes}; {}",
            bound.because, bound.remedy
        );
        plan::synced(ConditionStatus::False, bound.reason, message)
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
