//! Content that affects others although the child's kind is ordinary: the grant must confirm it.
//!
//! [`privilege`](super::privilege) lists the kinds that always affect others. Both concern the children's namespaces:
//! ownership protects existing objects there, but not their traffic, Pods and settings.

use innkeeper_model::{Child, GroupKind, ObjectId};
use serde_json::{Map, Value};

use super::{
    Grants, Rejection,
    privilege::{FOREIGN_ADDRESSES, first_set},
};

/// Secret types that are cluster credentials: Kubernetes fills them with a service account token, or accepts nodes with
/// them.
const CREDENTIAL_TYPES: [&str; 2] = [
    "bootstrap.kubernetes.io/token",
    "kubernetes.io/service-account-token",
];

/// Service annotations that choose addresses, as the deprecated `loadBalancerIP` does. From the manuals of the load
/// balancers.
const ADDRESS_ANNOTATIONS: [&str; 13] = [
    "io.cilium/lb-ipam-ips",
    "kube-vip.io/loadbalancerIPs",
    "lbipam.cilium.io/ips",
    "loadbalancer.openstack.org/load-balancer-address",
    "loadbalancer.openstack.org/load-balancer-id",
    "metallb.io/loadBalancerIPs",
    "metallb.universe.tf/loadBalancerIPs",
    "networking.gke.io/load-balancer-ip-addresses",
    "purelb.io/addresses",
    "service.beta.kubernetes.io/aws-load-balancer-eip-allocations",
    "service.beta.kubernetes.io/aws-load-balancer-private-ipv4-addresses",
    "service.beta.kubernetes.io/azure-load-balancer-ipv4",
    "service.beta.kubernetes.io/azure-load-balancer-ipv6",
];

/// Prefixes of annotations that configure HAProxy if the name begins with `config-`.
const HAPROXY_PREFIXES: [&str; 2] = ["haproxy-ingress.github.io", "ingress.kubernetes.io"];

/// Returns the effect on others that a grant must confirm, if the object has one.
pub(super) fn effect(
    kind: &GroupKind,
    (namespace, name): (Option<&str>, &str),
    object: &Map<String, Value>,
) -> Option<String> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    match (&*kind.group, &*kind.kind) {
        ("", "Secret") => credential(object),
        // Pods reach the API server through this Service.
        ("", "Service") if namespace == Some("default") && name == "kubernetes" => {
            Some("it directs the traffic for the API server".to_owned())
        }
        ("", "Service") => foreign_address(object, spec),
        ("networking.k8s.io", "Ingress") => injected(object).or_else(|| all_hosts(spec)),
        // Without a selector, a policy selects every Pod in the namespace.
        ("networking.k8s.io", "NetworkPolicy") => all_pods(&spec["podSelector"], "podSelector"),
        // Without a selector, a budget selects nothing.
        ("policy", "PodDisruptionBudget") if spec["selector"].is_null() => None,
        ("policy", "PodDisruptionBudget") => all_pods(&spec["selector"], "selector"),
        _ => None,
    }
}

fn credential(object: &Map<String, Value>) -> Option<String> {
    let secret_type = object.get("type")?.as_str()?;
    CREDENTIAL_TYPES
        .contains(&secret_type)
        .then(|| format!("a Secret of type {secret_type} is a credential of the cluster"))
}

/// Returns the field or annotation with which a Service takes foreign addresses or names a server elsewhere.
fn foreign_address(object: &Map<String, Value>, spec: &Value) -> Option<String> {
    let is_elsewhere = spec["type"].as_str() == Some("ExternalName");
    let field = first_set(spec, &FOREIGN_ADDRESSES)
        .or_else(|| is_elsewhere.then_some("type"))
        .map(|field| format!("spec.{field}"));
    let place = field.or_else(|| {
        let key = annotation(object, |key| ADDRESS_ANNOTATIONS.contains(&key))?;
        Some(format!("metadata.annotations.{key}"))
    })?;
    Some(format!(
        "`{place}` takes the traffic for an address that others may use, or sends it elsewhere"
    ))
}

/// Returns the annotation that an ingress controller copies into the configuration that serves all namespaces.
fn injected(object: &Map<String, Value>) -> Option<String> {
    let key = annotation(object, |key| {
        let (prefix, name) = key.split_once('/').unwrap_or(("", key));
        // Whatever the prefix: a flag of ingress-nginx can change it.
        name.contains("snippet")
            || (name.starts_with("config-") && HAPROXY_PREFIXES.contains(&prefix))
    })?;
    Some(format!(
        "`metadata.annotations.{key}` becomes configuration of an ingress controller, which serves others"
    ))
}

/// Returns the field with which an Ingress takes the requests for all otherwise unnamed hosts.
fn all_hosts(spec: &Value) -> Option<String> {
    let mut rules = spec["rules"].as_array().into_iter().flatten();
    let has_no_host = |rule: &Value| rule["host"].as_str().is_none_or(str::is_empty);
    let field = if !spec["defaultBackend"].is_null() {
        "spec.defaultBackend"
    } else if rules.any(has_no_host) {
        "spec.rules without a host"
    } else {
        return None;
    };
    Some(format!(
        "`{field}` takes the requests for every host that no other Ingress names"
    ))
}

/// Returns the label selector if it requires no label value, so that it selects foreign Pods.
fn all_pods(selector: &Value, field: &str) -> Option<String> {
    let requires_label = selector["matchLabels"]
        .as_object()
        .is_some_and(|labels| !labels.is_empty());
    let mut expressions = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten();
    // The other operators also match labels that anyone may have: `Exists`, `NotIn` and `DoesNotExist`.
    let requires_value = expressions.any(|expression| expression["operator"] == "In");
    (!requires_label && !requires_value).then(|| {
        format!("`spec.{field}` requires no value of a label, so it selects Pods of others")
    })
}

/// Returns the key of the first matching annotation.
fn annotation(object: &Map<String, Value>, is_match: impl Fn(&str) -> bool) -> Option<&str> {
    let annotations = object.get("metadata")?.get("annotations")?.as_object()?;
    annotations
        .keys()
        .map(String::as_str)
        .find(|key| is_match(key))
}

/// Checks that the answer's autoscalers scale only its children or the parent, unless their grant confirms more.
pub(super) fn check_targets(
    children: &[Child],
    parent: &ObjectId,
    grants: &Grants,
) -> Result<(), Rejection> {
    let is_autoscaler = |child: &&Child| {
        (&*child.kind.group, &*child.kind.kind) == ("autoscaling", "HorizontalPodAutoscaler")
    };
    for scaler in children.iter().filter(is_autoscaler) {
        let target = target(scaler);
        // The parent too: it may have the subresource `scale`.
        let is_own = target.as_ref().is_some_and(|target| {
            target == parent || children.iter().any(|child| child.id() == *target)
        });
        if !is_own && !grants.confirms(&scaler.kind.group_kind()) {
            let message =
                "`spec.scaleTargetRef` names neither a child of the answer nor the parent";
            return Err(unconfirmed(message, &scaler.kind.group_kind()).in_child(&scaler.key));
        }
    }
    Ok(())
}

/// Returns what an autoscaler scales.
fn target(scaler: &Child) -> Option<ObjectId> {
    let target = scaler.object.get("spec")?.get("scaleTargetRef")?;
    // Without the version: the same object may be named in another one.
    let group = target["apiVersion"]
        .as_str()
        .and_then(|api_version| api_version.split_once('/'))
        .map_or("", |(group, _)| group);
    let kind = GroupKind::new(group, target["kind"].as_str()?);
    Some(ObjectId::new(
        kind,
        scaler.namespace.as_deref(),
        target["name"].as_str()?,
    ))
}

/// Creates the rejection for an effect on others that the grant does not confirm.
pub(super) fn unconfirmed(effect: &str, kind: &GroupKind) -> Rejection {
    Rejection::forbidden(format!(
        "{effect}: the grant for children of kind {} would need `privileged: true`",
        kind.kind
    ))
}
