//! Removes from a generated schema everything that Kubernetes refuses, changes or does not need.

use schemars::Schema;
use schemars::transform::{Transform, transform_subschemas};
use serde_json::{Map, Value, json};

/// The start of the description that kube's derive gives a root without one.
const PLACEHOLDER: &str = "Auto-generated derived type for ";

/// The longest description that stays whole; the fields of this project have shorter ones.
const DESCRIPTION_CHARS_MAX: usize = 200;

/// Removes `nullable` and defaults that equal absence, and replaces formats that Kubernetes does not
/// know, at every depth.
pub(super) fn simplify(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    members.remove("nullable");
    simplify_default(members);
    if let Some(format) = members.get("format").and_then(Value::as_str) {
        // Kubernetes knows only these two integer formats.
        match format {
            "uint8" | "uint16" | "int8" | "int16" => members["format"] = json!("int32"),
            "uint32" | "uint64" | "uint" | "int" => members["format"] = json!("int64"),
            _ => {}
        }
    }
    for keyword in ["minimum", "maximum", "multipleOf"] {
        if let Some(bound) = members.get_mut(keyword) {
            as_written(bound);
        }
    }
    if let Some(values) = members.get_mut("enum").and_then(Value::as_array_mut) {
        values.retain(|value| !value.is_null());
    }
    for_each_below(members, &mut simplify);
    for keyword in ["anyOf", "oneOf", "allOf"] {
        members
            .get_mut(keyword)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
            .for_each(simplify);
    }
    if let Some(not) = members.get_mut("not") {
        simplify(not);
    }
}

/// Writes a whole number without a fraction.
///
/// A bound is a float in Rust, and the API server stores `1.0` as `1`: the two would differ for ever.
pub(crate) fn as_written(bound: &mut Value) {
    let whole = bound.to_string().strip_suffix(".0").map(str::parse::<i64>);
    if let Some(Ok(whole)) = whole {
        *bound = json!(whole);
    }
}

/// Removes null members and empty lists from a default, and then the default itself if it is empty.
fn simplify_default(schema: &mut Map<String, Value>) {
    let Some(default) = schema.get_mut("default") else {
        return;
    };
    remove_empty(default);
    let says_nothing = match default {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        // The empty default of a struct stays: without it, the API server would not fill in the field defaults.
        Value::Object(members) => members.is_empty() && !schema.contains_key("properties"),
        _ => false,
    };
    if says_nothing {
        schema.remove("default");
    }
}

fn remove_empty(value: &mut Value) {
    if let Value::Object(members) = value {
        members.retain(|_, member| {
            !member.is_null() && member.as_array().is_none_or(|items| !items.is_empty())
        });
        members.values_mut().for_each(remove_empty);
    }
}

/// Keeps the description of an optional field.
///
/// schemars makes `anyOf` of the type and null, with the description of the field beside it. kube's
/// `OptionalEnum` then puts the type's members in place of `anyOf`, and with them the
/// description of the type.
#[derive(Clone, Debug)]
pub(crate) struct KeepDescription;

impl Transform for KeepDescription {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(members) = schema.as_object_mut() else {
            return;
        };
        let is_described = members.contains_key("description");
        let parts = members.get_mut("anyOf").and_then(Value::as_array_mut);
        if let Some([type_, null]) = parts.map(Vec::as_mut_slice)
            && is_described
            && null.get("enum") == Some(&json!([Value::Null]))
            && let Some(type_) = type_.as_object_mut()
        {
            type_.remove("description");
        }
    }
}

/// Gives a root without a description the spec's.
pub(super) fn describe_root(root: &mut Value) {
    let text = root["description"].as_str().unwrap_or_default();
    if text.starts_with(PLACEHOLDER) {
        let spec = root.pointer("/properties/spec/description").cloned();
        root["description"] = spec.unwrap_or_default();
    }
}

/// Removes the defaults at every depth.
pub(super) fn remove_defaults(schema: &mut Value) {
    if let Some(members) = schema.as_object_mut() {
        members.remove("default");
        for_each_below(members, &mut remove_defaults);
    }
}

/// Removes the constraints on a status that one with only the host's conditions breaks.
///
/// The host writes only conditions while there is no answer: the parent is paused, or the first pass fails.
/// Constraints of fields stay, because they count only where the plugin states the field.
pub(super) fn accept_parts(status: &mut Value) {
    if let Some(members) = status.as_object_mut() {
        for keyword in WHOLE {
            members.remove(keyword);
        }
    }
}

/// The constraints of an object as a whole, which absent fields may break.
pub(crate) const WHOLE: [&str; 6] = [
    "required",
    "minProperties",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
];

/// See [`Crd::truncate_descriptions_below`](super::Crd::truncate_descriptions_below).
pub(super) fn shorten(schema: &mut Value, depth_max: usize) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    if let Some(description) = members.get("description").and_then(Value::as_str)
        && description.chars().count() > DESCRIPTION_CHARS_MAX
    {
        members["description"] = json!(first_sentence(description));
    }
    for_each_below(members, &mut |below| {
        if depth_max == 0
            && let Some(members) = below.as_object_mut()
        {
            members.remove("description");
        }
        shorten(below, depth_max.saturating_sub(1));
    });
}

/// The text up to the first full stop before a capital letter, so that "e.g. this" is not the end.
fn first_sentence(text: &str) -> &str {
    text.match_indices(['.', '\n'])
        .map(|(at, _)| at)
        .filter(|at| {
            let rest = &text[at + 1..];
            text[*at..].starts_with('\n') || rest.trim_start().starts_with(char::is_uppercase)
        })
        .map(|at| text[..=at].trim_end())
        .next()
        .unwrap_or(text)
}

pub(crate) fn for_each_below(members: &mut Map<String, Value>, act: &mut dyn FnMut(&mut Value)) {
    members
        .get_mut("properties")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flatten()
        .for_each(|(_, it)| act(it));
    for keyword in ["items", "additionalProperties"] {
        if let Some(below) = members.get_mut(keyword) {
            act(below);
        }
    }
}
