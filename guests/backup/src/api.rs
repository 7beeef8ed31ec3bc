//! The API of `Backup` and `CronBackup`: what a user declares.
//!
//! Both share one schema. The first generation of manifests has the references beside `spec`, the
//! second inside; the root of the schema admits both and [`Parent`] brings them together. What is
//! told in the status is in `status`; what CEL cannot check is in `validate`.

use innkeeper_sdk::{crd::Crd, manifest::ParentKind, manifest::Scope, prelude::*};
use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, LocalObjectReference, ResourceRequirements,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::status::BackupStatus;

mod blocks;
mod volumes;

pub(crate) use blocks::{Archive, Compression, Encryption, OldSchedule, Schedule, Split};
pub(crate) use volumes::{LocalVolume, State, StateMode, Volume, Work};

/// Runs gobackup once, or by a schedule.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "gobackup.io",
    version = "v1",
    kind = "Backup",
    plural = "backups",
    shortname = "backup",
    namespaced,
    status = "BackupStatus",
    doc = "Runs gobackup once, or by a schedule.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Schedule",
        type_ = "string",
        json_path = ".status.effectiveSchedule"
    ),
    printcolumn(
        name = "Last Success",
        type_ = "date",
        json_path = ".status.lastSuccessfulBackupTime"
    ),
    printcolumn(name = "Failures", type_ = "integer", json_path = ".status.failureCount"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    // `<name>-run-12345678` must fit the 63 characters of a label, `<name>` the 52 of a CronJob.
    validation = Rule::new("self.metadata.name.size() <= 50")
        .message("metadata.name must be at most 50 characters")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackupSpec {
    /// What to dump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub(crate) database_refs: Option<Vec<Reference>>,
    /// Where to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub(crate) storage_refs: Option<Vec<Reference>>,
    /// The name of the storage that counts as the default; that of the first when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) default_storage: Option<String>,
    /// How archives are made, and the schedule of the first generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backup_model_ref: Option<ModelReference>,
    /// When it runs; a Backup without one runs once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<Schedule>,
    /// No new run starts; running ones go on.
    #[serde(default)]
    pub(crate) suspend: bool,
    /// A description, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// Runs before everything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before_script: Option<String>,
    /// Runs after everything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after_script: Option<String>,
    /// How the archive is compressed; not at all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) compress_with: Option<Compression>,
    /// How the archive is encrypted; not at all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) encode_with: Option<Encryption>,
    /// How the archive is split; not at all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) split_with: Option<Split>,
    /// Directories to pack, from volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) archive: Option<Archive>,
    /// Data that gobackup reads as files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub(crate) volumes: Vec<Volume>,
    /// Where gobackup remembers what it stored, for `keep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<State>,
    /// The claim of storages of type local.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) local_volume: Option<LocalVolume>,
    /// Scratch space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) work: Option<Work>,
    /// Further variables of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) env: Vec<EnvVar>,
    /// Further variables of the run, from whole objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) env_from: Vec<EnvFromSource>,
    /// Whether gobackup expands `$NAME` in what is written here.
    #[serde(default)]
    pub(crate) expand_env: bool,
    /// The image of gobackup; the plugin's configuration decides when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub(crate) image: Option<String>,
    /// When the image is pulled; IfNotPresent when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image_pull_policy: Option<ImagePullPolicy>,
    /// Secrets for pulling the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub(crate) image_pull_secrets: Vec<LocalObjectReference>,
    /// Requests and limits; requests cpu 100m and memory 128Mi when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resources: Option<ResourceRequirements>,
    /// The account of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) service_account_name: Option<String>,
    /// Labels and annotations of the run's Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod_template: Option<PodTemplate>,
    /// How long a run may take, in seconds; 21600 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) active_deadline_seconds: Option<i64>,
    /// How often a run is tried again; 2 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub(crate) backoff_limit: Option<i32>,
    /// When a finished run is deleted, in seconds; never by time when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub(crate) ttl_seconds_after_finished: Option<i32>,
}

/// A database or a storage.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reference {
    /// `gobackup.io` when absent or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) api_group: Option<String>,
    /// The kind in the groups of the first generation; else the object's own type counts.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) type_: Option<String>,
    /// The object, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// Storages: how many archives are kept, if above 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub(crate) keep: Option<i64>,
    /// Storages: how long an upload may take, in seconds, if above 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub(crate) timeout: Option<i64>,
}

/// A `BackupModel`, and the schedule of the first generation.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ModelReference {
    /// The BackupModel, in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// When it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<OldSchedule>,
}

/// When images are pulled.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImagePullPolicy {
    /// At every start.
    Always,
    /// When the node does not have it.
    IfNotPresent,
    /// Never.
    Never,
}

impl ImagePullPolicy {
    /// The text in a Pod.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// What the run's Pods get besides.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodTemplate {
    /// Labels and annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<PodMetadata>,
}

/// Labels and annotations; those of the plugin win.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodMetadata {
    /// Labels.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 32))]
    pub(crate) labels: std::collections::BTreeMap<String, String>,
    /// Annotations.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 32))]
    pub(crate) annotations: std::collections::BTreeMap<String, String>,
}

/// Which kind of parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Backup,
    CronBackup,
}

/// The parent as it is stored, of either generation.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Root {
    #[serde(default)]
    spec: Option<BackupSpec>,
    #[serde(default)]
    backup_model_ref: Option<ModelReference>,
    #[serde(default)]
    database_refs: Option<Vec<Reference>>,
    #[serde(default)]
    storage_refs: Option<Vec<Reference>>,
}

/// The parent, its references all in one place.
#[derive(Clone, Debug)]
pub(crate) struct Parent {
    pub(crate) kind: Kind,
    pub(crate) spec: BackupSpec,
    /// When it runs, wherever that is given.
    pub(crate) schedule: Option<Schedule>,
}

impl Parent {
    pub(crate) fn read(request: &Request) -> Result<Self, Fault> {
        let root: Root = request.parent()?;
        let mut spec = root.spec.unwrap_or_default();
        // CEL refuses both places at once.
        spec.backup_model_ref = spec.backup_model_ref.or(root.backup_model_ref);
        spec.database_refs = spec.database_refs.or(root.database_refs);
        spec.storage_refs = spec.storage_refs.or(root.storage_refs);
        let old = spec
            .backup_model_ref
            .as_ref()
            .and_then(|model| model.schedule.as_ref());
        let schedule = spec.schedule.clone().or_else(|| old.map(Schedule::from));
        let kind = match request.parent_kind() {
            "CronBackup" => Kind::CronBackup,
            _ => Kind::Backup,
        };
        Ok(Self {
            kind,
            spec,
            schedule,
        })
    }

    /// The databases to dump.
    pub(crate) fn databases(&self) -> &[Reference] {
        self.spec.database_refs.as_deref().unwrap_or_default()
    }

    /// The storages, the first one being the default.
    pub(crate) fn storages(&self) -> &[Reference] {
        self.spec.storage_refs.as_deref().unwrap_or_default()
    }

    /// The name of the model, if one is referred to.
    pub(crate) fn model(&self) -> Option<&str> {
        let model = self.spec.backup_model_ref.as_ref()?;
        model.name.as_deref().filter(|name| !name.is_empty())
    }

    /// Whether no new run may start.
    pub(crate) fn is_suspended(&self) -> bool {
        self.spec.suspend || self.schedule.as_ref().is_some_and(|it| it.suspend)
    }
}

/// References stand in one place only; `(property, where inside spec)`.
const REFERENCES: [&str; 3] = ["backupModelRef", "databaseRefs", "storageRefs"];

const SPEC_SCHEDULE: &str = "(has(self.spec) && has(self.spec.schedule))";
const ROOT_SCHEDULE: &str = "(has(self.backupModelRef) && has(self.backupModelRef.schedule))";
const MODEL_SCHEDULE: &str = "(has(self.spec) && has(self.spec.backupModelRef) \
     && has(self.spec.backupModelRef.schedule))";

/// What the derive cannot say about both kinds.
fn both_generations(crd: Crd) -> Crd {
    let crd = crd
        .optional("", "spec")
        .property::<ModelReference>("", "backupModelRef")
        .property::<Vec<Reference>>("", "databaseRefs")
        .property::<Vec<Reference>>("", "storageRefs")
        .set("databaseRefs", "maxItems", 64)
        .set("storageRefs", "maxItems", 64)
        .set("spec.env", "maxItems", 64)
        .set("spec.env[].name", "maxLength", 128)
        .edit_schema("spec.env[]", |item| {
            item.insert("x-kubernetes-validations".to_owned(), reserved_variables());
        });
    REFERENCES
        .iter()
        .fold(crd, |crd, name| {
            let rule = format!("!has(self.{name}) || !has(self.spec) || !has(self.spec.{name})");
            let message = format!("{name}: give it beside spec or inside spec, not both");
            crd.rule("", &rule, &message)
        })
        .rule(
            "",
            &format!("!({SPEC_SCHEDULE} && ({ROOT_SCHEDULE} || {MODEL_SCHEDULE}))"),
            "schedule: give it in spec or in backupModelRef, not both",
        )
        .short_descriptions(4)
}

/// Names of variables that the run depends on.
fn reserved_variables() -> serde_json::Value {
    json!([{
        "rule": "!(self.name in ['DOLLAR', 'HOME', 'TMPDIR', 'GOBACKUP_DIR', 'MODEL', 'STORAGES', \
                 'ENC_PASSWORD']) && !self.name.matches('^(DB|ST|NT)[0-9]+_')",
        "message": "env: the name is reserved",
        "messageExpression": "'env: ' + self.name + ' is reserved'",
    }])
}

/// Adds both parents.
pub(crate) fn parents(manifest: Manifest) -> Manifest {
    let cron_backup = both_generations(Crd::of::<Backup>())
        .edit(|crd| {
            crd["metadata"]["name"] = json!("cronbackups.gobackup.io");
            crd["spec"]["names"] = json!({
                "kind": "CronBackup",
                "plural": "cronbackups",
                "shortNames": ["cronbackup"],
                "singular": "cronbackup",
            });
        })
        .edit_schema("", |root| {
            root.insert(
                "description".to_owned(),
                json!("Runs gobackup by a schedule."),
            );
        })
        .rule(
            "",
            &format!("{SPEC_SCHEDULE} || {ROOT_SCHEDULE} || {MODEL_SCHEDULE}"),
            "CronBackup needs a schedule",
        );
    manifest
        .parent_with::<Backup>(both_generations)
        .foreign_parent(ParentKind {
            group: "gobackup.io".to_owned(),
            version: "v1".to_owned(),
            kind: "CronBackup".to_owned(),
            plural: "cronbackups".to_owned(),
            scope: Scope::Namespaced,
        })
        .crd(cron_backup)
}
