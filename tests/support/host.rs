//! The host as a process, started from its binary as users do.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    manifest::{load, parse, root},
    process::{Running, bound, path_from_env, spawn_bound},
    wait::{eventually, eventually_for},
};

/// Returns the objects that `innkeeper manifests` prints for plugins.
pub fn manifests(plugins: &[PathBuf], arguments: &[&str]) -> Result<Vec<Value>> {
    let output = Command::new(path_from_env("INNKEEPER_BIN")?)
        .arg("manifests")
        .args(plugins)
        .args(arguments)
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    parse(&String::from_utf8(output.stdout)?)
}

/// Arguments, environment and limits of a host.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// Plugin files.
    pub plugins: Vec<PathBuf>,
    /// Further arguments to `innkeeper run`.
    pub arguments: Vec<String>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
    /// The cache directory; `None` gives the host a new one.
    pub cache: Option<PathBuf>,
    /// Process limits, as arguments to `prlimit`.
    pub limits: Vec<String>,
}

impl HostOptions {
    /// Options for a host that serves the shipped guests with these names.
    pub fn with_guests(names: &[&str]) -> Result<Self> {
        let directory = path_from_env("INNKEEPER_GUESTS")?;
        let plugins = names
            .iter()
            .map(|name| directory.join(format!("{name}.wasm")))
            .collect();
        Ok(Self {
            plugins,
            ..Self::default()
        })
    }
}

impl HostOptions {
    /// Returns the `--grants` value for a plugin; `None` if it needs no grants, or if the arguments contain them.
    ///
    /// Shipped guests use the grants in `examples/plugins`, test guests those in their own directory.
    fn grants_of(&self, plugin: &Path, directory: &Path) -> Result<Option<String>> {
        let name = plugin.file_stem().unwrap_or_default().to_string_lossy();
        let prefix = format!("{name}=");
        let is_given = |pair: &[String]| pair[0] == "--grants" && pair[1].starts_with(&prefix);
        if self.arguments.windows(2).any(is_given) {
            return Ok(None);
        }
        let file = root().join("tests/guests").join(&*name).join("grants.yaml");
        if file.exists() {
            return Ok(Some(format!("{prefix}{}", file.display())));
        }
        let example = format!("examples/plugins/{name}.yaml");
        if !root().join(&example).exists() {
            return Ok(None);
        }
        let plugin = load(&example)?
            .into_iter()
            .find(|object| object["kind"] == "Plugin")
            .unwrap_or_default();
        let file = directory.join(format!("{name}.grants.yaml"));
        fs::write(&file, plugin["spec"]["grants"].to_string())?;
        Ok(Some(format!("{prefix}{}", file.display())))
    }
}

/// A running host; dropping the value stops it.
#[derive(Debug)]
pub struct Host {
    // Dropped first: the process must end before its directory is removed.
    process: Running,
    directory: TempDir,
}

impl Host {
    /// Starts a host for a cluster.
    pub fn start(kubeconfig: &Path, options: &HostOptions) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("innkeeper-host-")
            .tempdir()?;
        let cache = options
            .cache
            .clone()
            .unwrap_or_else(|| directory.path().join("cache"));
        let log = File::create(directory.path().join("log"))?;
        let binary = path_from_env("INNKEEPER_BIN")?;
        let mut command = if options.limits.is_empty() {
            bound(&binary)
        } else {
            let mut command = bound(Path::new("prlimit"));
            command.args(&options.limits).arg(&binary);
            command
        };
        command.stdout(log.try_clone()?).stderr(log).arg("run");
        command
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--cache-dir")
            .arg(&cache);
        for plugin in &options.plugins {
            command.arg("--plugin").arg(plugin);
            if let Some(grants) = options.grants_of(plugin, directory.path())? {
                command.arg("--grants").arg(grants);
            }
        }
        command.args(&options.arguments);
        // With a lease, the next host would wait after a test kills one, and a host that a test cuts off would exit. The
        // lease tests pass the flags themselves.
        let states_lease = |argument: &String| {
            ["--leader-elect", "--lease", "--shards"]
                .iter()
                .any(|flag| argument.starts_with(flag))
        };
        if !options.arguments.iter().any(states_lease) {
            command.arg("--leader-elect=false");
        }
        command.envs(
            options
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        );
        let process = spawn_bound(command)?;
        Ok(Self { process, directory })
    }

    /// Returns the log so far.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.directory.path().join("log"))?)
    }

    /// The process.
    pub fn process(&mut self) -> &mut Running {
        &mut self.process
    }

    /// Waits until the host exits; returns the exit status and the log.
    pub fn wait_exit(&mut self, deadline: Duration) -> Result<(ExitStatus, String)> {
        let status = self.process.wait_for(deadline);
        let log = self.log()?;
        Ok((status.with_context(|| log.clone())?, log))
    }

    /// Sends SIGTERM, so that the host finishes its passes, and waits at most 30 s for it to exit.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.process.signal(Signal::TERM)?;
        self.process.wait_for(Duration::from_secs(30))
    }
}

/// Waits until a text is in a host's log.
#[track_caller]
pub fn wait_logged(host: &Host, goal: &str, text: &str) {
    eventually(goal, || logged(host, text));
}

/// Like [`wait_logged`], with a deadline.
#[track_caller]
pub fn wait_logged_for(deadline: Duration, host: &Host, goal: &str, text: &str) {
    eventually_for(deadline, goal, || logged(host, text));
}

fn logged(host: &Host, text: &str) -> Result<(), String> {
    let log = host.log().map_err(|error| error.to_string())?;
    if log.contains(text) { Ok(()) } else { Err(log) }
}
