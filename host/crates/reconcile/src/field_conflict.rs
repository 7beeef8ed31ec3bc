//! The condition of a parent whose children another field manager keeps changing back.

use std::time::Duration;

use innkeeper_model::{Condition, ConditionStatus, reason};
use innkeeper_plan as plan;

/// A conflict with another field manager about children of one parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldConflict {
    /// The contested fields and their managers.
    pub(crate) about: String,
    /// The time until the next restoration.
    pub(crate) wait: Duration,
}

impl FieldConflict {
    /// Returns the condition of the parent. It stays equal from one restoration to the next.
    pub(crate) fn synced(&self) -> Condition {
        let message = format!(
            "another field manager keeps changing fields that the plugin states, so the host restores them less and less often: {}; stop that manager, or leave the fields out of the plugin's answer",
            self.about
        );
        plan::synced(ConditionStatus::False, reason::FIELD_CONFLICT, message)
    }
}
