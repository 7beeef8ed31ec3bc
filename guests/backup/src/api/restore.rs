//! The API of `Restore`.

use innkeeper_kit::prelude::*;
use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceRequirements};

use super::{Reference, RunUser, RunWith, Volume, Work};
use crate::status::{Phase, Remarks};

/// Specification.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "gobackup.io",
    version = "v1",
    kind = "Restore",
    plural = "restores",
    category = "innkeeper",
    namespaced,
    status = "RestoreStatus",
    doc = "One restoration of databases or files from an archive of a Backup or CronBackup.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "File", type_ = "string", json_path = ".status.file"),
    // The Secret is called `<name>-restore-gobackup`, and a label has at most 63 characters.
    validation = Rule::new("self.metadata.name.size() <= 50")
        .message("metadata.name must be at most 50 characters")
)]
#[x_kube(
    validation = Rule::new("self == oldSelf")
        .message("spec is immutable: create another Restore")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RestoreSpec {
    /// Parent that stored the archive.
    pub(crate) backup_ref: BackupReference,
    /// Storage with the archive, a name in the parent's storageRefs. Default: the first.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) storage: Option<String>,
    /// Archive in the storage, or latest: the newest successful run's archive, according to the parent's status.
    #[serde(default = "latest")]
    #[schemars(
        length(min = 1, max = 512),
        regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")
    )]
    pub(crate) file: String,
    /// Databases to restore, names in the parent's databaseRefs. Default: all. Empty: none.
    #[schemars(length(max = 64))]
    pub(crate) databases: Option<Vec<String>>,
    /// Other databases to restore dumps into.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub(crate) overrides: Vec<Override>,
    /// Files to restore. Default: none.
    pub(crate) archive: Option<RestoredFiles>,
    /// Databases to overwrite, sorted and separated by commas.
    #[schemars(length(max = 16384))]
    pub(crate) confirm: Option<String>,
    /// Volumes into which files are restored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub(crate) volumes: Vec<Volume>,
    /// Volume for the archive and its content. Default: an emptyDir on the node's disk.
    pub(crate) work: Option<Work>,
    /// Image with the database clients. Default: the parent's.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = image::is_reference())]
    pub(crate) image: Option<String>,
    /// Image with rclone, which fetches the archive. Default: from the plugin's configuration.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = image::is_reference())]
    pub(crate) transfer_image: Option<String>,
    /// Secrets for pulling the images. Default: from the plugin's configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub(crate) image_pull_secrets: Vec<LocalObjectReference>,
    /// Requests and limits of both containers. Default: from the plugin's configuration, else requests of cpu 100m and
    /// memory 128Mi.
    pub(crate) resources: Option<ResourceRequirements>,
    /// User and groups. Default: the parent's.
    pub(crate) security_context: Option<RunUser>,
    /// Additional Pod labels and annotations, and Pod placement.
    pub(crate) pod_template: Option<PodTemplate>,
    /// Pods that use the volumes: the Pod is placed on their node, as ReadWriteOnce claims need it.
    pub(crate) run_with: Option<RunWith>,
    /// Maximum duration in seconds. A failed restoration is not retried.
    #[serde(default = "deadline")]
    #[schemars(range(min = 1))]
    pub(crate) active_deadline_seconds: i64,
}

/// `file` for the newest archive.
pub(crate) const LATEST: &str = "latest";

fn latest() -> String {
    LATEST.to_owned()
}

pub(crate) const fn deadline() -> i64 {
    21600
}

impl RestoreSpec {
    /// Returns the additional Pod labels and annotations.
    pub(crate) fn pod_metadata(&self) -> Option<&PodMetadata> {
        self.pod_template.as_ref()?.metadata.as_ref()
    }
}

/// Reference to a Backup or CronBackup.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackupReference {
    /// Parent kind.
    #[serde(default)]
    pub(crate) kind: BackupKind,
    /// Parent name, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
}

impl BackupReference {
    /// Returns the parent as the one that names the claim with its archives.
    pub(crate) const fn claimant<'a>(&'a self, namespace: &'a str) -> Claimant<'a> {
        Claimant {
            group: "gobackup.io",
            kind: self.kind.as_str(),
            namespace,
            name: self.name.as_str(),
            uid: None,
        }
    }
}

/// A parent kind with archives.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BackupKind {
    /// A Backup.
    #[default]
    Backup,
    /// A CronBackup.
    CronBackup,
}

impl BackupKind {
    /// Returns the kind's name.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Backup => "Backup",
            Self::CronBackup => "CronBackup",
        }
    }
}

/// Another target for a dump.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Override {
    /// Dumped database, a name in the parent's databaseRefs.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) database: String,
    /// Database to restore the dump into. It has the same type.
    pub(crate) database_ref: Reference,
}

/// Archive verification.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Verify {
    /// Days between verified archives. After a failure, the next archive is verified.
    #[serde(default = "week")]
    #[schemars(range(min = 1, max = 365))]
    pub(crate) every_days: i64,
    /// Scratch databases for the dumps. Their content is replaced, so their objects need the annotation
    /// gobackup.io/scratch with the value true. A dump without one is unpacked and not restored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub(crate) databases: Vec<Override>,
    /// Image with rclone, which fetches the archive. Default: from the plugin's configuration.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = image::is_reference())]
    pub(crate) transfer_image: Option<String>,
}

const fn week() -> i64 {
    7
}

/// Files to restore.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RestoredFiles {
    /// Absolute path of a directory inside a writable mount in spec.volumes, below which the files get their absolute
    /// paths from the archive.
    #[schemars(length(min = 2, max = 512), regex(pattern = r"^/[^:]+$"))]
    pub(crate) target_path: String,
}

/// Observed state of the restoration.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RestoreStatus {
    /// Phase. Succeeded and Failed are final.
    pub(crate) phase: Phase,
    /// Archive name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    /// Job name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) job_name: Option<String>,
    /// Start time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) start_time: Option<String>,
    /// Completion time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) completion_time: Option<String>,
    /// The restored databases by their names, and `files`.
    pub(crate) restored: Vec<String>,
    /// The result, or the last log lines of a failed restoration; at most 1024 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// Generation that this status describes.
    pub(crate) observed_generation: i64,
    /// What a successful restoration could not do, such as keep file owners.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Remarks,
}
