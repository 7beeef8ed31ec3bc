//! Bounds on strings, lists and maps.
//!
//! Without them, a user who may create an object can fill the memory of every cache, and the API server estimates the
//! cost of CEL rules from the largest object that a request can carry.

use serde_json::{Map, Value, json};

/// Maximum sizes in one part of a CRD: string characters, list items, map members.
struct Bounds {
    text: u32,
    items: u32,
    members: u32,
}

/// A spec has names, settings and short texts. A field that carries data sets a larger bound.
const SPEC: Bounds = Bounds {
    text: 4096,
    items: 64,
    members: 64,
};

/// Only the plugin and the host write a status, so these bounds catch mistakes. Strings are as long as a Kubernetes
/// condition message.
const STATUS: Bounds = Bounds {
    text: 32_768,
    items: 1024,
    members: 1024,
};

/// The longest object name, a DNS subdomain.
const NAME_CHARS_MAX: u32 = 253;
/// The longest label value.
const LABEL_CHARS_MAX: u32 = 63;
/// No useful time, quantity, number or percentage is longer.
const NUMBER_CHARS_MAX: u32 = 64;

/// Adds a bound to each string, list and map that has none.
pub(super) fn add(root: &mut Value) {
    let properties = root.get_mut("properties").and_then(Value::as_object_mut);
    for (name, schema) in properties.into_iter().flatten() {
        match name.as_str() {
            // The API server has its own limits for these.
            "apiVersion" | "kind" | "metadata" => {}
            "status" => add_below(name, schema, &STATUS),
            _ => add_below(name, schema, &SPEC),
        }
    }
}

/// Bounds a schema and those below it; items and members take the name of the enclosing property.
fn add_below(name: &str, schema: &mut Value, bounds: &Bounds) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    for keyword in unbounded(members) {
        let max = match keyword {
            "maxItems" => bounds.items,
            "maxProperties" => bounds.members,
            _ => text_max(name, members, bounds),
        };
        members.insert(keyword.to_owned(), json!(max));
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(below) = members.get_mut(keyword) {
            add_below(name, below, bounds);
        }
    }
    let properties = members.get_mut("properties").and_then(Value::as_object_mut);
    for (name, below) in properties.into_iter().flatten() {
        add_below(name, below, bounds);
    }
}

/// The missing keywords that would limit a schema's values.
pub(crate) fn unbounded(schema: &Map<String, Value>) -> Vec<&'static str> {
    let is_set = |keyword: &str| schema.get(keyword) == Some(&json!(true));
    let is_free = is_set("x-kubernetes-preserve-unknown-fields");
    let keywords: &[&str] = match schema.get("type").and_then(Value::as_str) {
        Some("string") if !schema.contains_key("enum") => &["maxLength"],
        Some("array") => &["maxItems"],
        Some("object") if is_free || schema.contains_key("additionalProperties") => {
            &["maxProperties"]
        }
        None if is_set("x-kubernetes-int-or-string") => &["maxLength"],
        None if is_free => &["maxLength", "maxItems", "maxProperties"],
        _ => &[],
    };
    keywords
        .iter()
        .filter(|keyword| !schema.contains_key(**keyword))
        .copied()
        .collect()
}

/// A string's maximum length, which depends on the format or property name.
fn text_max(name: &str, schema: &Map<String, Value>, bounds: &Bounds) -> u32 {
    let format = schema.get("format").and_then(Value::as_str);
    if schema.contains_key("x-kubernetes-int-or-string")
        || matches!(format, Some("date" | "date-time" | "duration"))
    {
        return NUMBER_CHARS_MAX;
    }
    match name {
        "labels" | "matchLabels" | "nodeSelector" => LABEL_CHARS_MAX,
        "name" | "namespace" => NAME_CHARS_MAX,
        name if name.ends_with("Name") || name.ends_with("Namespace") => NAME_CHARS_MAX,
        _ => bounds.text,
    }
}
