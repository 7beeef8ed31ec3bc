//! The spec besides source and grants: parents, limits, signatures, rollout.

use innkeeper_model::Limits;
use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::forms::{
    DURATION_PATTERN, NAME, PERCENTAGE, PUBLIC_KEY, REVISION, SIZE_PATTERN, VERSION, durations,
    sizes,
};

/// Required signatures, and the signed component's identity.
///
/// With minVersion, and a name or a repository, source and digest can change without the verb `grant`.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct VerifySpec {
    /// Public keys in PEM format. A valid signature by any one is sufficient.
    #[schemars(length(min = 1, max = 8), inner(length(min = 1, max = 4096)))]
    #[x_kube(validation = PUBLIC_KEY.rule_for_all())]
    pub keys: Vec<String>,
    /// The registry and repository that the signature must name, such as `registry.example/plugins/memcached`. Simple
    /// cosign signatures and those by `innkeeper sign` name it; bundles and detached signature files do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub repository: Option<String>,
    /// The name that the component must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = NAME.rule())]
    pub name: Option<String>,
    /// The lowest semantic version that the component may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = VERSION.rule())]
    pub min_version: Option<String>,
}

/// Selectors for parents. A parent must match both.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ParentsSpec {
    /// Selects parents by namespace labels. Does not apply to cluster-scoped parents.
    ///
    /// The host needs permission to get, list and watch namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Selects parents by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// Whether the host installs the plugin's CustomResourceDefinitions.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crds {
    /// Install and update the granted definitions that the plugin contains.
    #[default]
    Install,
    /// Do not install definitions; compatible ones must already exist.
    Ignore,
}

/// Resource limits. Sizes are in bytes or end in Ki, Mi or Gi; durations end in ms, s, m or h.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default = "LimitsSpec::default")]
pub struct LimitsSpec {
    /// Memory of one running instance, including tables; at most 1Gi, and at most half of the host's memory for all guests.
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = sizes("64Ki", "1Gi"))]
    pub memory: String,
    /// CPU time per pass; at most 30s. Plugins with more than 1s, and plugins whose last call exceeded the deadline, share
    /// all guest threads but one. Plugins with more than 1s also share half of the guest memory.
    #[schemars(length(max = 16), regex(pattern = DURATION_PATTERN))]
    #[x_kube(validation = durations("1ms", "30s"))]
    pub deadline: String,
    /// Size of one answer; at most 64Mi.
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = sizes("1Ki", "64Mi"))]
    pub output: String,
    /// JSON size of one child, and of the parent's status; at most 1536Ki.
    // The API server rejects larger objects. The other bounds have no external reason: they keep a typing error from
    // taking the host's memory or time.
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = sizes("1Ki", "1536Ki"))]
    pub object: String,
    /// Children per parent.
    #[schemars(range(min = 1, max = 10_000))]
    pub children: i32,
    /// Log size per pass; at most 1Mi.
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = sizes("1", "1Mi"))]
    pub logs: String,
    /// Log size per second, all passes together; at most 16Mi.
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = sizes("1", "16Mi"))]
    pub logs_per_second: String,
    /// Reads per pass.
    #[schemars(range(min = 1, max = 100_000))]
    pub host_calls: i32,
    /// Total size of objects returned by one pass's reads; at most 256Mi.
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = sizes("1Ki", "256Mi"))]
    pub host_call_bytes: String,
    /// Concurrent passes.
    #[schemars(range(min = 1, max = 64))]
    pub concurrency: i32,
    /// Passes per second.
    #[schemars(range(min = 1, max = 100_000))]
    pub passes_per_second: i32,
    /// Writes per minute and parent.
    #[schemars(range(min = 1, max = 6_000))]
    pub writes_per_minute: i32,
    /// Writes per second and namespace, or for all cluster-scoped parents. Unused writes accumulate for 100 seconds.
    #[schemars(range(min = 1, max = 10_000))]
    pub writes_per_second: i32,
    /// Children per namespace, or cluster-scoped ones.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub objects_per_namespace: i32,
    /// Children per namespace (or cluster-scoped) that are themselves parents of this plugin.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub nested_parents_per_namespace: i32,
    /// JSON size of all children per namespace, or of all cluster-scoped ones; at most 16Gi.
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = sizes("1Ki", "16Gi"))]
    pub bytes_per_namespace: String,
    /// Retained children per parent.
    #[schemars(range(min = 0, max = 10_000))]
    pub retained: i32,
}

impl Default for LimitsSpec {
    fn default() -> Self {
        Self::from_limits(&Limits::default())
    }
}

/// How a new revision replaces the active one.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default = "RolloutSpec::default")]
pub struct RolloutSpec {
    /// Immediate: activate a new revision after the dry run. Gated: wait until `approve` names it.
    pub mode: RolloutMode,
    /// Roll back to the last good revision if too many first passes of a new one fail.
    pub auto_rollback: bool,
    /// How many children a new revision may delete without approval: a number, or a percentage of the plugin's children. A
    /// percentage always allows at least 10.
    #[x_kube(
        validation = Rule::new(
            // A number is equal to its own text as a number, a string never is.
            format!(
                "string(self).matches('^[0-9]{{1,9}}$') ? self == int(string(self)) : {}",
                PERCENTAGE.holds("string(self)")
            )
        )
        .message(PERCENTAGE.must)
    )]
    pub max_prunes: IntOrString,
    /// The approved revision, from status.candidate.revision. Required with mode Gated, and for a revision that would
    /// delete more than maxPrunes children.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = REVISION.rule())]
    pub approve: Option<String>,
}

impl Default for RolloutSpec {
    fn default() -> Self {
        Self {
            mode: RolloutMode::default(),
            auto_rollback: true,
            max_prunes: IntOrString::String("20%".to_owned()),
            approve: None,
        }
    }
}

/// When a new revision is activated.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RolloutMode {
    /// After the dry run.
    #[default]
    Immediate,
    /// When `approve` names it.
    Gated,
}
