//! The writes that have to wait because of a limit.

use std::time::Duration;

use innkeeper_model::{Condition, ConditionStatus, Object, Operation, reason};
use innkeeper_plan::{self as plan, Plan};

use super::exceeded::LimitExceeded;

/// The writes that a parent may make now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permit {
    pub(crate) writes: usize,
    /// The time until more writes are allowed, and the limit; `None` if all requested writes are allowed.
    pub(crate) wait: Option<(Duration, LimitExceeded)>,
}

/// The most operations of one round. The others follow at once, after a condition that counts them: a longer round leaves
/// the user without news.
const OPERATIONS_MAX: usize = 100;

/// Writes that have to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Throttled {
    /// The time until the next write.
    pub(crate) wait: Duration,
    /// The reason in the condition `Synced`.
    reason: &'static str,
    /// Equal as long as the same writes wait; otherwise each pass would write the condition again.
    message: String,
}

impl Throttled {
    /// Makes `rest` wait; `None` if it is empty.
    pub(crate) fn by_limit(
        (wait, exceeded): (Duration, LimitExceeded),
        rest: &[Operation],
        observed: &[Object],
    ) -> Option<Self> {
        let (first, others) = rest.split_first()?;
        let mut writes = describe(first, observed);
        if !others.is_empty() {
            writes = format!("{writes} and {} more", others.len());
        }
        Some(Self::new(wait, &exceeded, &writes))
    }

    /// Limits a plan to one round; `None` if all operations fit.
    pub(crate) fn by_round(plan: &mut Plan) -> Option<Self> {
        if plan.operations.len() <= OPERATIONS_MAX {
            return None;
        }
        let rest = plan.operations.split_off(OPERATIONS_MAX);
        let remaining = rest.len();
        // Prunes come last: if the rest begins with one, all children are written.
        let message = if matches!(rest.first(), Some(Operation::Prune { .. })) {
            format!("{remaining} children are left to be deleted")
        } else {
            let children = plan.children.len();
            format!("{children} children are being written, {remaining} left")
        };
        Some(Self {
            wait: Duration::ZERO,
            reason: reason::APPLYING,
            message,
        })
    }

    /// Limits a plan to the permitted operations; `None` if all of them are.
    pub(crate) fn by_permit(permit: Permit, plan: &mut Plan, observed: &[Object]) -> Option<Self> {
        let wait = permit.wait?;
        let rest = plan.operations.split_off(permit.writes);
        Self::by_limit(wait, &rest, observed)
    }

    /// Makes a status with the condition `synced` wait; `None` if it may be written now.
    pub(crate) fn by_status_permit(permit: Permit, synced: &Condition) -> Option<Self> {
        let (wait, exceeded) = permit.wait?;
        let writes = if synced.status == ConditionStatus::True {
            "the status".to_owned()
        } else {
            format!("the status ({}: {})", synced.reason, synced.message)
        };
        Some(Self::new(wait, &exceeded, &writes))
    }

    fn new(wait: Duration, exceeded: &LimitExceeded, writes: &str) -> Self {
        let LimitExceeded {
            reason,
            because,
            remedy,
        } = exceeded;
        Self {
            wait,
            reason,
            message: format!("{because}; waiting: {writes}; {remedy}"),
        }
    }

    /// Merges two limits on one plan: the condition states the first one, and the earlier time counts.
    pub(crate) fn merge(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(second)) => Some(Self {
                wait: first.wait.min(second.wait),
                ..first
            }),
            (first, second) => first.or(second),
        }
    }

    /// Returns the parent's condition `Synced`.
    pub(crate) fn synced(&self) -> Condition {
        plan::synced(ConditionStatus::False, self.reason, self.message.as_str())
    }
}

/// Describes an operation, with the first field that differs.
fn describe(operation: &Operation, observed: &[Object]) -> String {
    let Operation::Update { id, body, .. } = operation else {
        return operation.to_string();
    };
    let object = observed.iter().find(|object| object.id() == *id);
    match object.and_then(|object| plan::first_difference(body, object)) {
        Some(field) => format!("{operation} ({field} differs)"),
        None => operation.to_string(),
    }
}
