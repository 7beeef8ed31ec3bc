//! The children: a Deployment, a headless Service, and a PodDisruptionBudget if enabled.
//!
//! The plugin owns the fields it sets; other field managers own the rest.

use std::collections::BTreeMap;

use innkeeper_kit::{labels, pod, rollout::TemplateHash};
use innkeeper_sdk::{json, prelude::*};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
        core::v1::{
            Container, PodSpec, PodTemplateSpec, Probe, SecurityContext, Service, ServiceSpec,
            TCPSocketAction,
        },
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};

use crate::{Kinds, api::MemcachedSpec, config::Config};

/// The user in the official images, both Debian and Alpine.
const USER: i64 = 11211;

/// The client port's name.
const PORT: &str = "memcached";

/// The annotation on a parent and its Pods: a changed value restarts them one by one.
const RESTART_TRIGGER: &str = "cache.example.com/restart-trigger";

/// One parent's desired state.
pub(crate) struct Pool<'a> {
    name: &'a str,
    namespace: &'a str,
    spec: &'a MemcachedSpec,
    assign_user: bool,
    restart_trigger: Option<&'a str>,
    /// The image in use.
    pub(crate) image: &'a str,
    /// The labels of all children, and the selector.
    pub(crate) labels: BTreeMap<String, String>,
}

impl<'a> Pool<'a> {
    pub(crate) fn new(request: &'a Request, spec: &'a MemcachedSpec, config: &'a Config) -> Self {
        Self {
            name: request.name(),
            namespace: request.namespace(),
            spec,
            assign_user: config.assign_user,
            restart_trigger: request.annotation(RESTART_TRIGGER),
            image: spec.image.as_deref().unwrap_or(&config.images.memcached),
            labels: labels::base_labels("memcached", request.name(), "cache"),
        }
    }

    /// The desired number of processes.
    pub(crate) fn size(&self) -> i32 {
        self.spec.size.unwrap_or(1)
    }

    /// The port on which Pods of the current template listen.
    pub(crate) fn port(&self) -> i32 {
        self.spec.container_port
    }

    /// The addresses for clients.
    pub(crate) fn server_list(&self, port: i32) -> Vec<String> {
        vec![format!("{}.{}.svc:{port}", self.name, self.namespace)]
    }

    /// All children. `hash` is the template's hash; `port` is the port that clients use for now.
    pub(crate) fn children(
        &self,
        template: PodTemplateSpec,
        hash: &TemplateHash,
        port: i32,
    ) -> Vec<Child> {
        let budget = self.budget();
        [
            Kinds::child("deployment", &self.deployment(template, hash)),
            Kinds::child("service", &self.service(port)),
        ]
        .into_iter()
        .chain(budget.map(|budget| Kinds::child("pdb", &budget)))
        .collect()
    }

    fn metadata(&self) -> ObjectMeta {
        metadata(self.name, &self.labels)
    }

    fn deployment(&self, template: PodTemplateSpec, hash: &TemplateHash) -> Deployment {
        Deployment {
            metadata: hash.mark(ObjectMeta {
                labels: Some(self.workload_labels()),
                ..self.metadata()
            }),
            spec: Some(DeploymentSpec {
                replicas: Some(self.size()),
                selector: labels::label_selector(&self.labels),
                // A new Pod becomes ready before an old one is deleted, so the cache keeps the same size.
                strategy: Some(DeploymentStrategy {
                    type_: Some("RollingUpdate".to_owned()),
                    rolling_update: Some(RollingUpdateDeployment {
                        max_surge: Some(IntOrString::Int(1)),
                        max_unavailable: Some(IntOrString::Int(0)),
                    }),
                }),
                template,
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn workload_labels(&self) -> BTreeMap<String, String> {
        labels::with_version(&self.labels, self.image)
    }

    /// The template of the Pods.
    pub(crate) fn template(&self) -> PodTemplateSpec {
        let restart = self.restart_trigger.map(ToOwned::to_owned);
        let annotations = [(RESTART_TRIGGER, restart)];
        PodTemplateSpec {
            metadata: Some(pod::metadata(None, self.workload_labels(), annotations)),
            spec: Some(self.pod()),
        }
    }

    fn pod(&self) -> PodSpec {
        let user = self.assign_user.then_some(USER);
        PodSpec {
            containers: vec![self.container()],
            ..pod::restricted(user, &self.spec.image_pull_secrets)
        }
    }

    fn container(&self) -> Container {
        Container {
            name: "memcached".to_owned(),
            image: Some(self.image.to_owned()),
            image_pull_policy: self.spec.image_pull_policy.map(Into::into),
            args: Some(self.arguments()),
            ports: Some(vec![pod::container_port(PORT, self.spec.container_port)]),
            resources: Some(pod::resources(
                self.spec.resources.as_ref(),
                "100m",
                // A tenth more for small items, 64 MiB for threads and connections.
                &format!(
                    "{}Mi",
                    (self.spec.memcached.max_memory_mb * 11 + 9) / 10 + 64
                ),
            )),
            liveness_probe: Some(probe(10, 10)),
            readiness_probe: Some(probe(5, 5)),
            security_context: Some(SecurityContext {
                read_only_root_filesystem: Some(true),
                ..pod::container_security()
            }),
            ..Default::default()
        }
    }

    /// The arguments. `command` is never set: the image's entrypoint runs.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let options = &self.spec.memcached;
        let mut arguments = vec![
            "-m".to_owned(),
            options.max_memory_mb.to_string(),
            "-c".to_owned(),
            options.max_connections.to_string(),
            "-t".to_owned(),
            options.threads.to_string(),
            "-I".to_owned(),
            options.max_item_size.clone(),
        ];
        match options.verbosity {
            0 => {}
            1 => arguments.push("-v".to_owned()),
            _ => arguments.push("-vv".to_owned()),
        }
        if self.spec.container_port != 11211 {
            arguments.extend(["-p".to_owned(), self.spec.container_port.to_string()]);
        }
        arguments.extend(options.extra_args.iter().cloned());
        arguments
    }

    fn service(&self, port: i32) -> Service {
        let options = self.spec.service.as_ref();
        Service {
            metadata: ObjectMeta {
                annotations: options
                    .map(|options| json::sanitized(&options.annotations))
                    .filter(|annotations| !annotations.is_empty()),
                ..self.metadata()
            },
            spec: Some(ServiceSpec {
                // A client that distributes keys by their hash needs the address of each pod, not a load
                // balancer.
                cluster_ip: Some("None".to_owned()),
                selector: Some(self.labels.clone()),
                ports: Some(vec![pod::service_port(PORT, port)]),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn budget(&self) -> Option<PodDisruptionBudget> {
        self.spec
            .high_availability
            .as_ref()?
            .pod_disruption_budget
            .as_ref()?
            .object(self.metadata(), &self.labels)
    }
}

fn probe(initial_delay_seconds: i32, period_seconds: i32) -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::String(PORT.to_owned()),
            ..Default::default()
        }),
        initial_delay_seconds: Some(initial_delay_seconds),
        period_seconds: Some(period_seconds),
        timeout_seconds: Some(3),
        ..Default::default()
    }
}
