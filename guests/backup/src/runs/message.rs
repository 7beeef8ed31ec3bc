//! Reads a run from the Job and the termination message of the newest Pod.
//!
//! Logs can contain passwords, because they contain command lines. The run redacts them.

use innkeeper_kit::prelude::*;

use crate::{
    script::RETENTION,
    status::{Artifact, Phase, Run},
    task::{MESSAGE_MAX, Task},
};

/// Maximum length of a stored log in characters. A termination message has at most 4096 bytes, so it fits.
const LOG_MAX: usize = 4096;

/// Maximum length of the line about `keep` in characters.
const RETENTION_MAX: usize = 300;

/// Maximum number of artifacts, one per storage reference: at most 64.
const ARTIFACTS_MAX: usize = 64;

/// The termination message of a successful run.
#[derive(Deserialize)]
struct Stored {
    artifacts: Vec<Artifact>,
    bytes: Option<u64>,
    #[serde(default)]
    retention: String,
    seconds: Option<i64>,
}

/// Returns a Job's run, with the Pod's termination message once it has ended.
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

/// Completes a finished run with the termination message.
fn complete(run: &mut Run, message: &str) {
    if run.phase == Phase::Succeeded {
        let Ok(stored) = serde_json::from_str::<Stored>(message) else {
            return;
        };
        run.size = stored.bytes.map(quantity);
        run.retention = cut(&stored.retention);
        run.duration_seconds = stored.seconds.filter(|seconds| *seconds >= 0);
        let mut artifacts = stored.artifacts;
        artifacts.truncate(ARTIFACTS_MAX);
        for artifact in &mut artifacts {
            artifact.storage = job::tail(&artifact.storage, MESSAGE_MAX).to_owned();
            artifact.file = job::tail(&artifact.file, MESSAGE_MAX).to_owned();
        }
        let stored: Vec<String> = artifacts
            .iter()
            .map(|artifact| format!("{} in {}", artifact.file, artifact.storage))
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

/// Returns the shortened line; none if it is empty.
fn cut(line: &str) -> Option<String> {
    (!line.is_empty()).then(|| line.chars().take(RETENTION_MAX).collect())
}

/// Returns a number of bytes as a quantity with at most three digits.
pub(super) fn quantity(bytes: u64) -> String {
    let mut unit = 0;
    let mut scale = 1;
    while bytes / scale >= 1000 && unit + 1 < UNITS.len() {
        scale *= 1000;
        unit += 1;
    }
    let whole = bytes / scale;
    let suffix = UNITS[unit];
    match bytes % scale * 10 / scale {
        tenths if tenths > 0 && whole < 10 => format!("{whole}.{tenths}{suffix}"),
        _ => format!("{whole}{suffix}"),
    }
}

/// Decimal suffixes of quantities.
const UNITS: [&str; 6] = ["", "k", "M", "G", "T", "P"];
