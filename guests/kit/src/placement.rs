//! Pod metadata and placement: the parent's field `podTemplate`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, PodSpec, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::labels::check_labels;
use crate::pod::{PodMetadata, PodMetadataLists};
use crate::tenants::check_listed;
use innkeeper_sdk::crd::Crd;

/// The entry for a toleration without a key, which tolerates every taint.
const EACH_TAINT: &str = "*";

/// Additions to Pods; the field of a parent.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplate {
    /// Additional labels and annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<PodMetadata>,
    /// Placement of the Pods on nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Placement>,
}

/// Placement of Pods on nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Labels of the nodes on which the Pods may run, at most 32.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that the Pods tolerate, if the plugin's configuration lists their keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub tolerations: Vec<Toleration>,
    /// Rules for the nodes, and for the Pods of the namespace beside which the Pods run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// PriorityClass of the Pods, if the plugin's configuration lists it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
}

/// The configuration's limits for [`PodTemplate`].
#[derive(Clone, Copy, Debug)]
pub struct PodTemplateLists<'a> {
    /// The list `tenants.podMetadata`.
    pub metadata: &'a PodMetadataLists,
    /// The list `tenants.tolerations`.
    pub tolerations: &'a [String],
    /// The list `tenants.priorityClasses`.
    pub priority_classes: &'a [String],
}

impl PodTemplate {
    /// Checks the fields that the configuration limits, and keys and values as the API server would in a Pod; `path` is
    /// the parent's field: `spec.podTemplate`.
    ///
    /// # Errors
    ///
    /// Returns the path and the problem of the first invalid field.
    pub fn check(&self, path: &str, listed: &PodTemplateLists<'_>) -> Result<(), String> {
        if let Some(metadata) = &self.metadata {
            metadata.check(&format!("{path}.metadata"), listed.metadata)?;
        }
        let Some(placement) = &self.spec else {
            return Ok(());
        };
        let path = |field: &str| format!("{path}.spec.{field}");
        check_labels(&path("nodeSelector"), &placement.node_selector)?;
        let keys: Vec<String> = placement
            .tolerations
            .iter()
            .map(|toleration| toleration.key.clone().filter(|key| !key.is_empty()))
            .map(|key| key.unwrap_or_else(|| EACH_TAINT.to_owned()))
            .collect();
        let list = "tenants.tolerations";
        check_listed(&path("tolerations"), list, &keys, listed.tolerations)?;
        check_listed(
            &path("priorityClassName"),
            "tenants.priorityClasses",
            &placement.priority_class_name,
            listed.priority_classes,
        )
    }
}

/// Adds the user's placement to a Pod. The Pod keeps the plugin's own affinity.
///
/// ```
/// use innkeeper_kit::placement::{Placement, PodTemplate, place};
/// use k8s_openapi::api::core::v1::PodSpec;
///
/// let priority_class_name = Some("batch".to_owned());
/// let spec = Some(Placement { priority_class_name, ..Placement::default() });
/// let template = PodTemplate { metadata: None, spec };
/// let pod = place(Some(&template), PodSpec::default());
/// assert_eq!(pod.priority_class_name.unwrap(), "batch");
/// ```
pub fn place(user: Option<&PodTemplate>, pod: PodSpec) -> PodSpec {
    let Some(user) = user.and_then(|template| template.spec.clone()) else {
        return pod;
    };
    PodSpec {
        node_selector: (!user.node_selector.is_empty()).then_some(user.node_selector),
        tolerations: (!user.tolerations.is_empty()).then_some(user.tolerations),
        affinity: both(user.affinity, pod.affinity),
        priority_class_name: user.priority_class_name,
        ..pod
    }
}

/// Removes the affinity fields about other namespaces from `spec.podTemplate`: a user who may create parents could
/// discover and block the nodes of other users' Pods.
pub fn own_namespace(crd: Crd) -> Crd {
    let affinity = "spec.podTemplate.spec.affinity";
    ["podAffinity", "podAntiAffinity"]
        .into_iter()
        .flat_map(|kind| {
            let rule = "DuringSchedulingIgnoredDuringExecution[]";
            [
                format!("{affinity}.{kind}.required{rule}"),
                format!("{affinity}.{kind}.preferred{rule}.podAffinityTerm"),
            ]
        })
        .fold(crd, |crd, path| {
            crd.remove(&path, "namespaces")
                .remove(&path, "namespaceSelector")
        })
}

/// Merges both affinities. Plugins have no node affinity.
fn both(user: Option<Affinity>, own: Option<Affinity>) -> Option<Affinity> {
    let (mut user, own) = match (user, own) {
        (Some(user), Some(own)) => (user, own),
        (user, own) => return user.or(own),
    };
    // The two kinds are types of their own with the same fields.
    macro_rules! append {
        ($($kind:ident),+) => {$(
            if let Some(own) = own.$kind {
                let user = user.$kind.get_or_insert_default();
                append(
                    &mut user.required_during_scheduling_ignored_during_execution,
                    own.required_during_scheduling_ignored_during_execution,
                );
                append(
                    &mut user.preferred_during_scheduling_ignored_during_execution,
                    own.preferred_during_scheduling_ignored_during_execution,
                );
            }
        )+};
    }
    append!(pod_affinity, pod_anti_affinity);
    Some(user)
}

fn append<T>(to: &mut Option<Vec<T>>, from: Option<Vec<T>>) {
    if let Some(from) = from {
        to.get_or_insert_default().extend(from);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_affinity_of_the_plugin_is_added_to_that_of_the_user() {
        let term = |key: &str| json!({ "topologyKey": key });
        let affinity = |terms: Value| {
            let rules = json!({ "requiredDuringSchedulingIgnoredDuringExecution": terms });
            json!({ "podAffinity": rules, "podAntiAffinity": rules })
        };
        let placed = |user: Value, own: Value| {
            let spec = serde_json::from_value(json!({ "affinity": user })).unwrap();
            let template = PodTemplate {
                metadata: None,
                spec,
            };
            let pod = serde_json::from_value(json!({ "affinity": own, "containers": [] })).unwrap();
            json!(place(Some(&template), pod))["affinity"].clone()
        };
        let user = affinity(json!([term("a")]));
        let own = affinity(json!([term("b")]));
        assert_eq!(placed(Value::Null, own.clone()), own);
        assert_eq!(placed(user.clone(), Value::Null), user);
        assert_eq!(placed(json!({}), own.clone()), own);
        assert_eq!(placed(user, own), affinity(json!([term("a"), term("b")])));
    }
}
