//! A namespace with very many parents that are edited rapidly, beside a namespace with a few parents of the same plugin
//! and of another one: the edits of the quiet namespace are written within seconds.

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

/// The parents of the noisy namespace; each has two small children.
const NOISY: [&str; 2] = ["test.innkeeper.dev/v1", "Moody"];

/// The number of clients that edit the noisy parents; with four, the host keeps up.
const CLIENTS: usize = 8;

/// The number of edits of each quiet parent in a measurement, and the time between two of them.
const EDITS: usize = 15;
const EDIT_EVERY: Duration = Duration::from_millis(200);

/// The limit for one edit of the quiet namespace, by the API server's clock.
///
/// Ten times the longest time on two busy cores, and a fraction of the time that the noisy parents take.
const DELAY_MAX: Duration = Duration::from_secs(5);

fn parents() -> usize {
    if is_full() { 10_000 } else { 1_000 }
}

/// A parent of the quiet namespace, and the child that shows its edits.
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
    stage: Stage,
    host: Host,
    noisy: String,
    quiet: String,
}

impl Tenants {
    fn new() -> Self {
        let mut plugins = HostOptions::with_guests(&["memcached"]).unwrap().plugins;
        let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
        plugins.push(guests.join("generous.wasm"));
        let stage = Stage::api_only(plugins);
        let host = stage.host();
        let crds = ["memcacheds.cache.example.com", "moodies.test.innkeeper.dev"];
        stage.wait_served(&host, &crds);
        // The noisy namespace comes first in every order by name.
        let [noisy, quiet] = ["noisy", "quiet"].map(|name| stage.namespace(name));
        let tenants = Self {
            stage,
            host,
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

    /// Applies all noisy parents with another note, again and again until it is told to stop or a number of rounds is over.
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

    /// The writes to a resource of a namespace after a mark.
    fn writes(&self, mark: usize, namespace: &str, resource: &str) -> Vec<Write> {
        let mut writes = self.stage.plane.audit().since(mark).unwrap();
        writes.retain(|write| write.namespace == namespace && write.resource == resource);
        writes
    }

    /// Edits the quiet parents in turn, and returns for each kind the times from its edits to the host's writes, in
    /// ascending order.
    fn measure(&self, first: usize) -> Vec<Vec<Duration>> {
        let mark = self.stage.mark();
        let begun = Instant::now();
        for turn in 0..EDITS {
            self.edit_quiet(first + turn);
            let due = EDIT_EVERY * u32::try_from(turn + 1).unwrap();
            thread::sleep(due.saturating_sub(begun.elapsed()));
        }
        let times = QUIET.iter().map(|quiet| {
            let goal = format!("the last edit of a {} is written", quiet.kind);
            eventually_for(Duration::from_mins(3), &goal, || {
                let edits = self.writes(mark, &self.quiet, quiet.resource);
                let edits = edits.iter().filter(|write| !write.is_by_host());
                let writes = self.writes(mark, &self.quiet, quiet.child);
                let delays: Vec<_> = edits.map(|edit| delay(edit, &writes)).collect();
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

/// The time from the answer to an edit to the arrival of the next write; none if there is none yet. A watch event may
/// arrive before the answer to the edit.
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

/// In the queue of a plugin, namespaces take turns. Otherwise the quiet edit, which comes last, would wait for the whole
/// backlog; while the noisy parents are edited rapidly, there always is one.
#[test]
fn a_namespace_with_very_many_edited_parents_hardly_delays_another_one() {
    let mut tenants = Tenants::new();
    let never = AtomicBool::new(false);
    let alone = tenants.measure(1);
    tenants.edit_noisy(1, "first", &never);

    // The backlog: all noisy edits, and after them the quiet one, happen while the host stands still.
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

    // Rapid edits during a measurement.
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
