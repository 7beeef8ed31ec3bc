//! The targets, and whether the figures meet them.

use serde::Serialize;

use crate::{
    contender::Contender,
    converge::Run,
    edits::Edits,
    plugins::Plugins,
    report::{Report, count, float, median},
};

pub(crate) const MIB: f64 = 1024.0 * 1024.0;

/// The contenders that send the same requests, so that they cause the API server the same work.
const ALIKE: [Contender; 2] = [Contender::Innkeeper, Contender::KubeRs];

/// A limit for a host figure: a multiple of a peer's figure in the same round, or an absolute value if there is no peer.
struct Target {
    name: &'static str,
    figure: Figure,
    peer: Option<Contender>,
    most: f64,
}

/// Where a figure comes from.
enum Figure {
    /// A start with this many parents.
    Start(usize, fn(&Run) -> Option<f64>),
    /// Ten plugins.
    Ten(fn(&Plugins) -> f64),
    /// Edits at this rate.
    At(u32, fn(&Edits) -> f64),
}

use Figure::{At, Start, Ten};

const TARGETS: [Target; 19] = [
    Target {
        name: "CPU per parent",
        figure: Start(1000, |run| Some(cpu_per_parent(run))),
        peer: Some(Contender::KubeRs),
        most: 0.9,
    },
    Target {
        name: "CPU per parent",
        figure: Start(1000, |run| Some(cpu_per_parent(run))),
        peer: Some(Contender::ControllerRuntime),
        most: 0.5,
    },
    Target {
        name: "CPU per parent",
        figure: Start(1000, |run| Some(cpu_per_parent(run))),
        peer: Some(Contender::Metacontroller),
        most: 0.3,
    },
    Target {
        name: "ten plugins: CPU",
        figure: Ten(|run| run.cpu_s),
        peer: Some(Contender::KubeRs),
        most: 0.85,
    },
    Target {
        name: "ten plugins: CPU of the API server",
        figure: Ten(|run| run.api_server_cpu_s),
        peer: Some(Contender::KubeRs),
        most: 1.05,
    },
    Target {
        name: "ten plugins: peak RSS",
        figure: Ten(|run| mib(run.resident_max_bytes)),
        peer: Some(Contender::KubeRs),
        most: 0.6,
    },
    Target {
        name: "passes per parent",
        figure: Start(1000, |run| Some(passes_per_parent(run))),
        peer: None,
        most: 1.1,
    },
    Target {
        name: "requests per parent",
        figure: Start(1000, |run| Some(all_requests(run))),
        peer: None,
        most: 4.05,
    },
    Target {
        name: "wall time",
        figure: Start(1000, |run| Some(run.from_empty.wall_s)),
        peer: Some(Contender::KubeRs),
        most: 0.95,
    },
    Target {
        name: "restart: CPU per parent",
        figure: Start(1000, |run| Some(restart_cpu_per_parent(run))),
        peer: Some(Contender::KubeRs),
        most: 0.5,
    },
    Target {
        name: "peak RSS of both starts",
        figure: Start(1000, |run| Some(peak_rss(run))),
        peer: Some(Contender::KubeRs),
        most: 1.0,
    },
    Target {
        name: "restart: CPU per parent, ms",
        figure: Start(1000, |run| Some(restart_cpu_per_parent(run))),
        peer: None,
        most: 0.25,
    },
    Target {
        name: "restart without the memory of passes: CPU per parent, ms",
        figure: Start(1000, |run| {
            let restart = run.restart_without_memory.as_ref()?;
            Some(restart.cpu_s * 1000.0 / count(run.parents))
        }),
        peer: None,
        most: 0.4,
    },
    Target {
        name: "restart with 10,000 parents: idle after the lists, s",
        figure: Start(10_000, |run| {
            Some(run.restart.steady_s - run.restart.listed_s?)
        }),
        peer: None,
        most: 1.5,
    },
    Target {
        name: "a call of the guest, us",
        figure: Start(1000, |run| run.from_empty.call_us),
        peer: None,
        most: 150.0,
    },
    Target {
        name: "restart without the memory of passes: a call of the guest, us",
        figure: Start(1000, |run| run.restart_without_memory.as_ref()?.call_us),
        peer: None,
        most: 120.0,
    },
    Target {
        name: "10 edits/s: over the API server's own time at p50, ms",
        figure: At(10, |edits| edits.p50_ms - edits.write_p50_ms),
        peer: None,
        most: 1.3,
    },
    Target {
        name: "100 edits/s: from the edit to the write at p50",
        figure: At(100, |edits| edits.p50_ms),
        peer: Some(Contender::KubeRs),
        most: 1.0,
    },
    Target {
        name: "100 edits/s: from the edit to the write at p50",
        figure: At(100, |edits| edits.p50_ms),
        peer: Some(Contender::ControllerRuntime),
        most: 1.0,
    },
];

/// A target with the figures from all rounds.
#[derive(Serialize)]
pub(crate) struct Verdict {
    pub(crate) target: &'static str,
    pub(crate) of: Option<Contender>,
    pub(crate) most: f64,
    pub(crate) rounds: Vec<f64>,
    /// The noise in each round: how much the API server's CPU time for the same work differed, relative to the smaller.
    pub(crate) noise: Vec<f64>,
    /// The median over the rounds is within the target.
    pub(crate) met: bool,
    /// Every round exceeds the target by more than the noise.
    pub(crate) missed: bool,
}

/// Judges the measured targets.
pub(crate) fn verdicts(report: &Report) -> Vec<Verdict> {
    TARGETS
        .iter()
        .map(|target| judge(target, report))
        .filter(|judgement| !judgement.rounds.is_empty())
        .collect()
}

fn judge(target: &Target, report: &Report) -> Verdict {
    let (rounds, noise): (Vec<f64>, Vec<f64>) = match target.figure {
        Start(parents, figure) => starts(report, parents, figure, target.peer),
        Ten(figure) => plugins(report, figure, target.peer),
        At(per_second, figure) => edits(report, per_second, figure, target.peer),
    }
    .into_iter()
    .unzip();
    let is_beyond = |(round, noise): (&f64, &f64)| *round > target.most * (1.0 + noise);
    Verdict {
        target: target.name,
        of: target.peer,
        most: target.most,
        met: median(rounds.clone()) <= target.most,
        missed: rounds.iter().zip(&noise).all(is_beyond),
        rounds,
        noise,
    }
}

/// Returns each round's figure and noise.
fn starts(
    report: &Report,
    parents: usize,
    figure: fn(&Run) -> Option<f64>,
    peer: Option<Contender>,
) -> Vec<(f64, f64)> {
    let of_round = |run: &Run| {
        let of = |contender| {
            report
                .runs_of(contender, parents)
                .find(|other| other.round == run.round)
        };
        let own = figure(run)?;
        let value = match peer {
            Some(peer) => own / figure(of(peer)?)?,
            None => own,
        };
        let costs = ALIKE
            .iter()
            .filter_map(|run| Some(of(*run)?.from_empty.api_server_cpu_s));
        Some((value, spread(costs)))
    };
    report
        .runs_of(Contender::Innkeeper, parents)
        .filter_map(of_round)
        .collect()
}

/// Returns each round's figure and noise.
fn plugins(
    report: &Report,
    figure: fn(&Plugins) -> f64,
    peer: Option<Contender>,
) -> Vec<(f64, f64)> {
    let of_round = |run: &Plugins| {
        let of = |contender| {
            report
                .plugins
                .iter()
                .find(|other| other.contender == contender && other.round == run.round)
        };
        let own = figure(run);
        let value = match peer {
            Some(peer) => own / figure(of(peer)?),
            None => own,
        };
        let costs = ALIKE
            .iter()
            .filter_map(|run| Some(of(*run)?.api_server_cpu_s));
        Some((value, spread(costs)))
    };
    report
        .plugins
        .iter()
        .filter(|run| run.contender == Contender::Innkeeper)
        .filter_map(of_round)
        .collect()
}

fn edits(
    report: &Report,
    per_second: u32,
    figure: fn(&Edits) -> f64,
    peer: Option<Contender>,
) -> Vec<(f64, f64)> {
    let of = |contender| {
        report
            .edits
            .iter()
            .find(|edit| edit.contender == contender && edit.per_second == per_second)
    };
    let judged = || {
        let own = figure(of(Contender::Innkeeper)?);
        let value = match peer {
            Some(peer) => own / figure(of(peer)?),
            None => own,
        };
        let costs = ALIKE.iter().filter_map(|run| Some(of(*run)?.write_p50_ms));
        Some((value, spread(costs)))
    };
    judged().into_iter().collect()
}

/// Returns how far the largest value is above the smallest, relative to the smallest.
fn spread(values: impl Iterator<Item = f64>) -> f64 {
    let (least, most) = values.fold((f64::INFINITY, 0.0), |(least, most), value| {
        (value.min(least), value.max(most))
    });
    (most / least - 1.0).max(0.0)
}

pub(crate) fn cpu_per_parent(run: &Run) -> f64 {
    run.from_empty.cpu_s * 1000.0 / count(run.parents)
}

pub(crate) fn passes_per_parent(run: &Run) -> f64 {
    float(run.from_empty.passes) / count(run.parents)
}

pub(crate) fn all_requests(run: &Run) -> f64 {
    requests(run, |_| true)
}

pub(crate) fn requests(run: &Run, wanted: impl Fn(&str) -> bool) -> f64 {
    let selected = run
        .from_empty
        .requests
        .iter()
        .filter(|(request, _)| wanted(request));
    count(selected.map(|(_, times)| times).sum()) / count(run.parents)
}

pub(crate) fn peak_rss(run: &Run) -> f64 {
    let peaks = [
        &run.from_empty.resident_max_bytes,
        &run.restart.resident_max_bytes,
    ];
    mib(*peaks.into_iter().max().unwrap_or(&0))
}

pub(crate) fn restart_cpu_per_parent(run: &Run) -> f64 {
    run.restart.cpu_s * 1000.0 / count(run.parents)
}

pub(crate) fn mib(bytes: u64) -> f64 {
    float(bytes) / MIB
}
