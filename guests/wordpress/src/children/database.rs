//! The managed database: a StatefulSet with one Pod, the headless Service, the configuration.
//!
//! A StatefulSet never runs two Pods with one identity, so two servers never share the data directory.

use std::collections::BTreeMap;

use innkeeper_kit::{labels, pod as block, rollout::TemplateHash, workload::Workload};
use innkeeper_sdk::{hash, prelude::*};
use k8s_openapi::api::{
    apps::v1::{StatefulSet, StatefulSetSpec},
    core::v1::{
        ConfigMap, Container, ExecAction, PodSpec, PodTemplateSpec, Probe, Service, ServiceSpec,
        Volume, VolumeMount,
    },
};

use super::pod;
use crate::{Kinds, api::Managed, observe::Observation, site::Site};

/// The user in the official images.
const USER: i64 = 999;

/// Seconds for which a Pod with a new image must be ready before the image counts as working: a server can exit right
/// after its start.
const MIN_READY_SECONDS: i32 = 10;

/// Seconds between two logins until the first one succeeds.
const STARTUP_PERIOD: i32 = 5;

/// The port and the port name.
const PORT: i32 = 3306;
const PORT_NAME: &str = "mysql";

/// The claim's directories: one for the data, one for the mark of an unfinished first start. The volume's root may
/// contain `lost+found`, and the server only initializes an empty directory.
const DATA_SUB_PATH: &str = "mysql";
const FIRST_START_SUB_PATH: &str = "first-start";

/// A managed database's configuration, Service and workload.
pub(super) fn children(
    site: &Site<'_>,
    observation: &Observation,
    template: Option<(PodTemplateSpec, &TemplateHash)>,
) -> Vec<Child> {
    let (Some(managed), Some(template)) = (&site.managed, template) else {
        return Vec::new();
    };
    managed
        .config
        .as_deref()
        .map(|text| Kinds::child("db-config", &config_map(site, text)))
        .into_iter()
        .chain([
            Kinds::child("db-service", &super::marked(service(site))),
            Kinds::child("db", &stateful_set(site, observation, template)).after([
                "db-secret",
                "db-claim",
                "db-config",
                // The site sends the password to this name, which may have another owner.
                "db-service",
            ]),
        ])
        .collect()
}

fn config_map(site: &Site<'_>, text: &str) -> ConfigMap {
    ConfigMap {
        metadata: metadata(site.mysql_name(), &site.labels("database")),
        data: Some(BTreeMap::from([(
            "innkeeper.cnf".to_owned(),
            text.to_owned(),
        )])),
        ..Default::default()
    }
}

fn service(site: &Site<'_>) -> Service {
    let labels = site.labels("database");
    Service {
        metadata: metadata(site.mysql_name(), &labels),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            selector: Some(labels),
            ports: Some(vec![block::service_port(PORT_NAME, PORT)]),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn stateful_set(
    site: &Site<'_>,
    observation: &Observation,
    (template, hash): (PodTemplateSpec, &TemplateHash),
) -> StatefulSet {
    let labels = site.labels("database");
    let workload_labels = labels::with_version(&labels, site.database_image());
    let metadata = metadata(site.mysql_name(), &workload_labels);
    // Without it, a Pod that never became ready is not replaced. An existing StatefulSet cannot change it.
    let is_parallel = observation
        .database
        .as_ref()
        .is_none_or(Workload::is_parallel);
    StatefulSet {
        metadata: hash.mark(metadata),
        spec: Some(StatefulSetSpec {
            replicas: Some(1),
            min_ready_seconds: Some(MIN_READY_SECONDS),
            pod_management_policy: is_parallel.then(|| "Parallel".to_owned()),
            service_name: Some(site.mysql_name()),
            selector: labels::label_selector(&labels),
            template,
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The database's Pod template.
pub(super) fn template(site: &Site<'_>, managed: &Managed) -> PodTemplateSpec {
    let labels = labels::with_version(&site.labels("database"), site.database_image());
    let config = managed.config.as_ref().map(hash::sha256_hex);
    PodTemplateSpec {
        metadata: Some(block::metadata(None, labels, [(pod::CONFIG_HASH, config)])),
        spec: Some(PodSpec {
            // InnoDB flushes the buffers at shutdown; a killed server recovers slowly.
            termination_grace_period_seconds: Some(120),
            containers: vec![container(site, managed)],
            volumes: Some(volumes(site, managed)),
            ..pod::spec(site, USER, None)
        }),
    }
}

fn container(site: &Site<'_>, managed: &Managed) -> Container {
    let credentials = &site.credentials;
    let secret = |name: &str, key: &str| block::secret_variable(name, &credentials.secret, key);
    let environment = credentials
        .root_password_key
        .as_deref()
        .map(|key| secret("MYSQL_ROOT_PASSWORD", key))
        .into_iter()
        .chain([
            secret("MYSQL_USER", &credentials.username_key),
            secret("MYSQL_PASSWORD", &credentials.password_key),
            block::variable("MYSQL_DATABASE", &managed.database_name),
        ]);
    Container {
        name: "mysql".to_owned(),
        command: Some(pod::script(include_str!("scripts/start.sh"))),
        image: Some(site.database_image().to_owned()),
        image_pull_policy: site.spec.image_pull_policy.map(Into::into),
        env: Some(environment.collect()),
        ports: Some(vec![block::container_port(PORT_NAME, PORT)]),
        resources: Some(block::resources(
            managed.resources.as_ref(),
            "100m",
            "640Mi",
        )),
        startup_probe: Some(Probe {
            period_seconds: Some(STARTUP_PERIOD),
            timeout_seconds: Some(30),
            failure_threshold: Some(
                (managed.startup_seconds + STARTUP_PERIOD - 1) / STARTUP_PERIOD,
            ),
            ..probe(include_str!("scripts/login.sh"))
        }),
        liveness_probe: Some(Probe {
            period_seconds: Some(10),
            timeout_seconds: Some(5),
            failure_threshold: Some(6),
            ..probe(include_str!("scripts/ping.sh"))
        }),
        readiness_probe: Some(Probe {
            period_seconds: Some(5),
            timeout_seconds: Some(5),
            failure_threshold: Some(3),
            ..probe(include_str!("scripts/ping.sh"))
        }),
        security_context: Some(block::container_security()),
        volume_mounts: Some(mounts(managed)),
        ..Default::default()
    }
}

fn probe(script: &str) -> Probe {
    Probe {
        exec: Some(ExecAction {
            command: Some(pod::script(script)),
        }),
        ..Default::default()
    }
}

fn mounts(managed: &Managed) -> Vec<VolumeMount> {
    let data = pod::part("data", "/var/lib/mysql", DATA_SUB_PATH);
    let first_start = pod::part("data", "/var/lib/first-start", FIRST_START_SUB_PATH);
    let config = managed.config.as_ref().map(|_| VolumeMount {
        read_only: Some(true),
        ..block::mount("config", "/etc/mysql/conf.d")
    });
    let run = block::mount("run", "/var/run/mysqld");
    [data, first_start, run, block::mount("tmp", "/tmp")]
        .into_iter()
        .chain(config)
        .collect()
}

fn volumes(site: &Site<'_>, managed: &Managed) -> Vec<Volume> {
    let name = site.mysql_name();
    let config = managed
        .config
        .as_ref()
        .map(|_| block::from_config_map("config", &name));
    [
        block::from_claim("data", &name),
        block::empty_dir("run"),
        block::empty_dir("tmp"),
    ]
    .into_iter()
    .chain(config)
    .collect()
}
