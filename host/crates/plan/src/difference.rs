//! The first difference between a child to apply and the observed object, for messages to the user.

use std::{collections::BTreeSet, fmt};

use innkeeper_model::{ANNOTATION_APPLIED, Access, Object};
use serde_json::{Map, Value};

use super::fields::Owned;

/// The path of a field, such as `spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(Vec<String>);

impl FieldPath {
    /// Returns the field managers that own the field or a part of it, sorted.
    ///
    /// `object` must hold the managed fields of all managers; the cache keeps only those of the host.
    pub fn managers<'a>(&self, object: &'a Object) -> BTreeSet<&'a str> {
        let entries = object.managed.iter();
        let owning = entries.filter(|entry| self.is_in(&entry.fields));
        owning.map(|entry| &*entry.manager).collect()
    }

    /// Returns true if these managed fields include the field.
    fn is_in(&self, fields: &str) -> bool {
        let Some(owned) = Owned::parse(fields) else {
            return false;
        };
        let mut node = &owned;
        for (depth, step) in self.0.iter().enumerate() {
            match node.field(step) {
                Some(member) => node = member,
                None => return depth > 0 && node.is_whole(),
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

/// Returns the first field of the object to apply that differs from the observed object.
///
/// Returns `None` if the difference cannot be seen: the observed object holds hashes or metadata only, or all values
/// are equal and only their owner differs.
pub fn first_difference(body: &Map<String, Value>, observed: &Object) -> Option<FieldPath> {
    if observed.form != Access::Full {
        return None;
    }
    let observed: Value = serde_json::from_str(&observed.json).ok()?;
    let mut path = Vec::new();
    differs(body, &observed, &mut path).then_some(FieldPath(path))
}

/// Returns true if there is a difference, with its path in `path`.
fn differs(stated: &Map<String, Value>, observed: &Value, path: &mut Vec<String>) -> bool {
    // The annotation is a hash of the object, so it differs together with any other field.
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
