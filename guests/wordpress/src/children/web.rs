//! The site's Deployment, PHP settings and disruption budget.
//!
//! An init container copies the core files from the image at each start, so a new image changes the WordPress
//! version; the claim holds themes, plugins and uploads.

use std::collections::BTreeMap;

use innkeeper_kit::{claim, labels, pod as block, rollout::TemplateHash};
use innkeeper_sdk::{hash, prelude::*};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
        core::v1::{
            ConfigMap, Container, HTTPGetAction, HTTPHeader, PodSpec, PodTemplateSpec, Probe,
            Sysctl, TCPSocketAction, Volume, VolumeMount,
        },
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};

use super::{environment, pod};
use crate::{
    Kinds,
    api::Scheme,
    observe::Observation,
    site::{RESTART_TRIGGER, Site},
};

/// The user `www-data` in the official images.
const USER: i64 = 33;

/// The HTTP port's name.
pub(super) const PORT_NAME: &str = "http";

/// The core files' directory: an emptyDir, because an unprivileged user cannot write to it in the image.
const ROOT_PATH: &str = "/var/www/html";
/// The directory with themes, plugins and uploads, and the path in the claim.
const CONTENT_PATH: &str = "/var/www/html/wp-content";
const CONTENT_SUB_PATH: &str = "wp-content";

/// A PHP configuration file in the official images. PHP reads the files by name, this one last.
const PHP_PATH: &str = "/usr/local/etc/php/conf.d/zz-innkeeper.ini";
const PHP_KEY: &str = "php.ini";

/// The site's configuration, workload and budget.
pub(super) fn children(
    site: &Site<'_>,
    observation: &Observation,
    template: (PodTemplateSpec, &TemplateHash),
) -> Vec<Child> {
    let php = site
        .spec
        .php_config
        .as_deref()
        .map(|text| Kinds::child("php-config", &config_map(site, text)).after(["db"]));
    let web = Kinds::child("web", &deployment(site, observation, template)).after([
        "db",
        "salts",
        "code-claim",
        "php-config",
    ]);
    let budget =
        budget(site).map(|budget| Kinds::child("pdb", &super::marked(budget)).after(["web"]));
    php.into_iter().chain([web]).chain(budget).collect()
}

fn config_map(site: &Site<'_>, text: &str) -> ConfigMap {
    ConfigMap {
        metadata: metadata(site.php_name(), &site.labels("web")),
        data: Some(BTreeMap::from([(PHP_KEY.to_owned(), text.to_owned())])),
        ..Default::default()
    }
}

fn deployment(
    site: &Site<'_>,
    observation: &Observation,
    (template, hash): (PodTemplateSpec, &TemplateHash),
) -> Deployment {
    let labels = site.labels("web");
    let metadata = metadata(site.name, &labels::with_version(&labels, site.image));
    Deployment {
        metadata: hash.mark(metadata),
        spec: Some(DeploymentSpec {
            replicas: Some(site.replicas()),
            selector: labels::label_selector(&labels),
            strategy: Some(strategy(site, observation)),
            template,
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The site's Pod template.
pub(super) fn template(site: &Site<'_>, observation: &Observation) -> PodTemplateSpec {
    let labels = labels::with_version(&site.labels("web"), site.image);
    PodTemplateSpec {
        metadata: Some(pod_metadata(site, observation, labels)),
        spec: Some(PodSpec {
            init_containers: Some(vec![core(site)]),
            containers: vec![container(site)],
            volumes: Some(volumes(site)),
            ..pod::spec(site, USER, sysctls(site))
        }),
    }
}

/// Recreates the Pod unless nodes share the volume for writing: a new Pod on another node would wait for the old
/// one's volume.
fn strategy(site: &Site<'_>, observation: &Observation) -> DeploymentStrategy {
    let is_shared = if site.code.existing_claim.is_some() {
        observation
            .existing_claim
            .as_ref()
            .is_some_and(claim::ObservedClaim::is_shared)
    } else {
        site.code
            .access_modes
            .iter()
            .any(|mode| claim::is_shared(mode.as_str()))
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
    let own = [
        (
            pod::CREDENTIALS_HASH,
            pod::credentials_hash(site, observation),
        ),
        (pod::SECRET_HASH, Some(pod::secret_hash(observation))),
        (
            pod::CONFIG_HASH,
            site.spec.php_config.as_ref().map(hash::sha256_hex),
        ),
        (RESTART_TRIGGER, site.restart_trigger.map(ToOwned::to_owned)),
    ];
    block::metadata(site.spec.pod_metadata.as_ref(), labels, own)
}

/// The sysctl that lets an unprivileged user listen on a port below 1024; Pod Security `restricted` allows it.
fn sysctls(site: &Site<'_>) -> Option<Vec<Sysctl>> {
    (site.spec.container_port < 1024).then(|| {
        vec![Sysctl {
            name: "net.ipv4.ip_unprivileged_port_start".to_owned(),
            value: "0".to_owned(),
        }]
    })
}

/// The init container that copies the WordPress files; images without them bring their own mechanism.
fn core(site: &Site<'_>) -> Container {
    Container {
        name: "core".to_owned(),
        command: Some(pod::script(include_str!("scripts/core.sh"))),
        volume_mounts: Some(files().into()),
        ..common(site)
    }
}

fn container(site: &Site<'_>) -> Container {
    Container {
        name: "wordpress".to_owned(),
        env: Some(environment::variables(site)),
        env_from: Some(environment::sources(site)),
        ports: Some(vec![block::container_port(
            PORT_NAME,
            site.spec.container_port,
        )]),
        readiness_probe: Some(Probe {
            http_get: Some(readiness(site)),
            ..patient()
        }),
        // TCP, so that neither a database outage nor maintenance mode restarts the site.
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
        volume_mounts: Some(mounts(site)),
        ..common(site)
    }
}

/// The fields that both containers share.
fn common(site: &Site<'_>) -> Container {
    Container {
        image: Some(site.image.to_owned()),
        image_pull_policy: site.spec.image_pull_policy.map(Into::into),
        resources: Some(block::resources(
            site.spec.resources.as_ref(),
            "100m",
            "256Mi",
        )),
        security_context: Some(block::container_security()),
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

/// A page that needs PHP and the database, but neither theme nor plugins: the Pods stay in the Service with a broken
/// theme and in maintenance mode, so administrators can repair the site. It does not redirect.
fn readiness(site: &Site<'_>) -> HTTPGetAction {
    let header = |name: &str, value: &str| HTTPHeader {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let forwarded = (site.scheme() == Scheme::Https).then(|| header("X-Forwarded-Proto", "https"));
    let host = header("Host", &site.main_domain());
    HTTPGetAction {
        path: Some(site.readiness_path()),
        port: IntOrString::String(PORT_NAME.to_owned()),
        http_headers: Some([host].into_iter().chain(forwarded).collect()),
        ..Default::default()
    }
}

fn mounts(site: &Site<'_>) -> Vec<VolumeMount> {
    let php = site.spec.php_config.as_ref().map(|_| VolumeMount {
        read_only: Some(true),
        ..pod::part("php-config", PHP_PATH, PHP_KEY)
    });
    files().into_iter().chain(php).collect()
}

/// The mounts for the WordPress files.
fn files() -> [VolumeMount; 2] {
    [
        block::mount("html", ROOT_PATH),
        pod::part("code", CONTENT_PATH, CONTENT_SUB_PATH),
    ]
}

fn volumes(site: &Site<'_>) -> Vec<Volume> {
    let php = site
        .spec
        .php_config
        .as_ref()
        .map(|_| block::from_config_map("php-config", site.php_name()));
    [
        block::empty_dir("html"),
        block::from_claim("code", site.code_claim()),
    ]
    .into_iter()
    .chain(php)
    .collect()
}

fn budget(site: &Site<'_>) -> Option<PodDisruptionBudget> {
    let labels = site.labels("web");
    site.spec
        .pod_disruption_budget
        .as_ref()?
        .object(metadata(site.name, &labels), &labels)
}
