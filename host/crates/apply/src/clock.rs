//! A clock that advances while the machine sleeps; `Instant` does not.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns the time since the machine was started, including its sleep; it never decreases.
pub fn since_boot() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(tv_sec).unwrap_or_default();
    let nanos = u32::try_from(tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}
