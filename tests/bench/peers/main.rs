//! The host and its peers with the same job: a kube-rs operator for memcached, and two with controller-runtime.
//!
//! Each contender runs as a process on a separate control plane (only an API server and etcd), with four concurrent
//! passes or reconciles. The order changes from round to round. `tests/bench/run` builds everything and starts the bench.
//! The argument `PARENTS` or `PARENTSxROUNDS` measures a start with childless parents, and a restart; `edits` measures
//! the time from an edit to its write; `plugins` measures ten plugins in one host beside ten kube-rs operators; `shards`
//! or `shards:PARENTSxNAMESPACES` measures several hosts that share the parents, without peers. The figures come from the API server's audit log and /proc, and are written to `target/bench-peers.json`.

mod api;
mod contender;
mod converge;
mod edits;
mod kube_rs;
mod metacontroller;
mod parents;
mod plugins;
mod report;
mod server;
mod shards;
mod targets;

use std::{env, path::PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::{
    api::GROUP_OF_PROCESS,
    contender::{CONCURRENCY, Contender},
    report::Report,
    shards::Size,
};

/// The default measurements, as in host/docs/performance.md.
const USUAL: [&str; 5] = ["100x3", "1000x3", "10000", "edits", "plugins"];
/// Parents in a run before the measurements, which compiles the plugin and checks that all contenders do the job.
const WARM_UP: usize = 20;

enum Task {
    Converge { parents: usize, rounds: usize },
    Edits,
    Plugins,
    Shards(Size),
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args()
        .skip(1)
        // `cargo bench` adds this argument.
        .filter(|argument| argument != "--bench")
        .collect();
    if let [word, kubeconfig, own @ ..] = &arguments[..]
        && word == Contender::KubeRs.name()
    {
        let mut namespace = None;
        if let [group, its_namespace] = own {
            GROUP_OF_PROCESS.get_or_init(|| group.clone());
            namespace = Some(&**its_namespace);
        }
        return kube_rs::main(&PathBuf::from(kubeconfig), CONCURRENCY, namespace);
    }
    let names = arguments.iter().map(String::as_str);
    let tasks: Vec<Task> = if arguments.is_empty() {
        USUAL.into_iter().map(task).collect::<Result<_>>()?
    } else {
        names.map(task).collect::<Result<_>>()?
    };
    measure(&tasks)
}

fn task(word: &str) -> Result<Task> {
    match word {
        "edits" => return Ok(Task::Edits),
        "plugins" => return Ok(Task::Plugins),
        "shards" => {
            return Ok(Task::Shards(Size {
                parents: shards::PARENTS,
                namespaces: shards::NAMESPACES,
            }));
        }
        _ => {}
    }
    if let Some(size) = word.strip_prefix("shards:") {
        let size = Size::parse(size);
        return size.map(Task::Shards).with_context(|| {
            format!("{word:?} has no size: use shards:PARENTSxNAMESPACES, such as shards:2000x50")
        });
    }
    let (parents, rounds) = word.split_once('x').unwrap_or((word, "1"));
    let number = |text: &str| -> Result<usize> {
        let number = text.parse().with_context(|| {
            format!(
                "unknown argument {word:?}: use PARENTS, PARENTSxROUNDS, edits, plugins or shards"
            )
        })?;
        ensure!(number > 0, "{word:?} has the number 0: use 1 or more");
        Ok(number)
    };
    Ok(Task::Converge {
        parents: number(parents)?,
        rounds: number(rounds)?,
    })
}

fn measure(tasks: &[Task]) -> Result<()> {
    let cache = tempfile::tempdir()?;
    let mut report = Report::default();
    let has_peers = tasks.iter().any(|task| !matches!(task, Task::Shards(_)));
    for contender in Contender::all() {
        if has_peers || contender == Contender::Innkeeper {
            converge::run(contender, cache.path(), WARM_UP, 0)?;
        }
    }
    for task in tasks {
        match task {
            Task::Converge { parents, rounds } => {
                for round in 0..*rounds {
                    for contender in Contender::in_order(Contender::all(), round) {
                        let run = converge::run(contender, cache.path(), *parents, round)?;
                        report.add_run(run)?;
                    }
                }
            }
            Task::Edits => {
                for contender in Contender::all() {
                    report.add_edits(edits::run(contender, cache.path())?)?;
                }
            }
            Task::Shards(size) => {
                for run in shards::RUNS {
                    report.add_shared(shards::run(cache.path(), *size, run)?)?;
                }
            }
            Task::Plugins => {
                for round in 0..plugins::ROUNDS {
                    for contender in Contender::in_order(Contender::all_with_plugins(), round) {
                        report.add_plugins(plugins::run(contender, cache.path(), round)?)?;
                    }
                }
            }
        }
    }
    report.print();
    report.check()
}
