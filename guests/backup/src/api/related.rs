//! The kinds that parents reference: `BackupModel`, `Database`, `Storage`, `PostgreSQL`, `S3`.
//!
//! The plugin only reads them, and they have no status: their errors appear on the parents. A `Storage` is also a
//! parent, for its probe.

use std::collections::BTreeMap;

use innkeeper_kit::prelude::*;
use innkeeper_sdk::crd::schema_of;
use schemars::{Schema, SchemaGenerator};
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

/// Database type and connection.
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
    /// Database type.
    #[schemars(schema_with = "database_types")]
    #[serde(rename = "type")]
    pub(crate) type_: String,
    /// gobackup's keys for this type. The plugin ignores keys that the type lacks and sets a warning; the schema
    /// rejects keys that only other types have.
    #[schemars(schema_with = "database_config")]
    #[serde(default)]
    pub(crate) config: BTreeMap<String, Value>,
}

/// Storage type and connection.
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
    // The Secret is called `<name>-probe-gobackup`, and a label has at most 63 characters.
    validation = Rule::new("!has(self.spec.probe) || self.metadata.name.size() <= 50")
        .message("metadata.name must be at most 50 characters with spec.probe")
)]
#[x_kube(
    validation = Rule::new("!has(self.probe) || self.type != 'local'")
        .message("probe: a local storage is a volume of the Backups that use it; remove probe")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StorageSpec {
    /// Storage type.
    #[schemars(schema_with = "storage_types")]
    #[serde(rename = "type")]
    pub(crate) type_: String,
    /// gobackup's keys for this type. The plugin ignores keys that the type lacks and sets a warning; the schema
    /// rejects other types' token and TLS keys.
    #[schemars(schema_with = "storage_config")]
    #[serde(default)]
    pub(crate) config: BTreeMap<String, Value>,
    /// Probes, which set the condition Available: whether runs can store archives. Default: none.
    pub(crate) probe: Option<Probe>,
}

/// Storage probes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Probe {
    /// Hours between probes. A failed probe is repeated after one hour; a change of the Storage or a referenced Secret
    /// key starts a probe immediately.
    #[serde(default = "day")]
    #[schemars(range(min = 1, max = 8760))]
    pub(crate) every_hours: i64,
    /// Additional Pod labels and annotations, and Pod placement.
    pub(crate) pod_template: Option<PodTemplate>,
}

const fn day() -> i64 {
    24
}

/// Observed state of the storage.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StorageStatus {
    /// The newest probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) probe: Option<Probed>,
    /// Generation that this status describes.
    pub(crate) observed_generation: i64,
}

/// A storage probe.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Probed {
    /// Phase. Succeeded and Failed are final.
    pub(crate) phase: Phase,
    /// Job UID.
    #[serde(rename = "jobUID")]
    pub(crate) job_uid: String,
    /// SHA-256 over the Storage's generation, the image, storagePath and the credentials' hashes, in hexadecimal.
    pub(crate) config_hash: String,
    /// Completion time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) completion_time: Option<String>,
    /// Last log lines of a failed probe; at most 1024 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}

/// PostgreSQL connection in the first generation's form.
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
    /// Server host name or address. Default: localhost.
    pub(crate) host: Option<String>,
    /// Server TCP port.
    #[serde(default = "postgresql_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub(crate) port: i64,
    /// Without effect; accepted for older manifests.
    #[serde(rename = "type")]
    pub(crate) type_: Option<String>,
    /// Database to dump. Required.
    pub(crate) database: Option<String>,
    /// User name.
    pub(crate) username: Option<String>,
    /// Password in clear text; prefer passwordRef.
    pub(crate) password: Option<String>,
    /// Tables to dump; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub(crate) tables: Vec<String>,
    /// Tables to leave out of the dump.
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

/// Object store connection in the first generation's form.
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
    /// Storage type, as in a Storage. Default: s3.
    #[schemars(schema_with = "s3_types")]
    #[serde(default, rename = "type")]
    pub(crate) type_: Option<String>,
    /// Bucket name. Required.
    pub(crate) bucket: Option<String>,
    /// Bucket region. Default: us-east-1 for s3; gobackup has a default for each type.
    pub(crate) region: Option<String>,
    /// Service URL, if it is not the provider's own.
    pub(crate) endpoint: Option<String>,
    /// Object key prefix.
    pub(crate) path: Option<String>,
    /// Access key ID in clear text; prefer accessKeyIDRef.
    #[serde(rename = "accessKeyID")]
    pub(crate) access_key_id: Option<String>,
    /// Secret access key in clear text; prefer secretAccessKeyRef.
    pub(crate) secret_access_key: Option<String>,
    /// Name the bucket in the URL's path instead of the host name.
    pub(crate) force_path_style: Option<bool>,
    /// Storage class of the archives. Empty: the bucket's default. Absent: gobackup's default for the type, for example
    /// STANDARD_IA for s3.
    pub(crate) storage_class: Option<String>,
    /// Maximum number of retries after a failed request. Default: 3.
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

/// Returns the CRDs for kinds that are not parents.
pub(crate) fn definitions() -> [Crd; 4] {
    [
        Crd::without_status::<BackupModel>(),
        with_exclusive_keys(Crd::without_status::<Database>(), &catalog::DATABASES),
        Crd::without_status::<PostgreSQL>(),
        Crd::without_status::<S3>(),
    ]
}

/// Completes the `Storage` CRD.
pub(crate) fn storage(crd: Crd) -> Crd {
    // A probe uses no application's volume, so no Pods matter for its node.
    with_exclusive_keys(crd, &catalog::STORAGES)
        .with_condition_columns()
        .remove("spec.probe.podTemplate.spec", "affinity")
        .truncate_descriptions_below(12)
}
