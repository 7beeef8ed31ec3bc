//! The site: its Deployment, PHP's configuration, its disruption budget.
//!
//! The core files come from the image at each start, so that another image really is another
//! WordPress; themes, plugins and uploads lie in the claim.

use std::collections::BTreeMap;

use innkeeper_sdk::{hash, json, labels, prelude::*};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
        core::v1::{
            ConfigMap, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource,
            HTTPGetAction, HTTPHeader, PersistentVolumeClaimVolumeSource, PodSpec, PodTemplateSpec,
            Probe, Sysctl, TCPSocketAction, Volume, VolumeMount,
        },
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};

use super::{environment, pod};
use crate::{
    api::Scheme,
    observe::{self, ClaimObject, Observation},
    site::{RESTART_TRIGGER, Site},
};

/// The user `www-data` of the official images.
const USER: i64 = 33;

/// The name of the port that serves HTTP.
pub(super) const PORT_NAME: &str = "http";

/// Where the image copies the core files to; an unprivileged user could not write there.
const ROOT_PATH: &str = "/var/www/html";
/// Where themes, plugins and uploads lie, and the directory of the claim that holds them.
const CONTENT_PATH: &str = "/var/www/html/wp-content";
const CONTENT_SUB_PATH: &str = "wp-content";

/// Where the official images read further configuration; the name makes it the last one.
const PHP_PATH: &str = "/usr/local/etc/php/conf.d/zz-innkeeper.ini";
const PHP_KEY: &str = "php.ini";

/// Configuration, workload and budget of the site.
pub(super) fn children(site: &Site<'_>, observation: &Observation) -> Vec<Child> {
    let php = site.spec.php_config.as_deref();
    let php = php.map(|text| Child::new("php-config", &config_map(site, text)).after(["db"]));
    let web = Child::new("web", &deployment(site, observation)).after([
        "db",
        "salts",
        "code-claim",
        "php-config",
    ]);
    let budget = budget(site).map(|budget| Child::new("pdb", &budget).after(["web"]));
    php.into_iter().chain([web]).chain(budget).collect()
}

fn config_map(site: &Site<'_>, text: &str) -> ConfigMap {
    ConfigMap {
        metadata: metadata(site.php_name(), &site.labels("web")),
        data: Some(BTreeMap::from([(PHP_KEY.to_owned(), text.to_owned())])),
        ..Default::default()
    }
}

fn deployment(site: &Site<'_>, observation: &Observation) -> Deployment {
    let labels = site.labels("web");
    let workload_labels = labels::with_version(&labels, site.image);
    Deployment {
        metadata: metadata(site.name, &workload_labels),
        spec: Some(DeploymentSpec {
            replicas: Some(site.replicas()),
            selector: labels::label_selector(&labels),
            strategy: Some(strategy(site, observation)),
            template: PodTemplateSpec {
                metadata: Some(pod_metadata(site, observation, workload_labels)),
                spec: Some(PodSpec {
                    containers: vec![container(site)],
                    volumes: Some(volumes(site)),
                    ..pod::spec(site, USER, sysctls(site))
                }),
            },
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// A new pod on another node would wait for a volume that the old one still has.
fn strategy(site: &Site<'_>, observation: &Observation) -> DeploymentStrategy {
    let is_shared = if site.code.existing_claim.is_some() {
        let existing = observation.existing_claim.as_ref();
        existing.is_some_and(ClaimObject::is_shared)
    } else {
        let mut modes = site.code.access_modes.iter();
        modes.any(|mode| observe::is_shared(mode.as_str()))
    };
    if is_shared {
        DeploymentStrategy {
            type_: Some("RollingUpdate".to_owned()),
            rolling_update: Some(RollingUpdateDeployment {
                max_surge: Some(IntOrString::Int(1)),
                max_unavailable: Some(IntOrString::Int(0)),
            }),
        }
    } else {
        DeploymentStrategy {
            type_: Some("Recreate".to_owned()),
            rolling_update: None,
        }
    }
}

fn pod_metadata(
    site: &Site<'_>,
    observation: &Observation,
    labels: BTreeMap<String, String>,
) -> ObjectMeta {
    let given = site.spec.pod_metadata.as_ref().map(json::copied);
    let (mut all_labels, mut annotations) =
        given.map_or_else(Default::default, |it| (it.labels, it.annotations));
    // Last, because the selectors rely on them.
    all_labels.extend(labels);
    let php = site.spec.php_config.as_ref().map(hash::sha256_hex);
    let own = [
        (
            pod::CREDENTIALS_HASH,
            pod::credentials_hash(site, observation),
        ),
        (pod::SECRET_HASH, Some(pod::secret_hash(observation))),
        (pod::CONFIG_HASH, php),
        (RESTART_TRIGGER, site.restart_trigger.map(ToOwned::to_owned)),
    ];
    for (key, value) in own {
        annotations.extend(value.map(|value| (key.to_owned(), value)));
    }
    ObjectMeta {
        labels: Some(all_labels),
        annotations: Some(annotations),
        ..Default::default()
    }
}

/// What lets an unprivileged user listen on a port below 1024; the level `restricted` allows it.
fn sysctls(site: &Site<'_>) -> Option<Vec<Sysctl>> {
    (site.spec.container_port < 1024).then(|| {
        vec![Sysctl {
            name: "net.ipv4.ip_unprivileged_port_start".to_owned(),
            value: "0".to_owned(),
        }]
    })
}

fn container(site: &Site<'_>) -> Container {
    Container {
        name: "wordpress".to_owned(),
        image: Some(site.image.to_owned()),
        image_pull_policy: pod::pull_policy(site),
        env: Some(environment::variables(site)),
        env_from: Some(environment::sources(site)),
        ports: Some(vec![ContainerPort {
            name: Some(PORT_NAME.to_owned()),
            container_port: site.spec.container_port,
            protocol: Some("TCP".to_owned()),
            ..Default::default()
        }]),
        resources: Some(pod::resources(
            site.spec.resources.as_ref(),
            "100m",
            "256Mi",
        )),
        readiness_probe: Some(Probe {
            http_get: Some(front_page(site)),
            ..patient()
        }),
        // Neither an outage of the database nor maintenance mode restarts the site.
        liveness_probe: Some(Probe {
            tcp_socket: Some(port()),
            ..patient()
        }),
        startup_probe: Some(Probe {
            tcp_socket: Some(port()),
            period_seconds: Some(5),
            failure_threshold: Some(60),
            ..Default::default()
        }),
        security_context: Some(pod::security()),
        volume_mounts: Some(mounts(site)),
        ..Default::default()
    }
}

fn patient() -> Probe {
    Probe {
        initial_delay_seconds: Some(10),
        period_seconds: Some(5),
        timeout_seconds: Some(30),
        failure_threshold: Some(3),
        ..Default::default()
    }
}

fn port() -> TCPSocketAction {
    TCPSocketAction {
        port: IntOrString::String(PORT_NAME.to_owned()),
        ..Default::default()
    }
}

/// The front page by its own address, so that WordPress does not redirect; it answers 500 when the
/// database is away.
fn front_page(site: &Site<'_>) -> HTTPGetAction {
    let header = |name: &str, value: &str| HTTPHeader {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let forwarded = (site.scheme() == Scheme::Https).then(|| header("X-Forwarded-Proto", "https"));
    let host = header("Host", &site.main_domain());
    HTTPGetAction {
        path: Some("/".to_owned()),
        port: IntOrString::String(PORT_NAME.to_owned()),
        http_headers: Some([host].into_iter().chain(forwarded).collect()),
        ..Default::default()
    }
}

fn mounts(site: &Site<'_>) -> Vec<VolumeMount> {
    let mount = |name: &str, path: &str, sub_path: Option<&str>| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        sub_path: sub_path.map(ToOwned::to_owned),
        ..Default::default()
    };
    let php = site.spec.php_config.as_ref().map(|_| VolumeMount {
        read_only: Some(true),
        ..mount("php-config", PHP_PATH, Some(PHP_KEY))
    });
    [
        mount("html", ROOT_PATH, None),
        mount("code", CONTENT_PATH, Some(CONTENT_SUB_PATH)),
    ]
    .into_iter()
    .chain(php)
    .collect()
}

fn volumes(site: &Site<'_>) -> Vec<Volume> {
    let html = Volume {
        name: "html".to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Default::default()
    };
    let code = Volume {
        name: "code".to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: site.code_claim(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let php = site.spec.php_config.as_ref().map(|_| Volume {
        name: "php-config".to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: site.php_name(),
            ..Default::default()
        }),
        ..Default::default()
    });
    [html, code].into_iter().chain(php).collect()
}

fn budget(site: &Site<'_>) -> Option<PodDisruptionBudget> {
    let wanted = site.spec.pod_disruption_budget.as_ref()?;
    let labels = site.labels("web");
    wanted.enabled.then(|| PodDisruptionBudget {
        metadata: metadata(site.name, &labels),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: wanted.min_available.clone(),
            max_unavailable: wanted.max_unavailable.clone(),
            selector: Some(labels::label_selector(&labels)),
            // A crashing site must not block a node drain.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
        }),
        ..Default::default()
    })
}
