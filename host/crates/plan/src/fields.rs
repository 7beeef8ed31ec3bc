//! Managed fields in Kubernetes' `FieldsV1` form: the fields of an object that one manager owns.
//!
//! ```text
//! {"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}}
//! ```
//!
//! `f:` is a field, `k:` an item of a list by its keys, `v:` an item of a set by its value, `.` the object or list itself.
//! A member without members of its own covers everything below it: it is a leaf, or atomic.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Map, Value};

/// The fields that a manager owns below a path, as a tree of member names.
#[derive(Debug, Default)]
pub(super) struct Owned<'a>(Vec<(Cow<'a, str>, Self)>);

impl<'a> Owned<'a> {
    /// Parses the managed fields of one manager; returns `None` for any other text.
    pub(super) fn parse(fields: &'a str) -> Option<Self> {
        serde_json::from_str(fields).ok()
    }

    /// Iterates over the members with their names.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.0.iter().map(|(name, member)| (&**name, member))
    }

    /// Returns the owned part of a field.
    pub(super) fn field(&self, field: &str) -> Option<&Self> {
        let sought = || "f:".bytes().chain(field.bytes());
        let by_name = |(name, _): &(Cow<'_, str>, Self)| name.bytes().cmp(sought());
        let place = self.0.binary_search_by(by_name).ok()?;
        Some(&self.0[place].1)
    }

    /// Takes out the owned part of a field.
    pub(super) fn into_field(self, field: &str) -> Option<Self> {
        let mut members = self
            .0
            .into_iter()
            .filter(|(name, _)| name.strip_prefix("f:") == Some(field));
        members.next().map(|(_, member)| member)
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

/// Defaults of the API server for missing keys of list items; only defaults that are the same in all kinds.
const KEY_DEFAULTS: [(&str, &str); 1] = [("protocol", "TCP")];

/// Metadata fields that identify the object; managed fields never contain them.
const IDENTITY: [&str; 2] = ["name", "namespace"];

/// Returns true if the manager owns every leaf of the object.
///
/// The identity needs no owner, and neither does `status`, because an apply of the object itself cannot set it.
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
        Value::Array(items) => match_items(owned, items)
            .into_iter()
            .zip(items)
            .all(|(found, item)| found.is_some_and(|(_, owned)| covered(owned, item))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Returns the keys of a list item from its member name; `None` for other members.
pub(super) fn item_keys(member: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(member.strip_prefix("k:")?).ok()
}

/// Finds the member for each item of a list, or `None`; uses no member twice.
///
/// Items with all keys are matched first, so that an item with a missing key gets one of the remaining members.
fn match_items<'o, 'a>(
    owned: &'o Owned<'a>,
    items: &[Value],
) -> Vec<Option<(Member, &'o Owned<'a>)>> {
    let mut free: Vec<(Member, &Owned<'a>)> = owned
        .0
        .iter()
        .filter_map(|(name, owned)| Some((Member::parse(name)?, owned)))
        .collect();
    let mut found: Vec<_> = items.iter().map(|_| None).collect();
    for exact in [true, false] {
        for (item, found) in items.iter().zip(&mut found) {
            if found.is_some() {
                continue;
            }
            let place = free
                .iter()
                .position(|(member, _)| member.matches(item, exact));
            *found = place.map(|place| free.remove(place));
        }
    }
    found
}

/// The identification of a list item.
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

    /// Returns true if the item is this member; unless `exact` is set, keys may be missing from the item.
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

/// Returns true if a manager owns exactly the paths of `stated`, and they have these values in `observed`.
///
/// `owned` is the member for this path; `None` if the manager owns nothing here.
pub(super) fn owns_exactly(owned: Option<&Owned<'_>>, stated: &Value, observed: &Value) -> bool {
    let Some(owned) = owned else {
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
            let no_more = owned
                .members()
                .filter_map(|(name, _)| name.strip_prefix("f:"))
                .all(|key| fields.contains_key(key));
            stated_all && no_more
        }
        (Value::Array(items), Value::Array(observed)) if !owned.is_whole() => {
            let items_owned = owned.members().filter(|(name, _)| *name != ".").count();
            items_owned == items.len()
                && match_items(owned, items)
                    .into_iter()
                    .zip(items)
                    .all(|(found, item)| item_owned_exactly(found, item, observed))
        }
        _ => same(stated, observed),
    }
}

fn item_owned_exactly(
    found: Option<(Member, &Owned<'_>)>,
    item: &Value,
    observed: &[Value],
) -> bool {
    let Some((member, owned)) = found else {
        return false;
    };
    let observed = observed
        .iter()
        .find(|observed| member.matches(observed, false));
    observed.is_some_and(|observed| owns_exactly(Some(owned), item, observed))
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

/// Returns true if every list of `stated` is also a list in `observed`; its items may belong to other managers.
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
