//! The kube-rs peer's desired objects and status: the same as the shipped plugin's, but with other labels.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
        core::v1::{
            Capabilities, Container, ContainerPort, Pod, PodSecurityContext, PodSpec,
            PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, SecurityContext, Service,
            ServicePort, ServiceSpec, TCPSocketAction,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{Condition, LabelSelector, ObjectMeta, Time},
        util::intstr::IntOrString,
    },
    jiff::Timestamp,
};
use kube::{Resource as _, ResourceExt as _, api::PartialObjectMeta};
use serde_json::Value;

use crate::api::{Memcached, MemcachedStatus};

pub(super) const INSTANCE: &str = "app.kubernetes.io/instance";
/// The label selector for the operator's objects.
pub(super) const OURS: &str = "app.kubernetes.io/managed-by=memcached-operator";
/// The `Progressing` message while no controller has seen the Deployment.
pub(super) const NOT_SEEN: &str = "waiting for the Deployment to be updated";
pub(super) const ZERO_REQUESTED: &str = "zero replicas are requested";
const PORT: &str = "memcached";
const USER: i64 = 11211;

/// Returns true if an object has all wanted fields; other fields belong to the API server or other field managers.
pub(super) fn covers(shown: &Value, wanted: &Value) -> bool {
    match (shown, wanted) {
        (Value::Object(shown), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| shown.get(key).is_some_and(|shown| covers(shown, wanted))),
        (Value::Array(shown), Value::Array(wanted)) => {
            shown.len() == wanted.len()
                && shown
                    .iter()
                    .zip(wanted)
                    .all(|(shown, wanted)| covers(shown, wanted))
        }
        _ => shown == wanted,
    }
}

/// One parent's desired state.
pub(super) struct Pool<'a> {
    parent: &'a Memcached,
    size: i32,
    image: &'a str,
    labels: BTreeMap<String, String>,
}

impl<'a> Pool<'a> {
    pub(super) fn new(parent: &'a Memcached) -> Self {
        let labels = [
            ("app.kubernetes.io/name", "memcached"),
            (INSTANCE, &parent.name_any()),
            ("app.kubernetes.io/component", "cache"),
            ("app.kubernetes.io/managed-by", "memcached-operator"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
        Self {
            parent,
            size: parent.spec.size.unwrap_or(1),
            image: parent.spec.image.as_deref().unwrap_or("memcached:1.6"),
            labels: labels.into(),
        }
    }

    /// Returns true if a Pod belongs to the pool and is not being deleted.
    pub(super) fn has(&self, pod: &PartialObjectMeta<Pod>) -> bool {
        pod.metadata.deletion_timestamp.is_none()
            && pod.metadata.namespace == self.parent.metadata.namespace
            && self
                .labels
                .iter()
                .all(|(key, value)| pod.labels().get(key) == Some(value))
    }

    fn metadata(&self, labels: BTreeMap<String, String>) -> ObjectMeta {
        ObjectMeta {
            name: self.parent.metadata.name.clone(),
            namespace: self.parent.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: self
                .parent
                .controller_owner_ref(&())
                .map(|owner| vec![owner]),
            ..ObjectMeta::default()
        }
    }

    pub(super) fn deployment(&self) -> Deployment {
        let mut labels = self.labels.clone();
        if let Some((_, version)) = self.image.rsplit_once(':') {
            labels.insert("app.kubernetes.io/version".to_owned(), version.to_owned());
        }
        Deployment {
            metadata: self.metadata(labels.clone()),
            spec: Some(DeploymentSpec {
                replicas: Some(self.size),
                selector: LabelSelector {
                    match_labels: Some(self.labels.clone()),
                    ..LabelSelector::default()
                },
                strategy: Some(DeploymentStrategy {
                    type_: Some("RollingUpdate".to_owned()),
                    rolling_update: Some(RollingUpdateDeployment {
                        max_surge: Some(IntOrString::Int(1)),
                        max_unavailable: Some(IntOrString::Int(0)),
                    }),
                }),
                template: PodTemplateSpec {
                    metadata: Some(ObjectMeta {
                        labels: Some(labels),
                        ..ObjectMeta::default()
                    }),
                    spec: Some(self.pod()),
                },
                ..DeploymentSpec::default()
            }),
            ..Deployment::default()
        }
    }

    fn pod(&self) -> PodSpec {
        PodSpec {
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(USER),
                run_as_group: Some(USER),
                fs_group: Some(USER),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    ..SeccompProfile::default()
                }),
                ..PodSecurityContext::default()
            }),
            containers: vec![self.container()],
            ..PodSpec::default()
        }
    }

    fn container(&self) -> Container {
        let options = &self.parent.spec.memcached;
        let memory = format!("{}Mi", options.max_memory_mb + 64);
        let arguments = [
            "-m",
            &options.max_memory_mb.to_string(),
            "-c",
            &options.max_connections.to_string(),
            "-t",
            &options.threads.to_string(),
            "-I",
            &options.max_item_size,
        ];
        Container {
            name: "memcached".to_owned(),
            image: Some(self.image.to_owned()),
            args: Some(arguments.map(str::to_owned).into()),
            ports: Some(vec![ContainerPort {
                name: Some(PORT.to_owned()),
                container_port: self.parent.spec.container_port,
                protocol: Some("TCP".to_owned()),
                ..ContainerPort::default()
            }]),
            resources: Some(ResourceRequirements {
                requests: Some(BTreeMap::from([
                    ("cpu".to_owned(), Quantity("100m".to_owned())),
                    ("memory".to_owned(), Quantity(memory)),
                ])),
                ..ResourceRequirements::default()
            }),
            liveness_probe: Some(probe(10, 10)),
            readiness_probe: Some(probe(5, 5)),
            security_context: Some(SecurityContext {
                allow_privilege_escalation: Some(false),
                capabilities: Some(Capabilities {
                    drop: Some(vec!["ALL".to_owned()]),
                    ..Capabilities::default()
                }),
                read_only_root_filesystem: Some(true),
                run_as_non_root: Some(true),
                ..SecurityContext::default()
            }),
            ..Container::default()
        }
    }

    pub(super) fn service(&self) -> Service {
        Service {
            metadata: self.metadata(self.labels.clone()),
            spec: Some(ServiceSpec {
                cluster_ip: Some("None".to_owned()),
                selector: Some(self.labels.clone()),
                ports: Some(vec![ServicePort {
                    name: Some(PORT.to_owned()),
                    port: self.parent.spec.container_port,
                    target_port: Some(IntOrString::String(PORT.to_owned())),
                    protocol: Some("TCP".to_owned()),
                    ..ServicePort::default()
                }]),
                ..ServiceSpec::default()
            }),
            ..Service::default()
        }
    }

    /// Returns the status for the Deployment's last known state.
    pub(super) fn status(&self, deployment: &Deployment, nodes: Vec<String>) -> MemcachedStatus {
        let status = deployment.status.clone().unwrap_or_default();
        let selector: Vec<String> = self
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let is_stale = status.observed_generation.unwrap_or(0)
            < deployment.metadata.generation.unwrap_or_default();
        let counts = Counts {
            wanted: self.size,
            replicas: status.replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0),
            updated: status.updated_replicas.unwrap_or(0),
            is_stale,
        };
        MemcachedStatus {
            nodes,
            replicas: counts.replicas,
            ready_replicas: counts.ready,
            selector: selector.join(","),
            image: self.image.to_owned(),
            observed_generation: self.parent.metadata.generation.unwrap_or_default(),
            conditions: counts.conditions(self.parent),
        }
    }
}

fn probe(initial_delay_seconds: i32, period_seconds: i32) -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::String(PORT.to_owned()),
            ..TCPSocketAction::default()
        }),
        initial_delay_seconds: Some(initial_delay_seconds),
        period_seconds: Some(period_seconds),
        timeout_seconds: Some(3),
        ..Probe::default()
    }
}

/// Pod counts, and whether the Deployment's status lags behind its spec.
struct Counts {
    wanted: i32,
    replicas: i32,
    ready: i32,
    updated: i32,
    is_stale: bool,
}

impl Counts {
    fn conditions(&self, parent: &Memcached) -> Vec<Condition> {
        let Self {
            wanted,
            replicas,
            ready,
            updated,
            is_stale,
        } = *self;
        let some_ready = format!("{ready} of {wanted} replicas are ready");
        let all_ready = format!("all {wanted} replicas are ready");
        let available = if ready > 0 {
            (true, "Available", &*some_ready)
        } else {
            (false, "Unavailable", &*some_ready)
        };
        let some_updated = format!("{updated} of {wanted} replicas are updated");
        let all_updated = format!("all {wanted} replicas are updated");
        let progressing = if is_stale {
            (true, "Progressing", NOT_SEEN)
        } else if updated < wanted || replicas != wanted {
            (true, "Progressing", &*some_updated)
        } else {
            (false, "ProgressingComplete", &*all_updated)
        };
        let degraded = if ready < wanted {
            (true, "Degraded", &*some_ready)
        } else {
            (false, "NotDegraded", &*all_ready)
        };
        let is_ready = if wanted == 0 {
            (false, "NotReady", ZERO_REQUESTED)
        } else if ready == wanted {
            (true, "Ready", &*all_ready)
        } else {
            (false, "NotReady", &*some_ready)
        };
        [
            ("Available", available),
            ("Progressing", progressing),
            ("Degraded", degraded),
            ("Ready", is_ready),
        ]
        .map(|(kind, (holds, reason, message))| {
            condition(
                parent,
                kind,
                if holds { "True" } else { "False" },
                reason,
                message,
            )
        })
        .into()
    }
}

/// Builds a condition that keeps the stored transition time while the status stays the same.
fn condition(
    parent: &Memcached,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
) -> Condition {
    let stored = parent
        .status
        .as_ref()
        .and_then(|status| status.condition(kind));
    let current = stored.filter(|stored| stored.status == status);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: parent.metadata.generation,
        last_transition_time: current.map_or_else(
            || Time(Timestamp::now()),
            |current| current.last_transition_time.clone(),
        ),
    }
}
