//! The children: Services, record, claims, PodDisruptionBudget; the StatefulSet is in `members`.

use std::collections::BTreeMap;

use innkeeper_kit::{pod::service_port, prelude::*};
use innkeeper_sdk::json::sanitized;
use k8s_openapi::{
    api::{
        core::v1::{ConfigMap, PersistentVolumeClaim, Service, ServiceSpec},
        networking::v1::{
            NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
            NetworkPolicySpec,
        },
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    },
    apimachinery::pkg::{
        api::resource::Quantity, apis::meta::v1::ObjectMeta, util::intstr::IntOrString,
    },
};

use serde_json::{Value, json};

use crate::{
    Kinds, certificates,
    cluster::{CLUSTER_LABEL, CLUSTER_UID_LABEL, Cluster, FORMED, MEMBERS_LABEL, quorum},
    inspection, jobs,
    members::{self, Template},
    observe::{Claim, Observation, requested},
    record::Record,
    step::Step,
};

/// All children.
pub(crate) fn all(
    request: &Request,
    cluster: &Cluster<'_>,
    observation: &Observation,
    step: &Step,
    template: &Template<'_>,
) -> Vec<Child> {
    let services = services(cluster);
    let certificates = certificates::children(&request.children, cluster, &services);
    let mut children = Vec::from(services);
    children.extend(network_policy(cluster).map(|policy| Kinds::child("netpol", &policy)));
    children.extend(service_monitor(cluster).map(|monitor| Child::untyped("monitor", &monitor)));
    children.extend(certificates);
    let Some(record) = &step.record else {
        return children;
    };
    children.push(Kinds::child("state", &state(cluster, record)));
    if step.has_claims && cluster.is_persistent() {
        children.extend(claims(cluster, observation, record, step));
    }
    if let Some(replicas) = step.replicas {
        // The StatefulSet controller would create a missing claim itself, without the marks. And no member starts
        // before it can read the record and resolve the others.
        let before: Vec<String> = children
            .iter()
            .map(|child| child.key.clone())
            .filter(|key| {
                ["headless", "state"].contains(&key.as_str()) || key.starts_with("claim-")
            })
            .collect();
        let members = members::stateful_set(template, record, replicas);
        children.push(Kinds::child("members", &members).after(before));
    }
    children.extend(budget(cluster, record).map(|budget| Kinds::child("pdb", &budget)));
    let inspection = inspection::cron_job(cluster, observation, record);
    children.extend(inspection.map(|inspection| Kinds::child("inspect", &inspection)));
    // The record in the cluster, not the one in this answer: each result is stored before the next Job starts.
    if let Some(observed) = &observation.record {
        children.extend(jobs::children(
            cluster,
            &observation.jobs,
            observed,
            &step.replacement,
        ));
    }
    children
}

/// The Services whose names are in the certificates.
pub(crate) fn services(cluster: &Cluster<'_>) -> [Child; 2] {
    [
        Kinds::child("headless", &headless_service(cluster)),
        // Certificates wait for the Service, not for a load balancer's address.
        Kinds::child("client", &client_service(cluster)).ready(),
    ]
}

/// The names of Services that do not exist or belong to another owner.
pub(crate) fn missing_services(request: &Request, cluster: &Cluster<'_>) -> Vec<String> {
    let is_own = |name: &String| {
        request
            .children
            .find::<Service>(name)
            .is_some_and(|observed| !observed.is_deleting())
    };
    let mut names = vec![cluster.name.to_owned(), cluster.client_service()];
    names.retain(|name| !is_own(name));
    names
}

fn headless_service(cluster: &Cluster<'_>) -> Service {
    Service {
        metadata: annotated(
            metadata(cluster.name, &cluster.labels("headless")),
            &cluster.spec.headless_service.annotations,
        ),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            // Members must resolve each other's names before any of them is ready.
            publish_not_ready_addresses: Some(true),
            selector: Some(cluster.selector()),
            ports: Some(vec![
                service_port("peer", 2380),
                service_port("client", 2379),
                service_port("metrics", 2381),
            ]),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn client_service(cluster: &Cluster<'_>) -> Service {
    let options = &cluster.spec.client_service;
    let type_ = options.type_.unwrap_or(ServiceType::ClusterIp);
    Service {
        metadata: annotated(
            metadata(cluster.client_service(), &cluster.labels("client")),
            &options.annotations,
        ),
        spec: Some(ServiceSpec {
            type_: Some(type_.as_str().to_owned()),
            selector: Some(cluster.selector()),
            ports: Some(vec![
                service_port("client", 2379),
                service_port("metrics", 2381),
            ]),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn annotated(metadata: ObjectMeta, annotations: &BTreeMap<String, String>) -> ObjectMeta {
    ObjectMeta {
        annotations: (!annotations.is_empty()).then(|| sanitized(annotations)),
        ..metadata
    }
}

/// The members' NetworkPolicy: peers may reach the peer port; the cluster's Jobs and the allowed sources the others.
fn network_policy(cluster: &Cluster<'_>) -> Option<NetworkPolicy> {
    let policy = cluster.spec.network_policy.as_ref()?;
    let ports = |numbers: &[i32]| {
        let port = |number: &i32| NetworkPolicyPort {
            port: Some(IntOrString::Int(*number)),
            protocol: Some("TCP".to_owned()),
            ..Default::default()
        };
        Some(numbers.iter().map(port).collect())
    };
    let pods = |labels: BTreeMap<String, String>| NetworkPolicyPeer {
        pod_selector: Some(labels::label_selector(&labels)),
        ..Default::default()
    };
    let own = BTreeMap::from([(CLUSTER_LABEL.to_owned(), cluster.name.to_owned())]);
    let sources = policy.allowed_sources.iter().map(sanitized);
    let clients: Vec<NetworkPolicyPeer> = [pods(own)].into_iter().chain(sources).collect();
    let is_limited = !policy.allowed_sources.is_empty();
    let ingress = vec![
        NetworkPolicyIngressRule {
            from: Some(vec![pods(cluster.selector())]),
            ports: ports(&[2380]),
        },
        NetworkPolicyIngressRule {
            // A rule without `from` admits all sources.
            from: is_limited.then_some(clients),
            ports: ports(&[2379, 2381]),
        },
    ];
    Some(NetworkPolicy {
        metadata: metadata(cluster.name, &cluster.labels("member")),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(labels::label_selector(&cluster.selector())),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(ingress),
            ..Default::default()
        }),
    })
}

/// The members' ServiceMonitor: scrapes the Service that lists all members, ready or not.
fn service_monitor(cluster: &Cluster<'_>) -> Option<Value> {
    let monitor = cluster.spec.monitoring.as_ref()?.service_monitor.as_ref()?;
    let mut own = cluster.config.monitoring.labels.clone();
    own.extend(cluster.labels("monitor"));
    let service = base_labels("etcd", cluster.name, "headless");
    Some(json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata(cluster.name, &own),
        "spec": {
            "selector": { "matchLabels": service },
            // Alerts use it to select these clusters' metrics: other etcd metrics have the same names.
            "targetLabels": [CLUSTER_LABEL],
            "endpoints": [{ "port": "metrics", "interval": monitor.interval }],
        },
    }))
}

fn state(cluster: &Cluster<'_>, record: &Record) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            annotations: Some(record.annotations()),
            ..metadata(cluster.record(), &cluster.labels("state"))
        },
        data: Some(record.data(cluster)),
        ..Default::default()
    }
}

/// A claim per member, except for existing claims that are no children: these are used unchanged.
fn claims(
    cluster: &Cluster<'_>,
    observation: &Observation,
    record: &Record,
    step: &Step,
) -> Vec<Child> {
    let is_managed = |ordinal: &&i32| match observation.claims.get(ordinal) {
        Some(claim) => claim.child.is_some(),
        None => step.makes_claims,
    };
    record
        .members
        .iter()
        .filter(is_managed)
        .map(|ordinal| {
            let observed = observation.claims.get(ordinal);
            let mut claim = claim(cluster, observation, *ordinal, observed);
            claim
                .metadata
                .labels
                .get_or_insert_default()
                .insert(MEMBERS_LABEL.to_owned(), record.members.len().to_string());
            if record.formed {
                claim
                    .metadata
                    .annotations
                    .get_or_insert_default()
                    .insert(FORMED.to_owned(), "true".to_owned());
            }
            Kinds::child(format!("claim-{ordinal}"), &claim).retain()
        })
        .collect()
}

fn claim(
    cluster: &Cluster<'_>,
    observation: &Observation,
    ordinal: i32,
    observed: Option<&Claim>,
) -> PersistentVolumeClaim {
    let child = observed.and_then(|claim| claim.child.as_ref());
    let adopted = child.filter(|_| observed.is_some_and(|claim| !claim.is_ours));
    let mut labels = cluster.labels("data");
    // An adopted claim keeps the creator's label. Otherwise, once the record is lost, it would look like this
    // parent's claim.
    let uid = adopted
        .and_then(|claim| {
            claim
                .metadata
                .labels
                .as_ref()?
                .get(CLUSTER_UID_LABEL)
                .cloned()
        })
        .unwrap_or_else(|| cluster.uid.to_owned());
    labels.insert(CLUSTER_UID_LABEL.to_owned(), uid);
    let storage = &cluster.spec.storage;
    let claim_spec = adopted.and_then(|claim| claim.spec.as_ref());
    let declared = DeclaredClaim {
        size: request(cluster, observation, child),
        storage_class_name: claim_spec.map_or_else(
            || storage.storage_class_name.clone(),
            |spec| spec.storage_class_name.clone(),
        ),
        access_modes: claim_spec
            .and_then(|spec| spec.access_modes.clone())
            .unwrap_or_else(|| storage.access_modes()),
    };
    declared.object(metadata(cluster.claim(ordinal), &labels), None)
}

/// The size for a claim's request: never less than now, and more only if the StorageClass allows growth.
fn request(
    cluster: &Cluster<'_>,
    observation: &Observation,
    child: Option<&PersistentVolumeClaim>,
) -> Quantity {
    let size = &cluster.spec.storage.size;
    match child.and_then(requested) {
        Some(has)
            if Amount::from_quantity(size) <= Amount::from_quantity(has)
                || !observation.can_grow =>
        {
            has.clone()
        }
        _ => size.clone(),
    }
}

fn budget(cluster: &Cluster<'_>, record: &Record) -> Option<PodDisruptionBudget> {
    let budget = &cluster.spec.pod_disruption_budget;
    if !budget.enabled || cluster.spec.size == 0 || !record.formed {
        return None;
    }
    let min_available = match (&budget.min_available, &budget.max_unavailable) {
        // A budget that allows no disruption would only block drains.
        (None, None) if record.members.len() < 3 => return None,
        (None, None) => {
            let quorum = i32::try_from(quorum(record.members.len())).unwrap_or(i32::MAX);
            Some(IntOrString::Int(quorum))
        }
        (given, _) => given.clone(),
    };
    Some(PodDisruptionBudget {
        metadata: metadata(cluster.name, &cluster.labels("member")),
        spec: Some(PodDisruptionBudgetSpec {
            min_available,
            max_unavailable: budget.max_unavailable.clone(),
            selector: Some(labels::label_selector(&cluster.selector())),
            unhealthy_pod_eviction_policy: Some("IfHealthyBudget".to_owned()),
        }),
        ..Default::default()
    })
}
