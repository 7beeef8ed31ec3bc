//! Blocks of the API that say when and how archives are made.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::related::SecretKey;

/// When it runs.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new(
        "has(self.cron) ? !has(self.every) && !has(self.at) : has(self.every)"
    )
    .message("set either cron or every and at")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Schedule {
    /// Five fields, or a macro such as @daily or @daily-random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "cron")]
    pub(crate) cron: Option<String>,
    /// `<n>m`, `<n>h`, `day`, `week` or `month`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub(crate) every: Option<String>,
    /// With every: the time of day, HH:MM; 00:00 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub(crate) at: Option<String>,
    /// The time zone.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64))]
    pub(crate) time_zone: String,
    /// No new run starts; running ones go on.
    #[serde(default)]
    pub(crate) suspend: bool,
    /// How late a run may start, in seconds; without limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub(crate) starting_deadline_seconds: Option<i64>,
    /// How many successful runs are kept.
    #[serde(default = "successful_runs_kept")]
    #[schemars(range(min = 0))]
    pub(crate) successful_jobs_history_limit: i32,
    /// How many failed runs are kept.
    #[serde(default = "failed_runs_kept")]
    #[schemars(range(min = 0))]
    pub(crate) failed_jobs_history_limit: i32,
    /// What happens when a run is due while another is active.
    #[serde(default)]
    pub(crate) concurrency_policy: ConcurrencyPolicy,
}

fn utc() -> String {
    "Etc/UTC".to_owned()
}

const fn successful_runs_kept() -> i32 {
    3
}

const fn failed_runs_kept() -> i32 {
    1
}

/// What happens when a run is due while another is active.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConcurrencyPolicy {
    /// Both run.
    Allow,
    /// The new one is skipped.
    #[default]
    Forbid,
    /// The new one replaces the active one.
    Replace,
}

impl ConcurrencyPolicy {
    /// The text in a CronJob.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "Allow",
            Self::Forbid => "Forbid",
            Self::Replace => "Replace",
        }
    }
}

/// When it runs, in the form of the first generation.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new(
        "has(self.cron) ? !has(self.every) && !has(self.at) : has(self.every)"
    )
    .message("set either cron or every and at")
)]
pub(crate) struct OldSchedule {
    /// Five fields, or a macro such as @daily or @daily-random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "cron")]
    pub(crate) cron: Option<String>,
    /// `<n>m`, `<n>h`, `day`, `week` or `month`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub(crate) every: Option<String>,
    /// With every: the time of day, HH:MM; 00:00 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub(crate) at: Option<String>,
    /// The time zone; Etc/UTC when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub(crate) timezone: Option<String>,
}

impl From<&OldSchedule> for Schedule {
    fn from(old: &OldSchedule) -> Self {
        let zone = old.timezone.clone().filter(|zone| !zone.is_empty());
        Self {
            cron: old.cron.clone(),
            every: old.every.clone(),
            at: old.at.clone(),
            time_zone: zone.unwrap_or_else(utc),
            suspend: false,
            starting_deadline_seconds: None,
            successful_jobs_history_limit: successful_runs_kept(),
            failed_jobs_history_limit: failed_runs_kept(),
            concurrency_policy: ConcurrencyPolicy::default(),
        }
    }
}

fn cron(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "string",
        "maxLength": 128,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^[0-9A-Za-z*/,?-]+( +[0-9A-Za-z*/,?-]+){4}$') \
                     || self.matches('^@(hourly|daily|midnight|weekly|monthly|yearly|annually\
                     |hourly-random|daily-random|weekly-random|monthly-random)$')",
            "message": "cron must have 5 fields or be an @ macro",
        }],
    })
}

/// How an archive is compressed.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Compression {
    /// A name of gobackup, such as tgz; plain tar when absent or empty.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) type_: Option<String>,
    /// The layout of the file name, as Go writes times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) filename_format: Option<String>,
    /// Further arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) args: Option<String>,
}

/// How an archive is encrypted.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("!has(self.password) || !has(self.passwordRef)")
        .message("encodeWith: set either password or passwordRef")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Encryption {
    /// openssl, which is all that there is.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) type_: Option<String>,
    /// The same as type: openssl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) openssl: Option<bool>,
    /// The password in clear text; passwordRef is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) password: Option<String>,
    /// The password, from a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) password_ref: Option<SecretKey>,
    /// Whether the key is salted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) salt: Option<bool>,
    /// Whether the result is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base64: Option<bool>,
    /// The cipher; aes-256-cbc when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cipher: Option<String>,
    /// Further arguments of openssl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) args: Option<String>,
}

/// How an archive is split.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Split {
    /// The size of a chunk, such as 500m.
    #[schemars(length(min = 1, max = 32))]
    pub(crate) chunk_size: String,
    /// How many characters the number of a chunk has; 3 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16))]
    pub(crate) suffix_length: Option<i32>,
    /// Whether chunks are numbered with digits; true when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) numeric_suffixes: Option<bool>,
}

/// Directories to pack.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Archive {
    /// Absolute paths inside mounts of volumes.
    #[schemars(length(min = 1, max = 64))]
    pub(crate) includes: Vec<String>,
    /// What of it is left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub(crate) excludes: Vec<String>,
}
