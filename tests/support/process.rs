//! Child processes that never outlive the test process, and the suites' environment variables.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Returns the absolute path in an environment variable set by `tests/environment`.
#[expect(
    clippy::disallowed_methods,
    reason = "the scripts pass the paths of the product in the environment"
)]
pub fn path_from_env(variable: &str) -> Result<PathBuf> {
    let path = env::var_os(variable)
        .map(PathBuf::from)
        .with_context(|| format!("{variable} is not set: run the suites with ./tests/run"))?;
    if !path.exists() {
        bail!(
            "{variable} names {}, which does not exist: run ./tests/setup",
            path.display()
        );
    }
    Ok(path)
}

/// Returns true if `INNKEEPER_FULL=1` requests the long test variants.
#[expect(
    clippy::disallowed_methods,
    reason = "the scripts request long runs in the environment"
)]
pub fn is_full() -> bool {
    env::var_os("INNKEEPER_FULL").is_some_and(|value| value == "1")
}

/// The seed for random cases: `INNKEEPER_SEED`, or 1, so that every run tests the same cases.
#[expect(
    clippy::disallowed_methods,
    reason = "the person who runs a suite can choose the random cases"
)]
pub fn seed() -> u64 {
    env::var("INNKEEPER_SEED").ok().map_or(1, |seed| {
        seed.parse().expect("INNKEEPER_SEED should be a number")
    })
}

/// The time for each fuzz target from `INNKEEPER_FUZZ_SECONDS`; `None` runs a fixed number of inputs.
#[expect(
    clippy::disallowed_methods,
    reason = "the person who runs a suite can choose the time"
)]
pub fn fuzz_seconds() -> Option<u64> {
    let seconds = env::var("INNKEEPER_FUZZ_SECONDS").ok()?;
    Some(
        seconds
            .parse()
            .expect("INNKEEPER_FUZZ_SECONDS should be a number"),
    )
}

/// The one fault plan to run, from `INNKEEPER_PLAN`; `None` runs them all.
#[expect(
    clippy::disallowed_methods,
    reason = "the person who runs a suite can choose one plan"
)]
pub fn plan() -> Option<String> {
    env::var("INNKEEPER_PLAN").ok()
}

/// A command whose process gets SIGTERM when the test process ends for any reason; start it with `spawn_bound`.
pub fn bound(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "TERM"])
        .arg(program)
        .stdin(Stdio::null());
    command
}

/// Like `bound`, with both outputs in this new file.
pub fn bound_with_log(program: &Path, log: &Path) -> Result<Command> {
    let log = File::create(log)?;
    let mut command = bound(program);
    command.stdout(log.try_clone()?).stderr(log);
    Ok(command)
}

/// Starts a command created by `bound`.
///
/// The kernel sends the signal when the *thread* that forked ends, and test threads end long before the process. So a
/// separate thread forks and then stays parked.
pub fn spawn_bound(mut command: Command) -> Result<Running> {
    let (sender, receiver) = mpsc::channel();
    let shown = format!("{command:?}");
    thread::Builder::new()
        .name("bound child".into())
        .spawn(move || {
            if sender.send(command.spawn()).is_ok() {
                loop {
                    thread::park();
                }
            }
        })?;
    let child = receiver
        .recv()?
        .with_context(|| format!("failed to start {shown}"))?;
    Ok(Running { child })
}

/// A process's CPU time since it started, and its memory.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// CPU time for all threads, in steps of 10 ms.
    pub cpu: Duration,
    /// Current resident memory.
    pub resident_bytes: u64,
    /// Resident memory without a backing file.
    pub anonymous_bytes: u64,
    /// Peak resident memory.
    pub resident_max_bytes: u64,
}

impl Usage {
    /// Reads a process's usage from /proc; fails once the process has ended.
    pub fn read(id: u32) -> Result<Self> {
        /// The unit for CPU times in /proc: `USER_HZ` is 100 on all architectures that Rust and Go support.
        const TICK: Duration = Duration::from_millis(10);

        let read = |name| fs::read_to_string(format!("/proc/{id}/{name}"));
        let stat = read("stat")?;
        // The second field is the program's name, which may contain spaces and brackets. Behind its closing bracket come
        // the state and then ten fields before the CPU times.
        let (_, fields) = stat.rsplit_once(") ").context("no name in stat")?;
        let ticks = |at| -> Result<u32> {
            let field = fields.split(' ').nth(at).context("stat is too short")?;
            Ok(field.parse()?)
        };
        let status = read("status")?;
        let bytes = |field: &str| {
            let kib = status.lines().find_map(|line| {
                line.strip_prefix(field)?
                    .trim()
                    .strip_suffix(" kB")?
                    .parse::<u64>()
                    .ok()
            });
            Ok::<_, anyhow::Error>(1024 * kib.context("the process has ended")?)
        };
        Ok(Self {
            cpu: TICK * (ticks(11)? + ticks(12)?),
            resident_bytes: bytes("VmRSS:")?,
            anonymous_bytes: bytes("RssAnon:")?,
            resident_max_bytes: bytes("VmHWM:")?,
        })
    }
}

/// A running process; dropping the value stops it.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

impl Running {
    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The process id as a `rustix` type.
    pub fn pid(&self) -> Result<Pid> {
        let pid = i32::try_from(self.child.id())?;
        Pid::from_raw(pid).context("a started process has a pid")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.pid()?, signal)?)
    }

    /// The exit status if the process has ended.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Reads the process's usage; fails once the process has ended.
    pub fn usage(&self) -> Result<Usage> {
        Usage::read(self.id())
    }

    /// Returns how many bytes of the program file are resident.
    pub fn program_bytes(&self) -> Result<u64> {
        let id = self.id();
        let program = fs::read_link(format!("/proc/{id}/exe"))?;
        let maps = fs::read_to_string(format!("/proc/{id}/smaps"))?;
        let mut is_of_program = false;
        let mut kib = 0;
        for line in maps.lines() {
            if let Some(resident) = line.strip_prefix("Rss:") {
                if is_of_program {
                    let size = resident.trim().strip_suffix(" kB");
                    kib += size.context("no size in smaps")?.parse::<u64>()?;
                }
            } else if line
                .split(' ')
                .next()
                .is_some_and(|word| word.contains('-'))
            {
                // Each mapping begins with a line that has the addresses first and the file last.
                is_of_program = line.ends_with(&*program.to_string_lossy());
            }
        }
        Ok(1024 * kib)
    }

    /// Waits until the process has ended; fails after the deadline.
    pub fn wait_for(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            if start.elapsed() > deadline {
                bail!(
                    "process {} did not end within {deadline:?}",
                    self.child.id()
                );
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the process (SIGKILL) and waits until it has ended.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let signalled = self.signal(Signal::TERM);
        if signalled.is_err() || self.wait_for(Duration::from_secs(10)).is_err() {
            // The process has ended already, or ignores SIGTERM. A destructor cannot report that the kill failed.
            drop(self.kill());
        }
    }
}
