//! The effects of a dry run on one parent.

use innkeeper_plan::Changes;

/// The plan for one parent, or the reason why there is none.
#[derive(Debug)]
pub enum ParentOutcome {
    /// The host would make these changes.
    Planned(PlannedChanges),
    /// The plugin fails, or the host rejects its answer.
    Fault {
        /// The reason, as in the condition `Synced`.
        reason: String,
        /// The failure.
        message: String,
        /// True if it is not the fault of the revision: the revision to compare with fails for the parent as well, or has
        /// had no good pass of it.
        known: bool,
    },
    /// The host would not call the plugin: the parent is paused, not selected, or deleted.
    Skipped,
}

/// The changes that a plan makes for one parent.
#[derive(Debug, Default)]
pub struct PlannedChanges {
    /// The writes by their effect.
    pub changes: Changes,
    /// True if the status that the plugin states changes.
    pub status: bool,
    /// The operations as lines.
    pub operations: Vec<String>,
    /// The differences as lines; empty if the user did not ask for them.
    pub differences: Vec<String>,
}
