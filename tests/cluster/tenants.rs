//! Rapid edits to thousands of parents in a noisy namespace do not delay edits in a quiet namespace by
//! more than seconds, neither for the same plugin nor for another one.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use innkeeper_tests::{
    Host, HostOptions, Write, eventually_for,
    process::{is_full, path_from_env},
    user::Kind,
};
use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    overload::StopOnDrop,
    stage::{Stage, is_applied},
};

/// The kind of the noisy parents; each has two small children.
const NOISY: [&str; 2] = ["test.innkeeper.dev/v1", "Moody"];

/// The number of clients that edit noisy parents: with four, the host would keep up.
const CLIENTS: usize = 8;

/// The number of edits to each quiet parent in a measurement, and the time between two edits.
const EDITS: usize = 15;
const EDIT_EVERY: Duration = Duration::from_millis(200);

/// Limit for each edit in the quiet namespace, by the API server's clock.
///
/// Ten times the maximum on two busy cores, and a fraction of the time for the noisy parents.
const DELAY_MAX: Duration = Duration::from_secs(5);

fn parents() -> usize {
    if is_full() { 10_000 } else { 1_000 }
}

/// A quiet parent, and the child that shows an edit.
struct Quiet {
    api_version: &'static str,
    kind: &'static str,
    resource: &'static str,
    child: &'static str,
    spec: fn(usize) -> Value,
}

const QUIET: [Quiet; 2] = [
    Quiet {
        api_version: NOISY[0],
        kind: NOISY[1],
        resource: "moodies.test.innkeeper.dev",
        child: "configmaps",
        spec: |turn| json!({"note": format!("turn {turn}")}),
    },
    Quiet {
        api_version: "cache.example.com/v1",
        kind: "Memcached",
        resource: "memcacheds.cache.example.com",
        child: "deployments.apps",
        spec: |turn| json!({"size": turn % 2}),
    },
];

const NAME: &str = "quiet";

struct Tenants {
    host: Host,
    stage: Stage,
    noisy: String,
    quiet: String,
}

impl Tenants {
    fn new() -> Self {
        let mut plugins = HostOptions::with_guests(&["memcached"]).unwrap().plugins;
        let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
        plugins.push(guests.join("generous.wasm"));
        let crds = ["memcacheds.cache.example.com", "moodies.test.innkeeper.dev"];
        let (stage, host) = Stage::serving(plugins, &crds);
        // The noisy namespace comes first in every order by name.
        let [noisy, quiet] = ["noisy", "quiet"].map(|name| stage.namespace(name));
        let tenants = Self {
            host,
            stage,
            noisy,
            quiet,
        };
        for Quiet {
            api_version,
            kind,
            spec,
            ..
        } in &QUIET
        {
            let parent = json!({
                "apiVersion": api_version, "kind": kind, "metadata": {"name": NAME}, "spec": spec(0),
            });
            let Self {
                stage, host, quiet, ..
            } = &tenants;
            stage.apply_new(quiet, &parent);
            stage.wait(host, quiet, (api_version, kind, NAME), is_applied);
        }
        tenants
    }

    /// Edits all noisy parents in each round, until `is_over` or the last round.
    fn edit_noisy(&self, rounds: usize, note: &str, is_over: &AtomicBool) {
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                scope.spawn(move || {
                    let numbers = (client..parents()).step_by(CLIENTS);
                    let turns =
                        (0..rounds).flat_map(|round| numbers.clone().map(move |n| (round, n)));
                    for (round, number) in turns {
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        let parent = json!({
                            "apiVersion": NOISY[0], "kind": NOISY[1],
                            "metadata": {"name": format!("noisy-{number}")},
                            "spec": {"note": format!("{note} {round}")},
                        });
                        self.stage.apply(&self.noisy, &parent);
                    }
                });
            }
        });
    }

    fn edit_quiet(&self, turn: usize) {
        for Quiet {
            api_version,
            kind,
            spec,
            ..
        } in &QUIET
        {
            let patch = json!({"spec": spec(turn)});
            let kind = Kind::new(api_version, kind, &self.quiet);
            self.stage.plane.user().merge(kind, NAME, &patch).unwrap();
        }
    }

    /// Returns the writes to a resource in a namespace after a mark.
    fn writes(&self, mark: usize, namespace: &str, resource: &str) -> Vec<Write> {
        self.stage
            .plane
            .audit()
            .since(mark)
            .unwrap()
            .into_iter()
            .filter(|write| write.namespace == namespace && write.resource == resource)
            .collect()
    }

    /// Edits the quiet parents in turn. Returns for each kind the delays between edit and write, in
    /// ascending order.
    fn measure(&self, first: usize) -> Vec<Vec<Duration>> {
        let mark = self.stage.mark();
        let begin = Instant::now();
        for turn in 0..EDITS {
            self.edit_quiet(first + turn);
            let due = EDIT_EVERY * u32::try_from(turn + 1).unwrap();
            thread::sleep(due.saturating_sub(begin.elapsed()));
        }
        let times = QUIET.iter().map(|quiet| {
            let goal = format!("the last edit of a {} is written", quiet.kind);
            eventually_for(Duration::from_mins(3), &goal, || {
                let writes = self.writes(mark, &self.quiet, quiet.child);
                let delays: Vec<_> = self
                    .writes(mark, &self.quiet, quiet.resource)
                    .iter()
                    .filter(|write| !write.is_by_host())
                    .map(|edit| delay(edit, &writes))
                    .collect();
                let all: Option<Vec<Duration>> = delays.iter().copied().collect();
                match all.filter(|all| all.len() == EDITS) {
                    Some(mut all) => {
                        all.sort_unstable();
                        Ok(all)
                    }
                    None => Err(format!("{delays:?}")),
                }
            })
        });
        times.collect()
    }
}

/// Returns the time between an edit's answer and the next write, if there is one yet. The write may
/// come first, because the watch event can reach the host before the answer reaches the client.
fn delay(edit: &Write, writes: &[Write]) -> Option<Duration> {
    let time = |since: Timestamp, until: Timestamp| {
        Duration::try_from(until.duration_since(since)).unwrap_or_default()
    };
    let next = writes.iter().find(|write| write.received > edit.received)?;
    Some(time(edit.answered, next.received))
}

/// A summary such as `p50 10ms, max 20ms`.
fn summary(times: &[Vec<Duration>]) -> Vec<String> {
    let each = times.iter().zip(&QUIET).map(|(times, quiet)| {
        let median = times[times.len() / 2];
        let longest = times[times.len() - 1];
        format!("{}: p50 {median:.1?}, max {longest:.1?}", quiet.kind)
    });
    each.collect()
}

/// Namespaces take turns in a plugin's queue. Otherwise the last edit, in the quiet namespace, would
/// wait for the whole backlog, which rapid edits keep full.
#[test]
fn a_namespace_with_very_many_edited_parents_hardly_delays_another_one() {
    let mut tenants = Tenants::new();
    let never = AtomicBool::new(false);
    let alone = tenants.measure(1);
    tenants.edit_noisy(1, "first", &never);

    // Builds a backlog while the host is stopped: all noisy edits, and the quiet one last.
    tenants.host.process().signal(Signal::STOP).unwrap();
    tenants.edit_noisy(1, "backlog", &never);
    let mark = tenants.stage.mark();
    tenants.edit_quiet(EDITS + 1);
    tenants.host.process().signal(Signal::CONT).unwrap();
    let written = eventually_for(Duration::from_mins(3), "the quiet edit is written", || {
        tenants
            .writes(mark, &tenants.quiet, QUIET[0].child)
            .first()
            .map(|write| write.received)
            .ok_or("not yet")
    });
    let noisy = tenants.writes(mark, &tenants.noisy, QUIET[0].child);
    let before = noisy
        .iter()
        .filter(|write| write.received < written)
        .count();

    let is_over = AtomicBool::new(false);
    let beside = thread::scope(|scope| {
        let editing = scope.spawn(|| tenants.edit_noisy(usize::MAX, "rapid", &is_over));
        let end = StopOnDrop(&is_over);
        let beside = tenants.measure(EDITS + 2);
        drop(end);
        editing.join().unwrap();
        beside
    });
    let report = format!(
        "{} noisy parents: {before} of their edits written before the quiet one; alone {:?}; beside them {:?}",
        parents(),
        summary(&alone),
        summary(&beside),
    );
    println!("{report}");
    assert!(before < parents() / 3, "{report}");
    let longest = beside.iter().flatten().max().unwrap();
    assert!(*longest < DELAY_MAX, "{report}");
}
