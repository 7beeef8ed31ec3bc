//! One contender from an empty cluster until all parents are done, and then a restart with nothing left to do.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use innkeeper_tests::{ControlPlane, Write};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    api::GROUP,
    contender::{Contender, Started},
    parents::{self, Batch},
    server::Served,
};

/// A contender that sends no request for this long has finished its work.
const QUIET: Duration = Duration::from_secs(2);
/// Several times what the slowest contender takes for the most parents; only a failing run waits that long.
const PATIENCE: Duration = Duration::from_mins(5);

/// One contender's measurements on one control plane.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) contender: Contender,
    pub(crate) parents: usize,
    pub(crate) round: usize,
    pub(crate) from_empty: FromEmpty,
    pub(crate) restart: Restart,
    /// A host restart with the compiled plugin but without stored pass results, so that every parent gets a call.
    pub(crate) restart_without_memory: Option<Restart>,
}

/// The measurements for a start with parents that have no children yet.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FromEmpty {
    /// From process start until every parent has its final status.
    pub(crate) wall_s: f64,
    /// CPU time until the process sends no more requests.
    pub(crate) cpu_s: f64,
    /// CPU time that the API server used meanwhile. The same requests cost it the same work in every round, so this shows
    /// the machine's speed.
    pub(crate) api_server_cpu_s: f64,
    pub(crate) resident_max_bytes: u64,
    /// Passes or reconciles, as the contender counts them.
    pub(crate) passes: u64,
    /// The mean CPU time per guest call.
    pub(crate) call_us: Option<f64>,
    /// Requests by verb and kind, without watches.
    pub(crate) requests: BTreeMap<String, usize>,
    /// Writes that the API server refused.
    pub(crate) refused: usize,
    /// What the API server counted meanwhile.
    pub(crate) served: Served,
}

/// The measurements for a start with nothing to do.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Restart {
    /// From process start until the process is idle.
    pub(crate) steady_s: f64,
    /// From process start until the last list was answered; `None` without lists.
    pub(crate) listed_s: Option<f64>,
    pub(crate) cpu_s: f64,
    pub(crate) resident_max_bytes: u64,
    /// How many bytes of the program file are resident at the end, when the process is idle.
    pub(crate) program_bytes: u64,
    pub(crate) passes: u64,
    pub(crate) call_us: Option<f64>,
    pub(crate) writes: usize,
}

/// Measures a contender with this many parents.
pub(crate) fn run(contender: Contender, cache: &Path, parents: usize, round: usize) -> Result<Run> {
    let plane = ControlPlane::start_with(&["--api-only", "--audit", "metadata"])?;
    let batch = parents::make(&plane, parents)?;
    contender.prepare(&plane, &[GROUP.to_owned()])?;
    let from_empty = from_empty(contender, cache, &plane, &batch)?;
    let again = restart(contender, cache, &plane, parents)?;
    let restart_without_memory = if contender == Contender::Innkeeper {
        let code = tempfile::tempdir()?;
        copy_code(cache, code.path())?;
        Some(restart(contender, code.path(), &plane, parents)?)
    } else {
        None
    };
    Ok(Run {
        contender,
        parents,
        round,
        from_empty,
        restart: again,
        restart_without_memory,
    })
}

/// Copies only the compiled code from a cache directory.
fn copy_code(from: &Path, to: &Path) -> Result<()> {
    for file in fs::read_dir(from)? {
        let path = file?.path();
        let extension = path.extension().and_then(OsStr::to_str);
        if let (Some("cwasm" | "sum"), Some(name)) = (extension, path.file_name()) {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

fn from_empty(
    contender: Contender,
    cache: &Path,
    plane: &ControlPlane,
    batch: &Batch,
) -> Result<FromEmpty> {
    let mark = plane.audit().mark()?;
    let served = Served::read(plane)?;
    let start = Instant::now();
    let before = plane.usage("apiserver")?.cpu;
    let mut started = contender.start(plane, cache)?;
    parents::wait_final(plane, contender, batch)?;
    let wall = start.elapsed();
    settle(plane, contender)?;
    let usage = started.usage()?;
    let api_server = plane.usage("apiserver")?.cpu.saturating_sub(before);
    let served = Served::read(plane)?.since(&served);
    let counted = started.stop()?;
    let requests = requests(plane, contender, mark)?;
    let refused = requests
        .iter()
        .filter(|request| is_write(request) && request.code >= 400)
        .count();
    let mut counts = BTreeMap::new();
    for request in requests {
        let key = format!("{} {}", request.verb, request.resource);
        *counts.entry(key).or_default() += 1;
    }
    Ok(FromEmpty {
        wall_s: wall.as_secs_f64(),
        cpu_s: usage.cpu.as_secs_f64(),
        api_server_cpu_s: api_server.as_secs_f64(),
        resident_max_bytes: usage.resident_max_bytes,
        passes: counted.passes,
        call_us: counted.call_us,
        requests: counts,
        refused,
        served,
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
    let program_bytes = started.program_bytes()?;
    let counted = started.stop()?;
    let passes = counted.passes;
    ensure!(
        passes >= u64::try_from(parents)?,
        "{}: {passes} passes after a restart with {parents} parents: it was idle too early",
        contender.name(),
    );
    let requests = requests(plane, contender, mark)?;
    let listed = requests
        .iter()
        .filter(|request| request.verb == "list")
        .map(|request| request.answered)
        .max();
    let writes = requests.iter().filter(|request| is_write(request));
    Ok(Restart {
        steady_s: steady.as_secs_f64(),
        listed_s: listed.map(|listed| listed.duration_since(began).as_secs_f64()),
        cpu_s: usage.cpu.as_secs_f64(),
        resident_max_bytes: usage.resident_max_bytes,
        program_bytes,
        passes,
        call_us: counted.call_us,
        writes: writes.count(),
    })
}

fn is_write(request: &Write) -> bool {
    !["get", "list", "watch"].contains(&&*request.verb)
}

/// Returns a contender's answered requests after a mark, without watches, which do not end by themselves.
pub(crate) fn requests(
    plane: &ControlPlane,
    contender: Contender,
    mark: usize,
) -> Result<Vec<Write>> {
    Ok(plane
        .audit()
        .requests_since(mark)?
        .into_iter()
        .filter(|request| contender.sent(request) && request.verb != "watch")
        .collect())
}

/// Waits until a contender sends no more requests.
pub(crate) fn settle(plane: &ControlPlane, contender: Contender) -> Result<()> {
    let requests = |mark| requests(plane, contender, mark);
    plane
        .audit()
        .settle(QUIET, PATIENCE, requests)
        .map(drop)
        .with_context(|| contender.name().to_owned())
}

/// Waits until a process is idle; returns the time from the call until the idle period began.
fn wait_steady(started: &mut Started) -> Result<Duration> {
    const WINDOW: Duration = Duration::from_millis(100);
    /// CPU time in a window: more than timers take, less than any pass takes.
    const BUSY: Duration = Duration::from_millis(20);

    let start = Instant::now();
    let mut steady = Duration::ZERO;
    let mut cpu = Duration::ZERO;
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
