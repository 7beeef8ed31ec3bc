//! A clock that counts the time while the machine sleeps.
//!
//! The host has three clocks, because none fits everywhere:
//!
//! - [`since_boot`] for the claim and the lease. While this machine sleeps, other hosts count on and may take over.
//! - `Instant` for timeouts and for pauses between attempts. It stands still while the machine sleeps, so that requests do
//!   not time out just because the machine wakes up.
//! - The wall clock for times in objects, and for event rates. It may jump, so nothing that must hold depends on it.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns the time since the machine was started, including sleep; never less than before.
pub fn since_boot() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
    // Never fails: the clock counts from the boot, so neither part is negative.
    let seconds = u64::try_from(tv_sec).unwrap_or_default();
    let nanos = u32::try_from(tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}
