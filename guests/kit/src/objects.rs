//! Small objects without the nesting of the Kubernetes types.

use std::collections::BTreeMap;

use innkeeper_sdk::child::metadata;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServicePort, ServiceSpec};

/// Returns a ClusterIP Service with one port, for the Pods that have the same labels.
///
/// ```
/// use innkeeper_kit::{labels::base_labels, objects};
///
/// let service = objects::service("north", &base_labels("pond", "north", "water"), 8080);
/// assert_eq!(service.spec.unwrap().ports.unwrap()[0].port, 8080);
/// ```
pub fn service(name: &str, labels: &BTreeMap<String, String>, port: i32) -> Service {
    let port = ServicePort {
        port,
        ..ServicePort::default()
    };
    Service {
        metadata: metadata(name, labels),
        spec: Some(ServiceSpec {
            selector: Some(labels.clone()),
            ports: Some(vec![port]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// Returns a ConfigMap with these keys and values.
///
/// ```
/// use innkeeper_kit::{labels::base_labels, objects};
///
/// let depth = objects::config_map("north", &base_labels("pond", "north", "water"), [("depth", "2")]);
/// assert_eq!(depth.data.unwrap()["depth"], "2");
/// ```
pub fn config_map<K: Into<String>, V: Into<String>>(
    name: &str,
    labels: &BTreeMap<String, String>,
    data: impl IntoIterator<Item = (K, V)>,
) -> ConfigMap {
    let data = data
        .into_iter()
        .map(|(key, value)| (key.into(), value.into()));
    ConfigMap {
        metadata: metadata(name, labels),
        data: Some(data.collect()),
        ..ConfigMap::default()
    }
}
