//! One contender from empty to all parents done, and once more from its start with nothing left to do.

use std::{
    collections::BTreeMap,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use innkeeper_tests::{ControlPlane, Write};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    contender::{Contender, Started},
    parents,
};

/// Nothing was asked of the API server for so long: it has done what there was to do.
const QUIET: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_mins(5);

/// What was measured of one contender on one control plane.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) contender: Contender,
    pub(crate) parents: usize,
    pub(crate) round: usize,
    pub(crate) from_empty: FromEmpty,
    pub(crate) restart: Restart,
}

/// From a start with parents that have no children.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FromEmpty {
    /// From the start of the process until every parent has its final status.
    pub(crate) wall_s: f64,
    /// CPU time of the process until it has nothing more to ask.
    pub(crate) cpu_s: f64,
    pub(crate) resident_max_bytes: u64,
    /// Passes or reconciles, as it counts them itself.
    pub(crate) passes: u64,
    /// What the API server was asked: verb and kind, watches left out.
    pub(crate) requests: BTreeMap<String, usize>,
    /// Those that were answered with an error.
    pub(crate) refused: usize,
}

/// From a start with nothing to do.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Restart {
    /// From the start of the process until it used next to no CPU time any more.
    pub(crate) steady_s: f64,
    /// The part of it until the last list was answered; none where nothing is listed.
    pub(crate) listed_s: Option<f64>,
    pub(crate) cpu_s: f64,
    pub(crate) resident_max_bytes: u64,
    pub(crate) passes: u64,
    pub(crate) writes: usize,
}

/// Measures a contender with so many parents.
pub(crate) fn run(contender: Contender, cache: &Path, parents: usize, round: usize) -> Result<Run> {
    let plane = ControlPlane::start_with(&["--api-only", "--audit", "metadata"])?;
    let names = parents::make(&plane, parents)?;
    let from_empty = from_empty(contender, cache, &plane, &names)?;
    let restart = restart(contender, cache, &plane, parents)?;
    Ok(Run {
        contender,
        parents,
        round,
        from_empty,
        restart,
    })
}

fn from_empty(
    contender: Contender,
    cache: &Path,
    plane: &ControlPlane,
    names: &parents::Names,
) -> Result<FromEmpty> {
    let mark = plane.audit().mark()?;
    let start = Instant::now();
    let mut started = contender.start(plane, cache)?;
    parents::wait_final(plane, contender, names)?;
    let wall = start.elapsed();
    settle(plane, contender)?;
    let usage = started.usage()?;
    let passes = started.stop()?;
    let requests = requests(plane, contender, mark)?;
    let refused = requests.iter().filter(|request| request.code >= 400);
    let refused = refused.count();
    let mut counts = BTreeMap::new();
    for request in requests {
        let key = format!("{} {}", request.verb, request.resource);
        *counts.entry(key).or_default() += 1;
    }
    Ok(FromEmpty {
        wall_s: wall.as_secs_f64(),
        cpu_s: usage.cpu.as_secs_f64(),
        resident_max_bytes: usage.resident_max_bytes,
        passes,
        requests: counts,
        refused,
    })
}

fn restart(
    contender: Contender,
    cache: &Path,
    plane: &ControlPlane,
    parents: usize,
) -> Result<Restart> {
    let mark = plane.audit().mark()?;
    let began = Timestamp::now();
    let mut started = contender.start(plane, cache)?;
    let steady = wait_steady(&mut started)?;
    let usage = started.usage()?;
    let passes = started.stop()?;
    ensure!(
        passes >= u64::try_from(parents)?,
        "{}: {passes} passes after a restart with {parents} parents: it was not steady",
        contender.name(),
    );
    let requests = requests(plane, contender, mark)?;
    let lists = requests.iter().filter(|request| request.verb == "list");
    let listed = lists.map(|request| request.answered).max();
    let writes = requests
        .iter()
        .filter(|request| !["get", "list", "watch"].contains(&&*request.verb));
    Ok(Restart {
        steady_s: steady.as_secs_f64(),
        listed_s: listed.map(|listed| listed.duration_since(began).as_secs_f64()),
        cpu_s: usage.cpu.as_secs_f64(),
        resident_max_bytes: usage.resident_max_bytes,
        passes,
        writes: writes.count(),
    })
}

/// What a contender asked after a mark and was answered; watches come to no end.
pub(crate) fn requests(
    plane: &ControlPlane,
    contender: Contender,
    mark: usize,
) -> Result<Vec<Write>> {
    let mut requests = plane.audit().requests_since(mark)?;
    requests.retain(|request| contender.sent(request) && request.verb != "watch");
    Ok(requests)
}

/// Waits until a contender asks nothing any more.
pub(crate) fn settle(plane: &ControlPlane, contender: Contender) -> Result<()> {
    let start = Instant::now();
    let (mut mark, mut since) = (plane.audit().mark()?, Instant::now());
    while since.elapsed() < QUIET {
        ensure!(
            start.elapsed() < PATIENCE,
            "{} does not end",
            contender.name()
        );
        thread::sleep(Duration::from_millis(100));
        let next = plane.audit().mark()?;
        if !requests(plane, contender, mark)?.is_empty() {
            since = Instant::now();
        }
        mark = next;
    }
    Ok(())
}

/// Waits until a process is idle; gives how long after its start that began.
fn wait_steady(started: &mut Started) -> Result<Duration> {
    const WINDOW: Duration = Duration::from_millis(100);
    /// More than timers take, less than any work.
    const BUSY: Duration = Duration::from_millis(20);

    let start = Instant::now();
    let (mut steady, mut cpu) = (Duration::ZERO, Duration::ZERO);
    while start.elapsed() < steady + QUIET {
        ensure!(
            start.elapsed() < PATIENCE,
            "it is never idle: {}",
            started.log()
        );
        thread::sleep(WINDOW);
        let used = started.usage()?.cpu;
        if used >= cpu + BUSY {
            steady = start.elapsed();
        }
        cpu = used;
    }
    Ok(steady)
}
