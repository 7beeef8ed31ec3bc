//! A real control plane (`tests/controlplane`) for a suite or a test.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
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

/// A running control plane; dropping the value stops it, or leaves it to the next test.
#[derive(Debug)]
pub struct ControlPlane {
    // Only the destructor takes it.
    cluster: Option<Cluster>,
    // Those of `take`.
    arguments: Option<Vec<String>>,
}

/// The processes and files of a control plane.
#[derive(Debug)]
struct Cluster {
    // Dropped first: the processes must end before their directory is removed.
    _supervisor: Running,
    directory: TempDir,
    // The names in the directory when the control plane became ready.
    first: BTreeSet<OsString>,
    user: User,
}

/// Control planes that a test has left, each as if new, with their arguments.
static LEFT: Mutex<Vec<(Vec<String>, Cluster)>> = Mutex::new(Vec::new());

impl Cluster {
    fn start(arguments: &[&str]) -> Result<Self> {
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
        Ok(Self {
            _supervisor: supervisor,
            first: names(directory.path())?,
            user: User::connect(&directory.path().join("kubeconfig"))?,
            directory,
        })
    }

    /// Makes a used control plane like a new one. Fails if that needs a new one, such as after a restart of a server.
    fn reset(mut self) -> Result<Self> {
        let directory = self.directory.path();
        let clients = clients(directory)?;
        // A destructor stops each host and relay, so fields with these are before that with the control plane.
        assert!(
            clients.is_empty(),
            "a test leaves its control plane before its client has ended: {clients:?}"
        );
        control(directory, &["reset"])?;
        for name in names(directory)?.difference(&self.first) {
            let path = directory.join(name);
            if path.is_dir() {
                fs::remove_dir_all(path)?;
            } else {
                fs::remove_file(path)?;
            }
        }
        // The old client knows kinds of definitions that have gone.
        self.user = User::connect(&directory.join("kubeconfig"))?;
        Ok(self)
    }
}

impl ControlPlane {
    /// Starts a control plane of its own.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// Starts a control plane of its own, with additional arguments to `controlplane up`.
    pub fn start_with(arguments: &[&str]) -> Result<Self> {
        Ok(Self {
            cluster: Some(Cluster::start(arguments)?),
            arguments: None,
        })
    }

    /// Takes a control plane that another test has left, or starts one. Until its end, it belongs to one test, which may
    /// also break it; if the test does not fail or restart a server, the next test gets it.
    ///
    /// A start takes 2 s of CPU time, and making a used control plane like a new one takes almost none.
    pub fn take(arguments: &[&str]) -> Result<Self> {
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        let at = left.iter().position(|(with, _)| with == arguments);
        let cluster = at.map(|at| left.swap_remove(at).1);
        drop(left);
        Ok(Self {
            cluster: Some(cluster.map_or_else(|| Cluster::start(arguments), Ok)?),
            arguments: Some(arguments.iter().map(|&argument| argument.into()).collect()),
        })
    }

    /// The control plane that a suite's tests share; each test uses a separate namespace.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<ControlPlane> = OnceLock::new();
        SHARED.get_or_init(|| Self::start().expect("the control plane should start"))
    }

    fn cluster(&self) -> &Cluster {
        self.cluster
            .as_ref()
            .expect("only the destructor takes the cluster")
    }

    /// The cluster's directory, with kubeconfigs, logs and process ids.
    pub fn directory(&self) -> &Path {
        self.cluster().directory.path()
    }

    /// The path to the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory().join("kubeconfig")
    }

    /// A client with the administrator's rights.
    pub fn user(&self) -> &User {
        &self.cluster().user
    }

    /// The first API server's audit log.
    pub fn audit(&self) -> Audit {
        Audit::open(self.directory().join("log/apiserver.audit"))
    }

    /// Creates a namespace with a unique name and returns the name.
    pub fn namespace(&self, prefix: &str) -> Result<String> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let name = format!("{prefix}-{}", COUNTER.fetch_add(1, Ordering::Relaxed));
        self.user().apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
        }))?;
        Ok(name)
    }

    /// Applies every object from an example to a namespace, and returns them.
    pub fn apply_example(&self, namespace: &str, path: &str) -> Result<Vec<Value>> {
        let mut objects = manifest::load(path)?;
        for object in &mut objects {
            object["metadata"]["namespace"] = namespace.into();
            self.user().apply(object)?;
        }
        Ok(objects)
    }

    /// Runs a `controlplane ctl` verb, such as `pause apiserver`; returns the output.
    pub fn control(&self, arguments: &[&str]) -> Result<String> {
        control(self.directory(), arguments)
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

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // What a failed test leaves could fail the next one.
        if thread::panicking() {
            return;
        }
        let (Some(cluster), Some(arguments)) = (self.cluster.take(), self.arguments.take()) else {
            return;
        };
        if let Ok(cluster) = cluster.reset() {
            let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
            left.push((arguments, cluster));
        }
    }
}

fn control(directory: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(path_from_env("INNKEEPER_CONTROLPLANE")?)
        .args(["ctl", "--dir"])
        .arg(directory)
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

fn names(directory: &Path) -> Result<BTreeSet<OsString>> {
    let entries = fs::read_dir(directory)?;
    Ok(entries
        .map(|entry| Ok(entry?.file_name()))
        .collect::<std::io::Result<_>>()?)
}

/// The command lines of all processes that name a file in a control plane's directory, except the control plane's own.
fn clients(directory: &Path) -> Result<Vec<String>> {
    let own: BTreeSet<String> = fs::read_dir(directory.join("pid"))?
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
        .map(|id| id.trim().to_owned())
        .collect();
    let directory = directory.to_string_lossy();
    let running = fs::read_dir("/proc")?.filter_map(|entry| {
        let id = entry.ok()?.file_name().into_string().ok()?;
        // Processes end meanwhile.
        let line = fs::read(format!("/proc/{id}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        (!own.contains(&id) && line.contains(&*directory)).then_some(line)
    });
    Ok(running.collect())
}
