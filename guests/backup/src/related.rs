//! The kinds that parents refer to: `BackupModel`, `Database`, `Storage`, `PostgreSQL`, `S3`.
//!
//! They are only read and have no status; what is wrong with them shows on the parents.

use std::collections::BTreeMap;

use innkeeper_sdk::crd::Crd;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    api::{Archive, Compression, Encryption, Split},
    catalog::{self, Form, Key, Type},
};

/// One value of a Secret.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
pub(crate) struct SecretKey {
    /// The Secret, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// The key of its data.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) key: String,
}

/// How archives are made, shared by several parents.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "gobackup.io",
    version = "v1",
    kind = "BackupModel",
    plural = "backupmodels",
    namespaced,
    doc = "How archives are made, shared by several parents."
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackupModelSpec {
    /// A description, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// Runs before everything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before_script: Option<String>,
    /// Runs after everything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after_script: Option<String>,
    /// How the archive is compressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) compress_with: Option<Compression>,
    /// How the archive is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) encode_with: Option<Encryption>,
    /// How the archive is split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) split_with: Option<Split>,
    /// Directories to pack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) archive: Option<Archive>,
}

/// A database to dump.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "gobackup.io",
    version = "v1",
    kind = "Database",
    plural = "databases",
    shortname = "db",
    namespaced,
    doc = "A database to dump.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DatabaseSpec {
    /// What kind of database.
    #[schemars(schema_with = "database_types")]
    #[serde(rename = "type")]
    pub(crate) type_: String,
    /// The keys of gobackup for this type.
    #[schemars(schema_with = "database_config")]
    #[serde(default)]
    pub(crate) config: BTreeMap<String, Value>,
}

/// A place for archives.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "gobackup.io",
    version = "v1",
    kind = "Storage",
    plural = "storages",
    shortname = "storage",
    namespaced,
    doc = "A place for archives.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StorageSpec {
    /// What kind of storage.
    #[schemars(schema_with = "storage_types")]
    #[serde(rename = "type")]
    pub(crate) type_: String,
    /// The keys of gobackup for this type.
    #[schemars(schema_with = "storage_config")]
    #[serde(default)]
    pub(crate) config: BTreeMap<String, Value>,
}

/// A PostgreSQL database, as the first generation declares it.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "database.gobackup.io",
    version = "v1",
    kind = "PostgreSQL",
    plural = "postgresqls",
    shortname = "psql",
    namespaced,
    doc = "A PostgreSQL database."
)]
#[x_kube(
    validation = Rule::new("!has(self.username) || !has(self.usernameRef)")
        .message("set either username or usernameRef"),
    validation = Rule::new("!has(self.password) || !has(self.passwordRef)")
        .message("set either password or passwordRef")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PostgreSQLSpec {
    /// The server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    /// Its port.
    #[serde(default = "postgresql_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub(crate) port: i64,
    /// Of no effect, for older manifests; the kind says it all.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) type_: Option<String>,
    /// The database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) database: Option<String>,
    /// Who connects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) username: Option<String>,
    /// The password in clear text; passwordRef is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) password: Option<String>,
    /// Only these tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tables: Vec<String>,
    /// All but these tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) exclude_tables: Vec<String>,
    /// Further arguments of pg_dump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) additional_options: Option<String>,
    /// Who connects, from a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) username_ref: Option<SecretKey>,
    /// The password, from a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) password_ref: Option<SecretKey>,
}

const fn postgresql_port() -> i64 {
    5432
}

/// An object store, as the first generation declares it.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "storage.gobackup.io",
    version = "v1",
    kind = "S3",
    plural = "s3s",
    namespaced,
    doc = "An object store."
)]
#[x_kube(
    validation = Rule::new("!has(self.accessKeyID) || !has(self.accessKeyIDRef)")
        .message("set either accessKeyID or accessKeyIDRef"),
    validation = Rule::new("!has(self.secretAccessKey) || !has(self.secretAccessKeyRef)")
        .message("set either secretAccessKey or secretAccessKeyRef")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct S3Spec {
    /// Another storage that speaks S3 or a like of it; s3 when absent.
    #[schemars(schema_with = "s3_types")]
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) type_: Option<String>,
    /// The bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bucket: Option<String>,
    /// The region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) region: Option<String>,
    /// The address of the service, where it is not the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) endpoint: Option<String>,
    /// Where in the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// The key's id in clear text; accessKeyIDRef is better.
    #[serde(
        default,
        rename = "accessKeyID",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) access_key_id: Option<String>,
    /// The key in clear text; secretAccessKeyRef is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret_access_key: Option<String>,
    /// Whether the bucket stands in the path and not in the host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) force_path_style: Option<bool>,
    /// The storage class; empty: the bucket's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) storage_class: Option<String>,
    /// How often an upload is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub(crate) max_retries: Option<i64>,
    /// The key's id, from a Secret.
    #[serde(
        default,
        rename = "accessKeyIDRef",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) access_key_id_ref: Option<SecretKey>,
    /// The key, from a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret_access_key_ref: Option<SecretKey>,
}

fn database_types(_: &mut SchemaGenerator) -> Schema {
    names(catalog::DATABASES)
}

fn storage_types(_: &mut SchemaGenerator) -> Schema {
    names(catalog::STORAGES)
}

fn s3_types(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<&str> = catalog::STORAGES
        .iter()
        .filter(|it| it.is_s3_like)
        .map(|it| it.name)
        .collect();
    json_schema!({"type": "string", "enum": names})
}

fn names(family: &[Type]) -> Schema {
    let names: Vec<&str> = family.iter().map(|it| it.name).collect();
    json_schema!({"type": "string", "enum": names})
}

fn database_config(_: &mut SchemaGenerator) -> Schema {
    config(catalog::DATABASES, catalog::OLD_DATABASE_KEYS)
}

fn storage_config(_: &mut SchemaGenerator) -> Schema {
    config(catalog::STORAGES, &[])
}

/// All keys of all types: what a type does not know is ignored with a warning, not refused, because
/// older manifests may carry it.
fn config(family: &'static [Type], old: &'static [Key]) -> Schema {
    let mut properties = Map::new();
    let mut rules = BTreeMap::new();
    for key in family.iter().flat_map(Type::keys).chain(old) {
        properties.insert(key.name.to_owned(), value(key));
        if key.has_twin() {
            let twin = format!("{}_ref", key.name);
            let rule = json!({
                "rule": format!("!has(self.{}) || !has(self.{twin})", key.name),
                "message": format!("set either config.{} or config.{twin}", key.name),
            });
            rules.insert(key.name, rule);
            properties.insert(twin, secret_key());
        }
    }
    let rules: Vec<Value> = rules.into_values().collect();
    json_schema!({
        "type": "object",
        "properties": properties,
        "x-kubernetes-validations": rules,
    })
}

fn value(key: &Key) -> Value {
    match (key.form, key.name) {
        (Form::Text, "on_exit") => {
            json!({"type": "string", "enum": ["always", "success", "failure"]})
        }
        (Form::Text, "mode") => json!({"type": "string", "enum": ["copy", "sync"]}),
        (Form::Text, _) => json!({"type": "string"}),
        (Form::Number, "port") => json!({"type": "integer", "minimum": 1, "maximum": 65535}),
        (Form::Number, _) => json!({"type": "integer", "minimum": 0}),
        (Form::Flag, _) => json!({"type": "boolean"}),
        (Form::Texts, _) => json!({"type": "array", "items": {"type": "string"}}),
    }
}

fn secret_key() -> Value {
    innkeeper_sdk::crd::schema_of::<SecretKey>()
}

/// Refuses keys that belong to other types.
fn with_exclusive_keys(crd: Crd) -> Crd {
    catalog::EXCLUSIVE.iter().fold(crd, |crd, (key, types)| {
        let listed: Vec<String> = types.iter().map(|name| format!("'{name}'")).collect();
        let rule = format!(
            "!has(self.config) || !has(self.config.{key}) || self.type in [{}]",
            listed.join(", ")
        );
        let message = format!(
            "config.{key} is only valid when spec.type is {}",
            types.join(", ")
        );
        crd.rule("spec", &rule, &message)
    })
}

/// The definitions of all five.
pub(crate) fn definitions() -> [Crd; 5] {
    [
        Crd::without_status::<BackupModel>(),
        with_exclusive_keys(Crd::without_status::<Database>()),
        Crd::without_status::<Storage>(),
        Crd::without_status::<PostgreSQL>(),
        Crd::without_status::<S3>(),
    ]
}
