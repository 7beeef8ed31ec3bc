//! The program: hands its arguments over and ends with the code that comes back.

use std::{env, process::ExitCode};

use tikv_jemallocator::Jemalloc;

/// Takes a seventh less CPU time per parent than the allocator of glibc.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// One arena, because each has free pages of its own, and most allocations are served by the cache of their thread. Free
/// pages go back to the kernel after 100 ms, instead of 10 s: a start takes more memory than what follows. No
/// address space is retained: that of the process that compiles is limited.
#[expect(
    unsafe_code,
    reason = "jemalloc reads its settings from the symbol of this name"
)]
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS: &[u8; 59] = b"narenas:1,dirty_decay_ms:100,muzzy_decay_ms:0,retain:false\0";

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
