//! What is different about a child that is to be applied, for people.

use serde_json::{Map, Value};

use crate::model::{ANNOTATION_APPLIED, Access, Object};

/// The first field of an object to be applied that is not as observed, as `spec.replicas`.
///
/// None where that cannot be seen: the object is shown as hashes, or all values are the same and only their owner is
/// another.
pub fn first_difference(body: &Map<String, Value>, observed: &Object) -> Option<String> {
    if observed.form != Access::Full {
        return None;
    }
    let observed: Value = serde_json::from_str(&observed.json).ok()?;
    let mut path = Vec::new();
    differs(body, &observed, &mut path).then(|| path.join("."))
}

/// Leaves the way to the difference in `path`.
fn differs(stated: &Map<String, Value>, observed: &Value, path: &mut Vec<String>) -> bool {
    // The annotation differs whenever anything does.
    let fields = stated.iter().filter(|(key, _)| *key != ANNOTATION_APPLIED);
    for (key, value) in fields {
        path.push(key.clone());
        let found = match (value, observed.get(key)) {
            (Value::Object(fields), Some(known @ Value::Object(_))) => differs(fields, known, path),
            (value, known) => known != Some(value),
        };
        if found {
            return true;
        }
        path.pop();
    }
    false
}
