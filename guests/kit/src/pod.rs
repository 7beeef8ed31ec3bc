//! Blocks for Pods: security, images, metadata, variables, volumes, ports.
//!
//! The blocks fit the Pod Security level `restricted`.
//! They set only their own fields; complete them with Rust's struct update syntax.
//!
//! ```
//! use innkeeper_kit::pod;
//! use k8s_openapi::api::core::v1::{Container, KeyToPath, PodSpec, SecretVolumeSource, SecurityContext, VolumeMount};
//!
//! let container = Container {
//!     name: "web".to_owned(),
//!     image: Some("nginx:1.29".to_owned()),
//!     ports: Some(vec![pod::container_port("http", 8080)]),
//!     resources: Some(pod::resources(None, "100m", "128Mi")),
//!     security_context: Some(SecurityContext {
//!         read_only_root_filesystem: Some(true),
//!         ..pod::container_security()
//!     }),
//!     volume_mounts: Some(vec![pod::mount("tmp", "/tmp")]),
//!     ..Default::default()
//! };
//! let pod = PodSpec {
//!     containers: vec![container],
//!     volumes: Some(vec![pod::empty_dir("tmp")]),
//!     ..pod::restricted(Some(65532), &[])
//! };
//! assert_eq!(pod.security_context.unwrap().run_as_user, Some(65532));
//! ```

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource,
    KeyToPath, LocalObjectReference, ObjectFieldSelector, PersistentVolumeClaimVolumeSource,
    PodSecurityContext, PodSpec, ResourceRequirements, SeccompProfile, SecretKeySelector,
    SecretVolumeSource, SecurityContext, ServicePort, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::labels;
use crate::tenants::check_listed;
use innkeeper_sdk::json;

/// Conditions under which the kubelet pulls an image; the field of a parent.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImagePullPolicy {
    /// At every start of a container.
    Always,
    /// Only if the node does not have the image.
    #[default]
    IfNotPresent,
    /// Never; the container fails to start on a node without the image.
    Never,
}

/// The text in a container.
impl From<ImagePullPolicy> for String {
    fn from(policy: ImagePullPolicy) -> Self {
        match policy {
            ImagePullPolicy::Always => "Always",
            ImagePullPolicy::IfNotPresent => "IfNotPresent",
            ImagePullPolicy::Never => "Never",
        }
        .to_owned()
    }
}

/// Labels and annotations that a user adds to Pods; the field of a parent.
///
/// The API server accepts any text as a key in a custom resource, so a reconciler calls
/// [`check`](Self::check) before it states Pods.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct PodMetadata {
    /// Labels, at most 32; the labels of the plugin take precedence.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub labels: BTreeMap<String, String>,
    /// Annotations, at most 32; the annotations of the plugin take precedence.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub annotations: BTreeMap<String, String>,
}

impl PodMetadata {
    /// Checks keys and values as the API server would in a Pod, and the keys against the configuration's lists; `path` is
    /// the parent's field: `spec.podMetadata`.
    ///
    /// The lists matter because Services and network policies select Pods by labels, and injectors of containers and
    /// credentials obey labels and annotations.
    ///
    /// # Errors
    ///
    /// As [`labels::check_labels`], [`labels::check_annotations`] and [`check_listed`], for the first
    /// one that is wrong.
    pub fn check(&self, path: &str, listed: &PodMetadataLists) -> Result<(), String> {
        let labels = format!("{path}.labels");
        let annotations = format!("{path}.annotations");
        labels::check_labels(&labels, &self.labels)?;
        labels::check_annotations(&annotations, &self.annotations)?;
        let keys = self.labels.keys();
        check_listed(&labels, "tenants.podMetadata.labels", keys, &listed.labels)?;
        let keys = self.annotations.keys();
        let list = "tenants.podMetadata.annotations";
        check_listed(&annotations, list, keys, &listed.annotations)
    }
}

/// Keys of labels and annotations that parents may set on Pods: the field `tenants.podMetadata` of a
/// configuration.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct PodMetadataLists {
    /// Labels; an entry that ends with a slash stands for all that start with it. Empty: none.
    pub labels: Vec<String>,
    /// Annotations; an entry that ends with a slash stands for all that start with it. Empty: none.
    pub annotations: Vec<String>,
}

/// Returns the Pod template's metadata with the plugin's and the user's labels and annotations.
///
/// An annotation without a value is left out.
/// The plugin's keys take precedence, because selectors and rollouts depend on them, and keys below `innkeeper.dev/` are
/// never copied.
///
/// ```
/// use innkeeper_kit::{labels::base_labels, pod};
///
/// let labels = base_labels("memcached", "example", "cache");
/// let restart = Some("2026-01-01".to_owned());
/// let metadata = pod::metadata(None, labels, [("example.com/restart-trigger", restart)]);
/// assert_eq!(metadata.annotations.unwrap()["example.com/restart-trigger"], "2026-01-01");
/// ```
pub fn metadata<const N: usize>(
    user: Option<&PodMetadata>,
    labels: BTreeMap<String, String>,
    annotations: [(&str, Option<String>); N],
) -> ObjectMeta {
    let mut merged = user.map(json::sanitized).unwrap_or_default();
    merged.labels.extend(labels);
    for (key, value) in annotations {
        let stated = value.map(|value| (key.to_owned(), value));
        merged.annotations.extend(stated);
    }
    ObjectMeta {
        labels: Some(merged.labels),
        annotations: (!merged.annotations.is_empty()).then_some(merged.annotations),
        ..ObjectMeta::default()
    }
}

/// Returns a Pod without containers that fits the Pod Security level `restricted`.
///
/// It has no service account token, because plugin workloads do not use the API server.
/// It has no variables for the namespace's Services, because images could mistake them for settings.
///
/// `user` becomes user, group and volume group; with `None` the cluster assigns them, as OpenShift does.
pub fn restricted(user: Option<i64>, pull_secrets: &[LocalObjectReference]) -> PodSpec {
    PodSpec {
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        image_pull_secrets: (!pull_secrets.is_empty())
            .then(|| pull_secrets.iter().map(json::sanitized).collect()),
        security_context: Some(security(user)),
        ..PodSpec::default()
    }
}

/// The security context for [`restricted`] Pods, for Pods that extend it.
pub fn security(user: Option<i64>) -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: user,
        run_as_group: user,
        fs_group: user,
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            ..SeccompProfile::default()
        }),
        ..PodSecurityContext::default()
    }
}

/// The security context that each container in a [`restricted`] Pod needs.
///
/// The root file system stays writable; set `read_only_root_filesystem` where the image allows it.
pub fn container_security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            ..Capabilities::default()
        }),
        run_as_non_root: Some(true),
        ..SecurityContext::default()
    }
}

/// Returns container resources: the user's whole block, or these requests without limits.
pub fn resources(
    user: Option<&ResourceRequirements>,
    cpu: &str,
    memory: &str,
) -> ResourceRequirements {
    let requests = || {
        [("cpu", cpu), ("memory", memory)]
            .map(|(resource, amount)| (resource.to_owned(), Quantity(amount.to_owned())))
    };
    user.map_or_else(
        || ResourceRequirements {
            requests: Some(requests().into()),
            ..ResourceRequirements::default()
        },
        json::sanitized,
    )
}

/// A variable with this value.
pub fn variable(name: &str, value: impl Into<String>) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.into()),
        ..EnvVar::default()
    }
}

/// A variable from a Secret key.
pub fn secret_variable(name: &str, secret: &str, key: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: secret.to_owned(),
                key: key.to_owned(),
                ..SecretKeySelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

/// A variable from a Pod field, such as `metadata.name`.
pub fn field_variable(name: &str, path: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: path.to_owned(),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

/// A TCP container port.
pub fn container_port(name: &str, number: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: number,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

/// Type of a Service.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceType {
    /// Reachable within the cluster only.
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// Reachable on a port of each node.
    NodePort,
    /// Reachable through a load balancer of the cloud.
    LoadBalancer,
}

impl ServiceType {
    /// The text in a Service.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

/// A TCP Service port that targets the container port with the same name.
pub fn service_port(name: &str, number: i32) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: number,
        target_port: Some(IntOrString::String(name.to_owned())),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}

/// A writable mount of a whole volume.
pub fn mount(volume: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    }
}

/// A volume on the node's disk that lives as long as the Pod.
pub fn empty_dir(name: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    }
}

/// A volume from a PersistentVolumeClaim.
pub fn from_claim(name: &str, claim: impl Into<String>) -> Volume {
    Volume {
        name: name.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim.into(),
            ..PersistentVolumeClaimVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// A volume with a file for each ConfigMap key.
pub fn from_config_map(name: &str, config_map: impl Into<String>) -> Volume {
    Volume {
        name: name.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: config_map.into(),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// A volume with a file for each of these Secret keys.
pub fn from_secret(name: &str, secret: impl Into<String>, keys: &[&str]) -> Volume {
    let item = |key: &&str| KeyToPath {
        key: (*key).to_owned(),
        path: (*key).to_owned(),
        ..KeyToPath::default()
    };
    Volume {
        name: name.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.into()),
            items: Some(keys.iter().map(item).collect()),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::ResourceRequirements;
    use serde_json::json;

    use super::{
        ImagePullPolicy, PodMetadata, PodMetadataLists, container_security, metadata, resources,
        restricted,
    };

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn fits_the_level_restricted() {
        let secrets = serde_json::from_value::<Vec<_>>(json!([{"name": "registry"}])).unwrap();
        assert_eq!(
            json!(restricted(Some(33), &secrets)),
            json!({
                "automountServiceAccountToken": false,
                "containers": [],
                "enableServiceLinks": false,
                "imagePullSecrets": [{"name": "registry"}],
                "securityContext": {
                    "fsGroup": 33, "runAsGroup": 33, "runAsNonRoot": true, "runAsUser": 33,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
            })
        );
        assert_eq!(
            json!(container_security()),
            json!({
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "runAsNonRoot": true,
            })
        );
    }

    #[test]
    fn lets_the_cluster_assign_user_and_group() {
        let security = json!(restricted(None, &[]).security_context);
        assert_eq!(security.get("runAsUser"), None);
        assert_eq!(security.get("fsGroup"), None);
        assert_eq!(restricted(None, &[]).image_pull_secrets, None);
    }

    #[test]
    fn prefers_the_labels_and_annotations_of_the_plugin() {
        let user = PodMetadata {
            labels: map(&[("app", "mine"), ("team", "a"), ("innkeeper.dev/x", "y")]),
            annotations: map(&[("hash", "mine"), ("note", "b")]),
        };
        let own = [("hash", Some("1".to_owned())), ("trigger", None)];
        let merged = metadata(Some(&user), map(&[("app", "web")]), own);
        assert_eq!(merged.labels, Some(map(&[("app", "web"), ("team", "a")])));
        assert_eq!(
            merged.annotations,
            Some(map(&[("hash", "1"), ("note", "b")]))
        );
        assert_eq!(metadata(None, BTreeMap::new(), []).annotations, None);
    }

    #[test]
    fn names_the_field_of_a_wrong_key() {
        let wrong = PodMetadata {
            annotations: map(&[("a b", "c")]),
            ..PodMetadata::default()
        };
        let none = PodMetadataLists::default();
        let problem = wrong.check("spec.podMetadata", &none).unwrap_err();
        assert!(
            problem.starts_with("spec.podMetadata.annotations: \"a b\""),
            "{problem}"
        );
        let empty = PodMetadata::default();
        assert_eq!(empty.check("spec.podMetadata", &none), Ok(()));
    }

    #[test]
    fn names_the_list_that_lacks_a_key() {
        let user = PodMetadata {
            labels: map(&[("team", "a")]),
            annotations: map(&[("sidecar.istio.io/inject", "true")]),
        };
        let check = |labels: &[&str], annotations: &[&str]| {
            let owned = |list: &[&str]| list.iter().map(|entry| (*entry).to_owned()).collect();
            let listed = PodMetadataLists {
                labels: owned(labels),
                annotations: owned(annotations),
            };
            user.check("spec.podMetadata", &listed)
        };
        assert_eq!(
            check(&[], &["sidecar.istio.io/"]).unwrap_err(),
            "spec.podMetadata.labels: tenants.podMetadata.labels of the plugin's configuration does not \
             list team",
        );
        assert_eq!(
            check(&["team"], &["sidecar.istio.io/other"]).unwrap_err(),
            "spec.podMetadata.annotations: tenants.podMetadata.annotations of the plugin's configuration \
             does not list sidecar.istio.io/inject",
        );
        assert_eq!(check(&["team"], &["sidecar.istio.io/"]), Ok(()));
    }

    #[test]
    fn takes_the_resources_of_the_user_as_a_whole() {
        let default = json!(resources(None, "100m", "1Gi"));
        assert_eq!(
            default,
            json!({"requests": {"cpu": "100m", "memory": "1Gi"}})
        );
        let user: ResourceRequirements =
            serde_json::from_value(json!({"limits": {"cpu": "1"}})).unwrap();
        assert_eq!(resources(Some(&user), "100m", "1Gi"), user);
    }

    #[test]
    fn writes_a_pull_policy_as_the_api_does() {
        use ImagePullPolicy::{Always, IfNotPresent, Never};
        for policy in [Always, IfNotPresent, Never] {
            assert_eq!(json!(policy), String::from(policy));
        }
    }
}
