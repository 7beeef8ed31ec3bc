//! PodDisruptionBudgets: the parent's field with CEL rules, and the child.
//!
//! With the rules in CEL, the API server refuses a parent whose budget would be an invalid child, or would block
//! every node drain.

#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function"
)]

use std::collections::BTreeMap;

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use kube::core::Rule;
use serde::{Deserialize, Serialize};

use crate::labels;

/// The message of the rules against budgets that block every eviction.
pub const BLOCKS_EVICTIONS: &str = "podDisruptionBudget would block every eviction";

/// Limits for voluntary disruptions, such as node drains; the field `podDisruptionBudget` of a
/// parent.
///
/// Off unless the user enables it, and then with exactly one of the two numbers.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("!self.enabled || has(self.minAvailable) != has(self.maxUnavailable)")
        .message("podDisruptionBudget needs exactly one of minAvailable and maxUnavailable"),
    validation = Rule::new(
        "!has(self.maxUnavailable) || !(string(self.maxUnavailable) in ['0', '0%'])"
    )
    .message(BLOCKS_EVICTIONS),
    validation = Rule::new(
        // Only a number equals the number that the text contains.
        "(!has(self.minAvailable) || (string(self.minAvailable).matches('^[0-9]{1,9}$') \
         ? self.minAvailable == int(string(self.minAvailable)) \
         : string(self.minAvailable).matches('^(100|[1-9]?[0-9])%$'))) \
         && (!has(self.maxUnavailable) || (string(self.maxUnavailable).matches('^[0-9]{1,9}$') \
         ? self.maxUnavailable == int(string(self.maxUnavailable)) \
         : string(self.maxUnavailable).matches('^(100|[1-9]?[0-9])%$')))"
    )
    .message("minAvailable and maxUnavailable must be a number or a percentage")
)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionBudget {
    /// Creates the budget; false when absent.
    #[serde(default)]
    pub enabled: bool,
    /// Pods that must stay available, as a number or a percentage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_available: Option<IntOrString>,
    /// Pods that may be unavailable at the same time, as a number or a percentage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

impl DisruptionBudget {
    /// Returns the child for the Pods with these labels, if the budget is enabled.
    ///
    /// Unready Pods may always be evicted, because a crashing workload must not block a node drain.
    ///
    /// ```
    /// use innkeeper_kit::{budget::DisruptionBudget, labels::base_labels};
    /// use innkeeper_sdk::child::metadata;
    ///
    /// let given: DisruptionBudget =
    ///     serde_json::from_str(r#"{"enabled": true, "maxUnavailable": 1}"#).unwrap();
    /// let labels = base_labels("memcached", "example", "cache");
    /// let child = given.object(metadata("example", &labels), &labels).unwrap();
    /// let spec = child.spec.unwrap();
    /// assert_eq!(spec.unhealthy_pod_eviction_policy.as_deref(), Some("AlwaysAllow"));
    /// ```
    pub fn object(
        &self,
        metadata: ObjectMeta,
        selector: &BTreeMap<String, String>,
    ) -> Option<PodDisruptionBudget> {
        self.enabled.then(|| PodDisruptionBudget {
            metadata,
            spec: Some(PodDisruptionBudgetSpec {
                min_available: self.min_available.clone(),
                max_unavailable: self.max_unavailable.clone(),
                selector: Some(labels::label_selector(selector)),
                unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            }),
            ..PodDisruptionBudget::default()
        })
    }
}

/// Requires a number in `minAvailable` below the replica count; for the schema with both fields.
///
/// `budget` is the path from there to the [`DisruptionBudget`], and `replicas` the replica field, 1 when absent.
/// Zero replicas pass, so that a parent can be paused with a budget.
///
/// ```
/// use innkeeper_kit::budget::{self, DisruptionBudget};
/// use kube::KubeSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(KubeSchema, Serialize, Deserialize)]
/// #[serde(rename_all = "camelCase")]
/// #[x_kube(
///     validation = budget::below_replicas("podDisruptionBudget", "replicas"),
///     validation = budget::allows_evictions("podDisruptionBudget", "replicas")
/// )]
/// struct WebSpec {
///     replicas: Option<i32>,
///     pod_disruption_budget: Option<DisruptionBudget>,
/// }
/// ```
pub fn below_replicas(budget: &str, replicas: &str) -> Rule {
    min_available_rule(budget, replicas, |number, replicas| {
        format!("!{number}.matches('^[0-9]{{1,9}}$') || int({number}) < {replicas}")
    })
    .message("podDisruptionBudget.minAvailable must be lower than the number of replicas")
}

/// The same rule for a percentage in `minAvailable`: Kubernetes rounds up, so 90 % of three Pods are all three.
pub fn allows_evictions(budget: &str, replicas: &str) -> Rule {
    min_available_rule(budget, replicas, |share, replicas| {
        format!(
            "!{share}.matches('^[0-9]{{1,3}}%$') \
             || (int({share}.substring(0, {share}.size() - 1)) * {replicas} + 99) / 100 < {replicas}"
        )
    })
    .message(BLOCKS_EVICTIONS)
}

/// Returns a rule that compares `minAvailable` with the replica count, if the budget is enabled.
fn min_available_rule(
    budget: &str,
    replicas: &str,
    compare: impl FnOnce(&str, &str) -> String,
) -> Rule {
    let mut path = "self".to_owned();
    let mut guards = Vec::new();
    for field in budget.split('.') {
        path = format!("{path}.{field}");
        guards.push(format!("!has({path}) || "));
    }
    let absent = guards.concat();
    let replicas = format!("self.{replicas}");
    let comparison = compare(
        &format!("string({path}.minAvailable)"),
        &format!("(has({replicas}) ? {replicas} : 1)"),
    );
    Rule::new(format!(
        "{absent}!{path}.enabled || !has({path}.minAvailable) \
         || (has({replicas}) && {replicas} == 0) || {comparison}"
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;

    use super::{DisruptionBudget, below_replicas};

    #[test]
    fn states_no_child_unless_enabled() {
        let budget = |value: serde_json::Value| {
            let budget: DisruptionBudget = serde_json::from_value(value).unwrap();
            let selector = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
            budget.object(ObjectMeta::default(), &selector)
        };
        assert_eq!(budget(json!({})), None);
        assert_eq!(budget(json!({"minAvailable": 1})), None);
        let child = budget(json!({"enabled": true, "minAvailable": "50%"}));
        assert_eq!(
            json!(child)["spec"],
            json!({
                "minAvailable": "50%",
                "selector": {"matchLabels": {"app": "web"}},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            })
        );
    }

    #[test]
    fn guards_each_field_on_the_way_to_the_budget() {
        assert_eq!(
            below_replicas("high.budget", "size").rule,
            "!has(self.high) || !has(self.high.budget) || !self.high.budget.enabled \
             || !has(self.high.budget.minAvailable) \
             || (has(self.size) && self.size == 0) \
             || !string(self.high.budget.minAvailable).matches('^[0-9]{1,9}$') \
             || int(string(self.high.budget.minAvailable)) < (has(self.size) ? self.size : 1)",
        );
    }
}
