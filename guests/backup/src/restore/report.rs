//! Reports on a restoration.

use innkeeper_kit::prelude::*;
use k8s_openapi::api::batch::v1::Job;

use super::{
    children::{FILE, RESTORED},
    script::OWNER,
};
use crate::{
    api::{Kind, restore::RestoreStatus},
    names,
    status::{Phase, Warning},
    task::{self, MESSAGE_MAX, Record, Task},
};

/// The data for the report.
pub(super) struct Reporter<'a> {
    request: &'a Request,
    /// The status that an earlier pass stored.
    stored: RestoreStatus,
    /// The Job's status, or the stored one.
    status: RestoreStatus,
}

impl<'a> Reporter<'a> {
    /// Reads the Job and the Pod.
    pub(super) fn read(request: &'a Request, host: &dyn Host) -> Result<Self, Fault> {
        let stored: RestoreStatus = request.stored_status().unwrap_or_default();
        let started = stored.job_name.as_ref().map(|_| stored.clone());
        let newest = task::newest(request, host, Kind::Restore, started, status)?;
        Ok(Self {
            request,
            status: newest.unwrap_or_else(|| stored.clone()),
            stored,
        })
    }

    /// Returns true if the restoration has succeeded or failed, which is final.
    pub(super) const fn has_ended(&self) -> bool {
        self.status.phase.is_terminal()
    }

    /// Returns true if the Job exists.
    pub(super) fn is_observed(&self) -> bool {
        self.request
            .children
            .find::<Job>(&names::suffixed(self.request, Kind::Restore))
            .is_some()
    }

    /// Returns the Job's archive, if there is a Job.
    pub(super) fn file(&self) -> Option<String> {
        self.status.job_name.as_ref()?;
        self.status.file.clone()
    }

    /// The report; `file` is the archive that the Job gets.
    pub(super) fn report(self, file: Option<&str>, blocked: Option<(&str, &str)>) -> Report {
        let mut status = self.status;
        status.observed_generation = self.request.generation();
        if let Some(file) = file {
            status.file = Some(file.to_owned());
        }
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
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

impl Record for RestoreStatus {
    fn is_of(&self, _: &Task) -> bool {
        // A Restore has one Job.
        true
    }

    fn phase(&self) -> Phase {
        self.phase
    }

    fn fail(&mut self, message: &str) {
        self.phase = Phase::Failed;
        self.message = Some(message.to_owned());
    }
}

/// Returns the status that the Job shows.
fn status(task: &Task, termination_message: Option<&str>) -> RestoreStatus {
    let file = task.annotation(FILE);
    let mut status = RestoreStatus {
        phase: task.phase,
        file: Some(file.to_owned()),
        job_name: Some(task.name.clone()),
        start_time: task.start_time.clone(),
        completion_time: task.completion_time.clone(),
        message: task.failure(termination_message),
        ..Default::default()
    };
    if task.phase == Phase::Succeeded {
        let restored = task.annotation(RESTORED).split(',');
        status.restored = restored.map(str::to_owned).collect();
        let restored = status.restored.join(", ");
        status.message = Some(format!("restored {restored} from {file}"));
        let warning = termination_message
            .unwrap_or_default()
            .lines()
            .find_map(|line| line.strip_prefix(OWNER))
            .map(|line| Warning::new("OwnerNotKept", job::tail(line, MESSAGE_MAX)));
        status.warnings.extend(warning);
    }
    status
}
