//! Runs that a user asks for by an annotation of the parent.
//!
//! Each new value of the annotation is one run, also while the parent is suspended. The status records the value as soon
//! as the Job is observed: a deleted Job is not made again.

use innkeeper_sdk::{hash::sha256_hex, prelude::*};
use k8s_openapi::api::batch::v1::Job;
use serde_json::Value;

use super::History;
use crate::{
    api::{ConcurrencyPolicy, OldSchedule, Schedule},
    plan::Plan,
    status::{BackupStatus, Phase, Run},
};

/// The annotation on a parent: a value that it has not had before asks for a run.
const RUN_NOW: &str = "gobackup.io/run-now";

/// The number of hexadecimal digits that a Job has in its name, of the SHA-256 of the value.
const DIGITS: usize = 8;

/// The value that a parent has now, and the name of its Job.
fn wanted(request: &Request) -> Option<(&str, String)> {
    let token = request.annotation(RUN_NOW).filter(|it| !it.is_empty())?;
    Some((token, name(request, token)))
}

fn name(request: &Request, token: &str) -> String {
    let hash = sha256_hex(token);
    format!("{}{}", prefix(request), &hash[..DIGITS])
}

/// The start of the names of requested Jobs.
fn prefix(request: &Request) -> String {
    format!("{}-run-", request.name())
}

/// The last value for which a Job was made.
///
/// A value may come back after another one, while its first Job is still there. That Job is in the record of an earlier pass.
pub(super) fn acted_on(request: &Request, stored: &BackupStatus) -> Option<String> {
    let last = stored.last_run_request.clone();
    let Some((token, name)) = wanted(request) else {
        return last;
    };
    let Some(job) = request.children.find::<Job>(&name) else {
        return last;
    };
    let uid = job
        .object()
        .pointer("/metadata/uid")
        .and_then(Value::as_str);
    let is_known = |uid: &str| {
        let mut runs = stored.recent_runs.iter().chain(&stored.last_run);
        stored.counted_jobs.iter().any(|it| it == uid) || runs.any(|it| it.job_uid == uid)
    };
    let is_old = last.as_deref() != Some(token) && uid.is_some_and(is_known);
    if is_old { last } else { Some(token.to_owned()) }
}

/// The requested Jobs by key and name: the new one, and those that ended within the limits of the history.
pub(crate) fn jobs(plan: &Plan<'_>, history: &History) -> Vec<(String, String)> {
    let request = plan.request;
    let mut names = kept(plan, history);
    if let Some((token, name)) = wanted(request) {
        let is_made = history.last_request.as_deref() == Some(token);
        if !is_made && !waits(plan, history) {
            // The host deletes the Job of an earlier request of this value first.
            names.retain(|it| *it != name);
            if request.children.find::<Job>(&name).is_none() {
                names.push(name);
            }
        }
    }
    let prefix = prefix(request);
    let key = |name: &str| format!("run-{}", &name[prefix.len()..]);
    let jobs = names.into_iter();
    jobs.map(|name| (key(&name), name)).collect()
}

/// Returns true if no further run may start beside an active one.
///
/// Without a schedule, the first run comes before any that is asked for.
fn waits(plan: &Plan<'_>, history: &History) -> bool {
    let policy = plan
        .parent
        .schedule
        .as_ref()
        .map(|it| it.concurrency_policy);
    let is_alone = policy.unwrap_or_default() == ConcurrencyPolicy::Forbid;
    let is_first = plan.schedule.is_none() && !plan.parent.is_suspended() && !history.has_runs();
    is_first || is_alone && history.active.is_some()
}

/// The observed Jobs that stay: those that run, and the newest that have ended.
fn kept(plan: &Plan<'_>, history: &History) -> Vec<String> {
    let defaults = Schedule::from(&OldSchedule::default());
    let schedule = plan.parent.schedule.as_ref().unwrap_or(&defaults);
    let prefix = prefix(plan.request);
    let mut left = [
        schedule.successful_jobs_history_limit,
        schedule.failed_jobs_history_limit,
    ];
    // A Job of the CronJob never has such a name, because its suffix is a number.
    let is_requested = |run: &&Run| run.job_name.starts_with(&prefix);
    let mut kept = Vec::new();
    for run in history.observed.iter().filter(is_requested) {
        let left = match run.phase {
            Phase::Succeeded => &mut left[0],
            Phase::Failed => &mut left[1],
            Phase::Idle | Phase::Pending | Phase::Running => {
                kept.push(run.job_name.clone());
                continue;
            }
        };
        if *left > 0 {
            *left -= 1;
            kept.push(run.job_name.clone());
        }
    }
    kept
}
