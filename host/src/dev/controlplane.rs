//! The control plane as a child process.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};
use tracing::{debug, warn};

use super::Error;

/// How long the control plane may take to end by itself.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Where its output goes, below its directory.
const OUTPUT: &str = "up.log";

/// How many of its last lines are told when it fails.
const LINES_KEPT: usize = 10;

/// A control plane that runs; it ends with this process, however that ends.
pub(super) struct ControlPlane {
    program: PathBuf,
    process: Child,
    dir: PathBuf,
    /// Removes the directory when dropped.
    temporary: Option<TempDir>,
}

impl ControlPlane {
    /// Starts it and waits until it is ready.
    pub(super) async fn start(program: &Path, dir: Option<&Path>) -> Result<Self, Error> {
        let temporary = match dir {
            Some(_) => None,
            None => Some(TempDir::with_prefix("innkeeper-dev-").map_err(Error::MakeDir)?),
        };
        let dir = match (dir, &temporary) {
            (Some(dir), _) => dir.to_owned(),
            (None, Some(temporary)) => temporary.path().to_owned(),
            (None, None) => PathBuf::new(),
        };
        let failed = |source: io::Error| Error::StartControlPlane {
            program: program.to_owned(),
            source,
        };
        fs::create_dir_all(&dir).map_err(Error::MakeDir)?;
        // A control plane that was killed leaves it over.
        if let Err(source) = fs::remove_file(dir.join("ready"))
            && source.kind() != io::ErrorKind::NotFound
        {
            return Err(Error::MakeDir(source));
        }
        let output = File::create(dir.join(OUTPUT)).map_err(Error::MakeDir)?;
        let mut process = Command::new(program)
            .arg("up")
            .arg("--dir")
            .arg(&dir)
            // Standard input stays open for as long as this process lives.
            .arg("--until-stdin-closes")
            .stdin(Stdio::piped())
            .stdout(output.try_clone().map_err(Error::MakeDir)?)
            .stderr(output)
            // An interrupt on the terminal is for the host, which wants to drain while there is an API server.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let said = wait_until_ready(&mut process, &dir).await.map_err(failed)?;
        match said {
            None => Ok(Self {
                program: program.to_owned(),
                process,
                dir,
                temporary,
            }),
            Some(said) => Err(Error::ControlPlaneEnded { said }),
        }
    }

    /// The kubeconfig of its administrator.
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

    /// Ends it, and removes its directory unless somebody named one.
    pub(super) async fn end(self) {
        let Self {
            mut process,
            temporary,
            ..
        } = self;
        drop(process.stdin.take());
        match timeout(ENDS_WITHIN, process.wait()).await {
            Ok(Ok(status)) => debug!(%status, "the control plane ended"),
            Ok(Err(error)) => warn!(%error, "failed to wait for the control plane"),
            Err(_) => {
                warn!("the control plane does not end and is killed");
                if let Err(error) = process.kill().await {
                    warn!(%error, "failed to kill the control plane");
                }
            }
        }
        if let Some(Err(error)) = temporary.map(TempDir::close) {
            warn!(%error, "failed to remove the directory of the control plane");
        }
    }
}

/// Waits until it is ready; if it ends instead, what it said last.
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
