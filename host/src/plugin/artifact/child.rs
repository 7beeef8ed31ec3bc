//! The process that compiles one plugin: it binds itself, reads the component from standard input, and writes native
//! code to standard output.
//!
//! Where the compiler goes astray, this process ends and not the host. It knows no file, no cluster and no cache.

use std::{fs, io};

use rayon::ThreadPoolBuilder;
use rustix::{
    process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit},
    thread::set_no_new_privs,
};

use crate::{
    config::{CompileArgs, Exit, Streams},
    plugin::{Metering, engine},
};

/// Descriptors that it may have: the standard streams, and one or two for a moment.
const DESCRIPTORS_MAX: u64 = 16;
/// Between the signal that says that the CPU time is used up and the one that cannot be ignored, in seconds.
const CPU_SECONDS_EXTRA: u64 = 2;
/// The kernel takes the process with the highest score first.
const OOM_SCORE: &[u8] = b"1000";

/// Why nothing was compiled, apart from the component itself.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("failed to limit what this process may take")]
    Limit(#[source] io::Error),
    #[error("failed to read the component from standard input")]
    Read(#[source] io::Error),
    #[error("failed to start the threads that compile")]
    Threads(#[source] rayon::ThreadPoolBuildError),
    #[error("failed to set up the compiler")]
    Engine(#[source] wasmtime::Error),
    #[error(transparent)]
    Compile(wasmtime::Error),
    #[error("failed to write the compiled code to standard output")]
    Write(#[source] io::Error),
}

/// Compiles what is on standard input.
///
/// Ends with [`Exit::Rejected`] if the compiler refuses it; the last line on standard error says why.
pub fn child(args: CompileArgs, streams: &mut Streams<'_>) -> Exit {
    let compiled = compile(args, streams).map(|()| Exit::Success);
    streams.end(compiled, |error| match error {
        Error::Compile(_) => Exit::Rejected,
        _ => Exit::BadUse,
    })
}

fn compile(args: CompileArgs, streams: &mut Streams<'_>) -> Result<(), Error> {
    limit(&args).map_err(Error::Limit)?;
    let mut bytes = Vec::new();
    streams.stdin.read_to_end(&mut bytes).map_err(Error::Read)?;
    let metering = if args.fuel {
        Metering::Fuel
    } else {
        Metering::Epochs
    };
    let threads = ThreadPoolBuilder::new().num_threads(args.threads.get());
    threads.build_global().map_err(Error::Threads)?;
    let engine = engine::compiler(metering).map_err(Error::Engine)?;
    let code = engine
        .precompile_component(&bytes)
        .map_err(Error::Compile)?;
    streams.write(&code).map_err(Error::Write)
}

fn limit(args: &CompileArgs) -> io::Result<()> {
    let at_most = |resource, current: u64, maximum: u64| {
        // Where less is allowed already, that stays.
        let present = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let limit = Rlimit {
            current: Some(current.min(present)),
            maximum: Some(maximum.min(present)),
        };
        setrlimit(resource, limit)
    };
    let CompileArgs {
        memory_bytes_max: memory,
        cpu_seconds_max: cpu,
        code_bytes_max: code,
        threads: _,
        fuel: _,
    } = *args;
    // First, and before the address space is small: in most places a process may always raise its own.
    // Where it may not, the kernel still ends whoever is largest, and that is a compiler gone astray.
    drop(fs::write("/proc/self/oom_score_adj", OOM_SCORE));
    at_most(Resource::Core, 0, 0)?;
    at_most(Resource::Nofile, DESCRIPTORS_MAX, DESCRIPTORS_MAX)?;
    at_most(Resource::Fsize, code, code)?;
    at_most(Resource::Cpu, cpu, cpu.saturating_add(CPU_SECONDS_EXTRA))?;
    at_most(Resource::As, memory, memory)?;
    // Nobody wants what it compiles when the host is gone.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    set_no_new_privs(true)?;
    Ok(())
}
