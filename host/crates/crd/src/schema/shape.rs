//! Pruning and defaulting.
//!
//! `kube-cel` has defaults too, but they do not reach into a default that was just inserted, and ignore nulls.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrBool;
use serde_json::Value;

use super::node::{self, Node, child, field, item};

/// Drops unknown fields and forbidden nulls, inserts defaults, and returns the unknown fields' paths.
pub(super) fn normalize(object: &mut Value, root: &Node) -> Vec<String> {
    let mut unknown = Vec::new();
    walk(object, Some(root), preserves(root), "", &mut unknown);
    unknown.sort();
    unknown
}

/// `keeps` preserves unknown fields in this value, but not further below.
fn walk(
    value: &mut Value,
    node: Option<&Node>,
    keeps: bool,
    path: &str,
    unknown: &mut Vec<String>,
) {
    match value {
        Value::Object(map) => {
            // Defaults come before the descent, because a default may itself lack fields that have defaults.
            for (name, inner) in node.iter().flat_map(|node| &node.properties).flatten() {
                if let Some(default) = &inner.default {
                    map.entry(name).or_insert_with(|| default.0.clone());
                }
            }
            map.retain(|key, value| {
                let inner = node.and_then(|node| field(node, key));
                replace_null(value, inner);
                if value.is_null() && inner.is_some_and(|inner| inner.nullable != Some(true)) {
                    return false;
                }
                let path = child(path, key);
                let any = Some(JSONSchemaPropsOrBool::Bool(true));
                if inner.is_some() || node.is_some_and(|node| node.additional_properties == any) {
                    walk(value, inner, inner.is_some_and(preserves), &path, unknown);
                } else if !keeps {
                    unknown.push(path);
                    return false;
                }
                true
            });
        }
        Value::Array(items) => {
            let inner = node.and_then(node::items);
            for (index, value) in items.iter_mut().enumerate() {
                replace_null(value, inner);
                // A list that preserves unknown fields does so for the items.
                let keeps = keeps || inner.is_some_and(preserves);
                walk(value, inner, keeps, &item(path, index), unknown);
            }
        }
        _ => {}
    }
}

fn preserves(node: &Node) -> bool {
    node.x_kubernetes_preserve_unknown_fields == Some(true)
}

/// Replaces a null that is no valid value by the default.
fn replace_null(value: &mut Value, node: Option<&Node>) {
    let node = node.filter(|node| value.is_null() && node.nullable != Some(true));
    if let Some(default) = node.and_then(|node| node.default.as_ref()) {
        *value = default.0.clone();
    }
}
