//! Type and metadata of an object, and of the objects embedded in it.
//!
//! `metadata.json` is a schema of them in the dialect of CustomResourceDefinitions; its keyword `x-innkeeper` holds
//! keywords of JSON schema that the dialect lacks. It becomes a part of every compiled schema, so that pruning, defaults
//! and the validator treat metadata like any other field.

use std::collections::BTreeSet;

use innkeeper_model::Scope;
use serde_json::{Map, Value, json};

use super::{cause::RejectionCause, node::child};

/// The annotations of one object, in bytes.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// Adds type and metadata to the schema of a whole object and of the objects embedded in it.
pub(super) fn complete(root: &mut Value, api_version: &str, kind: &str, scope: Scope) {
    root["x-kubernetes-embedded-resource"] = true.into();
    add_fields(root);
    root["properties"]["apiVersion"]["enum"] = json!([api_version]);
    root["properties"]["kind"]["enum"] = json!([kind]);
    let metadata = &mut root["properties"]["metadata"];
    metadata["default"] = json!({});
    metadata["required"] = json!(["name", "namespace"]);
    if scope == Scope::Cluster {
        metadata["required"] = json!(["name"]);
        metadata["properties"]["namespace"] = json!({"type": "string", "not": {}});
    }
}

fn add_fields(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    for (name, inner) in schema.iter_mut() {
        match (name.as_str(), inner) {
            ("properties", Value::Object(all)) => all.values_mut().for_each(add_fields),
            ("items" | "additionalProperties", inner) => add_fields(inner),
            _ => {}
        }
    }
    if schema.get("x-kubernetes-embedded-resource") != Some(&Value::Bool(true)) {
        return;
    }
    let fields: Map<String, Value> =
        serde_json::from_str(include_str!("metadata.json")).expect("the file is JSON");
    for (name, mut field) in fields {
        let properties = schema.entry("properties").or_insert_with(|| json!({}));
        if let Some(given) = properties.get(&name) {
            field["allOf"] = json!([given]);
        }
        properties[name] = field;
    }
    let required = schema.entry("required").or_insert_with(|| json!([]));
    if let Some(required) = required.as_array_mut() {
        required.extend(["apiVersion", "kind"].map(Value::from));
    }
}

/// Drops empty names and repeated owners from the metadata of a new object, as the API server does.
///
/// Owners have their defaults already, so that equal owners are equal values.
pub(super) fn tidy(object: &mut Value) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
        return;
    };
    let names = ["generateName", "name", "namespace"];
    metadata.retain(|key, value| value != "" || !names.contains(&key.as_str()));
    if let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences") {
        let mut seen = BTreeSet::new();
        owners.retain(|owner| seen.insert(owner.to_string()));
    }
}

/// Checks the size of the annotations of a whole object.
pub(super) fn check_annotations(object: &Map<String, Value>, path: &str) -> Option<RejectionCause> {
    let annotations = object.get("metadata")?.get("annotations")?.as_object()?;
    let entries = annotations.iter();
    let bytes = entries.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
    let message = || format!("has more than {ANNOTATIONS_BYTES_MAX} bytes");
    let path = child(path, "metadata.annotations");
    (bytes.sum::<usize>() > ANNOTATIONS_BYTES_MAX)
        .then(|| RejectionCause::new(path, message()).blocking(true))
}
