//! What a parent may not write at the moment because it has written too much.

use std::time::Duration;

use innkeeper_model::{Condition, ConditionStatus, Object, ObjectId, Operation, reason};
use innkeeper_plan::{self as plan, Plan};
use tokio::time::Instant;

use super::{Reconciler, not_synced};

/// Writes that have to wait.
pub(super) struct HeldBack {
    /// For how long.
    pub(super) wait: Duration,
    /// How many writes a parent may have in a minute.
    per_minute_max: u32,
    /// The first of them, and how many more there are.
    what: String,
}

impl HeldBack {
    /// The condition that says so; the same for as long as the same is held back, or it would itself be written again
    /// and again.
    pub(super) fn synced(&self) -> Condition {
        let Self {
            per_minute_max,
            what,
            ..
        } = self;
        let message = format!(
            "held back, because this parent has used up its {per_minute_max} writes per minute: {what}; a plugin that wants another thing in every pass, or somebody who keeps changing what it wants, may be why"
        );
        not_synced(reason::THROTTLED, message)
    }
}

impl Reconciler {
    /// Leaves of a plan what its parent may write now; says what has to wait.
    pub(super) fn hold_back(
        &self,
        parent: &ObjectId,
        plan: &mut Plan,
        observed: &[Object],
    ) -> Option<HeldBack> {
        let (writes, wait, per_minute_max) = self.spend(parent, plan.operations.len());
        let wait = wait?;
        let rest = plan.operations.split_off(writes);
        let (first, others) = rest.split_first()?;
        let what = match (described(first, observed), others.len()) {
            (first, 0) => first,
            (first, more) => format!("{first} and {more} more"),
        };
        Some(HeldBack {
            wait,
            per_minute_max,
            what,
        })
    }

    /// Whether a status that is due has to wait, with this condition in it.
    pub(super) fn hold_back_status(
        &self,
        parent: &ObjectId,
        synced: &Condition,
    ) -> Option<HeldBack> {
        let (_, wait, per_minute_max) = self.spend(parent, 1);
        let wait = wait?;
        let what = if synced.status == ConditionStatus::True {
            "the status".to_owned()
        } else {
            format!("the status ({}: {})", synced.reason, synced.message)
        };
        Some(HeldBack {
            wait,
            per_minute_max,
            what,
        })
    }

    /// Takes as many writes as there are; with how long to wait for the others, and the limit.
    fn spend(&self, parent: &ObjectId, wanted: usize) -> (usize, Option<Duration>, u32) {
        let per_minute_max = self.serving().limits.writes_per_minute_max;
        let mut ledger = self.ledger.lock();
        let budget = ledger.budget(parent);
        let allowance = budget.take(wanted, per_minute_max, Instant::now());
        (allowance.writes, allowance.wait, per_minute_max)
    }
}

/// An operation, with the field that makes it due where that can be seen.
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
