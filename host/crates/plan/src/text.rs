//! JSON helpers that several modules share.

use serde_json::{Map, Value};

/// Removes null fields. The API server drops them, so the object would differ in every pass.
pub(super) fn drop_null_fields(fields: &mut Map<String, Value>) {
    fields.retain(|_, field| !field.is_null());
    fields.values_mut().for_each(drop_nulls);
}

/// Removes null fields below a value.
pub(super) fn drop_nulls(value: &mut Value) {
    in_objects(value, drop_null_fields);
}

/// Removes `creationTimestamp: null` from each `metadata` below: Kubernetes' types always write it, also in templates.
pub(super) fn drop_unset_times(fields: &mut Map<String, Value>) {
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata")
        && metadata.get("creationTimestamp") == Some(&Value::Null)
    {
        metadata.remove("creationTimestamp");
    }
    fields
        .values_mut()
        .for_each(|value| in_objects(value, drop_unset_times));
}

/// Changes a value, or the items of a list, where they are objects.
fn in_objects(value: &mut Value, change: fn(&mut Map<String, Value>)) {
    match value {
        Value::Object(fields) => change(fields),
        Value::Array(items) => items.iter_mut().for_each(|item| in_objects(item, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
