//! The contenders: the host and its peers, each a process with a distinct user agent in the audit log and a pass counter.

use std::{env, ffi::OsStr, fs, path::Path, process::ExitStatus, time::Duration};

use anyhow::{Context as _, Result, ensure};
use innkeeper_tests::{
    ControlPlane, Host, HostOptions, Write, admin,
    process::{Running, Usage, bound_with_log, path_from_env, spawn_bound},
};
use rustix::process::Signal;
use serde::Serialize;
use tempfile::TempDir;

use crate::{kube_rs, metacontroller};

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
    Metacontroller,
}

impl Contender {
    /// The contenders that there are programs for.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![
            Self::Innkeeper,
            Self::KubeRs,
            Self::ControllerRuntime,
            Self::ControllerRuntimeApply,
        ];
        if metacontroller::is_present() {
            all.push(Self::Metacontroller);
        }
        all
    }

    /// Those that also run ten plugins or operators.
    pub(crate) fn all_with_plugins() -> Vec<Self> {
        let mut all = Self::all();
        all.retain(|one| !matches!(one, Self::ControllerRuntime | Self::ControllerRuntimeApply));
        all
    }

    /// Rotates the order each round, so that no contender always goes first.
    pub(crate) fn in_order(mut all: Vec<Self>, round: usize) -> Vec<Self> {
        let first = round % all.len();
        all.rotate_left(first);
        all
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Innkeeper => "innkeeper",
            Self::KubeRs => "kube-rs",
            Self::ControllerRuntime => "controller-runtime",
            Self::ControllerRuntimeApply => "c.-r. with apply",
            Self::Metacontroller => "metacontroller",
        }
    }

    /// Returns true if this contender sent the request.
    pub(crate) fn sent(self, request: &Write) -> bool {
        let agent = match self {
            Self::Innkeeper => return request.is_by_host(),
            Self::KubeRs => kube_rs::AGENT,
            Self::ControllerRuntime => "bench-controller-runtime",
            Self::ControllerRuntimeApply => "bench-controller-runtime-apply",
            Self::Metacontroller => return request.user_agent.starts_with(metacontroller::AGENT),
        };
        request.user_agent == agent
    }

    /// Installs what the contender needs for parents in these API groups, before the measurement.
    pub(crate) fn prepare(self, plane: &ControlPlane, groups: &[String]) -> Result<()> {
        match self {
            Self::Metacontroller => metacontroller::prepare(plane, groups),
            _ => Ok(()),
        }
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
            Self::Metacontroller => {
                let directory = tempfile::tempdir()?;
                Ok(Started::Peer {
                    processes: metacontroller::start(plane, &directory)?,
                    directory,
                })
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
        processes: vec![spawn_bound(command)?],
        directory,
    })
}

/// A running contender; dropping the value stops it.
pub(crate) enum Started {
    Host(Host),
    Peer {
        // Dropped first: the processes must end before their directory is removed.
        processes: Vec<Running>,
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
        let usages: Result<Vec<Usage>> = match self {
            Self::Host(host) => host.process().usage().map(|usage| vec![usage]),
            Self::Peer { processes, .. } => processes.iter().map(Running::usage).collect(),
        };
        let mut usages = usages.with_context(|| self.log())?.into_iter();
        let first = usages.next().context("it has no process")?;
        Ok(usages.fold(first, |sum, usage| Usage {
            cpu: sum.cpu + usage.cpu,
            resident_bytes: sum.resident_bytes + usage.resident_bytes,
            anonymous_bytes: sum.anonymous_bytes + usage.anonymous_bytes,
            resident_max_bytes: sum.resident_max_bytes + usage.resident_max_bytes,
        }))
    }

    /// Returns how many bytes of the program file are resident.
    pub(crate) fn program_bytes(&mut self) -> Result<u64> {
        match self {
            Self::Host(host) => host.process().program_bytes(),
            Self::Peer { processes, .. } => processes.iter().map(Running::program_bytes).sum(),
        }
    }

    /// Kills the contender.
    pub(crate) fn kill(mut self) -> Result<()> {
        match &mut self {
            Self::Host(host) => host.process().kill(),
            Self::Peer { processes, .. } => processes.iter_mut().try_for_each(Running::kill),
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
        let statuses = match &mut self {
            Self::Host(host) => vec![host.stop()?],
            Self::Peer { processes, .. } => processes.iter_mut().map(end).collect::<Result<_>>()?,
        };
        for status in statuses {
            ensure!(status.success(), "{status}: {}", self.log());
        }
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

/// Ends a process.
fn end(process: &mut Running) -> Result<ExitStatus> {
    process.signal(Signal::TERM)?;
    process.wait_for(Duration::from_mins(1))
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
