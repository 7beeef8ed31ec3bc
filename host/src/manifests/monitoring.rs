//! What watches over the host where Prometheus and Grafana run: alert rules with what to do about each, and a dashboard.
//!
//! Only metrics of the host are asked for; a cluster test holds every name and label against what a host really exposes.

mod alerts;
mod dashboard;

use serde_json::{Value, json};

use super::host::{NAME, labels};

/// Alert rules for the Prometheus operator.
pub(super) fn alerts(namespace: &str) -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": NAME, "namespace": namespace, "labels": labels()},
        "spec": {"groups": [{"name": NAME, "rules": alerts::rules()}]},
    })
}

/// A dashboard in a ConfigMap with the label that Grafana's sidecar looks for.
pub(super) fn dashboard(namespace: &str) -> Value {
    let mut labels = labels();
    labels["grafana_dashboard"] = "1".into();
    let text = format!("{:#}", dashboard::document());
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": format!("{NAME}-dashboard"),
            "namespace": namespace,
            "labels": labels,
        },
        "data": {"innkeeper.json": text},
    })
}
