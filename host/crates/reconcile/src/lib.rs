//! Passes for parents: the queue, the steps, and the host's lease.
//!
//! [`Reconciler::pass`] runs one pass; read `pass.rs` from top to bottom.
//! A pass does not know its trigger and needs nothing from earlier passes. State between passes (subscriptions, own writes
//! that the cache does not show yet, fatal faults) only saves work.
//! A pass carries `model` values between sandbox, cache and writer, which do not know each other.
//! The folders, lower ones first: `limits`, `memory`, `revision`, `pass`; `controller` knows only [`Next`].

pub mod controller;
mod inventory;
mod limits;
mod memory;
mod next;
mod pass;
mod reconciler;
mod recordings;
mod revision;
mod shared;
#[cfg(test)]
mod tests;

pub use inventory::{
    CONFIG_MAP as INVENTORY, Error as InventoryError, Inventory, RecordError, Role,
};
pub use limits::{
    budget::{NamespaceBudgets, Share},
    usage::Usage,
};
pub use memory::files::PassFiles;
pub use next::{Attempt, Next, WaitingEdits};
pub use pass::dry_run::{
    Candidate, Differences, Draft, DryRunOutcome, ParentOutcome, PlannedChanges, until_read,
};
pub use reconciler::Reconciler;
pub use recordings::{RECORDINGS_BYTES_MAX, Recordings, Wanted};
pub use revision::{Revision, analysis::Analysis, faults::RecentFault};
pub use shared::Shared;
