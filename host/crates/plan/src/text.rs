//! Helpers for texts and JSON that several parts of a plan share.

use std::fmt::Display;

use serde_json::{Map, Value};

/// Joins the first `max` items, and adds the number of the others: `a, b and 3 more`; none if there is no item.
pub(super) fn first_of(items: impl Iterator<Item = impl Display>, max: usize) -> Option<String> {
    let items: Vec<String> = items.map(|item| item.to_string()).collect();
    let first = items.get(..max).unwrap_or(&items).join(", ");
    match items.len().saturating_sub(max) {
        _ if items.is_empty() => None,
        0 => Some(first),
        more => Some(format!("{first} and {more} more")),
    }
}

/// Removes null fields. The API server drops them, so the object would differ in every pass.
pub(super) fn drop_null_fields(fields: &mut Map<String, Value>) {
    fields.retain(|_, field| !field.is_null());
    fields.values_mut().for_each(drop_nulls);
}

/// Removes null fields below a value.
pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => drop_null_fields(fields),
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Removes `creationTimestamp: null` from each `metadata` below: the types of Kubernetes always write it, also in templates.
pub(super) fn drop_unset_times(fields: &mut Map<String, Value>) {
    fn below(value: &mut Value) {
        match value {
            Value::Object(fields) => drop_unset_times(fields),
            Value::Array(items) => items.iter_mut().for_each(below),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata")
        && metadata.get("creationTimestamp") == Some(&Value::Null)
    {
        metadata.remove("creationTimestamp");
    }
    fields.values_mut().for_each(below);
}
