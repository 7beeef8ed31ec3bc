//! Waiting for the cluster: polling with a deadline.

use std::{
    fmt::Display,
    thread,
    time::{Duration, Instant},
};

/// How long a condition may take on a loaded machine of two cores before a test fails.
const DEADLINE: Duration = Duration::from_mins(1);

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(50);

/// Waits until `check` gives a value; fails with its last complaint after a minute.
#[track_caller]
pub fn eventually<T, E: Display>(what: &str, check: impl FnMut() -> Result<T, E>) -> T {
    eventually_for(DEADLINE, what, check)
}

/// Waits until `check` gives a value; fails with its last complaint after `deadline`.
#[track_caller]
pub fn eventually_for<T, E: Display>(
    deadline: Duration,
    what: &str,
    mut check: impl FnMut() -> Result<T, E>,
) -> T {
    let start = Instant::now();
    loop {
        match check() {
            Ok(value) => return value,
            Err(complaint) if start.elapsed() > deadline => {
                panic!("{what}: not within {deadline:?}: {complaint}")
            }
            Err(_) => thread::sleep(INTERVAL),
        }
    }
}
