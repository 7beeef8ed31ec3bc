//! The time from a user's edit to the contender's resulting write, at several rates.
//!
//! Both times come from the API server's audit log: the response to the edit and the response to the Deployment write.
//! The write for an edit is the first one with its value, or with a later edit's value for the same parent.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Result, ensure};
use futures::StreamExt as _;
use innkeeper_tests::{Audit, ControlPlane, Write, eventually_for};
use jiff::Timestamp;
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    api::GROUP,
    contender::Contender,
    converge::settle,
    parents::{self, Batch},
    report::count,
};

const PARENTS: usize = 500;
/// Edits per second, and the total.
const RATES: [(u32, usize); 3] = [(10, 200), (100, 1000), (300, 3000)];
/// Maximum number of edits in flight.
const EDITORS: usize = 64;
/// The field manager for edits.
const EDITOR: &str = "bench-editor";
/// The first edit's value; each later edit adds 1, so that a value identifies an edit.
const FIRST_VALUE: usize = 128;
/// Nine times what sending the edits takes at the lowest rate; only a failing run waits that long.
const PATIENCE: Duration = Duration::from_mins(3);

/// One contender's measurements at one rate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Edits {
    pub(crate) contender: Contender,
    pub(crate) per_second: u32,
    /// The rate that the API server reached.
    pub(crate) reached_per_second: f64,
    pub(crate) count: usize,
    /// Time from the edit's response to the write's response.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// The API server's own time for the write.
    pub(crate) write_p50_ms: f64,
    pub(crate) write_p99_ms: f64,
}

/// Measures a contender at all rates.
pub(crate) fn run(contender: Contender, cache: &Path) -> Result<Vec<Edits>> {
    let plane = ControlPlane::start_with(&["--api-only"])?;
    let batch = parents::make(&plane, PARENTS)?;
    contender.prepare(&plane, &[GROUP.to_owned()])?;
    let started = contender.start(&plane, cache)?;
    parents::wait_final(&plane, contender, &batch)?;
    let mut measured = Vec::new();
    let mut value = FIRST_VALUE;
    for (per_second, edits) in RATES {
        settle(&plane, contender)?;
        let mark = plane.audit().mark()?;
        let values = value..value + edits;
        value = values.end;
        let user = plane.user();
        user.block_on(edit(user.client(), &batch, values, per_second))?;
        measured.push(follow(&plane.audit(), contender, mark, per_second, edits));
    }
    started.stop()?;
    Ok(measured)
}

/// Edits one parent after the other at a fixed rate, without waiting for the answers.
#[expect(clippy::disallowed_methods, reason = "the bench acts as the user")]
async fn edit(
    client: Client,
    batch: &Batch,
    values: std::ops::Range<usize>,
    per_second: u32,
) -> Result<()> {
    let mut clock = interval(Duration::from_secs(1) / per_second);
    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let params = PatchParams {
        field_manager: Some(EDITOR.into()),
        ..PatchParams::default()
    };
    let due = futures::stream::unfold((clock, values), async |(mut clock, mut values)| {
        let value = values.next()?;
        clock.tick().await;
        Some((value, (clock, values)))
    });
    let answers = due
        .zip(futures::stream::iter(batch.names.iter().cycle()))
        .map(async |(value, name)| {
            let api = batch.api(client.clone());
            let patch = json!({ "spec": { "memcached": { "maxMemoryMB": value } } });
            api.patch(name, &params, &Patch::Merge(patch))
                .await
                .map(drop)
        })
        .buffer_unordered(EDITORS);
    let mut answers = std::pin::pin!(answers);
    while let Some(answer) = answers.next().await {
        answer?;
    }
    Ok(())
}

/// Returns the memory size in a write: from the spec for an edit, from the arguments for a Deployment.
fn value_of(write: &Write) -> Option<u64> {
    if write.resource == "memcacheds.cache.example.com" {
        return write.body.pointer("/spec/memcached/maxMemoryMB")?.as_u64();
    }
    let arguments = write
        .body
        .pointer("/spec/template/spec/containers/0/args")?
        .as_array()?;
    let at = arguments.iter().position(|argument| argument == "-m")?;
    arguments.get(at + 1).and_then(Value::as_str)?.parse().ok()
}

/// Waits until every edit has a write, and returns the measured times.
fn follow(
    audit: &Audit,
    contender: Contender,
    mark: usize,
    per_second: u32,
    edits: usize,
) -> Edits {
    let pairs = eventually_for(PATIENCE, "every edit is followed by a write", || {
        let pairs = pairs(contender, audit.since(mark)?);
        ensure!(
            pairs.len() == edits,
            "{} of {edits} edits are followed by a write of {}",
            pairs.len(),
            contender.name(),
        );
        Ok(pairs)
    });
    let answers = pairs.iter().map(|pair| pair.edited);
    let span_ms = answers
        .clone()
        .min()
        .zip(answers.max())
        .map_or(f64::NAN, |(first, last)| ms(first, last));
    let times = sorted(pairs.iter().map(|pair| ms(pair.edited, pair.answered)));
    let own = sorted(pairs.iter().map(|pair| ms(pair.received, pair.answered)));
    Edits {
        contender,
        per_second,
        reached_per_second: count(edits) * 1000.0 / span_ms,
        count: edits,
        p50_ms: quantile(&times, 50),
        p99_ms: quantile(&times, 99),
        write_p50_ms: quantile(&own, 50),
        write_p99_ms: quantile(&own, 99),
    }
}

/// When an edit and the write were received and answered.
struct Pair {
    edited: Timestamp,
    received: Timestamp,
    answered: Timestamp,
}

fn pairs(contender: Contender, writes: Vec<Write>) -> Vec<Pair> {
    let mut edits = Vec::new();
    // For each parent, the first write with each value.
    let mut followed: BTreeMap<(String, String), BTreeMap<u64, Write>> = BTreeMap::new();
    for write in writes {
        let Some(value) = value_of(&write).filter(|_| write.code < 300) else {
            continue;
        };
        if write.resource == "memcacheds.cache.example.com" {
            edits.push((value, write));
        } else if contender.sent(&write) {
            let key = (write.namespace.clone(), write.name.clone());
            followed
                .entry(key)
                .or_default()
                .entry(value)
                .or_insert(write);
        }
    }
    let pair = |(value, edit): (u64, Write)| {
        let writes = followed.get(&(edit.namespace, edit.name))?;
        let (_, write) = writes.range(value..).next()?;
        Some(Pair {
            edited: edit.answered,
            received: write.received,
            answered: write.answered,
        })
    };
    edits.into_iter().filter_map(pair).collect()
}

fn ms(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1000.0
}

fn sorted(times: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut times: Vec<f64> = times.collect();
    times.sort_unstable_by(f64::total_cmp);
    times
}

/// Returns a quantile from sorted times.
fn quantile(times: &[f64], percent: usize) -> f64 {
    let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(at).copied().unwrap_or(f64::NAN)
}
