//! The host in a cluster: its namespace, its Deployment, and how its metrics are found.

use serde_json::{Value, json};

use crate::config::{Definitions, ManifestsArgs, lease_name};

/// The name of the product, and the default of what a host is called.
pub(super) const NAME: &str = "innkeeper";

/// Seconds until a stopped host is killed: more than it takes to drain.
const GRACE_SECONDS: u32 = 40;

/// Where the host answers for health and metrics, and what the port is called.
const ADMIN_PORT: u16 = 8080;
const ADMIN: &str = "admin";

/// Labels of everything that belongs to the host.
pub(super) fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME})
}

/// The host's namespace, which takes Pods without privileges only.
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

/// The host with the plugins of its image's directory `/plugins`, or with those of Plugin resources.
///
/// Two Pods, of which the one with the lease writes and the other one is ready to take over; an update replaces them one
/// by one, and begins with the one more that it may have, so that there is always one that is ready.
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

/// The arguments of the host.
fn arguments(args: &ManifestsArgs) -> Vec<String> {
    let mut arguments = vec!["run".to_owned()];
    let mut add = |flag: &str, value: &str| arguments.extend([flag.to_owned(), value.to_owned()]);
    let selector = args
        .resources()
        .and_then(|resources| resources.selector.as_deref());
    if args.resources().is_none() {
        add("--plugin-dir", "/plugins");
    }
    if let Some(selector) = selector {
        add("--plugin-selector", selector);
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
        // It answers before anything else, so that this waits for the image's first page and for little more.
        "startupProbe": probe("/livez", 2, 30),
        // Asked for long enough that a busy node is no reason to start over.
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

/// Asks the host so often, and takes so many failures in a row for an answer.
fn probe(path: &str, period_s: u32, failures: u32) -> Value {
    json!({
        "httpGet": {"path": path, "port": ADMIN},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    })
}

/// Names each Pod for whoever collects metrics, also one that is not ready.
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

/// The same for the Prometheus operator, where there is one.
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
