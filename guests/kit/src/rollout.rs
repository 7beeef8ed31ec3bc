//! Roll-outs: proof that the cluster has the template that the present answer states.
//!
//! A pass sees a workload as it is before the answer is written, so its numbers of Pods may belong to
//! an older template. The generations of parent and workload cannot tell: they count independently.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use innkeeper_sdk::hash::sha256_hex;

/// The annotation of a child with the hash of the template that its plugin stated last.
///
/// It is on the workload and not on its Pods: another way to compute the hash must not replace Pods.
pub const TEMPLATE_HASH: &str = "innkeeper-sdk/template-hash";

/// The hash of the template that an answer states: a Pod template, or the whole spec of a CronJob.
///
/// A reconciler marks the child with it, and states `Ready` only when the observed child has the mark.
/// Then `kubectl apply` and `kubectl wait --for=condition=Ready` together wait for the roll-out.
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
    /// The hash of a template.
    ///
    /// # Panics
    ///
    /// Panics if the value cannot be written as JSON, such as a map whose keys are not strings.
    pub fn new(template: &impl Serialize) -> Self {
        let text =
            serde_json::to_string(template).expect("should be a type that can be written as JSON");
        Self(sha256_hex(text))
    }

    /// The metadata of a child, with this hash as an annotation.
    pub fn mark(&self, mut metadata: ObjectMeta) -> ObjectMeta {
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(TEMPLATE_HASH.to_owned(), self.0.clone());
        metadata
    }

    /// True if a child with this metadata was written with this template.
    pub fn is_on(&self, metadata: &ObjectMeta) -> bool {
        let annotations = metadata.annotations.as_ref();
        self.is(annotations.and_then(|it| it.get(TEMPLATE_HASH)))
    }

    pub(crate) fn is(&self, annotation: Option<&String>) -> bool {
        annotation == Some(&self.0)
    }
}
