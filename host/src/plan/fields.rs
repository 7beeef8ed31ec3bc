//! Managed fields in Kubernetes' `FieldsV1` form: what one manager owns of an object.
//!
//! ```text
//! {"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}}
//! ```
//!
//! `f:` is a field, `k:` an item of a list by its keys, `v:` an item of a set by its value, `.` the thing itself.
//! A member without members of its own covers everything below it: it is a leaf, or atomic.

use serde_json::{Map, Value};

/// What the API server fills in for a key of a list item that is left out, where every kind agrees on it.
const KEY_DEFAULTS: [(&str, &str); 1] = [("protocol", "TCP")];

/// Fields of the metadata that identify the object, which nobody owns.
const IDENTITY: [&str; 2] = ["name", "namespace"];

/// Whether the manager owns every leaf of the object.
///
/// Identity needs no owner, nor does `status`, which an apply of the object itself cannot set.
pub(super) fn covers(owned: &Value, object: &Map<String, Value>) -> bool {
    let Value::Object(members) = owned else {
        return false;
    };
    object
        .iter()
        .all(|(key, value)| match (key.as_str(), value) {
            ("apiVersion" | "kind" | "status", _) => true,
            ("metadata", Value::Object(metadata)) => {
                let Some(Value::Object(members)) = members.get("f:metadata") else {
                    return false;
                };
                metadata
                    .iter()
                    .filter(|(key, _)| !IDENTITY.contains(&key.as_str()))
                    .all(|(key, value)| field_covered(members, key, value))
            }
            _ => field_covered(members, key, value),
        })
}

fn field_covered(members: &Map<String, Value>, key: &str, value: &Value) -> bool {
    match members.get(&format!("f:{key}")) {
        Some(node) => covered(node, value),
        None => !leaves_path(value),
    }
}

/// Whether a value leaves a path in the managed fields: an empty associative list leaves none.
pub(super) fn leaves_path(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => fields.is_empty() || fields.values().any(leaves_path),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn covered(node: &Value, value: &Value) -> bool {
    let Value::Object(members) = node else {
        return false;
    };
    if members.is_empty() {
        return true;
    }
    match value {
        Value::Object(fields) => fields
            .iter()
            .all(|(key, value)| field_covered(members, key, value)),
        Value::Array(items) => {
            let pairs = match_items(members, items);
            pairs
                .iter()
                .zip(items)
                .all(|(node, item)| node.is_some_and(|node| covered(node, item)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// The keys of a list item as its member's name states them, none for other members.
pub(super) fn item_keys(member: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(member.strip_prefix("k:")?).ok()
}

/// Finds the member for each item of a list, none where there is none; no member is used twice.
///
/// Items that state all their keys choose first, so that an item that leaves one out gets what is left.
pub(super) fn match_items<'a>(
    members: &'a Map<String, Value>,
    items: &[Value],
) -> Vec<Option<&'a Value>> {
    let mut free: Vec<(Member, &Value)> = members
        .iter()
        .filter_map(|(name, node)| Some((Member::parse(name)?, node)))
        .collect();
    let mut found = vec![None; items.len()];
    for exact in [true, false] {
        for (item, found) in items.iter().zip(&mut found) {
            if found.is_some() {
                continue;
            }
            let place = free
                .iter()
                .position(|(member, _)| member.matches(item, exact));
            *found = place.map(|place| free.remove(place).1);
        }
    }
    found
}

/// What identifies an item of a list.
enum Member {
    Keys(Map<String, Value>),
    Value(Value),
}

impl Member {
    fn parse(name: &str) -> Option<Self> {
        if let Some(keys) = item_keys(name) {
            return Some(Self::Keys(keys));
        }
        let value = serde_json::from_str(name.strip_prefix("v:")?).ok()?;
        Some(Self::Value(value))
    }

    /// Whether the item is this member; only if `exact` is not asked for, the item may leave out keys.
    fn matches(&self, item: &Value, exact: bool) -> bool {
        match self {
            Self::Value(value) => value == item,
            Self::Keys(keys) => keys.iter().all(|(key, value)| match item.get(key) {
                Some(stated) => stated == value,
                None if exact => false,
                None => KEY_DEFAULTS
                    .iter()
                    .find(|(name, _)| name == key)
                    .is_none_or(|(_, default)| value == default),
            }),
        }
    }
}

/// Whether a manager owns exactly the paths of `stated`, and they have these values in `observed`.
///
/// `owned` is the member for this place; none if the manager owns nothing here.
pub(super) fn owns_exactly(owned: Option<&Value>, stated: &Value, observed: &Value) -> bool {
    let members = match owned {
        None => return !leaves_path(stated) && has_lists(stated, observed),
        Some(Value::Object(members)) => members,
        Some(_) => return false,
    };
    match (stated, observed) {
        // Others may own fields of it.
        (Value::Object(fields), Value::Object(_)) if fields.is_empty() => members.is_empty(),
        (Value::Object(fields), Value::Object(observed)) if !members.is_empty() => {
            let stated_all = fields.iter().all(|(key, value)| {
                let member = members.get(&format!("f:{key}"));
                observed
                    .get(key)
                    .is_some_and(|observed| owns_exactly(member, value, observed))
            });
            let no_more = members
                .keys()
                .filter_map(|member| member.strip_prefix("f:"))
                .all(|key| fields.contains_key(key));
            stated_all && no_more
        }
        (Value::Array(items), Value::Array(observed)) if !members.is_empty() => {
            let items_owned = members.keys().filter(|member| *member != ".").count();
            items_owned == items.len()
                && match_items(members, items)
                    .into_iter()
                    .zip(items)
                    .all(|(member, item)| item_owned_exactly(members, member, item, observed))
        }
        _ => same(stated, observed),
    }
}

fn item_owned_exactly(
    members: &Map<String, Value>,
    member: Option<&Value>,
    item: &Value,
    observed: &[Value],
) -> bool {
    let Some(node) = member else {
        return false;
    };
    let named = members
        .iter()
        .filter(|(_, other)| std::ptr::eq(*other, node))
        .find_map(|(name, _)| Member::parse(name));
    let found = observed.iter().find(|observed| match &named {
        Some(named) => named.matches(observed, false),
        None => false,
    });
    found.is_some_and(|observed| owns_exactly(Some(node), item, observed))
}

/// Whether two values are the same to the API server, which writes the number 1.0 as 1.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => {
            x == y || ((x.is_f64() || y.is_f64()) && x.as_f64() == y.as_f64())
        }
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y))
        }
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len()
                && x.iter()
                    .all(|(key, x)| y.get(key).is_some_and(|y| same(x, y)))
        }
        _ => a == b,
    }
}

/// Whether every empty list that is stated is a list; others may own items of it.
fn has_lists(stated: &Value, observed: &Value) -> bool {
    match (stated, observed) {
        (Value::Object(stated), Value::Object(observed)) => stated.iter().all(|(key, value)| {
            observed
                .get(key)
                .is_some_and(|known| has_lists(value, known))
        }),
        (Value::Array(_), Value::Array(_)) => true,
        _ => false,
    }
}
