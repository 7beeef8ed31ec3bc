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
