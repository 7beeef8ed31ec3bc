//! The figures as tables and as JSON, and the verdict on the promises.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use innkeeper_tests::manifest::root;
use serde::Serialize;

use crate::{contender::Contender, converge::Run, edits::Edits};

/// The file of the figures, below the root of the checkout.
const OUT: &str = "target/bench-peers.json";
/// The promise: a host with nothing to do is idle this long after its last list.
const STEADY_AFTER_LISTS_S: f64 = 2.0;
/// The promise: the median time that the host adds to the API server's own time for a write.
const OVER_WRITE_MS: f64 = 2.0;

/// All measurements.
#[derive(Default)]
pub(crate) struct Report {
    runs: Vec<Run>,
    edits: Vec<Edits>,
}

/// The name of a table line, and its figure of a run.
type Line = (&'static str, fn(&Run) -> f64);

const LINES: [Line; 14] = [
    ("wall, s", wall),
    ("CPU per parent, ms", cpu_per_parent),
    ("API server: CPU per parent, ms", |run| {
        run.from_empty.api_server_cpu_s * 1000.0 / count(run.parents)
    }),
    ("passes per parent", passes_per_parent),
    ("requests per parent", all_requests),
    ("  for children", |run| requests(run, is_of_child)),
    ("  for the status", |run| {
        requests(run, |request| request.ends_with("/status"))
    }),
    ("  for events", |run| requests(run, is_of_event)),
    ("peak RSS of both starts, MiB", peak_rss),
    ("restart: writes", |run| count(run.restart.writes)),
    ("restart: passes per parent", |run| {
        of(run.restart.passes) / count(run.parents)
    }),
    ("restart: lists answered after, s", |run| {
        run.restart.listed_s.unwrap_or(f64::NAN)
    }),
    ("restart: steady after, s", |run| run.restart.steady_s),
    ("restart: CPU per parent, ms", restart_cpu_per_parent),
];

/// A figure of the host that should be at most so many times that of a peer, in the same round, or at most so much if there
/// is no peer.
struct Target {
    name: &'static str,
    figure: fn(&Run) -> f64,
    peer: Option<Contender>,
    most: f64,
}

const TARGETS: [Target; 7] = [
    target(
        "CPU per parent",
        cpu_per_parent,
        Some(Contender::KubeRs),
        0.85,
    ),
    target(
        "CPU per parent",
        cpu_per_parent,
        Some(Contender::ControllerRuntime),
        0.6,
    ),
    target("passes per parent", passes_per_parent, None, 1.1),
    target("requests per parent", all_requests, None, 4.05),
    target("wall", wall, Some(Contender::KubeRs), 0.9),
    target("peak RSS", peak_rss, Some(Contender::KubeRs), 1.0),
    target(
        "restart: CPU per parent, ms",
        restart_cpu_per_parent,
        None,
        0.25,
    ),
];

const fn target(
    name: &'static str,
    figure: fn(&Run) -> f64,
    peer: Option<Contender>,
    most: f64,
) -> Target {
    Target {
        name,
        figure,
        peer,
        most,
    }
}

/// A target with the figures of all rounds, for the file.
#[derive(Serialize)]
struct Verdict {
    target: &'static str,
    of: Option<Contender>,
    most: f64,
    rounds: Vec<f64>,
    met: bool,
}

fn wall(run: &Run) -> f64 {
    run.from_empty.wall_s
}

fn cpu_per_parent(run: &Run) -> f64 {
    run.from_empty.cpu_s * 1000.0 / count(run.parents)
}

fn passes_per_parent(run: &Run) -> f64 {
    of(run.from_empty.passes) / count(run.parents)
}

fn all_requests(run: &Run) -> f64 {
    requests(run, |_| true)
}

fn peak_rss(run: &Run) -> f64 {
    let peaks = [
        &run.from_empty.resident_max_bytes,
        &run.restart.resident_max_bytes,
    ];
    of(*peaks.into_iter().max().unwrap_or(&0)) / MIB
}

fn restart_cpu_per_parent(run: &Run) -> f64 {
    run.restart.cpu_s * 1000.0 / count(run.parents)
}

const MIB: f64 = 1024.0 * 1024.0;

impl Report {
    pub(crate) fn add_run(&mut self, run: Run) -> Result<()> {
        say(&format!(
            "{}, {} parents, round {}: {:.1} s, {:.2} s of CPU",
            run.contender.name(),
            run.parents,
            run.round + 1,
            run.from_empty.wall_s,
            run.from_empty.cpu_s,
        ));
        self.runs.push(run);
        self.save()
    }

    pub(crate) fn add_edits(&mut self, edits: Vec<Edits>) -> Result<()> {
        for edits in &edits {
            say(&format!(
                "{}, {} edits/s: {:.1} ms at p50",
                edits.contender.name(),
                edits.per_second,
                edits.p50_ms,
            ));
        }
        self.edits.extend(edits);
        self.save()
    }

    /// Writes the figures. Called after every run, so that an interrupted bench leaves the figures so far.
    fn save(&self) -> Result<()> {
        let path = root().join(OUT);
        fs::create_dir_all(path.parent().unwrap_or_else(|| Path::new("")))?;
        let figures = serde_json::json!({
            "runs": self.runs, "edits": self.edits, "targets": self.verdicts(),
        });
        fs::write(&path, serde_json::to_string_pretty(&figures)?)
            .with_context(|| format!("failed to write {}", path.display()))
    }

    /// Prints the tables: medians over the rounds, and medians of the ratio of host to peer in the same round.
    pub(crate) fn print(&self) {
        let sizes: BTreeSet<usize> = self.runs.iter().map(|run| run.parents).collect();
        for parents in sizes {
            let rounds = self.of(Contender::Innkeeper, parents).count();
            say(&format!("\n{parents} parents, rounds: {rounds}"));
            self.print_runs(parents);
        }
        if !self.edits.is_empty() {
            say("\nfrom the answer to an edit to the answer to the write for it, 500 parents");
        }
        for edits in &self.edits {
            say(&format!(
                "{:<20} {:>4}/s (reached {:>5.1}): p50 {:>7.1} ms, p99 {:>7.1} ms; the write itself p50 {:>6.1} ms, p99 {:>6.1} ms; over it at p50 {:>6.2} ms",
                edits.contender.name(),
                edits.per_second,
                edits.reached_per_second,
                edits.p50_ms,
                edits.p99_ms,
                edits.write_p50_ms,
                edits.write_p99_ms,
                edits.p50_ms - edits.write_p50_ms,
            ));
        }
        for verdict in self.verdicts() {
            say(&format!(
                "target: {} at most {}{}: {}, median {}",
                verdict.target,
                verdict.most,
                verdict
                    .of
                    .map_or_else(String::new, |peer| format!(" of {}", peer.name())),
                if verdict.met { "met" } else { "missed" },
                shown(median(verdict.rounds)),
            ));
        }
        say(&format!("\nall figures are in {OUT}"));
    }

    fn print_runs(&self, parents: usize) {
        let [host, kube_rs, runtime] = Contender::ALL;
        say(&format!(
            "{:<34}{:>12}{:>12}{:>20}{:>12}{:>24}",
            "",
            host.name(),
            kube_rs.name(),
            runtime.name(),
            "of kube-rs",
            "of controller-runtime",
        ));
        for (name, value) in LINES {
            let figure = |contender| median(self.of(contender, parents).map(value).collect());
            let ratio = |peer| median(self.ratios(parents, value, peer));
            say(&format!(
                "{name:<34}{:>12}{:>12}{:>20}{:>12}{:>24}",
                shown(figure(host)),
                shown(figure(kube_rs)),
                shown(figure(runtime)),
                shown(ratio(kube_rs)),
                shown(ratio(runtime)),
            ));
        }
    }

    /// Returns the ratio of the host's figure to that of a peer in each round.
    fn ratios(&self, parents: usize, figure: fn(&Run) -> f64, peer: Contender) -> Vec<f64> {
        let pairs = self.of(Contender::Innkeeper, parents).filter_map(|run| {
            let mut others = self.of(peer, parents);
            let other = others.find(|other| other.round == run.round)?;
            Some(figure(run) / figure(other))
        });
        pairs.collect()
    }

    /// Judges the targets, which are for the start with 1,000 parents.
    fn verdicts(&self) -> Vec<Verdict> {
        const PARENTS: usize = 1000;
        let judge = |target: &Target| {
            let rounds = match target.peer {
                Some(peer) => self.ratios(PARENTS, target.figure, peer),
                None => self
                    .of(Contender::Innkeeper, PARENTS)
                    .map(target.figure)
                    .collect(),
            };
            let met = !rounds.is_empty() && median(rounds.clone()) <= target.most;
            Verdict {
                target: target.name,
                of: target.peer,
                most: target.most,
                rounds,
                met,
            }
        };
        TARGETS.iter().map(judge).collect()
    }

    fn of(&self, contender: Contender, parents: usize) -> impl Iterator<Item = &Run> {
        self.runs
            .iter()
            .filter(move |run| run.contender == contender && run.parents == parents)
    }

    /// Fails if a promise that does not depend on the machine is broken; prints a verdict on the others.
    pub(crate) fn check(&self) -> Result<()> {
        let host = Contender::Innkeeper;
        for run in self.runs.iter().filter(|run| run.contender == host) {
            let (parents, restart) = (run.parents, &run.restart);
            ensure!(
                run.from_empty.refused == 0,
                "the API server refused {} writes for {parents} parents",
                run.from_empty.refused
            );
            ensure!(
                restart.writes == 0,
                "a restart with {parents} unchanged parents wrote {} times",
                restart.writes
            );
            if let Some(listed) = restart.listed_s {
                verdict(
                    &format!("restart with {parents} parents steady within 2 s after the lists"),
                    restart.steady_s <= listed + STEADY_AFTER_LISTS_S,
                );
            }
        }
        for edits in self.edits.iter().filter(|edits| edits.contender == host) {
            verdict(
                &format!(
                    "{} edits/s at most 2 ms over the API server's own time at p50",
                    edits.per_second
                ),
                edits.p50_ms - edits.write_p50_ms <= OVER_WRITE_MS,
            );
        }
        Ok(())
    }
}

fn verdict(promise: &str, kept: bool) {
    say(&format!(
        "{promise}: {}",
        if kept { "kept" } else { "missed" }
    ));
}

#[expect(
    clippy::print_stdout,
    reason = "its figures are for the person who runs it"
)]
fn say(line: &str) {
    println!("{line}");
}

fn requests(run: &Run, wanted: impl Fn(&str) -> bool) -> f64 {
    let requests = run.from_empty.requests.iter();
    let wanted = requests.filter(|(request, _)| wanted(request));
    count(wanted.map(|(_, times)| times).sum()) / count(run.parents)
}

fn is_of_child(request: &str) -> bool {
    request.ends_with(" deployments.apps") || request.ends_with(" services")
}

fn is_of_event(request: &str) -> bool {
    request.ends_with(" events.events.k8s.io") || request.ends_with(" events")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.retain(|value| value.is_finite());
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.get(values.len() / 2);
    middle.copied().unwrap_or(f64::NAN)
}

/// Formats a figure: two decimals below 100, none above.
fn shown(value: f64) -> String {
    match value {
        value if value.is_nan() => "-".to_owned(),
        value if value.abs() >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.2}"),
    }
}

/// Converts a count to a figure; exact up to 2^32.
pub(crate) fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::INFINITY, f64::from)
}

fn of(number: u64) -> f64 {
    usize::try_from(number).map_or(f64::INFINITY, |number| {
        // More than 2^32 bytes would be a defect, which infinity shows.
        count(number)
    })
}
