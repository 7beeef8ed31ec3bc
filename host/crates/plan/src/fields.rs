//! Managed fields in Kubernetes' `FieldsV1` form: the fields that one manager owns in an object.
//!
//! ```text
//! {"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}}
//! ```
//!
//! `f:` is a field, `k:` a list item by keys, `v:` a set item by value, `.` the object or list itself.
//! An empty member covers everything below it: it is a leaf, or atomic.

mod items;

use std::{borrow::Cow, collections::BTreeMap, fmt};

use innkeeper_model::ManagedEntry;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Map, Value};

/// Returns true if the entry is for a manager's applies to the object itself, or to a subresource.
pub(super) fn is_applied_by(
    entry: &ManagedEntry,
    manager: &str,
    subresource: Option<&str>,
) -> bool {
    // Only this entry follows an apply: those for updates and for other subresources keep their fields.
    entry.applied && entry.subresource.as_deref() == subresource && *entry.manager == *manager
}

/// The fields that a manager owns below a path, as a tree of member names.
#[derive(Debug, Default)]
pub(super) struct Owned<'a>(Vec<(Cow<'a, str>, Self)>);

impl<'a> Owned<'a> {
    /// Parses one manager's managed fields; returns `None` for any other text.
    pub(super) fn parse(fields: &'a str) -> Option<Self> {
        serde_json::from_str(fields).ok()
    }

    /// Iterates over the members with their names.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.0.iter().map(|(name, member)| (&**name, member))
    }

    /// Returns what is owned below a field.
    pub(super) fn field(&self, field: &str) -> Option<&Self> {
        // Compared without an allocation: each pass looks up every field of every child.
        let sought = || "f:".bytes().chain(field.bytes());
        let by_name = |(name, _): &(Cow<'_, str>, Self)| name.bytes().cmp(sought());
        let place = self.0.binary_search_by(by_name).ok()?;
        Some(&self.0[place].1)
    }

    /// Returns true if the manager owns the field at a path, or something above it as a whole.
    pub(super) fn has(&self, path: &[String]) -> bool {
        let mut node = self;
        for (depth, name) in path.iter().enumerate() {
            match node.field(name) {
                Some(member) => node = member,
                // At the root, no members means that the manager owns nothing.
                None => return depth > 0 && node.is_whole(),
            }
        }
        true
    }

    /// Removes and returns what is owned below a field.
    pub(super) fn into_field(self, field: &str) -> Option<Self> {
        self.0
            .into_iter()
            .find(|(name, _)| name.strip_prefix("f:") == Some(field))
            .map(|(_, member)| member)
    }

    /// Returns for each list item its member's place, or `None` if the manager does not own the item.
    pub(super) fn match_items(&self, items: &[Value]) -> Vec<Option<usize>> {
        items::match_items(self, items)
    }

    /// Returns what is owned below a list item, by the place that [`match_items`](Self::match_items) returned.
    pub(super) fn member(&self, place: usize) -> &Self {
        &self.0[place].1
    }

    /// Returns true if this is a leaf or an atomic value.
    pub(super) fn is_whole(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Owned<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Owned<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the members of managed fields")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Owned<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((MemberName(name), member)) = map.next_entry()? {
                    members.push((name, member));
                }
                // Sorting is cheap here: the API server writes the members in sorted order.
                members
                    .sort_unstable_by(|(left, _), (right, _): &(Cow<'_, str>, _)| left.cmp(right));
                Ok(Owned(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// A name that borrows from the text unless it contains escapes.
#[derive(Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

/// Metadata fields that identify the object; managed fields never contain them.
const IDENTITY: [&str; 2] = ["name", "namespace"];

/// Returns true if the manager owns every leaf in the object.
///
/// The identity needs no owner, and neither does `status`, because applying the object itself cannot set it.
pub(super) fn covers(owned: &Owned<'_>, object: &Map<String, Value>) -> bool {
    object
        .iter()
        .all(|(key, value)| match (key.as_str(), value) {
            ("apiVersion" | "kind" | "status", _) => true,
            ("metadata", Value::Object(metadata)) => {
                let Some(owned) = owned.field("metadata") else {
                    return false;
                };
                metadata
                    .iter()
                    .filter(|(key, _)| !IDENTITY.contains(&key.as_str()))
                    .all(|(key, value)| field_covered(owned, key, value))
            }
            _ => field_covered(owned, key, value),
        })
}

fn field_covered(owned: &Owned<'_>, key: &str, value: &Value) -> bool {
    match owned.field(key) {
        Some(node) => covered(node, value),
        None => !leaves_path(value),
    }
}

/// Returns true if a value leaves a path in the managed fields: an empty associative list leaves none.
pub(super) fn leaves_path(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => fields.is_empty() || fields.values().any(leaves_path),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn covered(owned: &Owned<'_>, value: &Value) -> bool {
    if owned.is_whole() {
        return true;
    }
    match value {
        Value::Object(fields) => fields
            .iter()
            .all(|(key, value)| field_covered(owned, key, value)),
        Value::Array(items) => owned
            .match_items(items)
            .into_iter()
            .zip(items)
            .all(|(place, item)| place.is_some_and(|place| covered(owned.member(place), item))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Returns what a manager owns in a value.
pub(super) fn owned_values(owned: &Owned<'_>, value: &Value) -> Value {
    if owned.is_whole() {
        return value.clone();
    }
    match value {
        Value::Object(fields) => {
            let values = fields.iter().filter_map(|(key, value)| {
                Some((key.clone(), owned_values(owned.field(key)?, value)))
            });
            Value::Object(values.collect())
        }
        Value::Array(items) => {
            let places = owned.match_items(items).into_iter().zip(items);
            let values =
                places.filter_map(|(place, item)| Some(owned_values(owned.member(place?), item)));
            values.collect()
        }
        other => other.clone(),
    }
}

/// Parses a list item's keys from the member name; `None` for other members.
pub(super) fn item_keys(member: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(member.strip_prefix("k:")?).ok()
}

/// Returns true if a manager owns exactly the paths in `stated`, and they have these values in `observed`.
///
/// `owned` is the member for this path; `None` if the manager owns nothing here.
pub(super) fn owns_exactly(owned: Option<&Owned<'_>>, stated: &Value, observed: &Value) -> bool {
    let Some(owned) = owned else {
        // An empty list leaves no path in managed fields: only the object shows that it is there.
        return !leaves_path(stated) && has_lists(stated, observed);
    };
    match (stated, observed) {
        // The observed map may have fields, which other managers own.
        (Value::Object(fields), Value::Object(_)) if fields.is_empty() => owned.is_whole(),
        (Value::Object(fields), Value::Object(observed)) if !owned.is_whole() => {
            let stated_all = fields.iter().all(|(key, value)| {
                observed
                    .get(key)
                    .is_some_and(|observed| owns_exactly(owned.field(key), value, observed))
            });
            // An apply removes fields that it no longer states, so a leftover needs one.
            let no_more = owned
                .members()
                .filter_map(|(name, _)| name.strip_prefix("f:"))
                .all(|key| fields.contains_key(key));
            stated_all && no_more
        }
        (Value::Array(items), Value::Array(observed)) if !owned.is_whole() => {
            owns_items_exactly(owned, items, observed)
        }
        _ => same(stated, observed),
    }
}

fn owns_items_exactly(owned: &Owned<'_>, items: &[Value], observed: &[Value]) -> bool {
    let items_owned = owned.members().filter(|(name, _)| *name != ".").count();
    let observed: BTreeMap<usize, &Value> = owned
        .match_items(observed)
        .into_iter()
        .zip(observed)
        .filter_map(|(place, observed)| Some((place?, observed)))
        .collect();
    items_owned == items.len()
        && owned
            .match_items(items)
            .into_iter()
            .zip(items)
            .all(|(place, item)| {
                place.is_some_and(|place| {
                    observed.get(&place).is_some_and(|observed| {
                        owns_exactly(Some(owned.member(place)), item, observed)
                    })
                })
            })
}

/// Returns true if the API server stores both values in the same way; it writes the number 1.0 as 1.
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

/// Returns true if every list in `stated` is also a list in `observed`; the items may belong to other managers.
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
