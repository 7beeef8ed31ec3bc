//! Entry point.

use std::{env, process::ExitCode};

use tikv_jemallocator::Jemalloc;

/// Takes a seventh less CPU time per parent than glibc's allocator.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// One arena, because each arena has separate free pages, and thread caches serve most allocations. Free pages return to
/// the kernel after 100 ms instead of 10 s, because the start needs most memory. No address space is retained, because it
/// is limited in the compiler process.
#[expect(unsafe_code, reason = "jemalloc reads its settings from this symbol")]
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS: &[u8; 59] = b"narenas:1,dirty_decay_ms:100,muzzy_decay_ms:0,retain:false\0";

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    let _scenario = set_failpoints();
    innkeeper::command::start(env::args_os())
}

/// Sets failpoints from the environment variable FAILPOINTS, such as `after-write=2*off->return` for the third write.
///
/// # Panics
///
/// If the variable does not parse or names an unknown failpoint: a test that expects a crash must not run without one.
#[cfg(feature = "failpoints")]
fn set_failpoints() -> fail::FailScenario<'static> {
    const NAMES: [&str; 4] = ["before-write", "after-write", "before-event", "after-event"];
    let scenario = fail::FailScenario::setup();
    for (name, _) in fail::list() {
        assert!(NAMES.contains(&name.as_str()), "unknown failpoint {name}");
    }
    scenario
}
