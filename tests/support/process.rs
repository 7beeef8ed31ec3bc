//! Child processes that never outlive the test process.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// The absolute path that an environment variable names; the scripts that run the suites set it.
#[expect(
    clippy::disallowed_methods,
    reason = "the suites are told by their scripts where the product is"
)]
pub fn path_from_env(variable: &str) -> Result<PathBuf> {
    let path = env::var_os(variable)
        .map(PathBuf::from)
        .with_context(|| format!("{variable} is not set: run the suites by ./tests/run"))?;
    if !path.exists() {
        bail!(
            "{variable} names {}, which does not exist: run ./tests/setup",
            path.display()
        );
    }
    Ok(path)
}

/// Whether the long variants are asked for.
#[expect(
    clippy::disallowed_methods,
    reason = "the suites are told by their scripts how long they may take"
)]
pub fn is_full() -> bool {
    env::var_os("INNKEEPER_FULL").is_some_and(|value| value == "1")
}

/// Where random cases start: a fixed seed, so that every run tests the same, unless `INNKEEPER_SEED` gives another.
#[expect(
    clippy::disallowed_methods,
    reason = "the one who runs a suite says which cases it makes up"
)]
pub fn seed() -> u64 {
    let given = env::var("INNKEEPER_SEED").ok();
    given.map_or(1, |seed| {
        seed.parse().expect("INNKEEPER_SEED should be a number")
    })
}

/// The plan of faults that is to be replayed alone; none: all that the suite has.
#[expect(
    clippy::disallowed_methods,
    reason = "the one who runs a suite says which plan is of interest"
)]
pub fn plan() -> Option<String> {
    env::var("INNKEEPER_PLAN").ok()
}

/// A command whose process is told to end when the test process has ended, however it ends; start it by `spawn_bound`.
pub fn bound(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "TERM"])
        .arg(program)
        .stdin(Stdio::null());
    command
}

/// Starts a command that `bound` made.
///
/// The kernel sends the signal when the *thread* that forked has ended, and the threads of tests end early: so a thread
/// of its own forks and then stays.
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

/// What a process has used since its start.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// CPU time of all its threads, in steps of 10 ms.
    pub cpu: Duration,
    /// What is resident now.
    pub resident_bytes: u64,
    /// What of it belongs to no file.
    pub anonymous_bytes: u64,
    /// The most that was resident at one time.
    pub resident_max_bytes: u64,
}

/// A process that is ended when the value is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

impl Running {
    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The number of the process, as the system calls take it.
    pub fn pid(&self) -> Result<Pid> {
        let pid = i32::try_from(self.child.id())?;
        Pid::from_raw(pid).context("a started process has a pid")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.pid()?, signal)?)
    }

    /// The exit status if it has ended.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// What it has used so far; fails once it has ended.
    pub fn usage(&self) -> Result<Usage> {
        /// The unit of CPU times that the kernel shows, on every machine that Rust and Go know.
        const TICK: Duration = Duration::from_millis(10);

        let read = |name| fs::read_to_string(format!("/proc/{}/{name}", self.id()));
        let stat = read("stat")?;
        // The second field is a name, which may hold anything; after it come the state and ten more fields.
        let (_, fields) = stat.rsplit_once(") ").context("no name in stat")?;
        let ticks = |at| -> Result<u32> {
            let field = fields.split(' ').nth(at).context("stat is too short")?;
            Ok(field.parse()?)
        };
        let status = read("status")?;
        let bytes = |field: &str| {
            let kib = status.lines().find_map(|line| {
                let kib = line.strip_prefix(field)?.trim().strip_suffix(" kB")?;
                kib.parse::<u64>().ok()
            });
            Ok::<_, anyhow::Error>(1024 * kib.context("the process has ended")?)
        };
        Ok(Usage {
            cpu: TICK * (ticks(11)? + ticks(12)?),
            resident_bytes: bytes("VmRSS:")?,
            anonymous_bytes: bytes("RssAnon:")?,
            resident_max_bytes: bytes("VmHWM:")?,
        })
    }

    /// Waits until it has ended.
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

    /// Ends it at once.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let asked = self.signal(Signal::TERM);
        if asked.is_err() || self.wait_for(Duration::from_secs(10)).is_err() {
            // Already gone, or deaf: nothing more can be done from a destructor.
            drop(self.kill());
        }
    }
}
