//! The contenders: the host and its peers, each a process with a distinct user agent in the audit log and a pass counter.

use std::{env, ffi::OsStr, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use innkeeper_tests::{
    ControlPlane, Host, HostOptions, Write, admin,
    process::{Running, Usage, bound_with_log, path_from_env, spawn_bound},
};
use rustix::process::Signal;
use serde::Serialize;
use tempfile::TempDir;

use crate::kube_rs;

/// Concurrent passes or reconciles, equal to the host's default for a plugin.
pub(crate) const CONCURRENCY: u16 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Contender {
    Innkeeper,
    KubeRs,
    /// With controller-runtime's usual creates and updates.
    ControllerRuntime,
    /// With server-side apply, like the first two.
    ControllerRuntimeApply,
}

impl Contender {
    pub(crate) const ALL: [Self; 4] = [
        Self::Innkeeper,
        Self::KubeRs,
        Self::ControllerRuntime,
        Self::ControllerRuntimeApply,
    ];

    /// All contenders; the order rotates each round, so that no contender always goes first.
    pub(crate) fn in_order(round: usize) -> [Self; 4] {
        let mut order = Self::ALL;
        order.rotate_left(round % Self::ALL.len());
        order
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Innkeeper => "innkeeper",
            Self::KubeRs => "kube-rs",
            Self::ControllerRuntime => "controller-runtime",
            Self::ControllerRuntimeApply => "c.-r. with apply",
        }
    }

    /// Returns true if this contender sent the request.
    pub(crate) fn sent(self, request: &Write) -> bool {
        let agent = match self {
            Self::Innkeeper => return request.is_by_host(),
            Self::KubeRs => kube_rs::AGENT,
            Self::ControllerRuntime => "bench-controller-runtime",
            Self::ControllerRuntimeApply => "bench-controller-runtime-apply",
        };
        request.user_agent == agent
    }

    /// Starts the contender; the host keeps compiled plugins in `cache`.
    pub(crate) fn start(self, plane: &ControlPlane, cache: &Path) -> Result<Started> {
        let kubeconfig = plane.kubeconfig();
        let concurrency = CONCURRENCY.to_string();
        let runtime = || path_from_env("INNKEEPER_BENCH_CONTROLLER_RUNTIME");
        let kubeconfig = kubeconfig.as_os_str();
        let arguments = [
            OsStr::new("--concurrency"),
            OsStr::new(&concurrency),
            OsStr::new("--kubeconfig"),
            kubeconfig,
        ];
        match self {
            Self::Innkeeper => start_host(
                plane,
                &HostOptions {
                    cache: Some(cache.to_owned()),
                    ..HostOptions::with_guests(&["memcached"])?
                },
            ),
            Self::KubeRs => start_kube_rs(plane, &[]),
            Self::ControllerRuntime => start_peer(&runtime()?, &arguments),
            Self::ControllerRuntimeApply => {
                let apply = [&[OsStr::new("--apply")], &arguments[..]].concat();
                start_peer(&runtime()?, &apply)
            }
        }
    }
}

/// Starts the host with metrics.
pub(crate) fn start_host(plane: &ControlPlane, options: &HostOptions) -> Result<Started> {
    let mut options = options.clone();
    options
        .arguments
        .extend(admin::ARGUMENTS.map(str::to_owned));
    Ok(Started::Host(Host::start(&plane.kubeconfig(), &options)?))
}

/// Starts the kube-rs operator, which is this program, with further arguments.
pub(crate) fn start_kube_rs(plane: &ControlPlane, arguments: &[&str]) -> Result<Started> {
    let kubeconfig = plane.kubeconfig();
    let name = OsStr::new(Contender::KubeRs.name());
    let mut all = vec![name, kubeconfig.as_os_str()];
    all.extend(arguments.iter().map(OsStr::new));
    start_peer(&env::current_exe()?, &all)
}

fn start_peer(program: &Path, arguments: &[&OsStr]) -> Result<Started> {
    let directory = tempfile::tempdir()?;
    let mut command = bound_with_log(program, &directory.path().join("log"))?;
    command.args(arguments);
    Ok(Started::Peer {
        process: spawn_bound(command)?,
        directory,
    })
}

/// A running contender; dropping the value stops it.
pub(crate) enum Started {
    Host(Host),
    Peer {
        // Dropped first: the process must end before its directory is removed.
        process: Running,
        directory: TempDir,
    },
}

/// A contender's counts until it stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Passes or reconciles.
    pub(crate) passes: u64,
    /// The mean CPU time per guest call; host only.
    pub(crate) call_us: Option<f64>,
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

    /// Returns how many bytes of the program file are resident.
    pub(crate) fn program_bytes(&mut self) -> Result<u64> {
        match self {
            Self::Host(host) => host.process().program_bytes(),
            Self::Peer { process, .. } => process.program_bytes(),
        }
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

    /// Stops the contender; returns what it counted.
    pub(crate) fn stop(mut self) -> Result<Counted> {
        let counted = match &self {
            Self::Host(host) => Some(counted(host)?),
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
        Ok(Counted {
            passes: count.parse()?,
            call_us: None,
        })
    }
}

/// Reads the counts for all plugins from the host's metrics.
fn counted(host: &Host) -> Result<Counted> {
    let metrics = admin::scrape(&admin::address(host))?;
    let samples = metrics.lines().filter_map(|line| {
        let labels = line.strip_prefix("controller_runtime_reconcile_total{")?;
        let (labels, value) = labels.split_once("} ")?;
        labels
            .contains("controller=\"memcached")
            .then(|| value.parse::<u64>().ok())?
    });
    let of_calls = |what: &str| {
        let name = format!("innkeeper_plugin_call_cpu_seconds_{what}");
        admin::sum(&metrics, &name, "plugin=\"memcached")
    };
    let mean_us = 1e6 * of_calls("sum") / of_calls("count");
    Ok(Counted {
        passes: samples.sum(),
        call_us: mean_us.is_finite().then_some(mean_us),
    })
}
