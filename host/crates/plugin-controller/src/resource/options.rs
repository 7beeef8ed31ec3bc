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

/// The required signatures of a component, and the identity of the signed component.
///
/// With a name or a repository, the signature also replaces the verb `grant` for a change of source and digest.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct VerifySpec {
    /// Public keys in PEM format, for example cosign.pub. One valid signature by any of them is sufficient.
    #[schemars(length(min = 1, max = 8), inner(length(min = 1, max = 4096)))]
    #[x_kube(validation = PUBLIC_KEY.rule_for_all())]
    pub keys: Vec<String>,
    /// The registry and repository that the signature has to name, such as `registry.example/plugins/memcached`.
    ///
    /// Signatures in cosign's simple form name it, as `innkeeper sign` makes them; bundles and files beside a plugin do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub repository: Option<String>,
    /// The name that the component has to give itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = NAME.rule())]
    pub name: Option<String>,
    /// The lowest semantic version that the component may give itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = VERSION.rule())]
    pub min_version: Option<String>,
}

/// Selectors for the parents of the granted kinds. A parent must match both selectors.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ParentsSpec {
    /// Selects parents by the labels of their namespace. It does not apply to parents of cluster-scoped kinds.
    ///
    /// The host needs permission to get, list and watch namespaces for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Selects parents by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// The handling of the plugin's CustomResourceDefinitions.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crds {
    /// Install and maintain the granted definitions that the plugin brings.
    #[default]
    Install,
    /// Do not install definitions; compatible ones must already exist.
    Ignore,
}

/// Resource limits of a plugin. Sizes are in bytes or end in Ki, Mi or Gi; durations end in ms, s, m or h.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default = "LimitsSpec::default")]
pub struct LimitsSpec {
    /// Memory of one running instance, summed over its memories and tables; at most 1Gi, and at most half of the memory that
    /// the host has for all guests.
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = sizes("64Ki", "1Gi"))]
    pub memory: String,
    /// CPU time of one pass; at most 30s. Plugins with more than 1s, and those whose last call exceeded its deadline, share
    /// all guest threads of the host but one. Those with more than 1s share half of the memory for guests.
    #[schemars(length(max = 16), regex(pattern = DURATION_PATTERN))]
    #[x_kube(validation = durations("1ms", "30s"))]
    pub deadline: String,
    /// One whole answer; at most 64Mi.
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = sizes("1Ki", "64Mi"))]
    pub output: String,
    /// JSON text of one child, and of the parent's status; at most 1536Ki.
    // The API server rejects larger objects. The other bounds have no external reason: they keep a typing error from
    // taking the host's memory or time.
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = sizes("1Ki", "1536Ki"))]
    pub object: String,
    /// Children of one parent.
    #[schemars(range(min = 1, max = 10_000))]
    pub children: i32,
    /// Log text of one pass; at most 1Mi.
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = sizes("1", "1Mi"))]
    pub logs: String,
    /// Log text per second over all passes; at most 16Mi.
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = sizes("1", "16Mi"))]
    pub logs_per_second: String,
    /// Reads in one pass.
    #[schemars(range(min = 1, max = 100_000))]
    pub host_calls: i32,
    /// Total size of the objects that the reads of one pass return; at most 256Mi.
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = sizes("1Ki", "256Mi"))]
    pub host_call_bytes: String,
    /// Passes at the same time.
    #[schemars(range(min = 1, max = 64))]
    pub concurrency: i32,
    /// Passes per second.
    #[schemars(range(min = 1, max = 100_000))]
    pub passes_per_second: i32,
    /// Writes per minute for one parent.
    #[schemars(range(min = 1, max = 6_000))]
    pub writes_per_minute: i32,
    /// Writes per second for all parents of one namespace, or for all cluster-scoped ones. A namespace saves up the unused
    /// writes of 100 seconds.
    #[schemars(range(min = 1, max = 10_000))]
    pub writes_per_second: i32,
    /// Children in one namespace, or cluster-scoped ones.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub objects_per_namespace: i32,
    /// Children in one namespace that are parents of the same plugin, or cluster-scoped ones.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub nested_parents_per_namespace: i32,
    /// JSON text of all children in one namespace, or of all cluster-scoped ones; at most 16Gi.
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = sizes("1Ki", "16Gi"))]
    pub bytes_per_namespace: String,
    /// Children that one parent retains.
    #[schemars(range(min = 0, max = 10_000))]
    pub retained: i32,
}

impl Default for LimitsSpec {
    fn default() -> Self {
        Self::of(&Limits::default())
    }
}

/// The replacement of the active revision by a new one.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default = "RolloutSpec::default")]
pub struct RolloutSpec {
    /// Immediate activates a new revision after its dry run; Gated waits until `approve` names it.
    ///
    /// In both modes, a revision that would delete more children than maxPrunes allows waits for approval.
    pub mode: RolloutMode,
    /// Rolls back to the last good revision when too many of the first passes of a new one end in a fault.
    pub auto_rollback: bool,
    /// The largest number of children that a new revision may delete without approval: a number, or a percentage of all
    /// children of the plugin. A percentage always allows at least 10.
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
    /// The approved revision, as named in status.candidate.revision. Required with mode Gated, and for a revision that
    /// would delete more children than maxPrunes allows.
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

/// The condition for activating a new revision.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RolloutMode {
    /// Activate it after its dry run.
    #[default]
    Immediate,
    /// Activate it when `approve` names it.
    Gated,
}
