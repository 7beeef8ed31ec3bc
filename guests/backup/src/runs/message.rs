//! The run that a Job and the termination message of its newest Pod show.
//!
//! Logs can contain passwords, because they contain command lines of tools. They are redacted before
//! they are stored.

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use serde::Deserialize;

use super::{controller, text};
use crate::{
    pod::CONTAINER,
    status::{Artifact, Phase, Run},
};

/// The maximum length of a stored log in characters. A termination message has at most 4096 bytes, so
/// a whole one fits.
const LOG_MAX: usize = 4096;

/// The maximum length of a message in characters.
const MESSAGE_MAX: usize = 1024;

/// The maximum number of artifacts of a run: one for each of up to 64 storage references.
const ARTIFACTS_MAX: usize = 64;

/// A run whose Job exists.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub(super) run: Run,
    /// The message from the Job alone, without that of the Pod.
    job_message: Option<String>,
}

impl Observed {
    /// A recorded end, completed with the data of the Pod if the record lacks them.
    ///
    /// A pass may see the end of the Job before the status of the Pod, or after the Pod is gone.
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

/// The termination message that the script of a run writes.
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
        complete(&mut run, message);
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

/// Completes a run that has ended with the termination message.
fn complete(run: &mut Run, message: &str) {
    if run.phase == Phase::Succeeded {
        let Ok(Stored { mut artifacts }) = serde_json::from_str(message) else {
            return;
        };
        artifacts.truncate(ARTIFACTS_MAX);
        for artifact in &mut artifacts {
            artifact.storage = clipped(&artifact.storage, MESSAGE_MAX);
            artifact.file = clipped(&artifact.file, MESSAGE_MAX);
        }
        let stored: Vec<String> = artifacts
            .iter()
            .map(|it| format!("{} in {}", it.file, it.storage))
            .collect();
        if !stored.is_empty() {
            let message = format!("stored {}", stored.join(", "));
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

/// A log in which the words after options that carry passwords are replaced.
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
