//! The parent's status.

use innkeeper_kit::prelude::*;

/// Observed state of the runs.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct BackupStatus {
    /// Phase of the newest run; Idle before the first.
    pub(crate) phase: Phase,
    /// Start time of the newest run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) last_backup_time: Option<String>,
    /// Completion time of the newest successful run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) last_successful_backup_time: Option<String>,
    /// The newest run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_run: Option<Run>,
    /// The last runs, newest first; at most 5.
    pub(crate) recent_runs: Vec<Run>,
    /// Failed runs since the last successful one.
    pub(crate) failure_count: i64,
    /// Successful runs.
    pub(crate) success_count: i64,
    /// UIDs of existing finished Jobs that failureCount and successCount include.
    pub(crate) counted_jobs: Vec<String>,
    /// The newest active run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) active_job: Option<ActiveJob>,
    /// Last gobackup.io/run-now value that got a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_run_request: Option<String>,
    /// Completion time of the newest successful verification.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) last_verification_time: Option<String>,
    /// The newest verification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verification: Option<Verified>,
    /// The last Restores that started, by name; at most 16.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) restores: Vec<Restored>,
    /// The CronJob's cron expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) effective_schedule: Option<String>,
    /// When the plugin saw the last change of the schedule or its time zone. Absent while suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) schedule_change_time: Option<String>,
    /// Next due time. Absent while suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) next_run: Option<String>,
    /// SHA-256 of gobackup.yml, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) config_hash: Option<String>,
    /// Generation that this status describes.
    pub(crate) observed_generation: i64,
    /// Warnings about settings that are accepted but may not have the intended effect.
    pub(crate) warnings: Vec<Warning>,
}

/// Returns the newest successful run with an archive in this storage, and the archive's file name.
///
/// The runs are those of one parent, because others may use the same place.
pub(crate) fn newest_archive<'a>(runs: &'a [Run], storage: &str) -> Option<(&'a Run, &'a str)> {
    runs.iter()
        .filter(|run| run.phase == Phase::Succeeded)
        .find_map(|run| {
            let artifact = run
                .artifacts
                .iter()
                .find(|artifact| artifact.storage == storage)?;
            Some((run, artifact.file.as_str()))
        })
}

/// Run phase.
#[derive(
    Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord,
)]
pub(crate) enum Phase {
    /// There is no run yet.
    #[default]
    Idle,
    /// The Job has no active Pod yet.
    Pending,
    /// A Pod is active.
    Running,
    /// The archive is in every storage.
    Succeeded,
    /// The Job failed and is not retried.
    Failed,
}

impl Phase {
    /// Returns true if the run has ended.
    pub(crate) const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl From<JobPhase> for Phase {
    fn from(phase: JobPhase) -> Self {
        match phase {
            JobPhase::Pending => Self::Pending,
            JobPhase::Running => Self::Running,
            JobPhase::Succeeded => Self::Succeeded,
            JobPhase::Failed => Self::Failed,
        }
    }
}

/// A run.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Run {
    /// Job name.
    pub(crate) job_name: String,
    /// Job UID.
    #[serde(rename = "jobUID")]
    pub(crate) job_uid: String,
    /// Start time; the Job's creation time before it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) start_time: Option<String>,
    /// Time at which the run succeeded or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) completion_time: Option<String>,
    /// Phase.
    pub(crate) phase: Phase,
    /// The stored files, or the cause of the failure; at most 1024 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// Last log lines of a failed run, at most 4096 characters; only for the newest run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logs: Option<String>,
    /// The stored archives.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) artifacts: Vec<Artifact>,
    /// Archive size in bytes, as a quantity with two digits, for example 1.2M.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<String>,
    /// Log line that says why gobackup did not delete an old archive, or could not read or store the list of archives;
    /// at most 300 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retention: Option<String>,
    /// gobackup's duration in seconds; only for successful runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duration_seconds: Option<i64>,
}

/// A Restore that started.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restored {
    /// Restore name.
    pub(crate) name: String,
    /// Restore UID.
    pub(crate) uid: String,
    /// Start time.
    pub(crate) time: String,
}

/// A stored archive.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Artifact {
    /// Storage key in gobackup's configuration.
    pub(crate) storage: String,
    /// File name in the storage.
    pub(crate) file: String,
}

/// An archive verification.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Verified {
    /// Phase. Succeeded and Failed are final.
    pub(crate) phase: Phase,
    /// Archive name.
    pub(crate) file: String,
    /// Completion time of the run that stored the archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) archive_time: Option<String>,
    /// Completion time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) completion_time: Option<String>,
    /// The restored databases by their names, and `files`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) restored: Vec<String>,
    /// Databases in the archive that were not restored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) skipped: Vec<String>,
    /// Last log lines of a failed verification; at most 1024 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}

/// An active run.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ActiveJob {
    /// Job name.
    pub(crate) name: String,
    /// Job UID.
    pub(crate) uid: String,
}

/// A warning about a setting that is accepted but may not have the intended effect.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Warning {
    /// Code, one word in CamelCase.
    pub(crate) code: String,
    /// The field or object, the problem and the remedy.
    pub(crate) message: String,
}

/// Warnings in a status.
pub(crate) type Remarks = Vec<Warning>;

impl Warning {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
        }
    }
}
