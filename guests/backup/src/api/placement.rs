//! API blocks: placing the run's Pods beside others.

use innkeeper_kit::{labels::check_labels, prelude::*};
use k8s_openapi::{
    api::core::v1::{Affinity, PodAffinity, PodAffinityTerm},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

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
    /// Labels of the Pods, which are in the same namespace. Without such a Pod, the run waits.
    pub(crate) label_selector: LabelSelector,
}

impl RunWith {
    /// Checks label keys and values as the API server would in a Pod.
    pub(crate) fn check(&self) -> Result<(), String> {
        let labels = self.label_selector.match_labels.as_ref();
        let path = "spec.runWith.labelSelector.matchLabels";
        labels.map_or(Ok(()), |labels| check_labels(path, labels))
    }

    /// Returns the affinity to these Pods.
    pub(crate) fn affinity(&self) -> Affinity {
        let term = PodAffinityTerm {
            label_selector: Some(self.label_selector.clone()),
            topology_key: "kubernetes.io/hostname".to_owned(),
            ..Default::default()
        };
        Affinity {
            pod_affinity: Some(PodAffinity {
                required_during_scheduling_ignored_during_execution: Some(vec![term]),
                ..Default::default()
            }),
            ..Default::default()
        }
    }
}
