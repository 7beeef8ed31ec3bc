//! Blocks of the API: metadata and placement of the run's Pods.

use std::collections::BTreeMap;

use innkeeper_sdk::{labels::check_labels, pod::PodMetadata, tenants::check_listed};
use k8s_openapi::{
    api::core::v1::{Affinity, PodAffinityTerm, PodSpec, Toleration},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Tenants;

/// The name of a toleration without a key in `tenants.tolerations`. It tolerates each taint.
const EACH_TAINT: &str = "*";

/// Additions to the run's Pods.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodTemplate {
    /// Additional labels and annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<PodMetadata>,
    /// Placement of the Pods on nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) spec: Option<Placement>,
}

impl PodTemplate {
    /// Checks the fields that the configuration limits, and keys and values as the API server would in a Pod.
    pub(crate) fn check(&self, limits: &Tenants) -> Result<(), String> {
        if let Some(given) = &self.metadata {
            given.check("spec.podTemplate.metadata", &limits.pod_metadata)?;
        }
        let Some(given) = &self.spec else {
            return Ok(());
        };
        let path = |field: &str| format!("spec.podTemplate.spec.{field}");
        check_labels(&path("nodeSelector"), &given.node_selector)?;
        let keys = given.tolerations.iter().map(|it| it.key.clone());
        let keys: Vec<String> = keys
            .map(|key| key.filter(|it| !it.is_empty()))
            .map(|key| key.unwrap_or_else(|| EACH_TAINT.to_owned()))
            .collect();
        let list = "tenants.tolerations";
        check_listed(&path("tolerations"), list, &keys, &limits.tolerations)?;
        check_listed(
            &path("priorityClassName"),
            "tenants.priorityClasses",
            &given.priority_class_name,
            &limits.priority_classes,
        )
    }
}

/// Placement of Pods on nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Placement {
    /// Labels of the nodes on which the Pods may run, at most 32.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub(crate) node_selector: BTreeMap<String, String>,
    /// Taints of nodes that the Pods tolerate, if the plugin's configuration lists their keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub(crate) tolerations: Vec<Toleration>,
    /// Rules for the nodes, and for the Pods of the namespace beside which the Pods run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) affinity: Option<Affinity>,
    /// PriorityClass of the Pods, if the plugin's configuration lists it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) priority_class_name: Option<String>,
}

impl Placement {
    /// A Pod with this placement, and on the node of the Pods that use its volumes.
    pub(crate) fn of(given: Option<&PodTemplate>, with: Option<&RunWith>, pod: PodSpec) -> PodSpec {
        let given = given.and_then(|it| it.spec.clone()).unwrap_or_default();
        let mut affinity = given.affinity;
        if let Some(with) = with {
            let affinity = affinity.get_or_insert_default();
            let pods = affinity.pod_affinity.get_or_insert_default();
            let terms = &mut pods.required_during_scheduling_ignored_during_execution;
            terms.get_or_insert_default().push(with.term());
        }
        PodSpec {
            node_selector: (!given.node_selector.is_empty()).then_some(given.node_selector),
            tolerations: (!given.tolerations.is_empty()).then_some(given.tolerations),
            affinity,
            priority_class_name: given.priority_class_name,
            ..pod
        }
    }
}

/// Pods on whose node a run is placed, because they use its volumes.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new(
        "has(self.labelSelector.matchLabels) && self.labelSelector.matchLabels.size() > 0 \
         || has(self.labelSelector.matchExpressions) && self.labelSelector.matchExpressions.size() > 0"
    )
    .message("runWith: labelSelector must name a label of the Pods that use the volumes")
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunWith {
    /// Labels of the Pods, which are in the same namespace. While there is none, the run waits.
    pub(crate) label_selector: LabelSelector,
}

impl RunWith {
    /// Checks keys and values of labels as the API server would in a Pod.
    pub(crate) fn check(&self) -> Result<(), String> {
        let labels = self.label_selector.match_labels.as_ref();
        let path = "spec.runWith.labelSelector.matchLabels";
        labels.map_or(Ok(()), |it| check_labels(path, it))
    }

    fn term(&self) -> PodAffinityTerm {
        PodAffinityTerm {
            label_selector: Some(self.label_selector.clone()),
            topology_key: "kubernetes.io/hostname".to_owned(),
            ..Default::default()
        }
    }
}
