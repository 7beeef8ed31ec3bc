//! The control plane as a child process.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use innkeeper_command::{Exit, Failure, OrFail as _};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};
use tracing::{debug, warn};

use super::quoted;

/// Time for the control plane to stop by itself before it is killed.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// The file of its output, in its directory.
const OUTPUT: &str = "up.log";

/// The number of last output lines that the error contains if it fails.
const LINES_KEPT: usize = 10;

/// The failure to prepare the directory.
const MAKE_DIR: &str = "failed to create a directory for the control plane";

/// A running control plane. It stops with this process, even if this process is killed, unless it is kept.
pub(super) struct ControlPlane {
    program: PathBuf,
    process: Child,
    dir: PathBuf,
    /// Removes the directory on drop; none if the user named the directory.
    temporary: Option<TempDir>,
    keep: bool,
}

impl ControlPlane {
    /// Starts the control plane, which is not ready yet.
    pub(super) fn start(program: &Path, dir: Option<&Path>, keep: bool) -> Result<Self, Failure> {
        let (dir, temporary) = if let Some(dir) = dir {
            (dir.to_owned(), None)
        } else {
            let temporary =
                TempDir::with_prefix("innkeeper-dev-").or_fail(Exit::Failure, MAKE_DIR)?;
            (temporary.path().to_owned(), Some(temporary))
        };
        fs::create_dir_all(&dir).or_fail(Exit::Failure, MAKE_DIR)?;
        // A control plane that was killed leaves its `ready` file behind.
        if let Err(source) = fs::remove_file(dir.join("ready"))
            && source.kind() != io::ErrorKind::NotFound
        {
            return Err(source).or_fail(Exit::Failure, MAKE_DIR);
        }
        let output = File::create(dir.join(OUTPUT)).or_fail(Exit::Failure, MAKE_DIR)?;
        let errors = output.try_clone().or_fail(Exit::Failure, MAKE_DIR)?;
        let mut command = Command::new(program);
        command.arg("up").arg("--dir").arg(&dir);
        if keep {
            command.stdin(Stdio::null());
        } else {
            // The pipe of standard input closes when this process ends, for whatever reason.
            command.arg("--until-stdin-closes").stdin(Stdio::piped());
        }
        let process = command
            .stdout(output)
            .stderr(errors)
            // An own process group, so that Ctrl-C reaches only the host: it drains while the API server still runs.
            .process_group(0)
            .kill_on_drop(!keep)
            .spawn()
            .or_fail(Exit::Usage, failed(program))?;
        Ok(Self {
            program: program.to_owned(),
            process,
            dir,
            temporary,
            keep,
        })
    }

    /// Waits until it is ready.
    pub(super) async fn wait_ready(&mut self) -> Result<(), Failure> {
        let said = wait_until_ready(&mut self.process, &self.dir).await;
        if let Some(said) = said.or_fail(Exit::Usage, failed(&self.program))? {
            let message =
                format!("the control plane ended before it was ready; its last output: {said}");
            return Err(Failure::new(Exit::Failure, message));
        }
        Ok(())
    }

    /// The path of the administrator's kubeconfig.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// The program, which is kubectl as well.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Restarts the controller manager: its garbage collector would take half a minute to notice new kinds.
    pub(super) async fn teach_new_kinds(&self) {
        let restarted = Command::new(&self.program)
            .arg("ctl")
            .arg("--dir")
            .arg(&self.dir)
            .args(["restart", "controller-manager"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .await;
        debug!(?restarted, "restarted the controller manager");
    }

    /// Ends with the control plane: it is stopped, but one that is kept runs on, and the user is told how to stop it.
    pub(super) async fn end(self) -> Option<String> {
        if !self.keep {
            self.stop().await;
            return None;
        }
        drop(self.temporary.map(TempDir::keep));
        let pid = self.process.id().unwrap_or_default();
        let kubeconfig = self.dir.join("kubeconfig");
        Some(format!(
            "the control plane runs on: KUBECONFIG={}; stop it with: kill {pid}; its data is in {}",
            quoted(&kubeconfig),
            quoted(&self.dir)
        ))
    }

    /// Stops the control plane, also one that is kept, and removes its directory unless the user named it.
    pub(super) async fn stop(mut self) {
        if self.keep {
            self.terminate();
        }
        drop(self.process.stdin.take());
        match timeout(ENDS_WITHIN, self.process.wait()).await {
            Ok(Ok(status)) => debug!(%status, "the control plane ended"),
            Ok(Err(error)) => warn!(%error, "failed to wait for the control plane"),
            Err(_) => {
                warn!("the control plane did not stop in time and is killed");
                if let Err(error) = self.process.kill().await {
                    warn!(%error, "failed to kill the control plane");
                }
            }
        }
        if let Some(Err(error)) = self.temporary.map(TempDir::close) {
            warn!(%error, "failed to remove the directory of the control plane");
        }
    }

    /// Sends the signal that `kill` sends: one that is kept has no pipe that could close.
    fn terminate(&self) {
        let pid = self.process.id().and_then(|pid| pid.try_into().ok());
        if let Some(Err(error)) = pid
            .and_then(Pid::from_raw)
            .map(|pid| kill_process(pid, Signal::TERM))
        {
            warn!(%error, "failed to stop the control plane");
        }
    }
}

fn failed(program: &Path) -> String {
    format!("failed to start the control plane {}", program.display())
}

/// Waits until the control plane is ready; returns its last output if it ends instead.
async fn wait_until_ready(process: &mut Child, dir: &Path) -> io::Result<Option<String>> {
    let ready = dir.join("ready");
    loop {
        if ready.exists() {
            return Ok(None);
        }
        if process.try_wait()?.is_some() {
            let said = fs::read_to_string(dir.join(OUTPUT)).unwrap_or_default();
            let lines: Vec<&str> = said.lines().collect();
            let kept = lines.len().saturating_sub(LINES_KEPT);
            return Ok(Some(lines[kept..].join(" | ")));
        }
        sleep(Duration::from_millis(20)).await;
    }
}
