//! The API of `Backup` and `CronBackup`.
//!
//! Both share one schema. Manifests of the first generation have the references beside `spec`, those of the second
//! inside. The schema accepts both, and [`Parent`] merges them. `status` has the status types; `validate` has checks
//! that CEL cannot express.

use innkeeper_kit::prelude::*;
use innkeeper_sdk::manifest::{ParentKind, Scope};
use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, LocalObjectReference, ResourceRequirements,
};
use serde_json::json;

use self::{
    related::Storage,
    restore::{Restore, Verify, deadline},
};
use crate::status::BackupStatus;

mod blocks;
mod placement;
pub(crate) mod related;
pub(crate) mod restore;
mod volumes;

pub(crate) use blocks::{
    Archive, ArchiveSettings, Compression, ConcurrencyPolicy, Encryption, HEADERS, Notifier,
    OldSchedule, Schedule, SecretKey, Split,
};
pub(crate) use placement::RunWith;
pub(crate) use volumes::{
    LOCAL_SIZE, LocalVolume, RunUser, STATE_SIZE, State, StateMode, Volume, Work,
};

/// Specification.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "gobackup.io",
    version = "v1",
    kind = "Backup",
    plural = "backups",
    shortname = "bk",
    category = "innkeeper",
    namespaced,
    status = "BackupStatus",
    doc = "A backup that gobackup makes once, or by a schedule if it has one.",
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
        name = "Size",
        type_ = "string",
        json_path = ".status.lastRun.size",
        priority = 1
    ),
    printcolumn(
        name = "Seconds",
        type_ = "integer",
        json_path = ".status.lastRun.durationSeconds",
        priority = 1
    ),
    printcolumn(
        name = "Verified",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Verified\")].status",
        priority = 1
    ),
    // A label has at most 63 characters, which `<name>-run-12345678` must fit, and a CronJob name 52.
    validation = Rule::new("self.metadata.name.size() <= 50")
        .message("metadata.name must be at most 50 characters")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackupSpec {
    /// Databases to dump.
    #[schemars(length(max = 64))]
    pub(crate) database_refs: Option<Vec<Reference>>,
    /// Storages; the archive goes to each of them. At least one is required.
    #[schemars(length(max = 64))]
    pub(crate) storage_refs: Option<Vec<Reference>>,
    /// Name of the default storage in storageRefs. Default: the first.
    pub(crate) default_storage: Option<String>,
    /// BackupModel with archive settings, and the schedule in the first generation's form.
    pub(crate) backup_model_ref: Option<ModelReference>,
    /// Schedule. Without one a Backup runs once; a CronBackup requires one.
    pub(crate) schedule: Option<Schedule>,
    /// Start no new run; a running one continues.
    #[serde(default)]
    pub(crate) suspend: bool,
    #[serde(flatten)]
    pub(crate) settings: ArchiveSettings,
    /// Volumes with data that gobackup reads as files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub(crate) volumes: Vec<Volume>,
    /// Volume for gobackup's state: the list of stored archives, which `keep` needs.
    pub(crate) state: Option<State>,
    /// Claim for the archives in storages with the type local.
    pub(crate) local_volume: Option<LocalVolume>,
    /// Volume for temporary files. Default: an emptyDir on the node's disk.
    pub(crate) work: Option<Work>,
    /// Additional environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) env: Vec<EnvVar>,
    /// Additional environment variables from ConfigMaps and Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) env_from: Vec<EnvFromSource>,
    /// Let gobackup expand `$NAME` in texts of this object and the objects that it references.
    #[serde(default)]
    pub(crate) expand_env: bool,
    /// gobackup image. Default: from the plugin's configuration.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = image::is_reference())]
    pub(crate) image: Option<String>,
    /// Image pull policy.
    #[serde(default)]
    pub(crate) image_pull_policy: ImagePullPolicy,
    /// Secrets for pulling the image. Default: from the plugin's configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub(crate) image_pull_secrets: Vec<LocalObjectReference>,
    /// Requests and limits. Default: from the plugin's configuration, else requests of cpu 100m and memory 128Mi.
    pub(crate) resources: Option<ResourceRequirements>,
    /// ServiceAccount, without its token. Default: the namespace's default.
    pub(crate) service_account_name: Option<String>,
    /// User and groups. Default: user and group 65532.
    pub(crate) security_context: Option<RunUser>,
    /// Additional Pod labels and annotations, and Pod placement.
    pub(crate) pod_template: Option<PodTemplate>,
    /// Pods that use the volumes: the run is placed on their node, as ReadWriteOnce claims need it.
    pub(crate) run_with: Option<RunWith>,
    /// Verification: a Job restores the newest archive into scratch databases.
    pub(crate) verify: Option<Verify>,
    /// Maximum duration in seconds, including retries: 6 hours by default.
    #[schemars(range(min = 1), extend("default" = deadline()))]
    pub(crate) active_deadline_seconds: Option<i64>,
    /// Maximum number of retries after a failure; none while a storage has keep, which counts the archive of each
    /// attempt.
    #[schemars(range(min = 0, max = 100), extend("default" = BACKOFF_LIMIT))]
    pub(crate) backoff_limit: Option<i32>,
    /// Time in seconds after which Kubernetes deletes a finished Job. Default: no deletion by time.
    #[schemars(range(min = 0))]
    pub(crate) ttl_seconds_after_finished: Option<i32>,
}

/// Number of retries. The schema has the defaults too, but a parent of the first generation may have no spec.
pub(crate) const BACKOFF_LIMIT: i32 = 2;

/// Reference to a database or a storage.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reference {
    /// API group. Default: gobackup.io.
    pub(crate) api_group: Option<String>,
    /// Kind, in the first generation's groups. Elsewhere the object's own type applies, and a difference causes a
    /// warning.
    #[serde(rename = "type")]
    pub(crate) type_: Option<String>,
    /// Name, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// For storages: number of archives to keep. A value above 0 overrides the storage's own.
    #[schemars(range(min = 0))]
    pub(crate) keep: Option<i64>,
    /// For storages: upload timeout in seconds. A value above 0 overrides the storage's own, if its type has one.
    #[schemars(range(min = 0))]
    pub(crate) timeout: Option<i64>,
    /// Path for this parent's archives below the storage's own, for example shop/nightly. Default: none. After a
    /// change, `keep` deletes no archive in the former path, and a Restore finds none there.
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$')")
        .message("path must be relative: parts of letters, digits, '.', '_' and '-' with single slashes between them, \
                  none of which begins with '.' or '-'; for example shop/nightly"))]
    pub(crate) path: Option<String>,
}

/// Reference to a `BackupModel`, with the schedule in the first generation's form.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ModelReference {
    /// BackupModel name, in the same namespace.
    pub(crate) name: Option<String>,
    /// Schedule.
    pub(crate) schedule: Option<OldSchedule>,
}

/// What a task works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Backup,
    CronBackup,
    Restore,
    /// Verifies a `Backup`.
    Verification,
    /// Verifies a `CronBackup`.
    CronVerification,
    /// Probes a `Storage`.
    Probe,
}

impl Kind {
    /// Returns the kind that verifies this one.
    pub(crate) const fn verification(self) -> Self {
        match self {
            Self::CronBackup | Self::CronVerification => Self::CronVerification,
            _ => Self::Verification,
        }
    }
}

/// A stored parent in either generation's form.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Root {
    #[serde(default)]
    spec: Option<BackupSpec>,
    #[serde(default)]
    backup_model_ref: Option<ModelReference>,
    #[serde(default)]
    database_refs: Option<Vec<Reference>>,
    #[serde(default)]
    storage_refs: Option<Vec<Reference>>,
}

/// A parent with references and schedule in one place.
#[derive(Clone, Debug)]
pub(crate) struct Parent {
    pub(crate) kind: Kind,
    pub(crate) spec: BackupSpec,
    /// The schedule, from either generation's field.
    pub(crate) schedule: Option<Schedule>,
}

impl Parent {
    pub(crate) fn read(request: &Request, root: &Root) -> Self {
        let kind = match request.parent_kind() {
            "CronBackup" => Kind::CronBackup,
            _ => Kind::Backup,
        };
        Self::new(kind, root.clone())
    }

    /// Merges the forms of a stored object.
    pub(crate) fn new(kind: Kind, root: Root) -> Self {
        let mut spec = root.spec.unwrap_or_default();
        // A CEL rule rejects a reference in both places, so the order does not matter.
        spec.backup_model_ref = spec.backup_model_ref.or(root.backup_model_ref);
        spec.database_refs = spec.database_refs.or(root.database_refs);
        spec.storage_refs = spec.storage_refs.or(root.storage_refs);
        let old = spec
            .backup_model_ref
            .as_ref()
            .and_then(|model| model.schedule.as_ref());
        let schedule = spec.schedule.clone().or_else(|| old.map(Schedule::from));
        Self {
            kind,
            spec,
            schedule,
        }
    }

    /// The databases to dump.
    pub(crate) fn databases(&self) -> &[Reference] {
        self.spec.database_refs.as_deref().unwrap_or_default()
    }

    /// The storages for the archive.
    pub(crate) fn storages(&self) -> &[Reference] {
        self.spec.storage_refs.as_deref().unwrap_or_default()
    }

    /// Returns the `BackupModel` name, if there is one.
    pub(crate) fn model(&self) -> Option<&str> {
        self.spec
            .backup_model_ref
            .as_ref()?
            .name
            .as_deref()
            .filter(|name| !name.is_empty())
    }

    /// Returns true if no new run may start.
    pub(crate) fn is_suspended(&self) -> bool {
        self.spec.suspend
            || self
                .schedule
                .as_ref()
                .is_some_and(|schedule| schedule.suspend)
    }
}

/// Properties that the first generation has beside `spec` and the second inside.
const REFERENCES: [&str; 3] = ["backupModelRef", "databaseRefs", "storageRefs"];

const SPEC_SCHEDULE: &str = "(has(self.spec) && has(self.spec.schedule))";
const ROOT_SCHEDULE: &str = "(has(self.backupModelRef) && has(self.backupModelRef.schedule))";
const MODEL_SCHEDULE: &str = "(has(self.spec) && has(self.spec.backupModelRef) \
     && has(self.spec.backupModelRef.schedule))";

/// Completes the schema of both kinds; the derive macro only knows `spec` and `status`.
fn both_generations(crd: Crd) -> Crd {
    let crd = crd
        .with_condition_columns()
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
    let crd = REFERENCES
        .iter()
        .fold(crd, |crd, name| {
            let rule = format!("!has(self.{name}) || !has(self.spec) || !has(self.spec.{name})");
            let message = format!("{name}: give it beside spec or inside spec, not both");
            crd.rule("", &rule, &message).set(
                name,
                "description",
                format!("Older place of spec.{name}."),
            )
        })
        .rule(
            "",
            &format!("!({SPEC_SCHEDULE} && ({ROOT_SCHEDULE} || {MODEL_SCHEDULE}))"),
            "schedule: give it in spec or in backupModelRef, not both",
        )
        // The Pods have no resourceClaims that the field could name.
        .remove("spec.resources", "claims")
        // A dump has no path.
        .remove("databaseRefs[]", "path")
        .remove("spec.databaseRefs[]", "path")
        .remove("spec.verify.databases[].databaseRef", "path");
    own_namespace(crd)
        // The deepest fields are below `spec.podTemplate.spec.affinity`.
        .truncate_descriptions_below(12)
}

/// Rejects variable names that the run depends on.
fn reserved_variables() -> serde_json::Value {
    json!([{
        "rule": "!(self.name in ['DOLLAR', 'HOME', 'TMPDIR', 'GOBACKUP_DIR', 'MODEL', 'STORAGES', \
                 'SECRETS', 'POD_UID', 'ARCHIVE_ID', 'ENC_PASSWORD']) && !self.name.matches('^(DB|ST|NT)[0-9]+_')",
        "message": "env: the name is reserved for the run; use another name",
        "messageExpression": "'env: the name ' + self.name + ' is reserved for the run; use another name'",
    }])
}

/// Adds the parent kinds to the manifest.
pub(crate) fn parents(manifest: Manifest) -> Manifest {
    let cron_backup = both_generations(Crd::for_kind::<Backup>())
        .edit(|crd| {
            crd["metadata"]["name"] = json!("cronbackups.gobackup.io");
            crd["spec"]["names"] = json!({
                "categories": ["innkeeper"],
                "kind": "CronBackup",
                "plural": "cronbackups",
                "shortNames": ["cbk"],
                "singular": "cronbackup",
            });
        })
        .edit_schema("", |root| {
            root.insert(
                "description".to_owned(),
                json!("A backup that gobackup makes by a schedule."),
            );
        })
        .rule(
            "",
            &format!("{SPEC_SCHEDULE} || {ROOT_SCHEDULE} || {MODEL_SCHEDULE}"),
            "schedule: a CronBackup needs one; set spec.schedule, or use a Backup, which runs once",
        );
    manifest
        .parent_with::<Backup>(both_generations)
        .parent_without_crd(ParentKind {
            group: "gobackup.io".to_owned(),
            version: "v1".to_owned(),
            kind: "CronBackup".to_owned(),
            plural: "cronbackups".to_owned(),
            scope: Scope::Namespaced,
        })
        .crd(cron_backup)
        .parent_with::<Restore>(|crd| {
            let crd = crd.remove("spec.resources", "claims");
            own_namespace(crd.remove("spec.overrides[].databaseRef", "path"))
                .with_condition_columns()
                .truncate_descriptions_below(12)
        })
        .parent_with::<Storage>(related::storage)
}
