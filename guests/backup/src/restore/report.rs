//! Status, conditions and events of a restoration.

use innkeeper_kit::{
    job::{self, JobPod, JobRun, ObservedJob},
    labels,
};
use innkeeper_sdk::prelude::*;
use k8s_openapi::api::batch::v1::Job;

use super::{
    children::{FILE, RESTORED},
    keys,
    pod::{FETCH, RESTORE},
    script::OWNER,
};
use crate::{
    api::{Kind, restore::RestoreStatus},
    names,
    runs::JOB_LOST,
    status::{Phase, Warning},
};

/// The maximum length of a message in characters.
const MESSAGE_MAX: usize = 1024;

/// The data for the report.
pub(super) struct Reporter<'a> {
    request: &'a Request,
    /// The status that an earlier pass stored.
    stored: RestoreStatus,
    /// The status of the Job, or the stored one.
    status: RestoreStatus,
}

impl<'a> Reporter<'a> {
    /// Reads the Job and its Pod.
    pub(super) fn read(request: &'a Request, host: &dyn Host) -> Result<Self, Fault> {
        let stored: RestoreStatus = request.stored_status().unwrap_or_default();
        let mut status = stored.clone();
        let job: Option<ObservedJob> = request
            .children
            .get(&names::suffixed(request, Kind::Restore))?;
        if let Some(job) = &job {
            observed(request, host, job, &mut status)?;
        } else if stored.job_name.is_some() && !stored.phase.is_terminal() {
            status.phase = Phase::Failed;
            status.message = Some(JOB_LOST.to_owned());
        }
        Ok(Self {
            request,
            stored,
            status,
        })
    }

    /// Returns true if the restoration has succeeded or failed, which is final.
    pub(super) const fn has_ended(&self) -> bool {
        self.status.phase.is_terminal()
    }

    /// Returns true if the Job exists.
    pub(super) fn is_observed(&self) -> bool {
        let children = &self.request.children;
        children
            .find::<Job>(&names::suffixed(self.request, Kind::Restore))
            .is_some()
    }

    /// The archive of the Job, if it is there.
    pub(super) fn file(&self) -> Option<String> {
        self.status.job_name.as_ref()?;
        self.status.file.clone()
    }

    /// The report; `file` is the archive that the Job gets.
    pub(super) fn report(self, file: Option<&str>, blocked: Option<(&str, String)>) -> Report {
        let mut status = self.status;
        status.observed_generation = self.request.generation();
        if let Some(file) = file {
            status.file = Some(file.to_owned());
        }
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        let message = text(&status.message);
        let (ready, succeeded) = match (status.phase, blocked) {
            (Phase::Succeeded, _) => (
                Condition::new("Ready", true, "Restored", &message),
                Condition::new("Succeeded", true, "Restored", &message),
            ),
            (Phase::Failed, _) => (
                Condition::new("Ready", false, "RestoreFailed", &message),
                Condition::new("Succeeded", false, "RestoreFailed", &message),
            ),
            (_, Some((reason, message))) => {
                (Condition::new("Ready", false, reason, message), unknown())
            }
            (Phase::Running, None) => (
                Condition::new("Ready", false, "Running", "the restoration is running"),
                unknown(),
            ),
            _ => {
                let message = "the restoration has not started yet";
                (
                    Condition::new("Ready", false, "Pending", message),
                    unknown(),
                )
            }
        };
        // The end is final. Before it, the condition is the host's.
        let stalled = (status.phase == Phase::Failed)
            .then(|| Condition::new("Stalled", true, "RestoreFailed", &message));
        let mut events = Vec::new();
        if self.stored.job_name.is_none() && status.job_name.is_some() {
            let text = format!("the restoration from {} started", text(&status.file));
            events.push(Event::normal("RestoreStarted", text));
        }
        if self.request.is_transition(&ready) {
            match ready.reason.as_str() {
                "Restored" => events.push(Event::normal("RestoreSucceeded", &ready.message)),
                "Pending" | "Running" => {}
                reason => events.push(Event::warning(reason, &ready.message)),
            }
        }
        Report::new()
            .status(&status)
            .conditions([ready, succeeded].into_iter().chain(stalled))
            .events(events)
    }
}

fn unknown() -> Condition {
    let message = "the restoration has not ended yet";
    Condition::new("Succeeded", ConditionStatus::Unknown, "NotEnded", message)
}

/// Completes the status with a Job. An end that was recorded does not change.
fn observed(
    request: &Request,
    host: &dyn Host,
    job: &ObservedJob,
    status: &mut RestoreStatus,
) -> Result<(), Fault> {
    let shown = JobRun::new(job);
    // A pass may see the end of the Job before that of the Pod, which has the cause of a failure.
    let is_poor = status.phase == Phase::Failed && status.message == shown.message;
    if status.phase.is_terminal() && !is_poor {
        return Ok(());
    }
    let annotations = job.metadata.annotations.as_ref();
    let annotation = |key: &str| annotations.and_then(|it| it.get(key).cloned());
    status.file = annotation(FILE);
    status.job_name.clone_from(&job.metadata.name);
    status.start_time = shown.started.as_ref().map(|it| it.0.to_string());
    status.completion_time = shown.ended.as_ref().map(|it| it.0.to_string());
    status.phase = shown.phase.into();
    let file = status.file.clone().unwrap_or_default();
    match status.phase {
        Phase::Succeeded => {
            let restored = annotation(RESTORED).unwrap_or_default();
            status.restored = restored.split(',').map(str::to_owned).collect();
            let restored = status.restored.join(", ");
            status.message = Some(format!("restored {restored} from {file}"));
            status.warnings = owners(request, host, job)?;
        }
        Phase::Failed => status.message = Some(failure(request, host, Kind::Restore, job)?),
        Phase::Idle | Phase::Pending | Phase::Running => {}
    }
    Ok(())
}

/// The warning about owners that the files do not have any more.
fn owners(request: &Request, host: &dyn Host, job: &ObservedJob) -> Result<Vec<Warning>, Fault> {
    let [_, component] = keys(Kind::Restore);
    let selector = labels::selector_text(&names::labels(request, Kind::Restore, component));
    let pods = host.list::<JobPod>(request.namespace(), &selector)?;
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    let said = job::termination_message(uid, &pods, RESTORE).unwrap_or_default();
    let line = said.lines().find_map(|line| line.strip_prefix(OWNER));
    let warning = line.map(|line| Warning::new("OwnerNotKept", job::tail(line, MESSAGE_MAX)));
    Ok(warning.into_iter().collect())
}

/// The cause of a failure: the end of the log, or the message of the Job.
pub(super) fn failure(
    request: &Request,
    host: &dyn Host,
    kind: Kind,
    job: &ObservedJob,
) -> Result<String, Fault> {
    let [_, component] = keys(kind);
    let selector = labels::selector_text(&names::labels(request, kind, component));
    let pods = host.list::<JobPod>(request.namespace(), &selector)?;
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    let said = [RESTORE, FETCH]
        .into_iter()
        .find_map(|container| job::termination_message(uid, &pods, container));
    let shown = JobRun::new(job).message;
    let message = said.or(shown.as_deref()).unwrap_or("the Job failed");
    Ok(job::tail(message.trim(), MESSAGE_MAX).to_owned())
}
