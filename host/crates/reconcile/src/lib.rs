//! The passes of parents: the queue that orders them, and the steps of each.
//!
//! [`Reconciler::pass`] runs one pass; read `pass.rs` from top to bottom.
//! A pass does not know its trigger and needs nothing from earlier passes; the state that is kept between passes
//! (subscriptions, own writes that the cache does not show yet, parents that the guest has given up) only saves work.
//! It carries `model` values between the sandbox, the cache and the writer, which do not know each other.

mod analysis;
mod bound;
mod budget;
mod context;
pub mod controller;
mod dry_run;
mod epoch;
mod event_queue;
mod faults;
mod findings;
mod first_writes;
mod given_up;
mod held_back;
mod interest;
mod inventory;
mod ledger;
mod memory;
mod next;
mod pass;
mod pass_files;
mod quota;
mod reconciler;
mod recordings;
mod selection;
mod serving;
mod shared;
mod stop;
#[cfg(test)]
mod tests;
mod trace;

pub use analysis::Analysis;
pub use bound::Usage;
pub use budget::{NamespaceBudgets, Share};
pub use dry_run::{
    Candidate, Differences, Draft, DryRunOutcome, ParentOutcome, PlannedChanges, until_read,
};
pub use faults::RecentFault;
pub use inventory::{CONFIG_MAP as INVENTORY, Error as InventoryError, Inventory};
pub use next::{Attempt, Next, WaitingEdits};
pub use pass_files::PassFiles;
pub use reconciler::Reconciler;
pub use recordings::{RECORDINGS_BYTES_MAX, Recordings, Wanted};
pub use serving::Serving;
pub use shared::Shared;
