//! Whole objects inside of an object (`x-kubernetes-embedded-resource`).

use serde_json::{Map, Value};

use super::{
    cause::Cause,
    metadata,
    node::{Additional, Node, child, entry, item},
};

/// Finds what is wrong with type and metadata of embedded objects.
pub(super) fn check(object: &Value, root: &Node) -> Vec<Cause> {
    let mut causes = Vec::new();
    below(object, root, "", &mut causes);
    causes
}

fn walk(value: &Value, node: &Node, path: &str, causes: &mut Vec<Cause>) {
    if let Value::Object(map) = value
        && node.is_object
    {
        causes.extend(check_object(map, path));
    }
    below(value, node, path, causes);
}

fn below(value: &Value, node: &Node, path: &str, causes: &mut Vec<Cause>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match (node.properties.get(key), &node.additional) {
                    (Some(property), _) => walk(value, property, &child(path, key), causes),
                    (None, Some(Additional::Of(inner))) => {
                        walk(value, inner, &entry(path, key), causes);
                    }
                    _ => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                for (index, value) in items.iter().enumerate() {
                    walk(value, inner, &item(path, index), causes);
                }
            }
        }
        _ => {}
    }
}

fn check_object(map: &Map<String, Value>, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["apiVersion", "kind"] {
        let place = child(path, field);
        match map.get(field) {
            None => causes.push(Cause::required(&place, "")),
            Some(value @ Value::String(text)) => {
                if text.is_empty() {
                    causes.push(Cause::invalid(&place, value, "must not be empty"));
                } else if let Some(problem) = type_problem(field, text) {
                    causes.push(Cause::invalid(&place, value, &problem));
                }
            }
            Some(value) => causes.push(Cause::invalid(&place, value, "must be a string")),
        }
    }
    if let Some(metadata) = map.get("metadata") {
        causes.extend(metadata::check_common(metadata, &child(path, "metadata")));
    }
    causes
}

fn type_problem(field: &str, text: &str) -> Option<String> {
    if field == "apiVersion" {
        return (text.matches('/').count() > 1)
            .then(|| format!("unexpected GroupVersion string: {text}"));
    }
    let lower = text.to_lowercase();
    let is_label = lower.len() <= 63
        && lower.starts_with(|c: char| c.is_ascii_lowercase())
        && !lower.ends_with('-')
        && lower
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    (!is_label).then(|| {
        "may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')".to_owned()
    })
}
