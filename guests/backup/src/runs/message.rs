//! The run that a Job and the termination message of its newest Pod show.
//!
//! Logs can contain passwords, because they contain command lines of tools. The run redacts them.

use innkeeper_kit::job;
use serde::Deserialize;

use crate::{
    script::RETENTION,
    status::{Artifact, Phase, Run},
    task::{MESSAGE_MAX, Task},
};

/// The maximum length of a stored log in characters. A termination message has at most 4096 bytes, so
/// a whole one fits.
const LOG_MAX: usize = 4096;

/// The maximum length of the line about `keep` in characters.
const RETENTION_MAX: usize = 300;

/// The maximum number of artifacts of a run: one for each of up to 64 storage references.
const ARTIFACTS_MAX: usize = 64;

/// The termination message that the script of a run writes.
#[derive(Deserialize)]
struct Stored {
    artifacts: Vec<Artifact>,
    bytes: Option<u64>,
    #[serde(default)]
    retention: String,
    seconds: Option<i64>,
}

/// Returns the run of a Job, with the termination message of its Pod once it has ended.
pub(super) fn run(task: &Task, termination_message: Option<&str>) -> Run {
    let mut run = Run {
        job_name: task.name.clone(),
        job_uid: task.uid.clone(),
        start_time: task.start_time.clone(),
        completion_time: task.completion_time.clone(),
        phase: task.phase,
        message: match task.phase {
            Phase::Succeeded => Some(format!("{} succeeded", task.name)),
            _ => task.failure(termination_message),
        },
        ..Default::default()
    };
    if let Some(message) = termination_message {
        complete(&mut run, message);
    }
    run
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
