//! A real control plane (`tests/controlplane`) for a suite or a test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    audit::Audit,
    manifest,
    process::{Running, Usage, bound_with_log, path_from_env, spawn_bound},
    user::User,
    wait::eventually,
};

/// A running control plane; dropping the value stops it.
#[derive(Debug)]
pub struct ControlPlane {
    // Dropped first: the processes must end before their directory is removed.
    _supervisor: Running,
    directory: TempDir,
    user: User,
}

impl ControlPlane {
    /// Starts a control plane for one test that breaks it, restarts hosts or counts all requests.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// Starts a control plane with additional arguments to `controlplane up`.
    pub fn start_with(arguments: &[&str]) -> Result<Self> {
        let binary = path_from_env("INNKEEPER_CONTROLPLANE")?;
        let directory = tempfile::Builder::new()
            .prefix("innkeeper-test-")
            .tempdir()?;
        let log = directory.path().join("supervisor.log");
        let mut command = bound_with_log(&binary, &log)?;
        command
            .arg("up")
            .arg("--dir")
            .arg(directory.path())
            .args(arguments);
        let mut supervisor = spawn_bound(command)?;
        let ready = directory.path().join("ready");
        eventually("the control plane becomes ready", || {
            if let Ok(Some(status)) = supervisor.try_wait() {
                let log = fs::read_to_string(&log);
                panic!("the control plane ended with {status}: {log:?}");
            }
            if ready.exists() {
                Ok(())
            } else {
                Err("no ready file")
            }
        });
        let user = User::connect(&directory.path().join("kubeconfig"))?;
        Ok(Self {
            _supervisor: supervisor,
            directory,
            user,
        })
    }

    /// The control plane that a suite's tests share; each test uses a separate namespace.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<ControlPlane> = OnceLock::new();
        SHARED.get_or_init(|| Self::start().expect("the control plane should start"))
    }

    /// The cluster's directory, with kubeconfigs, logs and process ids.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The path to the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory().join("kubeconfig")
    }

    /// A client with the administrator's rights.
    pub fn user(&self) -> &User {
        &self.user
    }

    /// The first API server's audit log.
    pub fn audit(&self) -> Audit {
        Audit::open(self.directory().join("log/apiserver.audit"))
    }

    /// Creates a namespace with a unique name and returns the name.
    pub fn namespace(&self, prefix: &str) -> Result<String> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let name = format!("{prefix}-{}", COUNTER.fetch_add(1, Ordering::Relaxed));
        self.user.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
        }))?;
        Ok(name)
    }

    /// Applies every object from an example to a namespace, and returns them.
    pub fn apply_example(&self, namespace: &str, path: &str) -> Result<Vec<Value>> {
        let mut objects = manifest::load(path)?;
        for object in &mut objects {
            object["metadata"]["namespace"] = namespace.into();
            self.user.apply(object)?;
        }
        Ok(objects)
    }

    /// Runs a `controlplane ctl` verb, such as `pause apiserver`; returns the output.
    pub fn control(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(path_from_env("INNKEEPER_CONTROLPLANE")?)
            .args(["ctl", "--dir"])
            .arg(self.directory())
            .args(arguments)
            .output()?;
        if !output.status.success() {
            bail!(
                "ctl {arguments:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Reads the CPU time and memory of one process, such as `apiserver`.
    pub fn usage(&self, name: &str) -> Result<Usage> {
        let path = self.directory().join("pid").join(name);
        let pid = fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        Usage::read(pid.trim().parse()?)
    }

    /// Returns the log of one process, for failure messages.
    pub fn log(&self, name: &str) -> Result<String> {
        let path = self.directory().join("log").join(format!("{name}.log"));
        fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))
    }
}
