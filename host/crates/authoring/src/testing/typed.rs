//! Checks children against the Rust types for their kinds.
//!
//! The types know every Kubernetes field and type, but not which fields the API server requires.

use k8s_openapi::api::{
    apps::v1 as apps, autoscaling::v2 as autoscaling, batch::v1 as batch, core::v1 as core,
    networking::v1 as networking, policy::v1 as policy, rbac::v1 as rbac,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// Checks an object; one of a kind without a Rust type passes.
pub(super) fn check(object: &Map<String, Value>) -> Result<(), String> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let check = match (text("apiVersion"), text("kind")) {
        ("apps/v1", "DaemonSet") => strict::<apps::DaemonSet>,
        ("apps/v1", "Deployment") => strict::<apps::Deployment>,
        ("apps/v1", "StatefulSet") => strict::<apps::StatefulSet>,
        ("autoscaling/v2", "HorizontalPodAutoscaler") => {
            strict::<autoscaling::HorizontalPodAutoscaler>
        }
        ("batch/v1", "CronJob") => strict::<batch::CronJob>,
        ("batch/v1", "Job") => strict::<batch::Job>,
        ("networking.k8s.io/v1", "Ingress") => strict::<networking::Ingress>,
        ("networking.k8s.io/v1", "NetworkPolicy") => strict::<networking::NetworkPolicy>,
        ("policy/v1", "PodDisruptionBudget") => strict::<policy::PodDisruptionBudget>,
        ("rbac.authorization.k8s.io/v1", "Role") => strict::<rbac::Role>,
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => strict::<rbac::RoleBinding>,
        ("v1", "ConfigMap") => strict::<core::ConfigMap>,
        ("v1", "PersistentVolumeClaim") => strict::<core::PersistentVolumeClaim>,
        ("v1", "Pod") => strict::<core::Pod>,
        ("v1", "Secret") => strict::<core::Secret>,
        ("v1", "Service") => strict::<core::Service>,
        ("v1", "ServiceAccount") => strict::<core::ServiceAccount>,
        _ => return Ok(()),
    };
    check(&Value::Object(object.clone()))
}

fn strict<T: DeserializeOwned + Serialize>(object: &Value) -> Result<(), String> {
    let typed = T::deserialize(object).map_err(|error| error.to_string())?;
    // serde ignores unknown fields, and the API server refuses them in an apply.
    let again = serde_json::to_value(&typed).map_err(|error| error.to_string())?;
    match lost(object, &again, String::new()) {
        None => Ok(()),
        Some(place) => Err(format!("there is no field {place}")),
    }
}

/// Returns the first field that is lost when converted to the type and back. Empty values may be omitted.
fn lost(before: &Value, after: &Value, place: String) -> Option<String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => before.iter().find_map(|(name, value)| {
            let place = if place.is_empty() {
                name.clone()
            } else {
                format!("{place}.{name}")
            };
            match after.get(name) {
                Some(after) => lost(value, after, place),
                None if is_empty(value) => None,
                None => Some(place),
            }
        }),
        (Value::Array(before), Value::Array(after)) => {
            let pairs = before.iter().zip(after).enumerate();
            pairs
                .into_iter()
                .find_map(|(at, (before, after))| lost(before, after, format!("{place}[{at}]")))
        }
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}
