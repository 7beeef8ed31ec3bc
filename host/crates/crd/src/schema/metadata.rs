//! Type and metadata for an object and embedded objects.
//!
//! `metadata.json` is their schema in the CustomResourceDefinition dialect; the keyword `x-innkeeper` holds
//! JSON schema keywords that the dialect lacks. It becomes a part of every compiled schema, so that pruning, defaults
//! and the validator treat metadata like any other field.

use std::collections::BTreeSet;

use innkeeper_model::Scope;
use serde_json::{Map, Value, json};

use super::{cause::RejectionCause, node::child};

/// An object's annotations, in bytes.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// Adds type and metadata to the schema for a whole object and embedded objects.
pub(super) fn complete(root: &mut Value, api_version: &str, kind: &str, scope: Scope) {
    root["x-kubernetes-embedded-resource"] = true.into();
    add_fields(root);
    // A schema without the dialect's types is rejected when it is compiled.
    let Some(Value::Object(properties)) = root.get_mut("properties") else {
        return;
    };
    properties["apiVersion"]["enum"] = json!([api_version]);
    properties["kind"]["enum"] = json!([kind]);
    let metadata = &mut properties["metadata"];
    metadata["default"] = json!({});
    metadata["required"] = json!(["name", "namespace"]);
    if scope == Scope::Cluster {
        metadata["required"] = json!(["name"]);
        // The empty schema matches every value, so `not` of it matches none.
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
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    let Value::Object(properties) = properties else {
        return;
    };
    for (name, mut field) in fields {
        // A definition may restrict the name further.
        if let Some(stated) = properties.get(&name) {
            field["allOf"] = json!([stated]);
        }
        properties.insert(name, field);
    }
    let required = schema.entry("required").or_insert_with(|| json!([]));
    if let Some(required) = required.as_array_mut() {
        required.extend(["apiVersion", "kind"].map(Value::from));
    }
}

/// Drops empty names and repeated owners from a new object's metadata, as the API server does.
pub(super) fn tidy(object: &mut Value) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
        return;
    };
    let names = ["generateName", "name", "namespace"];
    metadata.retain(|key, value| value != "" || !names.contains(&key.as_str()));
    if let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences") {
        let mut uids = BTreeSet::new();
        // Owners have their defaults already, so equal owners are equal texts.
        owners.retain(|owner| uids.insert(owner.to_string()));
    }
}

/// Checks how large an object's annotations are.
pub(super) fn check_annotations(object: &Map<String, Value>, path: &str) -> Option<RejectionCause> {
    let annotations = object.get("metadata")?.get("annotations")?.as_object()?;
    let bytes: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    let message = || format!("has more than {ANNOTATIONS_BYTES_MAX} bytes");
    let path = child(path, "metadata.annotations");
    (bytes > ANNOTATIONS_BYTES_MAX).then(|| RejectionCause::new(path, message()).blocking(true))
}
