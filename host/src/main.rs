//! The program: hands its arguments over and ends with the code that comes back.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    let _scenario = set_failpoints();
    innkeeper::command::start(env::args_os())
}

/// Sets the failpoints that the environment variable FAILPOINTS names, such as `after-write=2*off->return` for the third write.
///
/// # Panics
///
/// If the variable does not parse, or names a failpoint that does not exist: a test that means to end the host must not pass
/// because the host keeps running.
#[cfg(feature = "failpoints")]
fn set_failpoints() -> fail::FailScenario<'static> {
    const NAMES: [&str; 4] = ["before-write", "after-write", "before-event", "after-event"];
    let scenario = fail::FailScenario::setup();
    for (name, _) in fail::list() {
        assert!(
            NAMES.contains(&name.as_str()),
            "no failpoint is named {name}"
        );
    }
    scenario
}
