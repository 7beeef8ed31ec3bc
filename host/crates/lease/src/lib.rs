//! Leader election with a Lease, and the claim to write that follows from it.
//!
//! ```text
//! LeaseStore -> Machine (pure rules) -> Election -> Claim -> every write
//! ```
//!
//! The rest of the host sees only the [`Claim`], which each renewal extends.
//! This crate sends no request: a [`LeaseStore`] reads with `cluster` and writes with `apply`.

mod claim;
mod clock;
mod election;
mod machine;
mod record;
#[cfg(test)]
mod tests;

pub use claim::Claim;
pub use clock::since_boot;
pub use election::{Election, ElectionParts, LeaseStore, Source, Times, WriteError};
pub use record::{LABEL_LEASE, Lease, LeaseRecord};
