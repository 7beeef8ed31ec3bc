//! The differences between a child to apply and the observed object, for messages to the user.

use std::{collections::BTreeSet, fmt};

use innkeeper_model::{ANNOTATION_APPLIED, Access, Object};
use serde_json::{Map, Value};

use super::fields::{self, Owned};

/// A field's path, such as `spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(Vec<String>);

impl FieldPath {
    /// Returns the managers that own the field or anything below, sorted.
    ///
    /// `object` must hold everyone's managed fields; the cache keeps only the host's.
    pub fn managers<'a>(&self, object: &'a Object) -> BTreeSet<&'a str> {
        object
            .managed
            .iter()
            .filter(|entry| self.is_in(&entry.fields))
            .map(|entry| &*entry.manager)
            .collect()
    }

    fn is_conditions(&self) -> bool {
        self.0
            .iter()
            .map(String::as_str)
            .eq(["status", "conditions"])
    }

    /// Returns true if these managed fields include the field.
    fn is_in(&self, fields: &str) -> bool {
        Owned::parse(fields).is_some_and(|owned| owned.has(&self.0))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// Returns the first field in the object to apply that differs from the observed object.
///
/// Returns `None` if the difference cannot be seen: the observed object holds hashes or metadata only, or all values
/// are equal and only their owner differs.
pub fn first_difference(body: &Map<String, Value>, observed: &Object) -> Option<FieldPath> {
    differences(body, observed).into_iter().next()
}

/// Returns a field in the object to apply that differs from the observed object, and the field's managers.
///
/// A field that managers other than the host's `own` hold comes first; only those managers are returned then.
///
/// `observed` must hold everyone's managed fields.
pub fn contested_field<'a>(
    body: &Map<String, Value>,
    observed: &'a Object,
    own: &[&str],
) -> Option<(FieldPath, BTreeSet<&'a str>)> {
    let others = |field: &FieldPath| {
        let mut managers = field.managers(observed);
        managers.retain(|manager| !own.contains(manager));
        managers
    };
    let mut fields = differences(body, observed);
    // The host's own conditions follow from the conflict, so they differ beside any other field.
    fields.sort_by_key(FieldPath::is_conditions);
    let at = fields.iter().position(|field| !others(field).is_empty());
    let field = fields.into_iter().nth(at.unwrap_or_default())?;
    let mut managers = others(&field);
    if managers.is_empty() {
        managers = field.managers(observed);
    }
    Some((field, managers))
}

/// Returns true if another process has applied the object last, as the same field manager.
pub fn is_by_other_host(body: &Map<String, Value>, observed: &Object, manager: &str) -> bool {
    let path = ["metadata", "annotations", ANNOTATION_APPLIED];
    let own = (body.get(path[0]))
        .and_then(|metadata| metadata.get(path[1])?.get(path[2]))
        .and_then(Value::as_str);
    // A client that edits or copies the annotation takes it over; only an apply by a host leaves it to this manager.
    let applied = observed.annotation(ANNOTATION_APPLIED);
    applied.is_some()
        && applied != own
        && FieldPath(path.map(str::to_owned).to_vec())
            .managers(observed)
            .contains(manager)
}

/// Returns the part of an observed object that applying `body` changes or removes: the fields that `body` states, and
/// those that the manager owns.
///
/// The rest belongs to the API server or to other field managers. List items are compared by `name`, else by
/// their place.
pub fn owned_part(body: &Map<String, Value>, observed: &Object, manager: &str) -> Value {
    let owned = observed
        .managed
        .iter()
        .find(|entry| fields::is_applied_by(entry, manager, None))
        .and_then(|entry| Owned::parse(&entry.fields));
    let object: Value = serde_json::from_str(&observed.json).unwrap_or_default();
    match object {
        Value::Object(object) => Value::Object(part(body, object, owned.as_ref())),
        other => other,
    }
}

fn part(
    stated: &Map<String, Value>,
    mut object: Map<String, Value>,
    owned: Option<&Owned<'_>>,
) -> Map<String, Value> {
    object.retain(|key, value| {
        let owned = owned.and_then(|owned| owned.field(key));
        match stated.get(key) {
            Some(stated) => {
                *value = part_of(stated, value.take(), owned);
                true
            }
            None => owned.is_some(),
        }
    });
    object
}

fn part_of(stated: &Value, value: Value, owned: Option<&Owned<'_>>) -> Value {
    match (stated, value) {
        (Value::Object(stated), Value::Object(object)) => {
            Value::Object(part(stated, object, owned))
        }
        (Value::Array(stated), Value::Array(items)) => Value::Array(items_of(stated, items, owned)),
        (_, value) => value,
    }
}

/// Returns the items in the stated order; the other owned items follow.
fn items_of(stated: &[Value], items: Vec<Value>, owned: Option<&Owned<'_>>) -> Vec<Value> {
    let name = |item: &Value| item.get("name").cloned();
    let mut placed = Vec::with_capacity(items.len());
    let members = match owned {
        Some(owned) => owned
            .match_items(&items)
            .into_iter()
            .map(|place| place.map(|place| owned.member(place)))
            .collect(),
        None => vec![None; items.len()],
    };
    for ((place, item), owned) in items.into_iter().enumerate().zip(members) {
        let at = match name(&item) {
            known @ Some(_) => stated.iter().position(|stated| name(stated) == known),
            None => Some(place).filter(|place| *place < stated.len()),
        };
        match at {
            Some(at) => placed.push((at, part_of(&stated[at], item, owned))),
            None if owned.is_some() || !item.is_object() => placed.push((usize::MAX, item)),
            None => {}
        }
    }
    placed.sort_by_key(|(at, _)| *at);
    placed.into_iter().map(|(_, item)| item).collect()
}

fn differences(body: &Map<String, Value>, observed: &Object) -> Vec<FieldPath> {
    let mut differences = Vec::new();
    if observed.form == Access::Full
        && let Ok(observed) = serde_json::from_str(&observed.json)
    {
        add_differences(body, &observed, &mut Vec::new(), &mut differences);
    }
    differences
}

fn add_differences(
    stated: &Map<String, Value>,
    observed: &Value,
    path: &mut Vec<String>,
    differences: &mut Vec<FieldPath>,
) {
    // The annotation hashes the object, so it differs together with any other field.
    let fields = stated.iter().filter(|(key, _)| *key != ANNOTATION_APPLIED);
    for (key, value) in fields {
        path.push(key.clone());
        match (value, observed.get(key)) {
            (Value::Object(fields), Some(known @ Value::Object(_))) => {
                add_differences(fields, known, path, differences);
            }
            // A field that is stated as absent.
            (Value::Null, None) => {}
            (value, known) if known != Some(value) => differences.push(FieldPath(path.clone())),
            _ => {}
        }
        path.pop();
    }
}
