//! The kinds that parents refer to: `BackupModel`, `Database`, `Storage`, `PostgreSQL`, `S3`.
//!
//! The plugin only reads them and they have no status: their errors appear on the parents. A `Storage` is a parent of its
//! own besides, for its probe.

use std::collections::BTreeMap;

use innkeeper_kit::placement::PodTemplate;
use innkeeper_sdk::crd::{Crd, schema_of};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ArchiveSettings, SecretKey};
use crate::{
    catalog::{self, Family},
    config_schema,
    status::Phase,
};

/// Archive settings.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "gobackup.io",
    version = "v1",
    kind = "BackupModel",
    plural = "backupmodels",
    namespaced,
    doc = "Archive settings that several Backups and CronBackups share. A setting of the Backup \
           replaces the same setting of the model, as a whole."
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackupModelSpec {
    #[serde(flatten)]
    pub(crate) settings: ArchiveSettings,
}

/// Type and connection of a database.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "gobackup.io",
    version = "v1",
    kind = "Database",
    plural = "databases",
    shortname = "db",
    namespaced,
    doc = "A database that Backups and CronBackups dump.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DatabaseSpec {
    /// Type of the database.
    #[schemars(schema_with = "database_types")]
    #[serde(rename = "type")]
    pub(crate) type_: String,
    /// Keys of gobackup for this type. The plugin ignores keys that the type does not have and sets a
    /// warning, except for keys that belong to other types only: the schema rejects those.
    #[schemars(schema_with = "database_config")]
    #[serde(default)]
    pub(crate) config: BTreeMap<String, Value>,
}

/// Type and connection of a storage.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "gobackup.io",
    version = "v1",
    kind = "Storage",
    plural = "storages",
    category = "innkeeper",
    namespaced,
    status = "StorageStatus",
    doc = "A storage to which Backups and CronBackups upload their archives.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].status"
    ),
    printcolumn(
        name = "Probed",
        type_ = "date",
        json_path = ".status.probe.completionTime",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    // `<name>-probe-gobackup` is the name of the Secret, and a label has at most 63 characters.
    validation = Rule::new("!has(self.spec.probe) || self.metadata.name.size() <= 50")
        .message("metadata.name must be at most 50 characters with spec.probe")
)]
#[x_kube(
    validation = Rule::new("!has(self.probe) || self.type != 'local'")
        .message("probe: a storage of type local is a volume of the Backups that use it; remove probe")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StorageSpec {
    /// Type of the storage.
    #[schemars(schema_with = "storage_types")]
    #[serde(rename = "type")]
    pub(crate) type_: String,
    /// Keys of gobackup for this type. The plugin ignores keys that the type does not have and sets a
    /// warning, except for tokens and keys of TLS of other types: the schema rejects those.
    #[schemars(schema_with = "storage_config")]
    #[serde(default)]
    pub(crate) config: BTreeMap<String, Value>,
    /// Probes by which the condition Available tells whether runs can store archives. Default: none.
    pub(crate) probe: Option<Probe>,
}

/// Probes of a storage.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Probe {
    /// Number of hours between probes. A failed probe is repeated after one hour, and each change of the Storage or of a
    /// key of a Secret that it names causes a probe at once.
    #[serde(default = "day")]
    #[schemars(range(min = 1, max = 8760))]
    pub(crate) every_hours: i64,
    /// Additional labels and annotations of the probe's Pod, and its placement.
    pub(crate) pod_template: Option<PodTemplate>,
}

const fn day() -> i64 {
    24
}

/// Observed state of a storage.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StorageStatus {
    /// The newest probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) probe: Option<Probed>,
    /// Generation of the object that this status describes.
    pub(crate) observed_generation: i64,
}

/// A probe of a storage.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Probed {
    /// Phase of the probe. Succeeded and Failed are final.
    pub(crate) phase: Phase,
    /// UID of the Job.
    #[serde(rename = "jobUID")]
    pub(crate) job_uid: String,
    /// SHA-256 of the generation of the Storage, the image, storagePath and the hashes of its credentials, in hexadecimal.
    pub(crate) config_hash: String,
    /// Time of the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) completion_time: Option<String>,
    /// End of the log of a failed probe; at most 1024 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}

/// Connection of a PostgreSQL database, in the form of the first generation.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "database.gobackup.io",
    version = "v1",
    kind = "PostgreSQL",
    plural = "postgresqls",
    shortname = "psql",
    namespaced,
    doc = "A PostgreSQL database that Backups and CronBackups dump, in the form of the first \
           generation. Prefer a Database of type postgresql."
)]
#[x_kube(
    validation = Rule::new("!has(self.username) || !has(self.usernameRef)")
        .message("set either username or usernameRef"),
    validation = Rule::new("!has(self.password) || !has(self.passwordRef)")
        .message("set either password or passwordRef")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PostgreSQLSpec {
    /// Host name or address of the server. Default: localhost.
    pub(crate) host: Option<String>,
    /// TCP port of the server.
    #[serde(default = "postgresql_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub(crate) port: i64,
    /// Without effect; accepted for older manifests.
    #[serde(rename = "type")]
    pub(crate) type_: Option<String>,
    /// Name of the database to dump. Required.
    pub(crate) database: Option<String>,
    /// User name.
    pub(crate) username: Option<String>,
    /// Password in clear text; prefer passwordRef.
    pub(crate) password: Option<String>,
    /// Names of the tables to dump; all tables if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub(crate) tables: Vec<String>,
    /// Names of the tables to leave out of the dump.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub(crate) exclude_tables: Vec<String>,
    /// Additional options for pg_dump.
    pub(crate) additional_options: Option<String>,
    /// Secret key that holds the user name.
    pub(crate) username_ref: Option<SecretKey>,
    /// Secret key that holds the password.
    pub(crate) password_ref: Option<SecretKey>,
}

const fn postgresql_port() -> i64 {
    5432
}

/// Connection of an object store, in the form of the first generation.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "storage.gobackup.io",
    version = "v1",
    kind = "S3",
    plural = "s3s",
    namespaced,
    doc = "An S3-compatible object store to which Backups and CronBackups upload their archives, in \
           the form of the first generation. Prefer a Storage."
)]
#[x_kube(
    validation = Rule::new("!has(self.accessKeyID) || !has(self.accessKeyIDRef)")
        .message("set either accessKeyID or accessKeyIDRef"),
    validation = Rule::new("!has(self.secretAccessKey) || !has(self.secretAccessKeyRef)")
        .message("set either secretAccessKey or secretAccessKeyRef")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct S3Spec {
    /// Type of the storage, as in a Storage. Default: s3.
    #[schemars(schema_with = "s3_types")]
    #[serde(default, rename = "type")]
    pub(crate) type_: Option<String>,
    /// Name of the bucket. Required.
    pub(crate) bucket: Option<String>,
    /// Region of the bucket. Default: us-east-1 for s3; gobackup has a default for each type.
    pub(crate) region: Option<String>,
    /// URL of the service, if it is not the provider's own.
    pub(crate) endpoint: Option<String>,
    /// Prefix of the object keys in the bucket.
    pub(crate) path: Option<String>,
    /// Access key ID in clear text; prefer accessKeyIDRef.
    #[serde(rename = "accessKeyID")]
    pub(crate) access_key_id: Option<String>,
    /// Secret access key in clear text; prefer secretAccessKeyRef.
    pub(crate) secret_access_key: Option<String>,
    /// Name the bucket in the path of the URL instead of the host name.
    pub(crate) force_path_style: Option<bool>,
    /// Storage class of the archives. Empty: the bucket's default. Absent: gobackup's default for the
    /// type, for example STANDARD_IA for s3.
    pub(crate) storage_class: Option<String>,
    /// Maximum number of retries of a failed request. Default: 3.
    #[schemars(range(min = 0, max = 100))]
    pub(crate) max_retries: Option<i64>,
    /// Secret key that holds the access key ID.
    #[serde(rename = "accessKeyIDRef")]
    pub(crate) access_key_id_ref: Option<SecretKey>,
    /// Secret key that holds the secret access key.
    pub(crate) secret_access_key_ref: Option<SecretKey>,
}

fn database_types(_: &mut SchemaGenerator) -> Schema {
    config_schema::names(catalog::DATABASES.types)
}

fn storage_types(_: &mut SchemaGenerator) -> Schema {
    config_schema::names(catalog::STORAGES.types)
}

fn s3_types(_: &mut SchemaGenerator) -> Schema {
    config_schema::names(
        catalog::STORAGES
            .types
            .iter()
            .filter(|type_| type_.is_s3_like),
    )
}

fn database_config(_: &mut SchemaGenerator) -> Schema {
    config_schema::keys(&catalog::DATABASES, &schema_of::<SecretKey>())
}

fn storage_config(_: &mut SchemaGenerator) -> Schema {
    config_schema::keys(&catalog::STORAGES, &schema_of::<SecretKey>())
}

/// Rejects keys that only other types have.
fn with_exclusive_keys(crd: Crd, family: &Family) -> Crd {
    family.exclusive.iter().fold(crd, |crd, (key, types)| {
        let listed: Vec<String> = types.iter().map(|name| format!("'{name}'")).collect();
        let rule = format!(
            "!has(self.config) || !has(self.config.{key}) || self.type in [{}]",
            listed.join(", ")
        );
        let message = format!(
            "config.{key} is only valid when spec.type is {}; remove it",
            types.join(", ")
        );
        crd.rule("spec", &rule, &message)
    })
}

/// The definitions of the kinds that are no parents.
pub(crate) fn definitions() -> [Crd; 4] {
    [
        Crd::without_status::<BackupModel>(),
        with_exclusive_keys(Crd::without_status::<Database>(), &catalog::DATABASES),
        Crd::without_status::<PostgreSQL>(),
        Crd::without_status::<S3>(),
    ]
}

/// Completes the definition of a `Storage`.
pub(crate) fn storage(crd: Crd) -> Crd {
    // A probe uses no volume of an application, so no Pods matter for its node.
    with_exclusive_keys(crd, &catalog::STORAGES)
        .remove("spec.probe.podTemplate.spec", "affinity")
        .truncate_descriptions_below(12)
}
