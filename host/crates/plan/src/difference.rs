//! What is different about a child that is to be applied, for people.

use std::{collections::BTreeSet, fmt};

use innkeeper_model::{ANNOTATION_APPLIED, Access, Object};
use serde_json::{Map, Value};

/// Where a field is: `spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(Vec<String>);

impl FieldPath {
    /// Who owns the field, or a part of it, of an object that is known with all its managers; each once, sorted.
    pub fn managers<'a>(&self, object: &'a Object) -> BTreeSet<&'a str> {
        let entries = object.managed.iter();
        let owning = entries.filter(|entry| self.is_in(&entry.fields));
        owning.map(|entry| &*entry.manager).collect()
    }

    /// Whether these managed fields hold it.
    fn is_in(&self, fields: &str) -> bool {
        let Ok(fields) = serde_json::from_str::<Value>(fields) else {
            return false;
        };
        let mut node = &fields;
        for (depth, step) in self.0.iter().enumerate() {
            match node.get(format!("f:{step}")) {
                Some(member) => node = member,
                // A member without members of its own covers everything below it.
                None => return depth > 0 && node.as_object().is_some_and(Map::is_empty),
            }
        }
        true
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// The first field of an object to be applied that is not as observed.
///
/// None where that cannot be seen: the object is shown as hashes, or all values are the same and only their owner is
/// another.
pub fn first_difference(body: &Map<String, Value>, observed: &Object) -> Option<FieldPath> {
    if observed.form != Access::Full {
        return None;
    }
    let observed: Value = serde_json::from_str(&observed.json).ok()?;
    let mut path = Vec::new();
    differs(body, &observed, &mut path).then_some(FieldPath(path))
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
