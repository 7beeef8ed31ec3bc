//! Observed Deployments and StatefulSets, and what their Pods wait for: the few fields that conditions need.
//!
//! The typed Kubernetes objects would make a component several times larger, and parsing their Pod templates takes
//! longer than the rest of a pass.

use std::collections::BTreeMap;

use kube::Resource;
use serde::Deserialize;

use crate::rollout::{TEMPLATE_HASH, TEMPLATE_HASH_POINTER, TemplateHash};
use innkeeper_sdk::children::{Children, Reads, annotation_pointer};
use innkeeper_sdk::fault::Fault;

/// An observed Deployment or StatefulSet.
///
/// ```
/// use innkeeper_kit::workload::Workload;
/// use innkeeper_sdk::testing::TestRequest;
/// use k8s_openapi::api::apps::v1::Deployment;
/// use serde_json::json;
///
/// let parent = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "a"}});
/// let deployment = json!({
///     "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "generation": 2},
///     "spec": {"template": {"spec": {"containers": [{"name": "web", "image": "nginx:1.29"}]}}},
///     "status": {"observedGeneration": 1, "replicas": 3, "readyReplicas": 2},
/// });
/// let request = TestRequest::new(&parent).child("web", &deployment).build();
/// let workload = Workload::find::<Deployment>(&request.children, "a").unwrap().unwrap();
/// assert_eq!(workload.status.ready_replicas, 2);
/// assert_eq!(workload.image("web"), Some("nginx:1.29"));
/// assert!(workload.is_stale());
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Workload {
    /// The Pod counts, set by the workload's controller.
    pub status: WorkloadStatus,
    metadata: WorkloadMetadata,
    spec: WorkloadSpec,
    /// The methods record what they return, because predictions hold only if that stays the same.
    #[serde(skip)]
    reads: Reads,
}

/// A [`Workload`]'s Pod counts; 0 until the controller has observed it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// All Pods that are not being deleted.
    pub replicas: i32,
    /// The Pods that are ready.
    pub ready_replicas: i32,
    /// The Pods that have been ready for `minReadySeconds`.
    pub available_replicas: i32,
    /// The Pods with the latest template.
    pub updated_replicas: i32,
    observed_generation: i64,
    conditions: Vec<WorkloadCondition>,
}

/// A condition written by the Deployment controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct WorkloadCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: String,
    message: String,
}

impl WorkloadCondition {
    fn is(&self, type_: &str, status: &str) -> bool {
        self.type_ == type_ && self.status == status
    }
}

/// A container that does not run: `state.waiting` in the Pod's status.
///
/// ```
/// use innkeeper_kit::workload::Waiting;
///
/// let waiting: Waiting = serde_json::from_str(r#"{"reason": "ErrImagePull"}"#).unwrap();
/// assert_eq!(waiting.cause(), Some("ImagePullBackOff"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Waiting {
    reason: String,
}

impl Waiting {
    /// The reason for a condition; `None` if the container only waits for earlier ones.
    ///
    /// The kubelet alternates between pulling an image and backing off. Both give the same text, so that a condition does
    /// not flap.
    pub fn cause(&self) -> Option<&str> {
        match &*self.reason {
            "" | "ContainerCreating" | "PodInitializing" => None,
            "ErrImagePull" => Some("ImagePullBackOff"),
            reason => Some(reason),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WorkloadMetadata {
    annotations: BTreeMap<String, String>,
    generation: i64,
    deletion_timestamp: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WorkloadSpec {
    #[serde(rename = "podManagementPolicy")]
    management: String,
    replicas: Option<i32>,
    template: WorkloadTemplate,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WorkloadTemplate {
    metadata: TemplateMetadata,
    spec: TemplateSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateMetadata {
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateSpec {
    containers: Vec<TemplateContainer>,
    #[serde(rename = "imagePullSecrets")]
    pull_secrets: Vec<Named>,
    volumes: Vec<TemplateVolume>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateContainer {
    name: String,
    image: String,
    env: Vec<TemplateVariable>,
    #[serde(rename = "envFrom")]
    env_from: Vec<VariableSource>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateVariable {
    #[serde(rename = "valueFrom")]
    value_from: Option<VariableSource>,
}

/// A variable source, or an `envFrom` source.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct VariableSource {
    #[serde(alias = "secretKeyRef", alias = "secretRef")]
    secret: Option<Named>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateVolume {
    secret: Option<Named>,
    #[serde(rename = "persistentVolumeClaim")]
    claim: Option<Named>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    #[serde(alias = "secretName", alias = "claimName")]
    name: String,
}

impl Workload {
    /// The observed child of this kind and name.
    ///
    /// # Errors
    ///
    /// `retry` with the field that does not parse.
    pub fn find<T>(children: &Children, name: &str) -> Result<Option<Self>, Fault>
    where
        T: Resource<DynamicType = ()>,
    {
        let Some(child) = children.find::<T>(name) else {
            return Ok(None);
        };
        let (mut workload, reads) = child.parse_recorded::<Self>()?;
        reads.add("/status");
        workload.reads = reads;
        Ok(Some(workload))
    }

    /// Returns whether the status is older than the spec.
    pub fn is_stale(&self) -> bool {
        self.reads.add("/metadata/generation");
        self.status.observed_generation < self.metadata.generation
    }

    /// Returns whether the status belongs to the current spec and the object is not being deleted.
    pub fn is_settled(&self) -> bool {
        !self.is_stale() && self.metadata.deletion_timestamp.is_none()
    }

    /// Returns whether the current spec has this template and the status belongs to it.
    pub fn is_current(&self, template: &TemplateHash) -> bool {
        self.reads.add(TEMPLATE_HASH_POINTER);
        template.is(self.metadata.annotations.get(TEMPLATE_HASH)) && self.is_settled()
    }

    /// Returns whether [`spec.replicas`](Self::replicas) Pods, ready or not, have this template, and no Pod has another.
    pub fn is_rolled_out(&self, template: &TemplateHash) -> bool {
        let pods = &self.status;
        self.is_current(template)
            && pods.updated_replicas >= self.replicas()
            // Old Pods count in `replicas` until they are gone.
            && pods.updated_replicas >= pods.replicas
    }

    /// `spec.replicas`, which the API server sets to 1 when it is absent.
    pub fn replicas(&self) -> i32 {
        self.reads.add("/spec/replicas");
        self.spec.replicas.unwrap_or(1)
    }

    /// Returns whether this is a StatefulSet that replaces Pods without waiting for others, including Pods that never
    /// became ready.
    pub fn is_parallel(&self) -> bool {
        self.reads.add("/spec/podManagementPolicy");
        self.spec.management == "Parallel"
    }

    /// Why Pods cannot be created, such as a quota, if the controller reports it. The StatefulSet controller writes only
    /// events.
    pub fn replica_failure(&self) -> Option<&str> {
        let failure = self
            .status
            .conditions
            .iter()
            .find(|condition| condition.is("ReplicaFailure", "True"))?;
        Some(&failure.message)
    }

    /// Returns whether a Deployment has exceeded the progress deadline.
    pub fn is_late(&self) -> bool {
        self.status.conditions.iter().any(|condition| {
            condition.is("Progressing", "False") && condition.reason == "ProgressDeadlineExceeded"
        })
    }

    /// A Pod template annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.reads
            .add(&format!("/spec/template{}", annotation_pointer(key)));
        self.spec
            .template
            .metadata
            .annotations
            .get(key)
            .map(String::as_str)
    }

    /// The image of a container in the Pod template, init containers excluded.
    pub fn image(&self, container: &str) -> Option<&str> {
        let containers = &self.spec.template.spec.containers;
        let index = containers
            .iter()
            .position(|candidate| candidate.name == container);
        let Some(index) = index else {
            self.reads.add("/spec/template/spec/containers");
            return None;
        };
        let container = format!("/spec/template/spec/containers/{index}");
        self.reads.add(&format!("{container}/name"));
        self.reads.add(&format!("{container}/image"));
        Some(&containers[index].image)
    }

    /// Returns whether the Pod template names this Secret for pulling images, in a variable or as a volume. Init containers
    /// and projected volumes are not searched.
    ///
    /// Pods use such a Secret as soon as it exists, whatever the next answer states.
    pub fn names_secret(&self, name: &str) -> bool {
        self.reads.add("/spec/template");
        let pod = &self.spec.template.spec;
        let variables = pod.containers.iter().flat_map(|container| {
            container
                .env
                .iter()
                .filter_map(|variable| variable.value_from.as_ref())
                .chain(&container.env_from)
        });
        let volumes = pod
            .volumes
            .iter()
            .filter_map(|volume| volume.secret.as_ref());
        variables
            .filter_map(|source| source.secret.as_ref())
            .chain(volumes)
            .chain(&pod.pull_secrets)
            .any(|secret| secret.name == name)
    }

    /// Returns whether the Pod template mounts this claim.
    pub fn names_claim(&self, name: &str) -> bool {
        self.reads.add("/spec/template");
        self.spec
            .template
            .spec
            .volumes
            .iter()
            .filter_map(|volume| volume.claim.as_ref())
            .any(|claim| claim.name == name)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
    use serde_json::{Value, json};

    use super::{Waiting, Workload};
    use crate::rollout::TemplateHash;
    use innkeeper_sdk::child::metadata;
    use innkeeper_sdk::testing::TestRequest;

    fn find(object: &Value) -> Option<Workload> {
        let parent = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {}});
        let request = TestRequest::new(&parent).child("web", object).build();
        Workload::find::<StatefulSet>(&request.children, "a").unwrap()
    }

    fn stateful_set(metadata: Value, spec: Value, status: Value) -> Value {
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": metadata, "spec": spec, "status": status,
        });
        object["metadata"]["name"] = json!("a");
        object
    }

    #[test]
    fn counts_nothing_before_the_controller_has_looked() {
        let created = stateful_set(json!({"generation": 1}), json!({}), json!({}));
        let workload = find(&created).unwrap();
        assert!(workload.is_stale());
        assert!(!workload.is_settled());
        assert_eq!(workload.status.replicas, 0);
        assert_eq!(workload.replicas(), 1);
        assert_eq!(workload.image("web"), None);
        assert!(!workload.is_parallel());
        assert_eq!(workload.replica_failure(), None);
        assert_eq!(workload.annotation("hash"), None);
    }

    #[test]
    fn names_the_secrets_and_claims_of_its_pods() {
        let pod = json!({
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [
                {"name": "a", "image": "i"},
                {
                    "name": "b",
                    "env": [
                        {"name": "A", "value": "value"},
                        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "env", "key": "key"}}},
                        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "k"}}},
                    ],
                    "envFrom": [
                        {"secretRef": {"name": "all"}},
                        {"configMapRef": {"name": "maps"}},
                    ],
                },
            ],
            "volumes": [
                {"name": "v", "secret": {"secretName": "mounted"}},
                {"name": "w", "persistentVolumeClaim": {"claimName": "claim"}},
            ],
        });
        let spec = json!({"template": {"spec": pod}});
        let workload = find(&stateful_set(json!({}), spec, json!({}))).unwrap();
        for name in ["pull", "env", "all", "mounted"] {
            assert!(workload.names_secret(name), "{name}");
            assert!(!workload.names_claim(name), "{name}");
        }
        for name in ["value", "key", "map", "maps", "claim", "v", ""] {
            assert!(!workload.names_secret(name), "{name}");
        }
        assert!(workload.names_claim("claim"));
        assert!(!workload.names_claim("w"));
    }

    #[test]
    fn tells_why_pods_cannot_be_created() {
        let condition = |status: &str| {
            let quota = "exceeded quota: small";
            let conditions = json!([
                {"type": "Progressing", "status": "True", "message": "going on"},
                {"type": "ReplicaFailure", "status": status, "message": quota},
            ]);
            let spec = json!({"podManagementPolicy": "Parallel"});
            let status = json!({"conditions": conditions});
            find(&stateful_set(json!({}), spec, status)).unwrap()
        };
        assert!(condition("True").is_parallel());
        let failing = condition("True");
        assert_eq!(failing.replica_failure(), Some("exceeded quota: small"));
        assert_eq!(condition("False").replica_failure(), None);
        assert!(!failing.is_late());
        let late = json!({"conditions": [
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"},
        ]});
        assert!(
            find(&stateful_set(json!({}), json!({}), late))
                .unwrap()
                .is_late()
        );
    }

    #[test]
    fn tells_what_a_container_waits_for() {
        let table = [
            ("", None),
            ("ContainerCreating", None),
            ("PodInitializing", None),
            ("ErrImagePull", Some("ImagePullBackOff")),
            ("ImagePullBackOff", Some("ImagePullBackOff")),
            ("ErrImageNeverPull", Some("ErrImageNeverPull")),
            ("InvalidImageName", Some("InvalidImageName")),
            ("CrashLoopBackOff", Some("CrashLoopBackOff")),
            (
                "CreateContainerConfigError",
                Some("CreateContainerConfigError"),
            ),
        ];
        for (reason, expected) in table {
            let waiting: Waiting = serde_json::from_value(json!({ "reason": reason })).unwrap();
            assert_eq!(waiting.cause(), expected, "{reason}");
        }
    }

    #[test]
    fn is_not_settled_while_it_is_deleted() {
        let metadata = json!({"generation": 2, "deletionTimestamp": "2030-01-01T00:00:00Z"});
        let status = json!({"observedGeneration": 2});
        let workload = find(&stateful_set(metadata, json!({"replicas": 0}), status)).unwrap();
        assert!(!workload.is_stale());
        assert!(!workload.is_settled());
        assert_eq!(workload.replicas(), 0);
    }

    #[test]
    fn is_rolled_out_when_all_pods_have_the_stated_template() {
        let stated = TemplateHash::new(&json!({"image": "new"}));
        let older = TemplateHash::new(&json!({"image": "old"}));
        // The mark, generation and observed generation, and spec.replicas, updated and all replicas.
        let table = [
            (Some(&stated), (2, 2), (3, 3, 3), true),
            (Some(&stated), (2, 2), (0, 0, 0), true),
            // An unfinished scale-in.
            (Some(&stated), (2, 2), (2, 3, 3), true),
            (Some(&older), (2, 2), (3, 3, 3), false),
            (None, (2, 2), (3, 3, 3), false),
            (Some(&stated), (3, 2), (3, 3, 3), false),
            (Some(&stated), (2, 2), (3, 1, 4), false),
            (Some(&stated), (2, 2), (3, 3, 4), false),
            (Some(&stated), (2, 2), (3, 2, 2), false),
        ];
        for (mark, (generation, observed), (replicas, updated, all), expected) in table {
            let name = metadata("a", &[].into());
            let mut marked =
                json!(mark.map_or_else(|| name.clone(), |hash| hash.mark(name.clone())));
            marked["generation"] = json!(generation);
            let status = json!({
                "observedGeneration": observed, "updatedReplicas": updated, "replicas": all,
                "readyReplicas": all,
            });
            let object = stateful_set(marked, json!({"replicas": replicas}), status);
            let workload = find(&object).unwrap();
            assert_eq!(workload.is_rolled_out(&stated), expected, "{object}");
        }
    }

    #[test]
    fn finds_a_workload_by_kind_and_name() {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        });
        assert!(find(&deployment).is_none());
        let parent = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {}});
        let request = TestRequest::new(&parent).child("web", &deployment).build();
        let workload = Workload::find::<Deployment>(&request.children, "a").unwrap();
        assert!(workload.unwrap().is_settled());
    }
}
