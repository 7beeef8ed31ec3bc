//! Leader election with Leases, one per shard, and the claims to write that follow from them.
//!
//! ```text
//! LeaseStore -> Machine (pure rules) -> Election -> Claim -> every write
//!            -> Observer -> Share (pure rules) -> ShardKeeper: which elections run
//! ```
//!
//! The rest of the host sees only the [`Claims`], which each renewal extends, and the [`ShardUser`] that follows them.
//! This crate sends no request: a [`LeaseStore`] reads with `cluster` and writes with `apply`.

mod balance;
mod claim;
mod claims;
mod clock;
mod election;
mod group;
mod keeper;
mod machine;
mod record;
#[cfg(test)]
mod tests;

pub use balance::lease_name;
pub use claim::Claim;
pub use claims::Claims;
pub use clock::since_boot;
pub use group::{KeeperParts, LeaseStore, ShardUser, Source, Times, WriteError};
pub use keeper::ShardKeeper;
pub use record::{LABEL_LEASE, Lease, LeaseRecord};
