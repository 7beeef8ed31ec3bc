//! The run that a Job and the termination message of its newest Pod show.
//!
//! Logs can contain passwords, because they contain command lines of tools. The run redacts them.

use innkeeper_kit::job::{self, JobPhase, JobPod, JobRun, ObservedJob};
use serde::Deserialize;

use super::text;
use crate::{
    pod::{CONTAINER, script::RETENTION},
    status::{Artifact, Phase, Run},
};

/// The maximum length of a stored log in characters. A termination message has at most 4096 bytes, so
/// a whole one fits.
const LOG_MAX: usize = 4096;

/// The maximum length of a message in characters.
const MESSAGE_MAX: usize = 1024;

/// The maximum length of the line about `keep` in characters.
const RETENTION_MAX: usize = 300;

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
                retention: self.run.retention.clone(),
                size: self.run.size.clone(),
                duration_seconds: self.run.duration_seconds,
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
    bytes: Option<u64>,
    #[serde(default)]
    retention: String,
    seconds: Option<i64>,
}

pub(super) fn run(job: &ObservedJob, pods: &[JobPod]) -> Observed {
    let name = job.metadata.name.clone().unwrap_or_default();
    let shown = JobRun::new(job);
    let job_message = match shown.phase {
        JobPhase::Succeeded => Some(format!("{name} succeeded")),
        JobPhase::Failed => {
            let message = shown.message.as_deref().unwrap_or("the Job failed");
            Some(job::tail(message, MESSAGE_MAX).to_owned())
        }
        JobPhase::Pending | JobPhase::Running => None,
    };
    let mut run = Run {
        job_name: name,
        job_uid: job.metadata.uid.clone().unwrap_or_default(),
        start_time: shown.started.as_ref().map(text),
        completion_time: shown.ended.as_ref().map(text),
        phase: shown.phase.into(),
        message: job_message.clone(),
        ..Default::default()
    };
    if shown.phase.is_final()
        && let Some(message) = job::termination_message(&run.job_uid, pods, CONTAINER)
    {
        complete(&mut run, message);
    }
    Observed { run, job_message }
}

/// Completes a run that has ended with the termination message.
fn complete(run: &mut Run, message: &str) {
    if run.phase == Phase::Succeeded {
        let Ok(stored) = serde_json::from_str::<Stored>(message) else {
            return;
        };
        run.size = stored.bytes.map(quantity);
        run.retention = cut(&stored.retention);
        run.duration_seconds = stored.seconds.filter(|it| *it >= 0);
        let mut artifacts = stored.artifacts;
        artifacts.truncate(ARTIFACTS_MAX);
        for artifact in &mut artifacts {
            artifact.storage = job::tail(&artifact.storage, MESSAGE_MAX).to_owned();
            artifact.file = job::tail(&artifact.file, MESSAGE_MAX).to_owned();
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
        let mut lines = message.lines();
        run.retention = lines.find_map(|line| cut(line.strip_prefix(RETENTION)?));
        run.message = Some(job::tail(message.trim(), MESSAGE_MAX).to_owned());
        run.logs = Some(job::tail(message, LOG_MAX).to_owned());
    }
}

/// A line of the log, if there is one.
fn cut(line: &str) -> Option<String> {
    (!line.is_empty()).then(|| line.chars().take(RETENTION_MAX).collect())
}

/// A number of bytes as a quantity of at most three digits.
pub(super) fn quantity(bytes: u64) -> String {
    let (mut unit, mut scale) = (0, 1);
    while bytes / scale >= 1000 && unit + 1 < UNITS.len() {
        scale *= 1000;
        unit += 1;
    }
    let (whole, suffix) = (bytes / scale, UNITS[unit]);
    match bytes % scale * 10 / scale {
        tenths if tenths > 0 && whole < 10 => format!("{whole}.{tenths}{suffix}"),
        _ => format!("{whole}{suffix}"),
    }
}

/// The decimal suffixes of quantities.
const UNITS: [&str; 6] = ["", "k", "M", "G", "T", "P"];
