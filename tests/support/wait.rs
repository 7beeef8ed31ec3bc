//! Polling with a deadline, for changes in the cluster.

use std::{
    fmt::Display,
    thread,
    time::{Duration, Instant},
};

/// How long a condition may take. We have seen a shared machine run at a third of its speed for a quarter of an hour;
/// only a failing test waits that long.
const DEADLINE: Duration = Duration::from_mins(3);

/// The interval between checks.
const INTERVAL: Duration = Duration::from_millis(50);

/// Waits until `check` returns a value; panics with the last error after three minutes.
#[track_caller]
pub fn eventually<T, E: Display>(condition: &str, check: impl FnMut() -> Result<T, E>) -> T {
    eventually_for(DEADLINE, condition, check)
}

/// Waits until `check` returns a value; panics with the last error after `deadline`.
#[track_caller]
pub fn eventually_for<T, E: Display>(
    deadline: Duration,
    condition: &str,
    mut check: impl FnMut() -> Result<T, E>,
) -> T {
    let start = Instant::now();
    loop {
        match check() {
            Ok(value) => return value,
            Err(complaint) if start.elapsed() > deadline => {
                panic!("{condition}: not within {deadline:?}: {complaint}")
            }
            Err(_) => thread::sleep(INTERVAL),
        }
    }
}
