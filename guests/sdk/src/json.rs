//! JSON for Kubernetes: no nulls, no host keys, one canonical text per value.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The prefix of the host's labels and annotations.
const HOST_PREFIX: &str = "innkeeper.dev/";

/// Returns the JSON value without null members and items.
///
/// # Panics
///
/// Panics if the value cannot be written as JSON, such as a map whose keys are not strings.
pub(crate) fn to_value(value: &impl Serialize) -> Value {
    let mut value =
        serde_json::to_value(value).expect("should be a type that can be written as JSON");
    remove_nulls(&mut value);
    value
}

/// Returns the value as JSON text.
///
/// # Panics
///
/// Panics if the value cannot be written as JSON, such as a map whose keys are not strings.
pub(crate) fn text(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("should be a type that can be written as JSON")
}

/// Removes null members and null items, at every depth.
pub fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => {
            items.retain(|item| !item.is_null());
            items.iter_mut().for_each(remove_nulls);
        }
        _ => {}
    }
}

/// Returns a block of the parent for use in a child: without nulls and without keys below `innkeeper.dev/`, at every
/// depth.
///
/// The host stores records under these keys, and refuses a child that has them.
///
/// ```
/// use innkeeper_sdk::json::sanitized_value;
/// use serde_json::json;
///
/// let block = json!({"annotations": {"innkeeper.dev/key": "x", "team": "a"}, "name": null});
/// assert_eq!(sanitized_value(&block), json!({"annotations": {"team": "a"}}));
/// ```
pub fn sanitized_value(block: &Value) -> Value {
    match block {
        Value::Object(members) => Value::Object(
            members
                .iter()
                .filter(|(key, member)| !member.is_null() && !key.starts_with(HOST_PREFIX))
                .map(|(key, member)| (key.clone(), sanitized_value(member)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(
            items
                .iter()
                .filter(|item| !item.is_null())
                .map(sanitized_value)
                .collect(),
        ),
        other => other.clone(),
    }
}

/// Sanitizes a typed block, such as an annotation map or a `PodSpec`, as [`sanitized_value`] does.
///
/// # Panics
///
/// Panics if the type cannot be written as JSON, or cannot be read back from JSON without nulls.
pub fn sanitized<T: Serialize + DeserializeOwned>(block: &T) -> T {
    serde_json::from_value(sanitized_value(&to_value(block)))
        .expect("should be a type that reads what it wrote")
}

/// Returns the canonical text: no spaces, members sorted by key at every depth.
pub fn canonical(mut value: Value) -> String {
    // Members are already sorted unless another crate in the build enables `preserve_order`.
    value.sort_all_objects();
    value.to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::{PodTemplateSpec, Secret};
    use serde_json::json;

    use super::{canonical, remove_nulls, sanitized};
    use crate::child::Child;

    #[test]
    fn removes_nulls_at_every_depth() {
        let mut value = json!({"a": null, "b": [null, {"c": null, "d": false}], "e": {"f": null}});
        remove_nulls(&mut value);
        assert_eq!(value, json!({"b": [{"d": false}], "e": {}}));
    }

    #[test]
    fn copies_a_typed_block_without_the_keys_of_the_host() {
        let annotations = [("innkeeper.dev/key", "x"), ("team", "a")];
        let map: BTreeMap<String, String> = annotations
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        assert_eq!(sanitized(&map).into_keys().collect::<Vec<_>>(), ["team"]);
        assert_eq!(
            sanitized(&PodTemplateSpec::default()),
            PodTemplateSpec::default()
        );
    }

    #[test]
    fn writes_one_text_for_one_value() {
        let value = json!({"b": 1, "a": {"d": [3, 2], "c": "x"}});
        assert_eq!(canonical(value), r#"{"a":{"c":"x","d":[3,2]},"b":1}"#);
    }

    #[test]
    fn strips_empty_members_of_a_typed_object() {
        let template = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "creationTimestamp": null},
            "spec": {"replicas": null},
            "status": {"replicas": null},
        });
        let child = Child::untyped("a", &template);
        assert_eq!(
            child.object.into_text(),
            r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{}}"#,
        );
        let secret = Child::untyped("b", &Secret::default());
        assert_eq!(
            secret.object.into_text(),
            r#"{"apiVersion":"v1","kind":"Secret","metadata":{}}"#
        );
    }
}
