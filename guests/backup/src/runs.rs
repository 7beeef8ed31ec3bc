//! A parent's runs: the Jobs, and the results that earlier passes recorded.
//!
//! A run belongs to a parent by UID, never by name. A finished run's record does not change, not even when the Job is
//! deleted.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_kit::{partial, prelude::*, rollout::TEMPLATE_HASH};
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus};
use serde::de::IgnoredAny;

use crate::{
    api::Kind,
    names,
    status::{ActiveJob, BackupStatus, Phase, Restored, Run},
    task::{JOB_LOST, Task},
};

mod message;
pub(crate) mod requested;
mod restores;

#[cfg(test)]
mod tests;

/// Maximum number of runs in the status.
const RECENT_MAX: usize = 5;

/// The observed CronJob, without the Pod template.
type ObservedCronJob = Partial<CronJob, IgnoredAny, CronJobStatus>;

/// The CronJob's parts that a pass uses, besides the mark.
const CRON_JOB_PARTS: [&str; 3] = ["/metadata/uid", "/metadata/creationTimestamp", "/status"];

/// A run whose Job exists.
struct ObservedRun {
    run: Run,
    /// The same without the Pod's termination message.
    without_pod: Run,
}

/// The runs of one parent.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The last runs, newest first.
    pub(crate) recent: Vec<Run>,
    pub(crate) active: Option<ActiveJob>,
    pub(crate) failure_count: i64,
    pub(crate) success_count: i64,
    pub(crate) counted: Vec<String>,
    pub(crate) last_success: Option<String>,
    pub(crate) events: Vec<Event>,
    /// The runs whose Jobs exist, newest first.
    pub(crate) observed: Vec<Run>,
    /// The last annotation value that got a Job.
    pub(crate) last_request: Option<String>,
    /// The parent's last Restores.
    pub(crate) restores: Vec<Restored>,
    /// The CronJob, if it is observed.
    pub(crate) cron_job: Option<ObservedCronJob>,
}

impl History {
    /// Reads the Jobs and Pods, and merges them with the stored status.
    pub(crate) fn read(request: &Request, host: &dyn Host, kind: Kind) -> Result<Self, Fault> {
        let children = &request.children;
        let cron_job: Option<ObservedCronJob> =
            partial::find(children, request.name(), &[TEMPLATE_HASH], &CRON_JOB_PARTS)?;
        let selector = labels::selector_text(&names::labels(request, kind, "run"));
        let jobs = host.list::<ObservedJob>(request.namespace(), &selector)?;
        let pods = host.list::<JobPod>(request.namespace(), &selector)?;
        let schedule = cron_job
            .as_ref()
            .and_then(|cron_job| cron_job.metadata.uid.as_deref());
        let scheduled = jobs
            .into_iter()
            .filter(|job| schedule.is_some() && job::controller(&job.metadata) == schedule);
        let mut observed = BTreeMap::new();
        let verification = names::suffixed(request, kind.verification());
        let own = request
            .children
            .all::<ObservedJob>()?
            .into_iter()
            .filter(|job| job.metadata.name.as_ref() != Some(&verification));
        for job in own.chain(scheduled) {
            let task = Task::new(&job);
            let run = ObservedRun {
                without_pod: message::run(&task, None),
                run: message::run(&task, task.termination_message(kind, &pods)),
            };
            observed.insert(task.uid, run);
        }
        let stored: BackupStatus = request.stored_status().unwrap_or_default();
        let last_request = requested::acted_on(request, &stored);
        let restores = restores::read(request, host, kind, stored.restores.clone())?;
        let succeeded = cron_job
            .as_ref()
            .map(|cron_job| &cron_job.status)
            .and_then(|status| status.last_successful_time.as_ref());
        let mut history = Self::merge(stored, observed, succeeded.map(|time| time.0.to_string()));
        history.cron_job = cron_job;
        history.last_request = last_request;
        history.restores = restores;
        Ok(history)
    }

    /// `succeeded` is the end of the last successful Job that the CronJob saw.
    fn merge(
        stored: BackupStatus,
        observed: BTreeMap<String, ObservedRun>,
        succeeded: Option<String>,
    ) -> Self {
        let mut runs: BTreeMap<String, Run> = BTreeMap::new();
        for run in stored.recent_runs.into_iter().chain(stored.last_run) {
            // `last_run` comes second and replaces the copy in `recent_runs`, which has no log.
            runs.insert(run.job_uid.clone(), run);
        }
        let before = runs.clone();
        let mut history = Self {
            failure_count: stored.failure_count,
            success_count: stored.success_count,
            last_success: stored.last_successful_backup_time,
            ..Default::default()
        };
        history.lose(&mut runs, &observed, succeeded);
        for (uid, job) in &observed {
            // A final record stays, unless an earlier pass made it before the Pod's termination message arrived.
            let recorded = runs.get(uid).filter(|run| run.phase.is_terminal());
            if recorded.is_none_or(|run| *run == job.without_pod) {
                runs.insert(uid.clone(), job.run.clone());
            }
        }
        let counted: BTreeSet<String> = stored.counted_jobs.into_iter().collect();
        let mut finished: Vec<&Run> = observed
            .keys()
            .filter_map(|uid| runs.get(uid))
            .filter(|run| run.phase.is_terminal())
            .collect();
        // In the order of their ends, because a success resets the number of failures.
        finished.sort_by_key(|run| (run.completion_time.clone(), run.job_uid.clone()));
        for run in finished {
            if !counted.contains(&run.job_uid) {
                history.count(run);
            }
            // Only of existing Jobs: one that is gone cannot be counted again.
            history.counted.push(run.job_uid.clone());
        }
        history.counted.sort_unstable();
        let mut recent: Vec<Run> = runs.into_values().collect();
        recent.sort_by(|a, b| order(b).cmp(&order(a)));
        // The status has five runs, but the cluster may have more. An older finished run counts as known if it was
        // counted; an active one is only reported while the status has room for it.
        let is_old = |(place, run): &(usize, &Run)| {
            counted.contains(&run.job_uid) || *place >= RECENT_MAX && !run.phase.is_terminal()
        };
        let reported: Vec<&Run> = recent
            .iter()
            .enumerate()
            .filter(|run| !is_old(run))
            .map(|(_, run)| run)
            .collect();
        for run in reported.into_iter().rev() {
            let event = (!before.contains_key(&run.job_uid))
                .then(|| Event::normal("RunStarted", format!("{} started", run.job_name)));
            history.events.extend(event);
            history.events.extend(ending(before.get(&run.job_uid), run));
        }
        history.active = recent
            .iter()
            .find(|run| !run.phase.is_terminal())
            .map(|run| ActiveJob {
                name: run.job_name.clone(),
                uid: run.job_uid.clone(),
            });
        let is_observed = |run: &&Run| observed.contains_key(&run.job_uid);
        history.observed = recent.iter().filter(is_observed).cloned().collect();
        recent.truncate(RECENT_MAX);
        history.recent = recent;
        history
    }

    /// Ends the runs without a Job.
    fn lose(
        &mut self,
        runs: &mut BTreeMap<String, Run>,
        observed: &BTreeMap<String, ObservedRun>,
        succeeded: Option<String>,
    ) {
        // It is a lost Job's end only if the other runs ended at other times.
        let is_of = |run: &Run| run.completion_time == succeeded;
        let mut others = observed.values().map(|job| &job.run).chain(runs.values());
        let mut succeeded = succeeded.clone().filter(|_| !others.any(is_of));
        for (uid, run) in runs {
            if observed.contains_key(uid) || run.phase.is_terminal() {
                continue;
            }
            let completion_time = succeeded.take_if(|end| run.start_time.as_ref() <= Some(end));
            if completion_time.is_some() {
                run.phase = Phase::Succeeded;
                run.completion_time = completion_time;
                run.message = Some(format!("{} succeeded", run.job_name));
                self.count(run);
            } else {
                run.phase = Phase::Failed;
                run.message = Some(JOB_LOST.to_owned());
                self.failure_count += 1;
                self.events.push(Event::warning(
                    "JobLost",
                    format!("{}: {JOB_LOST}", run.job_name),
                ));
            }
        }
    }

    fn count(&mut self, run: &Run) {
        if run.phase == Phase::Succeeded {
            self.success_count += 1;
            self.failure_count = 0;
            self.last_success = self.last_success.take().max(
                run.completion_time
                    .clone()
                    .or_else(|| run.start_time.clone()),
            );
        } else {
            self.failure_count += 1;
        }
    }

    /// Returns true if a run is recorded or observed.
    pub(crate) fn has_runs(&self) -> bool {
        !self.recent.is_empty()
    }

    /// Returns the newest finished run.
    pub(crate) fn last_ended(&self) -> Option<&Run> {
        self.recent.iter().find(|run| run.phase.is_terminal())
    }
}

/// Returns a run's sort key: newer runs are greater.
fn order(run: &Run) -> (Option<&String>, &String) {
    (run.start_time.as_ref(), &run.job_uid)
}

/// Returns the event for a run that ended after the last status.
fn ending(before: Option<&Run>, run: &Run) -> Option<Event> {
    if before.is_some_and(|before| before.phase.is_terminal()) {
        return None;
    }
    let message = run.message.as_deref().unwrap_or_default();
    let text = format!("{}: {message}", run.job_name);
    match run.phase {
        Phase::Succeeded => Some(Event::normal("BackupSucceeded", text)),
        // A lost Job already has the event of `lose`.
        Phase::Failed if message != JOB_LOST => Some(Event::warning("BackupFailed", text)),
        _ => None,
    }
}
