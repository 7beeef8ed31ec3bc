//! Runs that a user requests with an annotation.
//!
//! Each new value is one run, even while the parent is suspended. The status records the value when the plugin observes
//! the Job, so a deleted Job is not created again.

use innkeeper_sdk::{hash::sha256_hex, prelude::*};
use k8s_openapi::api::batch::v1::Job;
use serde_json::Value;

use super::History;
use crate::{
    api::{ConcurrencyPolicy, OldSchedule, Schedule},
    plan::Plan,
    status::{BackupStatus, Phase, Run},
};

/// The annotation on a parent: a new value requests a run.
const RUN_NOW: &str = "gobackup.io/run-now";

/// Number of hexadecimal digits in a Job name, from the value's SHA-256.
const DIGITS: usize = 8;

/// Returns the parent's current value, and the Job's name.
fn requested(request: &Request) -> Option<(&str, String)> {
    let token = request
        .annotation(RUN_NOW)
        .filter(|token| !token.is_empty())?;
    Some((token, name(request, token)))
}

fn name(request: &Request, token: &str) -> String {
    let hash = sha256_hex(token);
    format!("{}{}", prefix(request), &hash[..DIGITS])
}

/// Returns the prefix of requested Jobs' names.
fn prefix(request: &Request) -> String {
    format!("{}-run-", request.name())
}

/// Returns the last value that got a Job.
///
/// A value may return after another one while the first Job still exists. An earlier pass has recorded that Job.
pub(super) fn acted_on(request: &Request, stored: &BackupStatus) -> Option<String> {
    let last = stored.last_run_request.clone();
    let Some((token, name)) = requested(request) else {
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
        stored.counted_jobs.iter().any(|job| job == uid) || runs.any(|run| run.job_uid == uid)
    };
    let is_old = last.as_deref() != Some(token) && uid.is_some_and(is_known);
    if is_old { last } else { Some(token.to_owned()) }
}

/// Returns the keys and names of requested Jobs: the new one, and finished ones within the history limits.
pub(crate) fn jobs(plan: &Plan<'_>, history: &History) -> Vec<(String, String)> {
    let request = plan.request;
    let mut names = remaining_jobs(plan, history);
    if let Some((token, name)) = requested(request) {
        let is_made = history.last_request.as_deref() == Some(token);
        if !is_made && !waits(plan, history) {
            // The host first deletes the Job of an earlier request with this value.
            names.retain(|other| *other != name);
            if request.children.find::<Job>(&name).is_none() {
                names.push(name);
            }
        }
    }
    let prefix = prefix(request);
    let key = |name: &str| format!("run-{}", &name[prefix.len()..]);
    names.into_iter().map(|name| (key(&name), name)).collect()
}

/// Returns true if no further run may start beside an active one.
///
/// Without a schedule, the first run comes before any that is asked for.
fn waits(plan: &Plan<'_>, history: &History) -> bool {
    let policy = plan
        .parent
        .schedule
        .as_ref()
        .map(|schedule| schedule.concurrency_policy);
    let is_alone = policy.unwrap_or_default() == ConcurrencyPolicy::Forbid;
    let is_first = plan.schedule.is_none() && !plan.parent.is_suspended() && !history.has_runs();
    is_first || is_alone && history.active.is_some()
}

/// Returns the observed Jobs that stay: active ones, and the newest finished ones.
fn remaining_jobs(plan: &Plan<'_>, history: &History) -> Vec<String> {
    let defaults = Schedule::from(&OldSchedule::default());
    let schedule = plan.parent.schedule.as_ref().unwrap_or(&defaults);
    let prefix = prefix(plan.request);
    let mut successful = schedule.successful_jobs_history_limit;
    let mut failed = schedule.failed_jobs_history_limit;
    // The name of a CronJob's Job ends with a number, so it never has this prefix.
    let is_requested = |run: &&Run| run.job_name.starts_with(&prefix);
    let is_within_limits = |run: &&Run| {
        let slots = match run.phase {
            Phase::Succeeded => &mut successful,
            Phase::Failed => &mut failed,
            Phase::Idle | Phase::Pending | Phase::Running => return true,
        };
        *slots -= 1;
        *slots >= 0
    };
    history
        .observed
        .iter()
        .filter(is_requested)
        .filter(is_within_limits)
        .map(|run| run.job_name.clone())
        .collect()
}
