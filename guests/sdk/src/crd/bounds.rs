//! Bounds of texts, lists and maps: without them, a user who may create an object fills the memory of all that cache it,
//! and the API server estimates the cost of a CEL rule from the largest object that a request can carry.

use serde_json::{Map, Value, json};

/// The largest numbers of one part of a definition: characters of a text, items of a list, members of a map.
struct Bounds {
    text: u32,
    items: u32,
    members: u32,
}

/// A spec has names, settings and short texts. A field that carries data states its own bound.
const SPEC: Bounds = Bounds {
    text: 4096,
    items: 64,
    members: 64,
};

/// Only the plugin and the host write a status, so its bounds are for mistakes. The text is as long as the message of a
/// condition in Kubernetes.
const STATUS: Bounds = Bounds {
    text: 32_768,
    items: 1024,
    members: 1024,
};

/// The longest name of an object, a DNS subdomain.
const NAME_CHARS_MAX: u32 = 253;
/// The longest value of a label.
const LABEL_CHARS_MAX: u32 = 63;
/// No time, quantity, number or percentage of use is longer.
const NUMBER_CHARS_MAX: u32 = 64;

/// Adds a bound to each text, list and map that has none.
pub(super) fn add(root: &mut Value) {
    let properties = root.get_mut("properties").and_then(Value::as_object_mut);
    for (name, schema) in properties.into_iter().flatten() {
        match name.as_str() {
            "apiVersion" | "kind" | "metadata" => {}
            "status" => add_below(name, schema, &STATUS),
            _ => add_below(name, schema, &SPEC),
        }
    }
}

/// Bounds a schema and those below it; items and members have the name of the property that holds them.
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

/// The keywords by which a schema could limit its values, and does not.
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
    let missing = keywords
        .iter()
        .filter(|keyword| !schema.contains_key(**keyword));
    missing.copied().collect()
}

/// The characters of a text by its purpose, which its format or the name of its property tells.
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
