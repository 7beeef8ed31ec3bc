//! Compiles in processes of their own, and keeps what they make.
//!
//! The compiler takes time and memory out of all proportion to some components, and it is no error of it.
//! So it runs where it can be bounded and killed: the same program as the host, without its environment, its descriptors
//! and its memory; [`child`](mod@super::child) is what runs there.
//! What such a process finds out about bytes is remembered, unless it says more about the machine than about the bytes.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Seek, Write},
    num::NonZeroU32,
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
    process::{Pid, PidfdFlags, Resource, Signal, getrlimit, pidfd_open},
};
use tracing::{debug, info};

use super::{Artifact, Cache, Error, Limits, cache::Mapped, child, look_up, verdict::Verdict};
use crate::{Engine, Metering, log::cut, semaphore::Semaphore};

/// The descriptors that a process gets: its standard streams.
const DESCRIPTORS_KEPT: RawFd = 3;

/// How much of what a process said is kept, in bytes.
const WORDS_BYTES_MAX: usize = 2048;

/// How much of it is looked at.
const WORDS_READ_MAX: u64 = 1 << 20;

/// What the standard library says before it gives up for lack of memory, and what the compiler does.
const OUT_OF_MEMORY: [&str; 2] = ["memory allocation of", "out of memory"];

/// What the code of a process is after a panic in Rust.
const PANICKED: i32 = 101;

/// What compiling one component may take, and how many may be compiled at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileBounds {
    /// Processes at a time.
    pub processes_max: NonZeroU32,
    /// Address space in bytes. A component of 1 MB takes about 300 MB.
    pub memory_bytes_max: u64,
    /// CPU time in seconds. A component of 1 MB takes about one.
    pub cpu_seconds_max: u64,
    /// Native code in bytes, with what it needs beside the code.
    pub code_bytes_max: u64,
    /// Time until the process is killed. Long, because a process that merely gets little CPU is innocent.
    pub wall_max: Duration,
    /// How often one that was killed is started again.
    pub retries_max: u32,
}

impl CompileBounds {
    /// The usual bounds on a machine of so many processors, where all processes together may use so much memory.
    ///
    /// Compilers get at most half of the memory: when a container uses up its own, the kernel may end all of it.
    pub fn on(processors: NonZeroU32, memory_bytes_max: Option<u64>) -> Self {
        const MEMORY_BYTES_MAX: u64 = 2 << 30;

        let share = memory_bytes_max.map_or(u64::MAX, |bytes| bytes / 2);
        let each = share.min(MEMORY_BYTES_MAX);
        let fit = share.checked_div(each).unwrap_or(0);
        let fit = u32::try_from(fit).unwrap_or(u32::MAX);
        let fit = NonZeroU32::new(fit).unwrap_or(NonZeroU32::MIN);
        Self {
            processes_max: processors.min(fit),
            memory_bytes_max: each,
            cpu_seconds_max: 30,
            code_bytes_max: 512 << 20,
            wall_max: Duration::from_mins(2),
            retries_max: 3,
        }
    }
}

/// A program, and what stands before the flags of the command `compile`.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<OsString>,
}

impl Program {
    /// The program that runs now, also when its file has been replaced or removed since.
    pub fn of_process() -> Self {
        Self {
            path: PathBuf::from("/proc/self/exe"),
            arguments: vec!["compile".into()],
        }
    }
}

/// Compiles plugins in processes of their own, one per processor at a time; one that is alone has all processors.
pub struct Compiler {
    cache: Cache,
    program: Program,
    bounds: CompileBounds,
    /// One permit per process.
    processes: Semaphore,
}

impl Compiler {
    /// Keeps what it makes in a cache.
    pub fn new(cache: Cache, program: Program, bounds: CompileBounds) -> Self {
        let processes_max = usize::try_from(bounds.processes_max.get()).unwrap_or(usize::MAX);
        Self {
            cache,
            program,
            bounds,
            processes: Semaphore::new(processes_max),
        }
    }

    /// Checks and compiles, or takes the compiled form from the cache.
    ///
    /// Blocks for as long as compiling takes and, as many are compiled already as may be, until there is a turn.
    pub fn compile(
        &self,
        engine: &Engine,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<Artifact, Error> {
        let (inspection, cached) = look_up(engine, bytes, limits, Some(&self.cache))?;
        let contract = inspection.contract.ok_or(Error::MissingExport)?;
        let digest = inspection.digest;
        let Mapped { component, file } = match cached {
            Some(mapped) => mapped,
            None => self.make(engine, &digest, bytes)?,
        };
        Ok(Artifact {
            component,
            file: Some(file),
            digest,
            contract,
            description: inspection.description,
        })
    }

    fn make(&self, engine: &Engine, digest: &Digest, bytes: &[u8]) -> Result<Mapped, Error> {
        let Self { cache, bounds, .. } = self;
        if let Some(verdict) = cache.verdict(engine, digest, bounds) {
            debug!(%digest, ?verdict, "it is known that a plugin cannot be compiled");
            return Err(verdict.into_error(bounds));
        }
        let started = Instant::now();
        let refused = |verdict: Verdict| {
            cache.remember(engine, digest, bounds, &verdict);
            verdict.into_error(bounds)
        };
        let mut times = 0;
        loop {
            let ended = {
                let permit = self.processes.acquire(1);
                // Every processor on which no other process compiles.
                let threads = permit.left().saturating_add(1);
                self.run(engine, bytes, threads)?
            };
            times += 1;
            match ended {
                Ended::Compiled(code) => {
                    let kept = cache.adopt(engine, digest, code);
                    let mapped = kept.map_err(|source| Error::Keep { source })?;
                    info!(%digest, elapsed = ?started.elapsed(), "compiled a plugin");
                    // Such as a memory that is larger than any instance may have.
                    return mapped.map_err(|error| refused(Verdict::Refused(words_of(&error))));
                }
                Ended::Found(verdict) => return Err(refused(verdict)),
                Ended::Killed(cause) if times > bounds.retries_max => {
                    return Err(Error::CompilerKilled { times, cause });
                }
                Ended::Killed(cause) => {
                    info!(%digest, cause, "a compiler did not come to its end and is started again");
                }
            }
        }
    }

    /// Runs one process to its end.
    fn run(&self, engine: &Engine, bytes: &[u8], threads: usize) -> Result<Ended, Error> {
        let failed = |source| Error::RunCompiler { source };
        let code = self
            .cache
            .begin()
            .map_err(|source| Error::Keep { source })?;
        let mut input = in_memory("component").map_err(failed)?;
        input
            .write_all(bytes)
            .and_then(|()| input.rewind())
            .map_err(failed)?;
        let mut words = in_memory("words").map_err(failed)?;
        let fuel = engine.settings().metering == Metering::Fuel;
        let mut command = self.command(threads, fuel);
        command
            .stdin(input)
            .stdout(code.reopen().map_err(failed)?)
            .stderr(words.try_clone().map_err(failed)?);
        let status = Running::start(command)
            .and_then(|process| process.end_within(self.bounds.wall_max))
            .map_err(failed)?;
        let Some(status) = status else {
            let seconds = self.bounds.wall_max.as_secs_f32();
            return Ok(Ended::Killed(format!(
                "because it took more than {seconds} s"
            )));
        };
        if status.success() {
            return Ok(Ended::Compiled(code));
        }
        if status.signal() == Some(Signal::XFSZ.as_raw()) && self.may_not_write() {
            return Err(failed(rustix::io::Errno::FBIG.into()));
        }
        let said = last_words(&mut words).map_err(failed)?;
        ended(status, said).map_err(failed)
    }

    /// Whether this process, and so all that it starts, may write less than code may have: that says nothing about a
    /// component.
    fn may_not_write(&self) -> bool {
        let most = getrlimit(Resource::Fsize).current;
        most.is_some_and(|most| most < self.bounds.code_bytes_max)
    }

    fn command(&self, threads: usize, fuel: bool) -> Command {
        let CompileBounds {
            processes_max: _,
            memory_bytes_max,
            cpu_seconds_max,
            code_bytes_max,
            wall_max: _,
            retries_max: _,
        } = self.bounds;
        let mut command = Command::new(&self.program.path);
        command
            .arg0("innkeeper")
            .args(&self.program.arguments)
            .arg(format!("--memory-bytes-max={memory_bytes_max}"))
            .arg(format!("--cpu-seconds-max={cpu_seconds_max}"))
            .arg(format!("--code-bytes-max={code_bytes_max}"))
            .arg(format!("--threads={threads}"))
            .args(fuel.then_some("--fuel"))
            // Credentials are there, among other things that do not concern it.
            .env_clear()
            .current_dir("/")
            // What a terminal sends to the host is not for it.
            .process_group(0);
        command
    }
}

/// How a process ended.
enum Ended {
    /// With code, in this file.
    Compiled(tempfile::NamedTempFile),
    /// Without, and so it would every time.
    Found(Verdict),
    /// By somebody else, and why.
    Killed(String),
}

/// What follows from the end of a process that made nothing.
fn ended(status: ExitStatus, said: String) -> io::Result<Ended> {
    let verdict = match (
        status.code(),
        status.signal().and_then(Signal::from_named_raw),
    ) {
        (Some(code), _) if child::is_refusal(code) => Verdict::Refused(said),
        (Some(PANICKED), _) => Verdict::Broke(said),
        (_, Some(Signal::XCPU)) => Verdict::Cpu,
        (_, Some(Signal::XFSZ)) => Verdict::Code,
        (_, Some(Signal::ABORT | Signal::SEGV | Signal::ILL | Signal::BUS)) => {
            Verdict::Broke(format!("{status}: {said}"))
        }
        // The kernel's choice when memory is short, and anybody else's.
        (None, _) => return Ok(Ended::Killed(format!("by {status}"))),
        (Some(_), _) => return Err(io::Error::other(said)),
    };
    match verdict {
        Verdict::Refused(said) | Verdict::Broke(said)
            if OUT_OF_MEMORY.iter().any(|words| said.contains(words)) =>
        {
            Ok(Ended::Found(Verdict::Memory))
        }
        verdict => Ok(Ended::Found(verdict)),
    }
}

/// A process that is killed when the value goes.
struct Running {
    child: Child,
}

impl Running {
    fn start(mut command: Command) -> io::Result<Self> {
        // The host's own close themselves; those that it was started with may not.
        close_fds::set_fds_cloexec_threadsafe(DESCRIPTORS_KEPT, &[]);
        let child = command.spawn()?;
        Ok(Self { child })
    }

    /// Waits for its end; none if that took too long.
    fn end_within(mut self, wall_max: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + wall_max;
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
        // It has not been waited for, so that the number is still its own.
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            let mut watched = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
            match poll(&mut watched, Some(&timeout)) {
                Ok(0) => return Ok(None),
                Ok(_) => return self.child.wait().map(Some),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended cannot be killed, and has been waited for.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A file that is on no disk.
fn in_memory(name: &str) -> io::Result<File> {
    Ok(File::from(memfd_create(name, MemfdFlags::CLOEXEC)?))
}

/// The last line that a process wrote, without what all of them begin with.
fn last_words(words: &mut File) -> io::Result<String> {
    let mut said = Vec::new();
    words.rewind()?;
    words.take(WORDS_READ_MAX).read_to_end(&mut said)?;
    let said = String::from_utf8_lossy(&said);
    // The standard library ends with advice for whoever can start the process again.
    let says = |line: &&str| !line.trim().is_empty() && !line.starts_with("note: ");
    let last = said.lines().rev().find(says);
    let last = last.unwrap_or("it said nothing");
    let last = last.strip_prefix("error: ").unwrap_or(last);
    Ok(cut(last, WORDS_BYTES_MAX).to_owned())
}

fn words_of(error: &wasmtime::Error) -> String {
    cut(&format!("{error:#}"), WORDS_BYTES_MAX).to_owned()
}
