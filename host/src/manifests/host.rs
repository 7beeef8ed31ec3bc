//! The host in a cluster: its namespace, its Deployment, and the objects for its metrics.

use serde_json::{Value, json};

use crate::config::{Definitions, ManifestsArgs, lease_name};

/// The name of the product, and the default name of a host.
pub(super) const NAME: &str = "innkeeper";

/// Seconds until a stopped host is killed: more than the default of `--drain-timeout`.
const GRACE_SECONDS: u32 = 40;

/// The port of the admin server, and its name.
const ADMIN_PORT: u16 = 8080;
const ADMIN: &str = "admin";

/// Returns the labels of all objects of the host.
pub(super) fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME})
}

/// Returns the host's namespace, which accepts only Pods without privileges.
pub(super) fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {
                "app.kubernetes.io/name": NAME,
                "pod-security.kubernetes.io/enforce": "restricted",
            },
        },
    })
}

/// Returns the Deployment of a host with the plugins in its image's directory `/plugins`, or with Plugin resources.
///
/// It has two Pods: the holder of the lease is active, the other one stands by. An update starts an additional Pod before
/// it stops an old one, so that one Pod is always ready.
pub(super) fn deployment(args: &ManifestsArgs) -> Value {
    let (namespace, labels) = (&args.namespace, args.labels());
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": args.name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": 2,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": args.name,
                    "terminationGracePeriodSeconds": GRACE_SECONDS,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "runAsGroup": 65532,
                        "fsGroup": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "topologySpreadConstraints": [{
                        "maxSkew": 1,
                        "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": labels},
                    }],
                    "containers": [container(args)],
                    "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}}],
                },
            },
        },
    })
}

/// Returns the arguments of the host.
fn arguments(args: &ManifestsArgs) -> Vec<String> {
    let mut arguments = vec!["run".to_owned()];
    let mut add = |flag: &str, value: &str| arguments.extend([flag.to_owned(), value.to_owned()]);
    let selector = args
        .resources()
        .and_then(|resources| resources.selector.as_ref());
    if args.resources().is_none() {
        add("--plugin-dir", "/plugins");
    }
    if let Some(selector) = selector {
        add("--plugin-selector", &selector.to_string());
    }
    add("--cache-dir", "/cache");
    add("--admin-address", &format!("0.0.0.0:{ADMIN_PORT}"));
    let namespaces = args.namespaces.as_deref();
    if let Some(namespaces) = namespaces {
        add("--namespaces", &namespaces.join(","));
    }
    if args.crds != Definitions::default() {
        add("--crds", args.crds.as_str());
    }
    if lease_name(namespaces, selector) != args.name {
        // With a fixed name, old and new Pods share the lease also while an update changes namespaces or selector.
        add("--lease-name", &args.name);
    }
    arguments
}

fn container(args: &ManifestsArgs) -> Value {
    json!({
        "name": NAME,
        "image": args.image,
        "args": arguments(args),
        "ports": [{"name": ADMIN, "containerPort": ADMIN_PORT}],
        // The admin server starts before all slow steps, so the probe waits for little more than the image.
        "startupProbe": probe("/livez", 2, 30),
        // Three failures take long enough that a busy node causes no restart.
        "livenessProbe": probe("/livez", 10, 3),
        "readinessProbe": probe("/readyz", 5, 2),
        "env": [
            {
                "name": "INNKEEPER_HOST_NAMESPACE",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
            },
            {
                "name": "INNKEEPER_LEASE_IDENTITY",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
            },
        ],
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"memory": "1Gi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
    })
}

/// Returns a probe with this period and this number of allowed consecutive failures.
fn probe(path: &str, period_s: u32, failures: u32) -> Value {
    json!({
        "httpGet": {"path": path, "port": ADMIN},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    })
}

/// Returns the Service that lists each Pod for a metrics scraper, also Pods that are not ready.
pub(super) fn metrics_service(args: &ManifestsArgs) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": format!("{}-metrics", args.name),
            "namespace": args.namespace,
            "labels": args.labels(),
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": args.labels(),
            "ports": [{"name": ADMIN, "port": ADMIN_PORT, "targetPort": ADMIN}],
        },
    })
}

/// Returns the policy that closes the Pods' ports but the admin port, and the admin port to all Pods but those of
/// namespaces with the label `metrics: enabled`, which kubebuilder's projects use. Probes of the kubelet always pass.
pub(super) fn network_policy(args: &ManifestsArgs) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": args.name,
            "namespace": args.namespace,
            "labels": args.labels(),
        },
        "spec": {
            "podSelector": {"matchLabels": args.labels()},
            "policyTypes": ["Ingress"],
            "ingress": [{
                "from": [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}],
                "ports": [{"port": ADMIN}],
            }],
        },
    })
}

/// Returns the object by which the Prometheus operator finds the Service.
pub(super) fn service_monitor(args: &ManifestsArgs) -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {
            "name": args.name,
            "namespace": args.namespace,
            "labels": args.labels(),
        },
        "spec": {
            "selector": {"matchLabels": args.labels()},
            "endpoints": [{"port": ADMIN, "path": "/metrics"}],
        },
    })
}
