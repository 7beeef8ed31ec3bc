//! What a Job and the termination message of its newest Pod tell of a run.
//!
//! Logs can hold passwords, because tools write their command lines into them: they are redacted
//! before they are kept.

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use serde::Deserialize;

use super::{controller, text};
use crate::{
    pod::CONTAINER,
    status::{Artifact, Phase, Run},
};

/// How much of a log is kept, in characters.
const LOG_MAX: usize = 4096;

/// How long a message may be, in characters.
const MESSAGE_MAX: usize = 1024;

/// How many artifacts a message may name; one per storage reference is expected.
const ARTIFACTS_MAX: usize = 64;

/// A run as its Job shows it.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub(super) run: Run,
    /// What the Job alone tells; the Pod may come later or be gone.
    job_message: Option<String>,
}

impl Observed {
    /// A recorded end with what only the Pod tells, if that was not seen before.
    pub(super) fn completing(&self, recorded: Run) -> Run {
        let is_poor = recorded.message == self.job_message && recorded.artifacts.is_empty();
        if is_poor && recorded.phase == self.run.phase {
            Run {
                message: self.run.message.clone(),
                logs: self.run.logs.clone(),
                artifacts: self.run.artifacts.clone(),
                ..recorded
            }
        } else {
            recorded
        }
    }
}

/// What the script of a run writes.
#[derive(Deserialize)]
struct Stored {
    artifacts: Vec<Artifact>,
}

pub(super) fn run(job: &Job, pods: &[Pod]) -> Observed {
    let name = job.metadata.name.clone().unwrap_or_default();
    let status = job.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let end = conditions
        .iter()
        .find(|it| it.status == "True" && matches!(it.type_.as_str(), "Complete" | "Failed"));
    let phase = match end.map(|end| end.type_.as_str()) {
        Some("Complete") => Phase::Succeeded,
        Some(_) => Phase::Failed,
        None if status.active.unwrap_or(0) > 0 => Phase::Running,
        None => Phase::Pending,
    };
    let ended = end.and_then(|end| end.last_transition_time.as_ref());
    let started = status.start_time.as_ref();
    let mut run = Run {
        job_uid: job.metadata.uid.clone().unwrap_or_default(),
        start_time: started
            .or(job.metadata.creation_timestamp.as_ref())
            .map(text),
        completion_time: status.completion_time.as_ref().or(ended).map(text),
        phase,
        ..Default::default()
    };
    let job_message = match phase {
        Phase::Succeeded => Some(format!("{name} succeeded")),
        Phase::Failed => Some(clipped(
            end.and_then(|end| end.message.as_deref())
                .unwrap_or("the Job failed"),
            MESSAGE_MAX,
        )),
        _ => None,
    };
    run.message.clone_from(&job_message);
    run.job_name = name;
    if let Some(message) = termination_message(&run.job_uid, pods).filter(|_| end.is_some()) {
        tell(&mut run, message);
    }
    Observed { run, job_message }
}

/// The termination message of the newest Pod of a Job.
fn termination_message<'a>(job_uid: &str, pods: &'a [Pod]) -> Option<&'a str> {
    let own = pods
        .iter()
        .filter(|pod| controller(&pod.metadata) == Some(job_uid));
    let newest = own.max_by_key(|pod| {
        let created = pod.metadata.creation_timestamp.as_ref().map(|it| it.0);
        (created, pod.metadata.name.clone())
    })?;
    let statuses = newest.status.as_ref()?.container_statuses.as_ref()?;
    let container = statuses.iter().find(|it| it.name == CONTAINER)?;
    let terminated = container.state.as_ref()?.terminated.as_ref()?;
    terminated
        .message
        .as_deref()
        .filter(|message| !message.trim().is_empty())
}

fn tell(run: &mut Run, message: &str) {
    if run.phase == Phase::Succeeded {
        let Ok(Stored { mut artifacts }) = serde_json::from_str(message) else {
            return;
        };
        artifacts.truncate(ARTIFACTS_MAX);
        for artifact in &mut artifacts {
            artifact.storage = clipped(&artifact.storage, MESSAGE_MAX);
            artifact.file = clipped(&artifact.file, MESSAGE_MAX);
        }
        let told: Vec<String> = artifacts
            .iter()
            .map(|it| format!("{} in {}", it.file, it.storage))
            .collect();
        if !told.is_empty() {
            let message = format!("stored {}", told.join(", "));
            run.message = Some(message.chars().take(MESSAGE_MAX).collect());
        }
        run.artifacts = artifacts;
    } else {
        let log = redacted(message);
        run.message = Some(clipped(log.trim(), MESSAGE_MAX));
        run.logs = Some(clipped(&log, LOG_MAX));
    }
}

/// The end of a text.
fn clipped(text: &str, chars_max: usize) -> String {
    let excess = text.chars().count().saturating_sub(chars_max);
    text.chars().skip(excess).collect()
}

/// A log without what follows the options that carry passwords.
pub(super) fn redacted(log: &str) -> String {
    const OPTIONS: &[&str] = &["-k ", " -p", "-a ", "--password=", "/SourcePassword:"];
    OPTIONS.iter().fold(log.to_owned(), |log, option| {
        let mut parts = log.split(option);
        let mut kept = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(char::is_whitespace).unwrap_or(part.len());
            kept.push_str(option);
            if end > 0 {
                kept.push_str("***");
            }
            kept.push_str(&part[end..]);
        }
        kept
    })
}
