//! A clock that counts the time while the machine sleeps: `Instant` stands still then.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns the time since the machine was started, its sleep included; never less than before.
pub fn since_boot() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(tv_sec).unwrap_or_default();
    let nanos = u32::try_from(tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}
