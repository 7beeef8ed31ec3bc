//! What the status of a parent tells.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is observed.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct BackupStatus {
    /// Of the newest run; Idle before the first.
    pub(crate) phase: Phase,
    /// When the newest run started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) last_backup_time: Option<String>,
    /// When the newest successful run ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) last_successful_backup_time: Option<String>,
    /// The newest run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_run: Option<Run>,
    /// At most 5 runs, the newest first.
    pub(crate) recent_runs: Vec<Run>,
    /// Failures since the last success.
    pub(crate) failure_count: i64,
    /// Successes in all.
    pub(crate) success_count: i64,
    /// UIDs of observed finished runs that were counted.
    pub(crate) counted_jobs: Vec<String>,
    /// The run that has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) active_job: Option<ActiveJob>,
    /// The cron expression in effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) effective_schedule: Option<String>,
    /// When the next run is due; only for Etc/UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) next_run: Option<String>,
    /// SHA-256 of gobackup.yml.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) config_hash: Option<String>,
    /// The generation of the parent that the status belongs to.
    pub(crate) observed_generation: i64,
    /// What is accepted and yet may not be meant.
    pub(crate) warnings: Vec<Warning>,
}

/// The state of the newest run.
#[derive(
    Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord,
)]
pub(crate) enum Phase {
    /// No run yet.
    #[default]
    Idle,
    /// Its Pod has not started.
    Pending,
    /// It runs.
    Running,
    /// It stored its archive everywhere.
    Succeeded,
    /// It failed for good.
    Failed,
}

impl Phase {
    /// Whether the run has ended.
    pub(crate) const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// One run.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Run {
    /// The Job.
    pub(crate) job_name: String,
    /// Its UID.
    #[serde(rename = "jobUID")]
    pub(crate) job_uid: String,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) start_time: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) completion_time: Option<String>,
    /// What became of it.
    pub(crate) phase: Phase,
    /// What was stored, or why it failed; at most 1024 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// The end of the log of a failure; at most 4096 characters; only of the newest run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logs: Option<String>,
    /// What was stored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) artifacts: Vec<Artifact>,
}

/// A stored archive.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Artifact {
    /// The key of the storage.
    pub(crate) storage: String,
    /// The file.
    pub(crate) file: String,
}

/// A run that has not ended.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ActiveJob {
    /// The Job.
    pub(crate) name: String,
    /// Its UID.
    pub(crate) uid: String,
}

/// What is accepted and yet may not be meant.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Warning {
    /// One word in CamelCase.
    pub(crate) code: String,
    /// What, where, and what to do.
    pub(crate) message: String,
}

impl Warning {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
        }
    }
}
