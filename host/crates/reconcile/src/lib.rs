//! The passes of parents: the queue that orders them, and the steps of each.
//!
//! [`Reconciler::pass`] runs one pass; read `pass.rs` from top to bottom.
//! A pass does not know its trigger and needs nothing from earlier passes; the state that is kept between passes
//! (subscriptions, own writes that the cache does not show yet, parents that the guest has given up) only saves work.
//! It carries `model` values between the sandbox, the cache and the writer, which do not know each other.

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

pub use inventory::{CONFIG_MAP as INVENTORY, Error as InventoryError, Inventory};
pub use limits::{
    budget::{NamespaceBudgets, Share},
    exceeded::Usage,
};
pub use memory::files::PassFiles;
pub use next::{Attempt, Next, WaitingEdits};
pub use pass::dry_run::{
    Candidate, Differences, Draft, DryRunOutcome, ParentOutcome, PlannedChanges, until_read,
};
pub use reconciler::Reconciler;
pub use recordings::{RECORDINGS_BYTES_MAX, Recordings, Wanted};
pub use revision::{Serving, analysis::Analysis, faults::RecentFault};
pub use shared::Shared;
