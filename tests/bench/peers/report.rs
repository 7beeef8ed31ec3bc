//! Prints the figures as tables, saves them as JSON, and checks the promises.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use innkeeper_tests::manifest::root;

use crate::{
    contender::Contender,
    converge::Run,
    edits::Edits,
    plugins::{PARENTS, PLUGINS, Plugins},
    server::Served,
    shards::{self, Phase, Shared},
    targets::{
        MIB, all_requests, cpu_per_parent, mib, passes_per_parent, peak_rss, requests,
        restart_cpu_per_parent, verdicts,
    },
};

/// The file with the figures, below the checkout root.
const OUT: &str = "target/bench-peers.json";
/// The promise: a host with nothing to do is idle this long after its last list.
const STEADY_AFTER_LISTS_S: f64 = 2.0;

/// All measurements.
#[derive(Default)]
pub(crate) struct Report {
    runs: Vec<Run>,
    pub(crate) edits: Vec<Edits>,
    pub(crate) plugins: Vec<Plugins>,
    shards: Vec<Shared>,
}

/// A table row's name, and how to get the figure from a run.
type Line<T> = (&'static str, fn(&T) -> f64);

const LINES: [Line<Run>; 17] = [
    ("wall, s", |run| run.from_empty.wall_s),
    ("CPU per parent, ms", cpu_per_parent),
    ("API server: CPU per parent, ms", |run| {
        run.from_empty.api_server_cpu_s * 1000.0 / count(run.parents)
    }),
    ("passes per parent", passes_per_parent),
    ("a call of the guest, us", |run| {
        run.from_empty.call_us.unwrap_or(f64::NAN)
    }),
    ("requests per parent", all_requests),
    ("  for children", |run| requests(run, is_of_child)),
    ("  for the status", |run| {
        requests(run, |request| request.ends_with("/status"))
    }),
    ("  for events", |run| requests(run, is_of_event)),
    ("peak RSS of both starts, MiB", peak_rss),
    ("restart: writes", |run| count(run.restart.writes)),
    ("restart: passes per parent", |run| {
        float(run.restart.passes) / count(run.parents)
    }),
    ("restart: lists answered after, s", |run| {
        run.restart.listed_s.unwrap_or(f64::NAN)
    }),
    ("restart: steady after, s", |run| run.restart.steady_s),
    ("restart: CPU per parent, ms", restart_cpu_per_parent),
    ("  without the memory of passes", |run| {
        run.restart_without_memory
            .as_ref()
            .map_or(f64::NAN, |restart| {
                restart.cpu_s * 1000.0 / count(run.parents)
            })
    }),
    ("restart: resident program, MiB", |run| {
        mib(run.restart.program_bytes)
    }),
];

const PLUGIN_LINES: [Line<Plugins>; 6] = [
    ("wall, s", |run| run.wall_s),
    ("CPU, s", |run| run.cpu_s),
    ("API server: CPU, s", |run| run.api_server_cpu_s),
    ("peak RSS, MiB", |run| mib(run.resident_max_bytes)),
    ("requests", |run| count(run.requests)),
    ("watches", |run| count(run.watches)),
];

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

    pub(crate) fn add_plugins(&mut self, plugins: Plugins) -> Result<()> {
        say(&format!(
            "{}, {PLUGINS} plugins, round {}: {:.1} s, {:.2} s of CPU",
            plugins.contender.name(),
            plugins.round + 1,
            plugins.wall_s,
            plugins.cpu_s,
        ));
        self.plugins.push(plugins);
        self.save()
    }

    pub(crate) fn add_shared(&mut self, shared: Shared) -> Result<()> {
        say(&format!(
            "{}, {} parents: {:.1} s, {:.2} s of CPU",
            name_of(&shared),
            shared.parents,
            shared.from_empty.wall_s,
            shared.from_empty.cpu_s,
        ));
        self.shards.push(shared);
        self.save()
    }

    /// Saves the figures after every run, so that an interrupted bench keeps them.
    fn save(&self) -> Result<()> {
        let path = root().join(OUT);
        fs::create_dir_all(path.parent().unwrap_or_else(|| Path::new("")))?;
        let figures = serde_json::json!({
            "runs": self.runs,
            "edits": self.edits,
            "plugins": self.plugins,
            "shards": self.shards,
            "targets": verdicts(self),
        });
        fs::write(&path, serde_json::to_string_pretty(&figures)?)
            .with_context(|| format!("failed to write {}", path.display()))
    }

    /// Prints the tables: medians over the rounds, and median host-to-peer ratios within a round.
    pub(crate) fn print(&self) {
        let sizes: BTreeSet<usize> = self.runs.iter().map(|run| run.parents).collect();
        for parents in sizes {
            let rounds = self.runs_of(Contender::Innkeeper, parents).count();
            say(&format!("\n{parents} parents, rounds: {rounds}"));
            let runs: Vec<_> = self
                .runs
                .iter()
                .filter(|run| run.parents == parents)
                .collect();
            let key = |run: &Run| (run.contender, run.round);
            print_table(&LINES, &Contender::all(), &runs, key);
            say("\nthe API server, per parent");
            print_served(&Contender::all(), &runs, key, |run| {
                (&run.from_empty.served, count(run.parents))
            });
        }
        if !self.plugins.is_empty() {
            say(&format!(
                "\n{PLUGINS} plugins, operators or composites, {PARENTS} parents each"
            ));
            let runs: Vec<_> = self.plugins.iter().collect();
            let pair = Contender::all_with_plugins();
            let key = |run: &Plugins| (run.contender, run.round);
            print_table(&PLUGIN_LINES, &pair, &runs, key);
            say("\nthe API server, per parent");
            print_served(&pair, &runs, key, |run| {
                (&run.served, count(PLUGINS * PARENTS))
            });
        }
        print_shared(&self.shards);
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
        say("");
        for verdict in verdicts(self) {
            let of = verdict.of.map(|peer| format!(" of {}", peer.name()));
            let result = match (verdict.met, verdict.missed) {
                (true, _) => "met",
                (false, true) => "missed",
                (false, false) => "missed within the noise",
            };
            say(&format!(
                "target: {} at most {}{}: {result}, median {}",
                verdict.target,
                verdict.most,
                of.unwrap_or_default(),
                shown(median(verdict.rounds)),
            ));
        }
        say(&format!("\nall figures are in {OUT}"));
    }

    /// Returns a contender's runs with this many parents.
    pub(crate) fn runs_of(
        &self,
        contender: Contender,
        parents: usize,
    ) -> impl Iterator<Item = &Run> {
        self.runs
            .iter()
            .filter(move |run| run.contender == contender && run.parents == parents)
    }

    /// Fails if a promise that does not depend on the machine is broken, or a target is missed by more than the noise.
    pub(crate) fn check(&self) -> Result<()> {
        let host = Contender::Innkeeper;
        for run in self.runs.iter().filter(|run| run.contender == host) {
            let parents = run.parents;
            let restart = &run.restart;
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
                let is_kept = restart.steady_s <= listed + STEADY_AFTER_LISTS_S;
                say(&format!(
                    "restart with {parents} parents steady within 2 s after the lists: {}",
                    if is_kept { "kept" } else { "missed" }
                ));
            }
        }
        self.shards.iter().try_for_each(shards::check)?;
        let verdicts = verdicts(self);
        let missed: Vec<&str> = verdicts
            .iter()
            .filter(|verdict| verdict.missed)
            .map(|verdict| verdict.target)
            .collect();
        ensure!(
            missed.is_empty(),
            "targets missed by more than the noise of their rounds: {}",
            missed.join("; ")
        );
        Ok(())
    }
}

/// Prints what the API server counted: the rows that reach the least value in any run.
fn print_served<T>(
    contenders: &[Contender],
    runs: &[&T],
    key: fn(&T) -> (Contender, usize),
    of: impl Fn(&T) -> (&Served, f64),
) {
    /// Per parent; less is the work of the control plane itself.
    const LEAST: f64 = 0.05;

    let of = &of;
    let rows: BTreeSet<&str> = runs
        .iter()
        .flat_map(|run| {
            let (served, parents) = of(run);
            served.rows(LEAST * parents)
        })
        .collect();
    let lines: Vec<_> = rows
        .into_iter()
        .map(|row| {
            let figure = move |run: &T| {
                let (served, parents) = of(run);
                served.get(row) / parents
            };
            (row, figure)
        })
        .collect();
    print_table(&lines, contenders, runs, key);
}

/// Prints each contender's medians, and the median ratios of the first to each other within a round.
fn print_table<T>(
    lines: &[(&str, impl Fn(&T) -> f64)],
    contenders: &[Contender],
    runs: &[&T],
    key: fn(&T) -> (Contender, usize),
) {
    let (host, peers) = contenders.split_first().expect("there is a host");
    let own = contenders
        .iter()
        .map(|contender| format!("{:>20}", contender.name()));
    let of_peers = peers
        .iter()
        .map(|contender| format!("{:>24}", format!("of {}", contender.name())));
    let head: String = own.chain(of_peers).collect();
    say(&format!("{:<44}{head}", ""));
    for (name, figure) in lines {
        let of = |contender| {
            runs.iter()
                .filter(move |run| key(run).0 == contender)
                .map(|run| (key(run).1, figure(run)))
        };
        let medians = contenders.iter().map(|contender| {
            let figures = of(*contender).map(|(_, figure)| figure);
            format!("{:>20}", shown(median(figures.collect())))
        });
        let ratios = peers.iter().map(|peer| {
            let ratios = of(*host).filter_map(|(round, own)| {
                let (_, other) = of(*peer).find(|(other, _)| *other == round)?;
                Some(own / other)
            });
            format!("{:>24}", shown(median(ratios.collect())))
        });
        let line: String = medians.chain(ratios).collect();
        say(&format!("{name:<44}{line}"));
    }
}

fn name_of(run: &Shared) -> String {
    let by = match (run.hosts, run.selects) {
        (1, _) => return "1 host".to_owned(),
        (_, true) => "server",
        (_, false) => "host",
    };
    format!("{} hosts, {by} selects", run.hosts)
}

/// Prints the runs with shards as columns.
fn print_shared(runs: &[Shared]) {
    type Part = fn(&Shared) -> &Phase;

    let Some(first) = runs.first() else { return };
    say(&format!(
        "\n{} parents in {} namespaces; bytes and memory in MiB",
        first.parents, first.namespaces
    ));
    let line = |name: &str, figure: &dyn Fn(&Shared) -> String| {
        let figures: Vec<String> = runs
            .iter()
            .map(|run| format!("{:>24}", figure(run)))
            .collect();
        say(&format!("{name:<34}{}", figures.concat()));
    };
    line("", &name_of);
    let phases: [(&str, Part); 2] = [
        ("from empty", |run| &run.from_empty),
        ("restart", |run| &run.restart),
    ];
    for (when, phase) in phases {
        let mebibytes = |bytes: Option<f64>| shown(bytes.map_or(f64::NAN, |bytes| bytes / MIB));
        let peaks = |run: &Shared| -> Vec<String> {
            let peaks = &phase(run).resident_max_bytes;
            peaks
                .iter()
                .map(|bytes| format!("{:.0}", mib(*bytes)))
                .collect()
        };
        let requests = |run: &Shared| phase(run).requests.values().sum::<usize>().to_string();
        line(&format!("{when}: wall, s"), &|run| shown(phase(run).wall_s));
        line("  CPU of all hosts, s", &|run| shown(phase(run).cpu_s));
        line("  API server: CPU, s", &|run| {
            shown(phase(run).api_server_cpu_s)
        });
        line("  peak RSS of each host", &|run| peaks(run).join(" "));
        line("  requests", &requests);
        line("  writes", &|run| phase(run).writes.to_string());
        line("  bytes of lists", &|run| mebibytes(phase(run).list_bytes));
        line("  bytes of watch events", &|run| {
            mebibytes(phase(run).watch_bytes)
        });
    }
    for run in runs {
        if let Some(loss) = &run.loss {
            say(&format!(
                "{}, one killed: {} edits, {} lost, {} writes without a right; its shards taken after {:.1} s; longest from edit to write {:.1} s, in other shards {:.1} s",
                name_of(run),
                loss.edits,
                loss.lost,
                loss.strays,
                loss.taken_s,
                loss.longest_s,
                loss.longest_of_others_s,
            ));
        }
        if let Some(join) = &run.join {
            say(&format!(
                "{}, one joins: {} edits, {} lost, {} writes without a right; {} shards moved, {} at a time, within {:.1} s; longest from edit to write {:.1} s",
                name_of(run),
                join.edits,
                join.lost,
                join.strays,
                join.moves,
                join.moving_max,
                join.shared_s,
                join.longest_s,
            ));
        }
    }
}

#[expect(
    clippy::print_stdout,
    reason = "its figures are for the person who runs it"
)]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

fn is_of_child(request: &str) -> bool {
    request.ends_with(" deployments.apps") || request.ends_with(" services")
}

fn is_of_event(request: &str) -> bool {
    request.ends_with(" events.events.k8s.io") || request.ends_with(" events")
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.retain(|value| value.is_finite());
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
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

pub(crate) fn float(number: u64) -> f64 {
    usize::try_from(number).map_or(f64::INFINITY, |number| {
        // More than 2^32 bytes would be a defect, which infinity shows.
        count(number)
    })
}
