//! The Plugin resource: an administrator writes the spec to run a plugin, and the host writes the status.
//!
//! The types here make the CustomResourceDefinition, with documentation, defaults and rules. [`Plugin::declared`]
//! checks every rule again, because a cluster's definition may be older than the host, and converts a spec for the rest
//! of the host. It fetches, loads and writes nothing.
#![expect(
    unreachable_pub,
    reason = "the derive of a schema makes copies of the types that have no public path"
)]

mod access;
mod convert;
mod crd;
mod file;
mod forms;
mod identity;
mod lines;
mod options;
mod source;
mod status;
mod terms;
#[cfg(test)]
mod tests;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Map, Value};

pub use access::{
    ChildAccess, CrdAccess, GrantsSpec, ParentAccess, PodSecurityLevel, ReadAccess, ReadForm,
    ReadPlace, ServiceAccountRef,
};
pub use convert::{Declared, Origin};
pub use crd::{NAME as CRD_NAME, crd, missing_field};
pub use file::{file_of_grants, grants_of_file};
pub use identity::Identity;
pub use lines::lines;
pub use options::{Crds, LimitsSpec, ParentsSpec, RolloutMode, RolloutSpec, VerifySpec};
pub use source::{
    ConfigMapSource, FileSource, HttpSource, LocalRef, OciSource, PullPolicy, SourceSpec,
};
pub use status::{
    CandidateCounts, CandidateFault, CandidateStatus, CandidateVerdict, ChildKindStatus,
    FaultReason, Faults, HistoryEntry, HistoryVerdict, LAST_FAULTS_MAX, LimitUsage, ObjectName,
    Parents, PluginStatus, number, revision_name, whole_seconds,
};
pub use terms::Terms;

use innkeeper_crd as schema;
use innkeeper_model::Object;

use forms::{DIGEST, FIELD_MANAGER, RESERVED_MANAGER};

/// The resource's API group.
pub const GROUP: &str = "innkeeper.dev";

/// Returns true if a Plugin has granted parents, even if the spec is invalid otherwise. Only such Plugins can serve,
/// and only users who may grant can create them.
pub(crate) fn has_granted_parents(plugin: &Object) -> bool {
    #[derive(Default, Deserialize)]
    struct PluginOnly {
        #[serde(default)]
        spec: SpecOnly,
    }
    #[derive(Default, Deserialize)]
    struct SpecOnly {
        #[serde(default)]
        grants: GrantsOnly,
    }
    #[derive(Default, Deserialize)]
    struct GrantsOnly {
        #[serde(default)]
        parents: Vec<IgnoredAny>,
    }
    // Not as a `Plugin`, which one invalid field would make unreadable.
    let plugin: PluginOnly = serde_json::from_str(&plugin.json).unwrap_or_default();
    !plugin.spec.grants.parents.is_empty()
}

/// An unusable Plugin resource.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is no Plugin resource.
    #[error("failed to read the Plugin resource")]
    Read(#[source] serde_path_to_error::Error<serde_json::Error>),
    /// A field, or a grants file, breaks a rule.
    #[error("{path} {problem}")]
    Field {
        /// The field's path, or `the grants`.
        path: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// The host's CustomResourceDefinition is broken.
    #[error("failed to compile the CustomResourceDefinition plugins.innkeeper.dev")]
    Definition(#[source] &'static schema::Error),
}

impl Error {
    fn field(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field {
            path: path.into(),
            problem: problem.into(),
        }
    }
}

/// The plugin to run, its permissions and its limits.
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
    doc = "A reconciler that the host runs, with its component's source, permissions and resource limits.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "True while the declared revision is active and passes run."
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Reason of the Ready condition."
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.version",
        description = "Version of the active component."
    ),
    printcolumn(
        name = "Parents",
        type_ = "integer",
        json_path = ".status.parents.total",
        description = "Number of selected parents."
    ),
    printcolumn(
        name = "Revision",
        type_ = "string",
        json_path = ".status.revision",
        description = "Active revision.",
        priority = 1
    ),
    printcolumn(
        name = "Faults",
        type_ = "integer",
        json_path = ".status.faults.count",
        description = "Failed passes of the active revision.",
        priority = 1
    ),
    printcolumn(
        name = "Serving",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Serving\")].status",
        description = "True while passes run.",
        priority = 1
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
    /// Referenced Secrets and ConfigMaps must be in the host's namespace.
    pub source: SourceSpec,
    /// The component's SHA-256, as `sha256:` and 64 hexadecimal digits, for any source.
    ///
    /// The host does not load bytes with another digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    #[x_kube(validation = DIGEST.rule())]
    pub digest: Option<String>,
    /// Required signatures. When absent, signatures are not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifySpec>,
    /// The field manager for children, to take over from another controller. Default: `innkeeper:` and the Plugin's
    /// name.
    ///
    /// Stop the other controller first: two controllers with one field manager remove each other's fields. The first
    /// server-side apply removes fields that were applied under this name before and that the plugin does not set;
    /// fields that were written by update or patch stay.
    ///
    /// A changed name applies every child again. The old name keeps its fields: one that the plugin no longer sets
    /// stays until a user removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(
        validation = FIELD_MANAGER.rule(),
        validation = Rule::new(format!("!self.startsWith('{RESERVED_MANAGER}')"))
            .message("must not begin with innkeeper:, which is the host's own")
    )]
    pub field_manager: Option<String>,
    /// Which parents to serve. Default: all parents of the granted kinds.
    ///
    /// A parent that is no longer selected keeps its children, gets Synced=Unknown with the reason NotSelected, and
    /// loses the plugin's finalizer, so the garbage collector deletes its children with it. Parents that were never
    /// selected are not touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parents: Option<ParentsSpec>,
    /// What the plugin may do. Default: nothing.
    ///
    /// Setting grants requires the verb `grant` on plugins.innkeeper.dev. So does changing any other field of a Plugin
    /// with grants, except suspend. If spec.verify has keys, minVersion, and a name or a repository, source and digest
    /// can change without the verb. The chart's policy enforces this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<GrantsSpec>,
    /// Resource limits. Changes apply at once, to every revision.
    #[serde(default)]
    pub limits: LimitsSpec,
    /// The plugin's configuration. Must match the schema that the plugin declares.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "crd::any_object")]
    pub config: Map<String, Value>,
    /// Install: the host installs and updates the plugin's granted CustomResourceDefinitions. Ignore: it does not.
    #[serde(default)]
    pub crds: Crds,
    /// How a new revision replaces the active one.
    #[serde(default)]
    pub rollout: RolloutSpec,
    /// Stops all passes. Watches stay open, and parents show Synced=Unknown. Does not require the verb `grant`.
    #[serde(default)]
    pub suspend: bool,
}

impl Plugin {
    /// Reads a Plugin resource from JSON text.
    pub fn read(text: &str) -> Result<Self, Error> {
        let mut reader = serde_json::Deserializer::from_str(text);
        serde_path_to_error::deserialize(&mut reader).map_err(Error::Read)
    }
}
