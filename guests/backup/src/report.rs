//! Status, conditions and events, from the runs and from the problems that prevent new ones.

use std::{collections::BTreeSet, time::Duration};

use innkeeper_kit::prelude::*;
use k8s_openapi::{
    api::core::v1::Secret,
    jiff::{SignedDuration, Timestamp},
};

use crate::{
    api::Parent,
    children,
    plan::Plan,
    restore::Verification,
    runs::History,
    status::{BackupStatus, Phase, Run, Warning},
    task::JOB_LOST,
};

/// How late a run may start before the schedule is overdue.
const GRACE: SignedDuration = SignedDuration::from_mins(15);

/// Reason if the last run failed.
const LAST_RUN_FAILED: &str = "LastRunFailed";

/// Reason if the schedule missed a run.
const OVERDUE: &str = "Overdue";

/// The data for the report on one parent.
pub(crate) struct Reporter<'a> {
    pub(crate) request: &'a Request,
    pub(crate) host: &'a dyn Host,
    pub(crate) parent: &'a Parent,
    pub(crate) history: History,
    /// The status that an earlier pass stored.
    pub(crate) stored: BackupStatus,
    /// The verification, if the parent requests it.
    pub(crate) verification: Option<Verification<'a>>,
}

/// Due times of a schedule.
#[derive(Default)]
struct Due {
    next: Option<Timestamp>,
    /// The due time that passed without a run.
    missed: Option<Timestamp>,
    /// Time until one of the two changes without an event in the cluster.
    wait: Option<Duration>,
    /// The time at which the schedule was seen to differ from the one before.
    changed: Option<String>,
}

impl Reporter<'_> {
    /// The report. Without a plan, the fields that depend on it keep their stored values.
    pub(crate) fn report(self, plan: Option<&Plan<'_>>, blocked: Option<(&str, &str)>) -> Report {
        let due = plan.map(|plan| self.due(plan)).unwrap_or_default();
        let status = self.status(plan, &due);
        let conditions = self.conditions(plan, &status, &due, blocked);
        let events = self.events(&status, &conditions);
        let report = Report::new()
            .status(&status)
            .conditions(conditions)
            .events(events);
        match due.wait {
            Some(wait) => report.requeue(wait),
            None => report,
        }
    }

    fn status(&self, plan: Option<&Plan<'_>>, due: &Due) -> BackupStatus {
        let history = &self.history;
        let newest = history.recent.first();
        let mut recent = history.recent.clone();
        // A log has up to 4 KiB, so the status only keeps the newest run's, in `last_run`.
        for run in &mut recent {
            run.logs = None;
        }
        let mut warnings = match plan {
            Some(plan) => self.warnings(plan),
            None => self.stored.warnings.clone(),
        };
        warnings.sort_unstable();
        warnings.dedup();
        let effective = |plan: &Plan<'_>| Some(plan.schedule.as_ref()?.expression.clone());
        BackupStatus {
            phase: match newest.map_or(Phase::Idle, |run| run.phase) {
                Phase::Pending => Phase::Running,
                phase => phase,
            },
            last_backup_time: newest.and_then(|run| run.start_time.clone()),
            last_successful_backup_time: history.last_success.clone(),
            last_run: newest.cloned(),
            recent_runs: recent,
            failure_count: history.failure_count,
            success_count: history.success_count,
            counted_jobs: history.counted.clone(),
            active_job: history.active.clone(),
            last_run_request: history.last_request.clone(),
            last_verification_time: self.last_verification_time(),
            verification: self
                .verification
                .as_ref()
                .and_then(|verification| verification.newest.clone()),
            restores: history.restores.clone(),
            effective_schedule: match plan {
                Some(plan) => effective(plan),
                None => self.stored.effective_schedule.clone(),
            },
            schedule_change_time: match plan {
                Some(_) => due.changed.clone(),
                None => self.stored.schedule_change_time.clone(),
            },
            next_run: match plan {
                Some(_) => due.next.map(|next| next.to_string()),
                None => self.stored.next_run.clone(),
            },
            config_hash: match plan {
                Some(plan) => Some(plan.config_hash()),
                None => self.stored.config_hash.clone(),
            },
            observed_generation: self.request.generation(),
            warnings,
        }
    }

    fn last_verification_time(&self) -> Option<String> {
        let newest = self
            .verification
            .as_ref()
            .and_then(|verification| verification.newest.as_ref())
            .filter(|verification| verification.phase == Phase::Succeeded)
            .and_then(|verification| verification.completion_time.clone());
        newest.max(self.stored.last_verification_time.clone())
    }

    fn warnings(&self, plan: &Plan<'_>) -> Vec<Warning> {
        const CODE: &str = "SpecChangedAfterRun";
        let mut warnings = plan.rendered.warnings.clone();
        let last = self.history.last_ended().filter(|_| plan.rendered.has_keep);
        if let Some(line) = last.and_then(|run| run.retention.as_ref()) {
            let message = format!(
                "the last run: {line}; give the credentials the rights to read, write and delete, and delete the \
                 archives beyond keep by hand"
            );
            warnings.push(Warning::new("RetentionNotKept", message));
        }
        let job = self.history.recent.first().and_then(|run| {
            self.request
                .children
                .find_as("batch/v1", "Job", &run.job_name)
        });
        let ran_with = job.and_then(|job| {
            job.object()
                .pointer("/metadata/annotations")?
                .get(children::CONFIG_HASH)?
                .as_str()
        });
        let has_changed = match ran_with {
            Some(hash) => hash != plan.config_hash(),
            None => self
                .stored
                .warnings
                .iter()
                .any(|warning| warning.code == CODE),
        };
        if plan.schedule.is_none() && self.history.has_runs() && has_changed {
            warnings.push(Warning::new(
                CODE,
                "the configuration has changed since the run; a Backup without schedule runs once: set \
                 the annotation gobackup.io/run-now to a new value to run it again",
            ));
        }
        warnings
    }

    /// Returns the due times of a schedule.
    ///
    /// The guest only asks for the time here, because the host cannot skip a pass that asks for it, even if nothing
    /// else changed.
    fn due(&self, plan: &Plan<'_>) -> Due {
        let Some(schedule) = plan.schedule.as_ref() else {
            return Due::default();
        };
        if self.parent.is_suspended() {
            return Due::default();
        }
        let now = i64::try_from(self.host.now_ms()).unwrap_or(i64::MAX);
        let Ok(now) = Timestamp::from_millisecond(now) else {
            return Due::default();
        };
        let next = schedule.next_after(now, self.host);
        let changed = self.changed(&schedule.expression, next, now);
        let expected = self
            .expected_after(now, changed.as_deref())
            .and_then(|last| schedule.next_after(last, self.host));
        let deadline = expected.and_then(|expected| expected.checked_add(GRACE).ok());
        let is_idle = self.history.active.is_none();
        let missed =
            expected.filter(|_| is_idle && deadline.is_some_and(|deadline| deadline < now));
        let upcoming = deadline.filter(|deadline| is_idle && *deadline >= now);
        let wait = [next, upcoming].into_iter().flatten().min();
        Due {
            next,
            missed,
            // One millisecond more, so that the next pass runs after the moment and not at it.
            wait: wait.and_then(|moment| {
                let wait = Duration::try_from(moment.duration_since(now)).ok()?;
                Some(wait + Duration::from_millis(1))
            }),
            changed,
        }
    }

    /// Returns the time of the schedule's last change, if known.
    fn changed(&self, expression: &str, next: Option<Timestamp>, now: Timestamp) -> Option<String> {
        let stored = &self.stored;
        let expression_before = stored.effective_schedule.as_ref();
        // A due time stays until it is reached, so another one means another time zone.
        let due = stored
            .next_run
            .as_ref()
            .and_then(|time| time.parse().ok())
            .filter(|due: &Timestamp| *due > now);
        if expression_before.is_some_and(|before| before != expression)
            || due.is_some() && due != next
        {
            let now = Timestamp::from_second(now.as_second()).ok()?;
            return Some(now.to_string());
        }
        stored.schedule_change_time.clone()
    }

    /// Returns the moment after which a run is expected: the latest of the last run's start and end, the CronJob's
    /// creation, the end of a suspension, and the schedule's last change.
    ///
    /// The CronJob usually skips a run that is due before the last one ends.
    fn expected_after(&self, now: Timestamp, changed: Option<&str>) -> Option<Timestamp> {
        let cron_job = self.history.cron_job.as_ref()?;
        let scheduled = cron_job.status.last_schedule_time.as_ref();
        let created = cron_job.metadata.creation_timestamp.as_ref();
        let run = self.history.recent.first();
        let time = |time: Option<&String>| time.and_then(|time| time.parse().ok());
        [
            scheduled.map(|time| time.0),
            created.map(|time| time.0),
            time(run.and_then(|run| run.start_time.as_ref())),
            time(run.and_then(|run| run.completion_time.as_ref())),
            self.resumed(now),
            changed.and_then(|time| time.parse().ok()),
        ]
        .into_iter()
        .flatten()
        .max()
    }

    /// Returns the latest possible end of the last suspension.
    fn resumed(&self, now: Timestamp) -> Option<Timestamp> {
        let stored = self
            .request
            .stored_status_value()?
            .get("conditions")?
            .as_array()?
            .iter()
            .find(|condition| condition["type"] == "Scheduled")?;
        if stored["reason"] == "Suspended" {
            return Some(now);
        }
        let since = stored["lastTransitionTime"].as_str()?;
        (stored["status"] == "True").then(|| since.parse().ok())?
    }

    fn conditions(
        &self,
        plan: Option<&Plan<'_>>,
        status: &BackupStatus,
        due: &Due,
        blocked: Option<(&str, &str)>,
    ) -> Vec<Condition> {
        let last = self.history.last_ended();
        let failure = last.filter(|run| run.phase == Phase::Failed).map(result);
        let succeeded = match last {
            None => Condition::new(
                "Succeeded",
                ConditionStatus::Unknown,
                "NoRunYet",
                "no run yet",
            ),
            Some(run) if run.phase == Phase::Succeeded => {
                Condition::new("Succeeded", true, "LastRunSucceeded", result(run))
            }
            Some(run) if run.message.as_deref() == Some(JOB_LOST) => {
                Condition::new("Succeeded", false, "JobLost", result(run))
            }
            Some(run) => Condition::new("Succeeded", false, LAST_RUN_FAILED, result(run)),
        };
        let failed = match &failure {
            Some(message) => Condition::new("Failed", true, LAST_RUN_FAILED, message),
            None => Condition::new("Failed", false, "NotFailed", "the last run did not fail"),
        };
        let scheduled = self.scheduled(status, due);
        let ready = match blocked {
            Some((reason, message)) => Condition::new("Ready", false, reason, message),
            None if self.parent.schedule.is_some() => {
                self.ready_by_schedule(plan, status, &scheduled, failure)
            }
            None => self.ready_once(),
        };
        let stalled = self.stalled(&ready);
        let mut conditions = vec![ready, scheduled, succeeded, failed];
        conditions.extend(self.verification.as_ref().map(Verification::condition));
        conditions.extend(stalled);
        conditions
    }

    /// Returns `Stalled` if a parent's only run failed: nothing runs until a user requests it.
    ///
    /// Otherwise the host owns the condition, and also sets it to false.
    fn stalled(&self, ready: &Condition) -> Option<Condition> {
        let is_idle = self.history.active.is_none();
        let is_final = self.parent.schedule.is_none() && is_idle && ready.reason == LAST_RUN_FAILED;
        is_final.then(|| Condition::new("Stalled", true, LAST_RUN_FAILED, &ready.message))
    }

    fn ready_by_schedule(
        &self,
        plan: Option<&Plan<'_>>,
        status: &BackupStatus,
        scheduled: &Condition,
        failure: Option<String>,
    ) -> Condition {
        if let Some(message) = failure {
            return Condition::new("Ready", false, LAST_RUN_FAILED, message);
        }
        if self.history.cron_job.is_none() {
            let message = "waiting for the CronJob to be created";
            return Condition::new("Ready", false, "Pending", message);
        }
        if let Some(child) = plan.and_then(|plan| self.outdated(plan)) {
            let message = format!("waiting for {child} to be updated");
            return Condition::new("Ready", false, "Pending", message);
        }
        if scheduled.reason == OVERDUE {
            return Condition::new("Ready", false, OVERDUE, &scheduled.message);
        }
        let message = match (&status.next_run, &status.effective_schedule) {
            _ if self.parent.is_suspended() => "suspended: no new run starts".to_owned(),
            (Some(next), _) => format!("next run at {next}"),
            (None, Some(schedule)) => format!("runs by {schedule}"),
            (None, None) => "runs by its schedule".to_owned(),
        };
        Condition::new("Ready", true, "Scheduled", message)
    }

    /// The child that the cluster does not have yet as the plan states it; the next run would use the old
    /// one.
    fn outdated(&self, plan: &Plan<'_>) -> Option<String> {
        let cron_job = self.history.cron_job.as_ref()?;
        let stated = TemplateHash::new(&children::cron_job_spec(plan)?);
        if !stated.is_on(&cron_job.metadata) {
            return Some("the CronJob".to_owned());
        }
        if let Some(claim) = children::small_claim(plan) {
            return Some(format!("the claim {claim}"));
        }
        let is_current = self
            .request
            .children
            .find::<Secret>(&plan.secret_name())
            .is_some_and(|secret| children::config_hash(plan).is_on_child(secret));
        (!is_current).then(|| "the Secret with the configuration".to_owned())
    }

    /// Returns `Ready` for a parent that runs once: true only after success, so `kubectl wait` waits for the backup.
    fn ready_once(&self) -> Condition {
        match self.history.recent.first() {
            None if self.parent.is_suspended() => {
                Condition::new("Ready", false, "Suspended", "suspended: no new run starts")
            }
            None => Condition::new(
                "Ready",
                false,
                "Pending",
                "the run has not been created yet",
            ),
            Some(run) => match run.phase {
                // The schedule has just been removed.
                Phase::Succeeded if self.history.cron_job.is_some() => {
                    let message = "waiting for the CronJob to be deleted";
                    Condition::new("Ready", false, "Pending", message)
                }
                Phase::Succeeded => Condition::new("Ready", true, "Completed", result(run)),
                Phase::Failed => Condition::new("Ready", false, LAST_RUN_FAILED, result(run)),
                Phase::Running => Condition::new(
                    "Ready",
                    false,
                    "Running",
                    format!("{} is running", run.job_name),
                ),
                Phase::Idle | Phase::Pending => Condition::new(
                    "Ready",
                    false,
                    "Pending",
                    format!("{} has not started yet", run.job_name),
                ),
            },
        }
    }

    fn scheduled(&self, status: &BackupStatus, due: &Due) -> Condition {
        let Some(schedule) = &status.effective_schedule else {
            return Condition::new("Scheduled", false, "NoSchedule", "no schedule is in effect");
        };
        if self.parent.is_suspended() {
            let message = "suspended: no new run starts";
            return Condition::new("Scheduled", false, "Suspended", message);
        }
        if let Some(missed) = due.missed {
            let message = format!("no run since {missed}, expected by {schedule}");
            return Condition::new("Scheduled", false, OVERDUE, message);
        }
        Condition::new("Scheduled", true, "Scheduled", schedule)
    }

    fn events(&self, status: &BackupStatus, conditions: &[Condition]) -> Vec<Event> {
        let mut events = self.history.events.clone();
        let verified = conditions
            .iter()
            .find(|condition| condition.type_ == "Verified");
        let verification = self.verification.as_ref();
        events.extend(verified.and_then(|condition| verification?.event(condition)));
        for condition in conditions {
            if !self.request.is_transition(condition) {
                continue;
            }
            let reason = condition.reason.as_str();
            let is_known = matches!(
                (condition.type_.as_str(), reason),
                (
                    "Ready",
                    "ReferenceNotFound"
                        | "SecretNotFound"
                        | "SecretIncomplete"
                        | "InvalidReference"
                ) | ("Scheduled", OVERDUE)
            );
            if is_known {
                events.push(Event::warning(reason, &condition.message));
            }
        }
        let was_suspended = ["Ready", "Scheduled"].iter().any(|type_| {
            self.request
                .stored_condition(type_)
                .is_some_and(|stored| stored.reason == "Suspended")
        });
        // The next pass only knows what a condition states, and a problem may replace the suspension.
        let is_stated = conditions
            .iter()
            .any(|condition| condition.reason == "Suspended");
        if is_stated && !was_suspended {
            events.push(Event::normal("Suspended", "no new run starts"));
        } else if was_suspended && !self.parent.is_suspended() {
            events.push(Event::normal("Resumed", "runs start again"));
        }
        let reported_before: BTreeSet<&str> = self
            .stored
            .warnings
            .iter()
            .map(|warning| warning.code.as_str())
            .collect();
        let mut reported = BTreeSet::new();
        for warning in &status.warnings {
            let code = warning.code.as_str();
            if !reported_before.contains(code) && reported.insert(code) {
                events.push(Event::warning(code, &warning.message));
            }
        }
        events
    }
}

/// Returns a run's result.
fn result(run: &Run) -> String {
    run.message.clone().unwrap_or_else(|| run.job_name.clone())
}
