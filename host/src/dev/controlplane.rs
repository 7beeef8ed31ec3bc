//! Runs the control plane as a child process.

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

/// How long the control plane may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The output's file name.
const OUTPUT: &str = "up.log";

/// The number of output lines in an error.
const LINES_MAX: usize = 10;

const MAKE_DIR: &str = "failed to create a directory for the control plane";

/// A running control plane. Without `keep`, it stops with this process, even if this process is killed.
pub(super) struct ControlPlane {
    program: PathBuf,
    process: Child,
    dir: PathBuf,
    /// Removes the directory on drop; none if the user named one.
    temporary: Option<TempDir>,
    keep: bool,
}

impl ControlPlane {
    /// Starts the control plane.
    pub(super) fn start(program: &Path, dir: Option<&Path>, keep: bool) -> Result<Self, Failure> {
        let (dir, temporary) = if let Some(dir) = dir {
            (dir.to_owned(), None)
        } else {
            let temporary =
                TempDir::with_prefix("innkeeper-dev-").or_fail(Exit::Failure, MAKE_DIR)?;
            (temporary.path().to_owned(), Some(temporary))
        };
        fs::create_dir_all(&dir).or_fail(Exit::Failure, MAKE_DIR)?;
        // A killed control plane leaves its `ready` file behind.
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
            // The pipe closes however this process ends.
            command.arg("--until-stdin-closes").stdin(Stdio::piped());
        }
        let process = command
            .stdout(output)
            .stderr(errors)
            // A new process group, so that Ctrl-C reaches only the host, which needs the API server to drain.
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

    /// Waits until the control plane is ready.
    pub(super) async fn wait_ready(&mut self) -> Result<(), Failure> {
        let output = wait_until_ready(&mut self.process, &self.dir)
            .await
            .or_fail(Exit::Usage, failed(&self.program))?;
        if let Some(output) = output {
            let message =
                format!("the control plane ended before it was ready; its last output: {output}");
            return Err(Failure::new(Exit::Failure, message));
        }
        Ok(())
    }

    /// The administrator's kubeconfig.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// The program, which is also kubectl.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Restarts the controller manager: its garbage collector would take half a minute to notice new kinds.
    pub(super) async fn restart_controller_manager(&self) {
        let result = Command::new(&self.program)
            .arg("ctl")
            .arg("--dir")
            .arg(&self.dir)
            .args(["restart", "controller-manager"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .await;
        debug!(?result, "restarted the controller manager");
    }

    /// Stops the control plane, or with `keep` returns a message on how to stop it.
    pub(super) async fn end(self) -> Option<String> {
        if !self.keep {
            self.stop().await;
            return None;
        }
        // A drop would remove the directory under the running control plane.
        drop(self.temporary.map(TempDir::keep));
        let pid = self.process.id().unwrap_or_default();
        let kubeconfig = self.dir.join("kubeconfig");
        Some(format!(
            "the control plane runs on: KUBECONFIG={}; stop it with: kill {pid}; its data is in {}",
            quoted(&kubeconfig),
            quoted(&self.dir)
        ))
    }

    /// Stops the control plane even with `keep`, and removes its directory unless the user named it.
    pub(super) async fn stop(mut self) {
        if self.keep {
            self.terminate();
        }
        // Without `keep`, the control plane stops once its standard input closes.
        drop(self.process.stdin.take());
        match timeout(STOP_TIMEOUT, self.process.wait()).await {
            Ok(Ok(status)) => debug!(%status, "the control plane ended"),
            Ok(Err(error)) => warn!(%error, "failed to wait for the control plane"),
            Err(_) => {
                warn!("killing the control plane: it did not stop in time");
                if let Err(error) = self.process.kill().await {
                    warn!(%error, "failed to kill the control plane");
                }
            }
        }
        if let Some(Err(error)) = self.temporary.map(TempDir::close) {
            warn!(%error, "failed to remove the control plane's directory");
        }
    }

    /// Sends SIGTERM: with `keep` there is no pipe to close.
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
            let output = fs::read_to_string(dir.join(OUTPUT)).unwrap_or_default();
            let lines: Vec<&str> = output.lines().collect();
            let start = lines.len().saturating_sub(LINES_MAX);
            return Ok(Some(lines[start..].join(" | ")));
        }
        sleep(Duration::from_millis(20)).await;
    }
}
