//! Rollouts: whether the cluster runs the template that this answer states.
//!
//! A pass sees the workload before the host writes the answer, so the Pod counts may belong to an older template.
//! The generations of parent and workload cannot show this, because they count independently.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use innkeeper_sdk::children::Observed;
use innkeeper_sdk::hash::sha256_hex;

/// The annotation of a child with the hash of the template that its plugin stated last.
///
/// It is on the workload and not on the Pods, because a change of the hash algorithm must not replace Pods.
pub const TEMPLATE_HASH: &str = "innkeeper-sdk/template-hash";

/// The annotation's place in a workload, as a JSON pointer.
pub(crate) const TEMPLATE_HASH_POINTER: &str = "/metadata/annotations/innkeeper-sdk~1template-hash";

/// The hash of a stated template: a Pod template, or a CronJob's whole spec.
///
/// A reconciler marks the child with it, and states `Ready` only when the observed child has the mark.
/// `kubectl apply` followed by `kubectl wait --for=condition=Ready` then waits for the rollout.
///
/// ```
/// use innkeeper_kit::{rollout::TemplateHash, workload::Workload};
/// use innkeeper_sdk::{prelude::*, testing::TestRequest};
/// use k8s_openapi::api::apps::v1::Deployment;
/// use serde_json::json;
///
/// let template = json!({"spec": {"containers": [{"name": "web", "image": "nginx:1.29"}]}});
/// let stated = TemplateHash::new(&template);
/// let mut deployment = json!({
///     "apiVersion": "apps/v1", "kind": "Deployment",
///     "metadata": stated.mark(metadata("a", &[].into())),
///     "spec": {"replicas": 1, "template": template},
///     "status": {"replicas": 1, "updatedReplicas": 1},
/// });
/// let parent = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "a"}});
/// let request = TestRequest::new(&parent).child("web", &deployment).build();
/// let workload = Workload::find::<Deployment>(&request.children, "a").unwrap().unwrap();
/// assert!(workload.is_rolled_out(&stated));
/// assert!(!workload.is_rolled_out(&TemplateHash::new(&json!({}))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateHash(String);

impl TemplateHash {
    /// Hashes a template.
    ///
    /// # Panics
    ///
    /// Panics if the value cannot be written as JSON, such as a map whose keys are not strings.
    pub fn new(template: &impl Serialize) -> Self {
        let text =
            serde_json::to_string(template).expect("should be a type that can be written as JSON");
        Self(sha256_hex(text))
    }

    /// Adds the hash to a child's metadata, as an annotation.
    pub fn mark(&self, mut metadata: ObjectMeta) -> ObjectMeta {
        metadata
            .annotations
            .get_or_insert_default()
            .insert(TEMPLATE_HASH.to_owned(), self.0.clone());
        metadata
    }

    /// Returns whether a child with this metadata was written with this template.
    pub fn is_on(&self, metadata: &ObjectMeta) -> bool {
        let annotations = metadata.annotations.as_ref();
        self.is(annotations.and_then(|annotations| annotations.get(TEMPLATE_HASH)))
    }

    /// Returns whether an observed child was written with this template.
    pub fn is_on_child(&self, child: &Observed) -> bool {
        child.annotation(TEMPLATE_HASH) == Some(&*self.0)
    }

    pub(crate) fn is(&self, annotation: Option<&String>) -> bool {
        annotation == Some(&self.0)
    }
}
