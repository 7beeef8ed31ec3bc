//! Child processes that never outlive the test process.

use std::{
    env,
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

/// Whether plans of faults are to be tried: they take longer than an ordinary run may.
#[expect(
    clippy::disallowed_methods,
    reason = "the suites are told by their scripts how long they may take"
)]
pub fn tries_plans() -> bool {
    is_full() || env::var_os("INNKEEPER_FAULTS").is_some_and(|value| value == "1")
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
