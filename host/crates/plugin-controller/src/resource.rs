//! The Plugin resource: an administrator writes its spec to run a plugin, and the host writes its status.
//!
//! The types here make the CustomResourceDefinition, with its documentation, defaults and rules. [`Plugin::declared`]
//! converts a spec for the rest of the host and checks every rule again, because a definition in a cluster
//! may be older than the host.
//! It fetches, loads and writes nothing.
#![expect(
    unreachable_pub,
    reason = "the derive of a schema makes copies of the types that nobody can name"
)]

mod access;
mod charter;
mod convert;
mod crd;
mod file;
mod forms;
mod lines;
mod options;
mod source;
mod status;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use access::{
    ChildAccess, CrdAccess, GrantsSpec, ParentAccess, ReadAccess, ReadForm, ReadPlace,
    ServiceAccountRef,
};
pub use charter::{Charter, PruneBudget, Rollout, ServiceAccount};
pub use convert::{Declared, Origin};
pub use crd::{NAME as CRD_NAME, crd};
pub use file::grants_of_file;
pub use lines::lines;
pub use options::{Crds, LimitsSpec, ParentsSpec, RolloutMode, RolloutSpec, VerifySpec};
pub use source::{
    ConfigMapSource, FileSource, HttpSource, LocalRef, OciSource, PullPolicy, SourceSpec,
};
pub use status::{
    Candidate, CandidateVerdict, ChildKindStatus, Counts, FaultReason, Faults, HistoryEntry,
    HistoryVerdict, LAST_FAULTS_MAX, LimitsStatus, ObjectName, Parents, PluginStatus, number,
    revision_name, whole_seconds,
};

use innkeeper_schema as schema;

use forms::{DIGEST, FIELD_MANAGER, RESERVED_MANAGER};

/// The API group of the resource.
pub const GROUP: &str = "innkeeper.dev";

/// An unusable Plugin resource.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is no Plugin resource.
    #[error("failed to read the Plugin resource")]
    Read(#[source] serde_path_to_error::Error<serde_json::Error>),
    /// A field breaks a rule.
    #[error("{path} {problem}")]
    Field {
        /// The path of the field.
        path: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// A file of grants is broken.
    #[error("the grants {problem}")]
    File {
        /// The problem, its place, and the remedy.
        problem: String,
    },
    /// The CustomResourceDefinition of the host is broken.
    #[error("failed to compile the CustomResourceDefinition plugins.innkeeper.dev")]
    Definition(#[source] Box<schema::Error>),
}

impl Error {
    fn field(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field {
            path: path.into(),
            problem: problem.into(),
        }
    }
}

/// What to serve, and how.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "innkeeper.dev",
    version = "v1alpha1",
    kind = "Plugin",
    plural = "plugins",
    shortname = "plg",
    category = "innkeeper",
    status = "PluginStatus",
    derive = "PartialEq",
    doc = "A reconciler that the host serves: where its component comes from, what it may do, and what it may use.",
    printcolumn(
        name = "Revision",
        type_ = "string",
        json_path = ".status.revision",
        description = "The revision that serves."
    ),
    printcolumn(
        name = "Parents",
        type_ = "integer",
        json_path = ".status.parents.total",
        description = "Parents that it is served for."
    ),
    printcolumn(
        name = "Faults",
        type_ = "integer",
        json_path = ".status.faults.count",
        description = "Passes of the serving revision that ended in a fault."
    ),
    printcolumn(
        name = "Serving",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Serving\")].status",
        description = "Whether passes run."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    validation = Rule::new(
        "self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')"
    )
    .message(
        "metadata.name must be at most 40 lower-case letters, digits and dashes, starting and ending with a letter or digit"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct PluginSpec {
    /// Where the component comes from: exactly one of oci, http, configMap and file.
    ///
    /// Secrets and ConfigMaps that it names live in the host's namespace.
    pub source: SourceSpec,
    /// The SHA-256 of the component's bytes, as `sha256:` and 64 hexadecimal digits, for every source.
    ///
    /// Bytes of another digest are not loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    #[x_kube(validation = DIGEST.rule())]
    pub digest: Option<String>,
    /// Who must have signed the component; without it signatures are not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifySpec>,
    /// The field manager of the children, to continue what another one has applied; `innkeeper:` and the name of the
    /// Plugin when absent.
    ///
    /// Of what was applied (server-side) under this name before, the fields that the plugin does not state go with the
    /// first apply, and all others stay: stop the other one first, because two that apply under one name take away each
    /// other's fields. What it wrote by update or patch is not continued: the plugin overwrites what it states, and the
    /// rest stays.
    ///
    /// With another name every child is applied once more. Nothing else changes, but what was applied under the former
    /// name stays owned by it: a field that the plugin states no more stays until somebody takes it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(
        validation = FIELD_MANAGER.rule(),
        validation = Rule::new(format!("!self.startsWith('{RESERVED_MANAGER}')"))
            .message("must not begin with innkeeper:, which is the host's own")
    )]
    pub field_manager: Option<String>,
    /// Which parents are served; all of the granted kinds when absent.
    ///
    /// A parent that leaves the selection keeps its children as they are, loses the plugin's finalizer, so that its
    /// deletion is the garbage collector's, and says Synced=Unknown with the reason NotSelected; one that never was in
    /// it is not touched. When it comes back, the plugin goes on where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parents: Option<ParentsSpec>,
    /// What the plugin may do; nothing when absent.
    ///
    /// Setting or changing it takes the verb `grant` on plugins.innkeeper.dev.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<GrantsSpec>,
    /// What the plugin may use. Limits bind every revision at once.
    #[serde(default)]
    pub limits: LimitsSpec,
    /// The plugin's configuration, which has to fit the schema that the plugin declares.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "crd::any_object")]
    pub config: Map<String, Value>,
    /// Whether CustomResourceDefinitions that the plugin brings are installed.
    #[serde(default)]
    pub crds: Crds,
    /// How a new revision replaces the one that serves.
    #[serde(default)]
    pub rollout: RolloutSpec,
    /// Stops all passes of the plugin; its watches stay.
    #[serde(default)]
    pub suspend: bool,
}

impl Plugin {
    /// Reads the JSON text of a Plugin resource.
    pub fn read(text: &str) -> Result<Self, Error> {
        let mut reader = serde_json::Deserializer::from_str(text);
        serde_path_to_error::deserialize(&mut reader).map_err(Error::Read)
    }

    /// Returns the creation time, which the API server sets on every object.
    pub fn created(&self) -> Timestamp {
        let created = self.metadata.creation_timestamp.as_ref();
        created.map_or(Timestamp::MAX, |created| created.0)
    }
}
