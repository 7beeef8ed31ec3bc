//! JSON helpers that several modules share.

use serde_json::{Map, Value};

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

/// Removes `creationTimestamp: null` from each `metadata` below: Kubernetes' types always write it, also in templates.
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
