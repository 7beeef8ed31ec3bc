//! API blocks: schedule, archive settings and notifiers.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{catalog, config_schema};

/// Key in a Secret in the parent's namespace.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
pub(crate) struct SecretKey {
    /// Secret name, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// Key in the Secret's data.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) key: String,
}

/// When runs start: either `cron`, or `every` with an optional `at`.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new(
        "has(self.cron) ? !has(self.every) && !has(self.at) : has(self.every)"
    )
    .message("schedule: set cron, or every with an optional at, not both")
)]
pub(crate) struct Recurrence {
    /// Cron expression with five fields, or a macro such as @daily or @daily-random.
    #[serde(default)]
    #[schemars(schema_with = "cron")]
    pub(crate) cron: Option<String>,
    /// Interval: `day`, `week`, `month`, `<n>m` with n dividing 60, or `<n>h` with n dividing 24.
    #[schemars(length(min = 1, max = 32))]
    pub(crate) every: Option<String>,
    /// Time of day for every, as HH:MM. Default: 00:00.
    #[schemars(length(max = 32))]
    pub(crate) at: Option<String>,
}

/// Schedule.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Schedule {
    #[serde(flatten)]
    pub(crate) recurrence: Recurrence,
    /// Time zone, as an IANA name.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64))]
    pub(crate) time_zone: String,
    /// Start no new run; a running one continues.
    #[serde(default)]
    pub(crate) suspend: bool,
    /// Maximum start delay in seconds; a later run is skipped. Default: no limit, so a run missed during a suspension
    /// starts when it ends.
    #[schemars(range(min = 0))]
    pub(crate) starting_deadline_seconds: Option<i64>,
    /// Successful Jobs to keep.
    #[serde(default = "successful_runs_kept")]
    #[schemars(range(min = 0))]
    pub(crate) successful_jobs_history_limit: i32,
    /// Failed Jobs to keep.
    #[serde(default = "failed_runs_kept")]
    #[schemars(range(min = 0))]
    pub(crate) failed_jobs_history_limit: i32,
    /// Behaviour for a run that is due while another is active.
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

/// Behaviour for a run that is due while another is active.
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

/// Schedule in the first generation's form.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OldSchedule {
    #[serde(flatten)]
    pub(crate) recurrence: Recurrence,
    /// Time zone, as an IANA name. Default: Etc/UTC.
    #[schemars(length(max = 64))]
    pub(crate) timezone: Option<String>,
}

impl From<&OldSchedule> for Schedule {
    fn from(old: &OldSchedule) -> Self {
        let zone = old.timezone.clone().filter(|zone| !zone.is_empty());
        Self {
            recurrence: old.recurrence.clone(),
            time_zone: zone.unwrap_or_else(utc),
            suspend: false,
            starting_deadline_seconds: None,
            successful_jobs_history_limit: successful_runs_kept(),
            failed_jobs_history_limit: failed_runs_kept(),
            concurrency_policy: ConcurrencyPolicy::default(),
        }
    }
}

fn cron(_: &mut SchemaGenerator) -> Schema {
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

/// Archive settings, which a parent and its `BackupModel` share.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ArchiveSettings {
    /// Description for users; without effect on the run.
    pub(crate) description: Option<String>,
    /// Script to run before everything else. If it fails, the run continues.
    #[schemars(length(max = 16384))]
    pub(crate) before_script: Option<String>,
    /// Script to run after everything else. If it fails, the run succeeds all the same.
    #[schemars(length(max = 16384))]
    pub(crate) after_script: Option<String>,
    /// Archive compression. Default: none, a plain tar file.
    pub(crate) compress_with: Option<Compression>,
    /// Archive encryption. Default: none.
    pub(crate) encode_with: Option<Encryption>,
    /// Archive chunks. Default: none.
    pub(crate) split_with: Option<Split>,
    /// Files and directories to add to the archive, from the parent's volumes.
    pub(crate) archive: Option<Archive>,
    /// Services to notify about the result, at most 16.
    #[schemars(length(max = 16))]
    pub(crate) notifiers: Option<Vec<Notifier>>,
}

impl ArchiveSettings {
    /// Returns these settings, completed by the model's. A block counts as a whole.
    pub(crate) fn or(&self, model: &Self) -> Self {
        let own = self.clone();
        let model = model.clone();
        Self {
            description: own.description.or(model.description),
            before_script: own.before_script.or(model.before_script),
            after_script: own.after_script.or(model.after_script),
            compress_with: own.compress_with.or(model.compress_with),
            encode_with: own.encode_with.or(model.encode_with),
            split_with: own.split_with.or(model.split_with),
            archive: own.archive.or(model.archive),
            notifiers: own.notifiers.or(model.notifiers),
        }
    }
}

/// Archive compression.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Compression {
    /// gobackup's name for the format, for example tgz. Default: plain tar.
    #[serde(rename = "type")]
    pub(crate) type_: Option<String>,
    /// Layout of the file name, in Go's time notation, for example 2006.01.02.15.04.05.
    pub(crate) filename_format: Option<String>,
    /// Additional command line options.
    pub(crate) args: Option<String>,
}

/// Archive encryption.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("!has(self.password) || !has(self.passwordRef)")
        .message("encodeWith: set either password or passwordRef")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Encryption {
    /// Tool: openssl is the only one.
    #[serde(rename = "type")]
    pub(crate) type_: Option<String>,
    /// Older form of type: true means openssl.
    pub(crate) openssl: Option<bool>,
    /// Password in clear text; prefer passwordRef.
    pub(crate) password: Option<String>,
    /// Secret key that holds the password.
    pub(crate) password_ref: Option<SecretKey>,
    /// Use a salt to derive the key.
    pub(crate) salt: Option<bool>,
    /// Encode the result as base64 text.
    pub(crate) base64: Option<bool>,
    /// `openssl enc` cipher, without a dash. Default: aes-256-cbc.
    pub(crate) cipher: Option<String>,
    /// Additional options for `openssl enc`: -pbkdf2, -iter, -md, -salt or a cipher with a dash.
    pub(crate) args: Option<String>,
}

/// Archive chunks.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Split {
    /// Chunk size in the notation of split(1), for example 500m.
    #[schemars(length(min = 1, max = 32))]
    pub(crate) chunk_size: String,
    /// Number of characters in a chunk's suffix. Default: 3.
    #[schemars(range(min = 1, max = 16))]
    pub(crate) suffix_length: Option<i32>,
    /// Number chunks with digits instead of letters. Default: true.
    pub(crate) numeric_suffixes: Option<bool>,
}

/// Files and directories to add to an archive.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Archive {
    /// Absolute paths to add, each inside a mount in spec.volumes.
    #[schemars(length(min = 1, max = 64))]
    pub(crate) includes: Vec<String>,
    /// Paths below the included ones to leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub(crate) excludes: Vec<String>,
}

/// Service to notify about the result.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notifier {
    /// Notifier name, a DNS label that is unique in this list.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub(crate) name: String,
    /// Notifier type.
    #[schemars(schema_with = "notifier_types")]
    #[serde(rename = "type")]
    pub(crate) type_: String,
    /// gobackup's keys for this type. The plugin ignores keys that the type lacks and sets a warning.
    #[schemars(schema_with = "notifier_config")]
    #[serde(default)]
    pub(crate) config: BTreeMap<String, Value>,
}

/// Key for headers in a notifier's configuration.
pub(crate) const HEADERS: &str = "headers_ref";

fn notifier_types(_: &mut SchemaGenerator) -> Schema {
    config_schema::names(catalog::NOTIFIERS.types)
}

fn notifier_config(_: &mut SchemaGenerator) -> Schema {
    let mut schema = config_schema::keys(
        &catalog::NOTIFIERS,
        &innkeeper_sdk::crd::schema_of::<SecretKey>(),
    );
    let header = innkeeper_sdk::crd::schema_of::<SecretKey>();
    let headers = json!({
        "description": "Headers of the requests of webhook and googlechat, by their names.",
        "type": "object", "maxProperties": 16, "additionalProperties": header,
    });
    schema
        .get_mut("properties")
        .and_then(Value::as_object_mut)
        .expect("should be the schema of an object")
        .insert(HEADERS.to_owned(), headers);
    schema
}
