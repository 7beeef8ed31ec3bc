//! Compares stated objects with the API server's, in both directions.

use serde_json::{Map, Value};

/// Server defaults (path and JSON value) inside atomic values. Such a value has one owner, so the
/// defaults look applied.
const DEFAULTS: [(&str, &str); 3] = [
    (".valueFrom.fieldRef.apiVersion", r#""v1""#),
    (".volumeClaimTemplates[].spec.volumeMode", r#""Filesystem""#),
    (".volumeClaimTemplates[].status", r#"{"phase":"Pending"}"#),
];

/// Removes the labels, annotations and owners that the host adds.
pub(super) fn without_the_hosts(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("ownerReferences");
        for name in ["labels", "annotations"] {
            let Some(Value::Object(entries)) = metadata.get_mut(name) else {
                continue;
            };
            entries.retain(|key, _| !key.starts_with("innkeeper.dev/"));
            if entries.is_empty() {
                metadata.remove(name);
            }
        }
    }
    object
}

/// Returns the paths at which `stated` and `live` differ.
///
/// A stated empty value may be missing: the server drops some, and records no owner for an empty
/// list.
pub(super) fn differences(stated: &Value, live: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    compare(stated, live, "", &mut differences);
    differences
}

fn compare(stated: &Value, live: &Value, path: &str, found: &mut Vec<String>) {
    match (stated, live) {
        (Value::Object(stated), Value::Object(live)) => compare_maps(stated, live, path, found),
        (Value::Array(stated), Value::Array(live)) if stated.len() == live.len() => {
            for (index, (stated, live)) in stated.iter().zip(live).enumerate() {
                compare(stated, live, &format!("{path}[{index}]"), found);
            }
        }
        _ if stated == live || is_empty(stated) && live.is_null() => {}
        _ => found.push(format!("{path} is stated as {stated} and is {live}")),
    }
}

fn compare_maps(
    stated: &Map<String, Value>,
    live: &Map<String, Value>,
    path: &str,
    found: &mut Vec<String>,
) {
    for (key, stated) in stated {
        let live = live.get(key).unwrap_or(&Value::Null);
        compare(stated, live, &format!("{path}.{key}"), found);
    }
    for (key, live) in live {
        let path = format!("{path}.{key}");
        if !stated.contains_key(key) && !is_default(&path, live) {
            found.push(format!("{path} is not stated and is {live}"));
        }
    }
}

fn is_default(path: &str, live: &Value) -> bool {
    let place = path.replace(|c: char| c.is_ascii_digit(), "");
    let live = live.to_string();
    DEFAULTS
        .iter()
        .any(|(end, value)| place.ends_with(end) && live == *value)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
