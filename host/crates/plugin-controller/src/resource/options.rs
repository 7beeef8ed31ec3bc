//! The spec besides source and grants: parents, limits, signatures, rollout.

use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::forms::{
    DURATION_PATTERN, DurationBounds, NumberBounds, PERCENTAGE, PUBLIC_KEY, REVISION, SIZE_PATTERN,
    SizeBounds,
};

/// The required signatures of a component.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifySpec {
    /// Public keys in PEM format, for example cosign.pub. One valid signature by any of them is sufficient.
    #[schemars(length(min = 1, max = 8), inner(length(min = 1, max = 4096)))]
    #[x_kube(validation = Rule::new(format!("self.all(it, {})", PUBLIC_KEY.holds("it"))).message(PUBLIC_KEY.must()))]
    pub keys: Vec<String>,
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

pub(super) const MEMORY: SizeBounds = SizeBounds {
    min: "64Ki",
    max: "1Gi",
};
pub(super) const DEADLINE: DurationBounds = DurationBounds {
    min: "1ms",
    max: "30s",
};
pub(super) const OUTPUT: SizeBounds = SizeBounds {
    min: "1Ki",
    max: "64Mi",
};
/// The API server rejects larger objects.
pub(super) const OBJECT: SizeBounds = SizeBounds {
    min: "1Ki",
    max: "1536Ki",
};
pub(super) const CHILDREN: NumberBounds = NumberBounds {
    min: 1,
    max: 10_000,
};
pub(super) const LOGS: SizeBounds = SizeBounds {
    min: "1",
    max: "1Mi",
};
pub(super) const LOGS_PER_SECOND: SizeBounds = SizeBounds {
    min: "1",
    max: "16Mi",
};
pub(super) const HOST_CALLS: NumberBounds = NumberBounds {
    min: 1,
    max: 100_000,
};
pub(super) const HOST_CALL_BYTES: SizeBounds = SizeBounds {
    min: "1Ki",
    max: "256Mi",
};
pub(super) const CONCURRENCY: NumberBounds = NumberBounds { min: 1, max: 64 };
pub(super) const PASSES_PER_SECOND: NumberBounds = NumberBounds {
    min: 1,
    max: 100_000,
};
pub(super) const WRITES_PER_MINUTE: NumberBounds = NumberBounds { min: 1, max: 6_000 };

/// Resource limits of a plugin. Sizes are in bytes or end in Ki, Mi or Gi; durations end in ms, s, m or h.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LimitsSpec {
    /// Memory of one running instance, summed over its memories and tables; at most 1Gi.
    #[serde(default = "default_memory")]
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = MEMORY.rule())]
    pub memory: String,
    /// CPU time of one pass; at most 30s.
    #[serde(default = "default_deadline")]
    #[schemars(length(max = 16), regex(pattern = DURATION_PATTERN))]
    #[x_kube(validation = DEADLINE.rule())]
    pub deadline: String,
    /// One whole answer; at most 64Mi.
    #[serde(default = "default_output")]
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = OUTPUT.rule())]
    pub output: String,
    /// JSON text of one child, and of the parent's status; at most 1536Ki.
    #[serde(default = "default_object")]
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = OBJECT.rule())]
    pub object: String,
    /// Children of one parent.
    #[serde(default = "default_children")]
    #[schemars(range(min = CHILDREN.min, max = CHILDREN.max))]
    pub children: i32,
    /// Log text of one pass; at most 1Mi.
    #[serde(default = "default_logs")]
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = LOGS.rule())]
    pub logs: String,
    /// Log text per second over all passes; at most 16Mi.
    #[serde(default = "default_logs_per_second")]
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = LOGS_PER_SECOND.rule())]
    pub logs_per_second: String,
    /// Reads in one pass.
    #[serde(default = "default_host_calls")]
    #[schemars(range(min = HOST_CALLS.min, max = HOST_CALLS.max))]
    pub host_calls: i32,
    /// Total size of the objects that the reads of one pass return; at most 256Mi.
    #[serde(default = "default_host_call_bytes")]
    #[schemars(length(max = 16), regex(pattern = SIZE_PATTERN))]
    #[x_kube(validation = HOST_CALL_BYTES.rule())]
    pub host_call_bytes: String,
    /// Passes at the same time.
    #[serde(default = "default_concurrency")]
    #[schemars(range(min = CONCURRENCY.min, max = CONCURRENCY.max))]
    pub concurrency: i32,
    /// Passes per second.
    #[serde(default = "default_passes_per_second")]
    #[schemars(range(min = PASSES_PER_SECOND.min, max = PASSES_PER_SECOND.max))]
    pub passes_per_second: i32,
    /// Writes per minute for one parent.
    #[serde(default = "default_writes_per_minute")]
    #[schemars(range(min = WRITES_PER_MINUTE.min, max = WRITES_PER_MINUTE.max))]
    pub writes_per_minute: i32,
}

impl Default for LimitsSpec {
    fn default() -> Self {
        Self {
            memory: default_memory(),
            deadline: default_deadline(),
            output: default_output(),
            object: default_object(),
            children: default_children(),
            logs: default_logs(),
            logs_per_second: default_logs_per_second(),
            host_calls: default_host_calls(),
            host_call_bytes: default_host_call_bytes(),
            concurrency: default_concurrency(),
            passes_per_second: default_passes_per_second(),
            writes_per_minute: default_writes_per_minute(),
        }
    }
}

fn default_memory() -> String {
    "64Mi".to_owned()
}

fn default_deadline() -> String {
    "250ms".to_owned()
}

fn default_output() -> String {
    "4Mi".to_owned()
}

fn default_object() -> String {
    "1Mi".to_owned()
}

const fn default_children() -> i32 {
    256
}

fn default_logs() -> String {
    "16Ki".to_owned()
}

fn default_logs_per_second() -> String {
    "64Ki".to_owned()
}

const fn default_host_calls() -> i32 {
    1000
}

fn default_host_call_bytes() -> String {
    "16Mi".to_owned()
}

const fn default_concurrency() -> i32 {
    4
}

const fn default_passes_per_second() -> i32 {
    10_000
}

const fn default_writes_per_minute() -> i32 {
    120
}

/// The replacement of the active revision by a new one.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RolloutSpec {
    /// Immediate activates a new revision after its dry run; Gated waits until `approve` names it.
    ///
    /// In both modes, a revision that would delete more children than maxPrunes allows waits for approval.
    #[serde(default)]
    pub mode: RolloutMode,
    /// Rolls back to the last good revision when too many of the first passes of a new one end in a fault.
    #[serde(default = "default_auto_rollback")]
    pub auto_rollback: bool,
    /// The largest number of children that a new revision may delete without approval: a number, or a percentage of all
    /// children of the plugin. A percentage always allows at least 10.
    #[serde(default = "default_max_prunes")]
    #[x_kube(
        validation = Rule::new(
            // A number is equal to its own text as a number, a string never is.
            format!(
                "string(self).matches('^[0-9]{{1,9}}$') ? self == int(string(self)) : {}",
                PERCENTAGE.holds("string(self)")
            )
        )
        .message(PERCENTAGE.must())
    )]
    pub max_prunes: IntOrString,
    /// The approved revision, as named in status.candidate.revision. Required with mode Gated, and for a revision that
    /// would delete more children than maxPrunes allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = REVISION.rule())]
    pub approve: Option<String>,
}

impl Default for RolloutSpec {
    fn default() -> Self {
        Self {
            mode: RolloutMode::default(),
            auto_rollback: default_auto_rollback(),
            max_prunes: default_max_prunes(),
            approve: None,
        }
    }
}

const fn default_auto_rollback() -> bool {
    true
}

fn default_max_prunes() -> IntOrString {
    IntOrString::String("20%".to_owned())
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
