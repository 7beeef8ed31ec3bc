//! Compiles in separate processes, and stores their results.
//!
//! For some components the compiler takes far more time and memory than their size suggests, and that is no bug.
//! So it runs in a process that can be bounded and killed: the same program as the host, without the environment,
//! descriptors and memory. [`child`](mod@super::child) is the part inside the process.
//! Its verdict is remembered, unless the machine may be the cause.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Seek, Write},
    os::{
        fd::{AsFd, RawFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

use innkeeper_model::Digest;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, memfd_create},
    io::{Errno, retry_on_intr},
    process::{Pid, PidfdFlags, Resource, Signal, getrlimit, pidfd_open},
};
use tempfile::NamedTempFile;
use tracing::{debug, info};

use super::{
    Artifact, Cache, Compiled, Error, Limits, child, compile_with,
    confinement::CONFINED,
    verdict::{CompileBounds, CompileVerdict},
};
use crate::{Engine, Metering, log::cut, semaphore::Semaphore};

/// The descriptors that a process gets: the standard streams.
const DESCRIPTORS_KEPT: RawFd = 3;

/// The most bytes kept from the last line: the host's conditions have 2,048 characters at most.
const LAST_LINE_BYTES_MAX: usize = 2048;

/// The most output that is read; more than any compiler writes before it ends.
const STDERR_BYTES_MAX: u64 = 1 << 20;

/// The messages for lack of memory: from the standard library before it aborts, and from the compiler.
const OUT_OF_MEMORY: [&str; 2] = ["memory allocation of", "out of memory"];

/// The cause if the kernel stopped a process before it was confined. It had not read the component, so the profile of
/// the container forbids a call that it needs.
const STOPPED_BEFORE: &str = "it was stopped at a system call before it read the component: allow landlock_create_ruleset, landlock_restrict_self, prctl, prlimit64 and seccomp in the seccomp profile of the container";

/// The exit code after a Rust panic.
const PANICKED: i32 = 101;

/// The compiling process's program and first arguments.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// The first arguments.
    pub arguments: Vec<OsString>,
}

impl Program {
    /// Returns the running program, even if the file has been replaced or removed since.
    pub fn current() -> Self {
        Self {
            path: PathBuf::from("/proc/self/exe"),
            arguments: vec!["compile".into()],
        }
    }
}

/// Compiles plugins in separate processes, at most one per processor. A process that is alone uses all processors.
pub struct Compiler {
    cache: Cache,
    program: Program,
    bounds: CompileBounds,
    /// One permit per process.
    processes: Semaphore,
}

impl Compiler {
    /// Creates a compiler that stores results in a cache.
    pub fn new(cache: Cache, program: Program, bounds: CompileBounds) -> Self {
        Self {
            cache,
            program,
            processes: bounds.permits(),
            bounds,
        }
    }

    /// Checks and compiles, or takes the compiled form from the cache.
    ///
    /// Blocks until another process may run, and then for as long as compiling takes.
    pub fn compile(
        &self,
        engine: &Engine,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<Artifact, Error> {
        compile_with(engine, bytes, limits, Some(&self.cache), |digest| {
            self.make(engine, digest, bytes)
        })
    }

    fn make(&self, engine: &Engine, digest: &Digest, bytes: &[u8]) -> Result<Compiled, Error> {
        let Self { cache, bounds, .. } = self;
        if let Some(verdict) = cache.verdict(engine, digest, bounds) {
            debug!(%digest, ?verdict, "skipped the compiler: an earlier verdict refuses the plugin");
            return Err(Error::Verdict(verdict));
        }
        let started = Instant::now();
        let refused = |verdict: CompileVerdict| {
            cache.remember(engine, digest, bounds, &verdict);
            Error::Verdict(verdict)
        };
        let mut times = 0;
        loop {
            let (end, code) = {
                let permit = self.processes.acquire(1);
                // One thread for each processor without another compiling process.
                let threads = permit.left().saturating_add(1);
                self.run(engine, bytes, threads)?
            };
            times += 1;
            match end {
                ProcessEnd::Success { confinement } => {
                    let mapped = cache
                        .adopt(engine, digest, code)
                        .map_err(|source| cache.not_kept(source))?;
                    info!(%digest, elapsed = ?started.elapsed(), confinement, "compiled a plugin");
                    // The engine refuses, for example, a memory that is larger than any instance may have.
                    return mapped
                        .map_err(|error| refused(CompileVerdict::Refused(message(&error))));
                }
                ProcessEnd::Unwritten(last_line) => {
                    return Err(cache.not_kept(io::Error::other(last_line)));
                }
                ProcessEnd::Found(verdict) => return Err(refused(verdict)),
                ProcessEnd::Killed(cause) if times > bounds.retries_max => {
                    return Err(Error::CompilerKilled { times, cause });
                }
                ProcessEnd::Killed(cause) => {
                    info!(%digest, cause, "a compiler was killed and is started again");
                }
            }
        }
    }

    /// Runs one process until it ends, and returns the end with the file for the code.
    fn run(
        &self,
        engine: &Engine,
        bytes: &[u8],
        threads: usize,
    ) -> Result<(ProcessEnd, NamedTempFile), Error> {
        let failed = Error::RunCompiler;
        let code = self
            .cache
            .begin()
            .map_err(|source| self.cache.not_kept(source))?;
        let fuel = engine.settings().metering == Metering::Fuel;
        let mut arguments = vec![format!("--threads={threads}")];
        arguments.extend(fuel.then(|| "--fuel".to_owned()));
        let output = code.reopen().map_err(failed)?;
        let end = run_confined(&self.program, &self.bounds, arguments, bytes, output);
        Ok((end.map_err(failed)?, code))
    }
}

/// A confined process's end.
pub(super) enum ProcessEnd {
    /// It wrote the output, under these kernel restrictions.
    Success { confinement: Option<String> },
    /// It failed to write the output, with its last line.
    Unwritten(String),
    /// It wrote no output, and would not another time.
    Found(CompileVerdict),
    /// It was killed, with the cause.
    Killed(String),
}

/// Runs one confined process until it ends, with the input in standard input and a file for the output.
pub(super) fn run_confined(
    program: &Program,
    bounds: &CompileBounds,
    arguments: Vec<String>,
    input: &[u8],
    output: File,
) -> io::Result<ProcessEnd> {
    // Files in memory and no pipes: the host only waits for the end, and neither side blocks on the other.
    let mut stdin = in_memory("input")?;
    stdin.write_all(input)?;
    stdin.rewind()?;
    let mut stderr = in_memory("words")?;
    let mut command = command(program, bounds, arguments);
    command
        .stdin(stdin)
        .stdout(output)
        .stderr(stderr.try_clone()?);
    let status = run_within(command, bounds.wall_max).map_err(|error| {
        // Without the name, "no such file" does not tell that /proc is missing.
        let program = program.path.display();
        io::Error::new(error.kind(), format!("{program}: {error}"))
    })?;
    let Some(status) = status else {
        let seconds = bounds.wall_max.as_secs_f32();
        return Ok(ProcessEnd::Killed(format!(
            "because it took more than {seconds} s"
        )));
    };
    let lines = read_stderr(&mut stderr)?;
    let confinement = confinement_of(&lines);
    if status.success() {
        let confinement = confinement.map(str::to_owned);
        return Ok(ProcessEnd::Success { confinement });
    }
    if status.signal() == Some(Signal::SYS.as_raw()) && confinement.is_none() {
        return Err(io::Error::other(STOPPED_BEFORE));
    }
    // Then the limit stopped it and not the bound, which is no verdict on the component.
    if status.signal() == Some(Signal::XFSZ.as_raw()) && may_not_write(bounds) {
        return Err(Errno::FBIG.into());
    }
    let last_line = last_line(&lines);
    if status.code() == Some(child::UNWRITTEN.into()) {
        return Ok(ProcessEnd::Unwritten(last_line));
    }
    conclude(bounds, status, last_line)
}

/// Returns the conclusion from the end of a process that wrote no output.
fn conclude(
    bounds: &CompileBounds,
    status: ExitStatus,
    last_line: String,
) -> io::Result<ProcessEnd> {
    let is_short_of_memory = OUT_OF_MEMORY
        .iter()
        .any(|message| last_line.contains(message));
    let signal = status.signal().and_then(Signal::from_named_raw);
    let verdict = match (status.code(), signal) {
        (Some(code), _) if child::is_refusal(code) => CompileVerdict::Refused(last_line),
        (Some(PANICKED), _) => CompileVerdict::Broke(last_line),
        (_, Some(Signal::SYS)) => CompileVerdict::ReachedOut,
        (_, Some(Signal::XCPU)) => CompileVerdict::Cpu(bounds.cpu_seconds_max),
        (_, Some(Signal::XFSZ)) => CompileVerdict::Code(bounds.code_bytes_max),
        (_, Some(Signal::ABORT | Signal::SEGV | Signal::ILL | Signal::BUS)) => {
            CompileVerdict::Broke(format!("{status}: {last_line}"))
        }
        // SIGKILL: from the kernel when memory is short, or from a user.
        (None, _) => return Ok(ProcessEnd::Killed(format!("by {status}"))),
        // An unusable command line, limits that cannot be set, no input: nothing that the component did.
        (Some(_), _) => return Err(io::Error::other(last_line)),
    };
    Ok(ProcessEnd::Found(match verdict {
        // Without memory, the standard library aborts and the compiler refuses.
        CompileVerdict::Refused(_) | CompileVerdict::Broke(_) if is_short_of_memory => {
            CompileVerdict::Memory(bounds.memory_bytes_max)
        }
        verdict => verdict,
    }))
}

/// Returns true if this process's file size limit, which its children inherit, is below the bound on code.
fn may_not_write(bounds: &CompileBounds) -> bool {
    getrlimit(Resource::Fsize)
        .current
        .is_some_and(|most| most < bounds.code_bytes_max)
}

fn command(program: &Program, bounds: &CompileBounds, arguments: Vec<String>) -> Command {
    let CompileBounds {
        processes_max: _,
        memory_bytes_max,
        cpu_seconds_max,
        code_bytes_max,
        wall_max: _,
        retries_max: _,
    } = *bounds;
    let mut command = Command::new(&program.path);
    command
        // A list of processes would show /proc/self/exe.
        .arg0("innkeeper")
        .args(&program.arguments)
        .arg(format!("--memory-bytes-max={memory_bytes_max}"))
        .arg(format!("--cpu-seconds-max={cpu_seconds_max}"))
        .arg(format!("--code-bytes-max={code_bytes_max}"))
        .args(arguments)
        .arg(format!("--host-process={}", std::process::id()))
        // The host's environment may hold credentials.
        .env_clear()
        .current_dir("/")
        // Terminal signals are for the host only.
        .process_group(0);
    command
}

/// Runs a process until it ends; returns none if that took too long.
fn run_within(mut command: Command, wall_max: Duration) -> io::Result<Option<ExitStatus>> {
    // Descriptors that the host opened close on exec anyway; inherited ones may not.
    close_fds::set_fds_cloexec_threadsafe(DESCRIPTORS_KEPT, &[]);
    let mut child = command.spawn()?;
    let in_time = ends_within(&child, wall_max);
    if !matches!(in_time, Ok(true)) {
        // Fails for a process that has ended meanwhile, which is fine.
        drop(child.kill());
    }
    let status = child.wait()?;
    Ok(in_time?.then_some(status))
}

fn ends_within(child: &Child, wall_max: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + wall_max;
    // The process was not waited for, so its ID cannot belong to another process yet.
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let mut watched = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    let ready = retry_on_intr(|| {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(remaining).map_err(|_| Errno::INVAL)?;
        poll(&mut watched, Some(&timeout))
    })?;
    Ok(ready > 0)
}

/// Creates a file in memory.
pub(super) fn in_memory(name: &str) -> io::Result<File> {
    Ok(File::from(memfd_create(name, MemfdFlags::CLOEXEC)?))
}

/// Returns the lines that a process wrote.
fn read_stderr(stderr: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    stderr.rewind()?;
    stderr.take(STDERR_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns a process's restrictions from its first line; none if it ended before it was confined.
fn confinement_of(lines: &str) -> Option<&str> {
    lines.lines().next()?.strip_prefix(CONFINED)
}

/// Returns a process's last line, without the prefix `error: `.
fn last_line(lines: &str) -> String {
    // A panic's last line is advice on backtraces.
    let says = |line: &&str| {
        let is_other = ["note: ", CONFINED]
            .iter()
            .any(|start| line.starts_with(start));
        !line.trim().is_empty() && !is_other
    };
    let last = lines.lines().rev().find(says).unwrap_or("it wrote nothing");
    cut(
        last.strip_prefix("error: ").unwrap_or(last),
        LAST_LINE_BYTES_MAX,
    )
    .to_owned()
}

fn message(error: &wasmtime::Error) -> String {
    cut(&format!("{error:#}"), LAST_LINE_BYTES_MAX).to_owned()
}
