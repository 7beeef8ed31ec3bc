//! The writes that a parent may not make at the moment, because it has written too much.

use std::time::Duration;

use innkeeper_model::{Condition, ConditionStatus, Object, Operation, reason};
use innkeeper_plan::{self as plan, Plan};

use super::budget::Allowance;

/// Writes that have to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldBack {
    /// The time until the next write.
    pub(crate) wait: Duration,
    /// The limit of writes per minute of a parent.
    per_minute_max: u32,
    /// The first of the writes, and the number of the others.
    writes: String,
}

impl HeldBack {
    /// Leaves the allowed operations in a plan; none: all of them.
    pub(crate) fn of_plan(
        allowance: Allowance,
        per_minute_max: u32,
        plan: &mut Plan,
        observed: &[Object],
    ) -> Option<Self> {
        let wait = allowance.wait?;
        let rest = plan.operations.split_off(allowance.writes);
        let (first, others) = rest.split_first()?;
        let writes = match (described(first, observed), others.len()) {
            (first, 0) => first,
            (first, more) => format!("{first} and {more} more"),
        };
        Some(Self {
            wait,
            per_minute_max,
            writes,
        })
    }

    /// Holds a status with the condition `synced` back; none: it may be written now.
    pub(crate) fn of_status(
        allowance: Allowance,
        per_minute_max: u32,
        synced: &Condition,
    ) -> Option<Self> {
        let wait = allowance.wait?;
        let writes = if synced.status == ConditionStatus::True {
            "the status".to_owned()
        } else {
            format!("the status ({}: {})", synced.reason, synced.message)
        };
        Some(Self {
            wait,
            per_minute_max,
            writes,
        })
    }

    /// Returns the condition of the parent. It stays equal while the same writes wait; otherwise each pass would write it
    /// again.
    pub(crate) fn synced(&self) -> Condition {
        let Self {
            per_minute_max,
            writes,
            ..
        } = self;
        let message = format!(
            "held back, because this parent has used up its {per_minute_max} writes per minute: {writes}; check if the plugin's answer differs in every pass, or if another field manager keeps changing the children"
        );
        plan::synced(ConditionStatus::False, reason::THROTTLED, message)
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
