//! The contenders: the host and its two peers, each a process with a user agent of its own in the audit log and a count
//! of its passes.

use std::{
    env,
    fs::{self, File},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use innkeeper_tests::{
    ControlPlane, Host, HostOptions, Write, admin,
    process::{Running, Usage, bound, path_from_env, spawn_bound},
};
use rustix::process::Signal;
use serde::Serialize;
use tempfile::TempDir;

use crate::kube_rs;

/// Concurrent passes or reconciles: the host's default for a plugin.
pub(crate) const CONCURRENCY: u16 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Contender {
    Innkeeper,
    KubeRs,
    ControllerRuntime,
}

impl Contender {
    pub(crate) const ALL: [Self; 3] = [Self::Innkeeper, Self::KubeRs, Self::ControllerRuntime];

    /// All contenders; each round starts with another one, so that no contender always has the first turn.
    pub(crate) fn in_order(round: usize) -> [Self; 3] {
        let mut order = Self::ALL;
        order.rotate_left(round % 3);
        order
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Innkeeper => "innkeeper",
            Self::KubeRs => "kube-rs",
            Self::ControllerRuntime => "controller-runtime",
        }
    }

    /// Returns true if this contender sent the request.
    pub(crate) fn sent(self, request: &Write) -> bool {
        let agent = match self {
            Self::Innkeeper => return request.is_by_host(),
            Self::KubeRs => kube_rs::AGENT,
            Self::ControllerRuntime => "bench-controller-runtime",
        };
        request.user_agent == agent
    }

    /// Starts the contender; the host keeps its compiled plugins in `cache`.
    pub(crate) fn start(self, plane: &ControlPlane, cache: &Path) -> Result<Started> {
        let kubeconfig = plane.kubeconfig();
        let concurrency = CONCURRENCY.to_string();
        let program = match self {
            Self::Innkeeper => {
                let options = HostOptions {
                    cache: Some(cache.to_owned()),
                    arguments: admin::ARGUMENTS.map(str::to_owned).to_vec(),
                    ..HostOptions::with_guests(&["memcached"])?
                };
                return Ok(Started::Host(Host::start(&kubeconfig, &options)?));
            }
            Self::KubeRs => env::current_exe()?,
            Self::ControllerRuntime => path_from_env("INNKEEPER_BENCH_CONTROLLER_RUNTIME")?,
        };
        let directory = tempfile::tempdir()?;
        let log = File::create(directory.path().join("log"))?;
        let mut command = bound(&program);
        command.stdout(log.try_clone()?).stderr(log);
        if self == Self::KubeRs {
            command.arg(self.name()).arg(&kubeconfig);
        } else {
            command.args(["--concurrency", &concurrency, "--kubeconfig"]);
            command.arg(&kubeconfig);
        }
        Ok(Started::Peer {
            process: spawn_bound(command)?,
            directory,
        })
    }
}

/// A running contender; dropping the value ends it.
pub(crate) enum Started {
    Host(Host),
    Peer {
        // Dropped first: the process ends before its directory goes.
        process: Running,
        directory: TempDir,
    },
}

impl Started {
    /// Returns CPU time and memory so far.
    pub(crate) fn usage(&mut self) -> Result<Usage> {
        let usage = match self {
            Self::Host(host) => host.process().usage(),
            Self::Peer { process, .. } => process.usage(),
        };
        usage.with_context(|| self.log())
    }

    pub(crate) fn log(&self) -> String {
        let log = match self {
            Self::Host(host) => host.log().ok(),
            Self::Peer { directory, .. } => fs::read_to_string(directory.path().join("log")).ok(),
        };
        let log = log.unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Ends the contender; returns the number of its passes or reconciles.
    pub(crate) fn stop(mut self) -> Result<u64> {
        let counted = match &self {
            Self::Host(host) => Some(passes(host)?),
            Self::Peer { .. } => None,
        };
        let status = match &mut self {
            Self::Host(host) => host.stop()?,
            Self::Peer { process, .. } => {
                process.signal(Signal::TERM)?;
                process.wait_for(Duration::from_mins(1))?
            }
        };
        ensure!(status.success(), "{status}: {}", self.log());
        if let Some(counted) = counted {
            return Ok(counted);
        }
        let log = self.log();
        let count = log
            .lines()
            .find_map(|line| line.strip_prefix("reconciles "))
            .with_context(|| format!("it does not say how many reconciles it has run: {log}"))?;
        Ok(count.parse()?)
    }
}

/// Reads the number of passes from the host's metrics.
fn passes(host: &Host) -> Result<u64> {
    let metrics = admin::scrape(&admin::address(host))?;
    let samples = metrics.lines().filter_map(|line| {
        let labels = line.strip_prefix("controller_runtime_reconcile_total{")?;
        let (labels, value) = labels.split_once("} ")?;
        let is_ours = labels.contains("controller=\"memcached/memcached\"");
        is_ours.then(|| value.parse::<u64>().ok())?
    });
    Ok(samples.sum())
}
