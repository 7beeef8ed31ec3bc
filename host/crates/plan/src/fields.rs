//! Managed fields in Kubernetes' `FieldsV1` form: the fields of an object that one manager owns.
//!
//! ```text
//! {"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}}
//! ```
//!
//! `f:` is a field, `k:` an item of a list by its keys, `v:` an item of a set by its value, `.` the object or list itself.
//! A member without members of its own covers everything below it: it is a leaf, or atomic.

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    fmt,
};

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
/// Items with all keys are matched first, so that an item with a missing key gets one of the remaining members. Lists
/// have tens of thousands of items, so members are found by their text, and only items that lack a key without a default
/// are compared with every member that is left.
fn match_items<'o, 'a>(
    owned: &'o Owned<'a>,
    items: &[Value],
) -> Vec<Option<(Member, &'o Owned<'a>)>> {
    let mut free: Vec<Option<(Member, &Owned<'a>)>> = owned
        .0
        .iter()
        .filter_map(|(name, owned)| Some(Some((Member::parse(name)?, owned))))
        .collect();
    let members = free.iter().flatten().map(|(member, _)| member);
    let mut places = Places::new(members);
    let mut found: Vec<_> = items.iter().map(|_| None).collect();
    for defaults in [false, true] {
        for (item, found) in items.iter().zip(&mut found) {
            if found.is_none() {
                let place = places.take(item, defaults);
                *found = place.and_then(|place| free[place].take());
            }
        }
    }
    let mut compared = 0;
    for (item, found) in items.iter().zip(&mut found) {
        if found.is_some() {
            continue;
        }
        let is_free = |slot: &Option<(Member, _)>| {
            slot.as_ref()
                .is_some_and(|(member, _)| member.matches(item))
        };
        compared += free.len();
        if compared > COMPARISONS_MAX {
            break;
        }
        *found = free
            .iter()
            .position(is_free)
            .and_then(|place| free[place].take());
    }
    found
}

/// The most comparisons of items with members of other texts, for a list. Beyond it items count as not owned, so that
/// the child is applied once more: the API server then states the missing keys.
const COMPARISONS_MAX: usize = 1 << 20;

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

    /// Returns true if the item is this member; keys may be missing from the item.
    fn matches(&self, item: &Value) -> bool {
        match self {
            Self::Value(value) => value == item,
            Self::Keys(keys) => keys.iter().all(|(key, value)| match item.get(key) {
                Some(stated) => stated == value,
                None => default_of(key).is_none_or(|default| value == default),
            }),
        }
    }
}

fn default_of(key: &str) -> Option<&'static str> {
    let known = KEY_DEFAULTS.iter().find(|(name, _)| *name == key);
    known.map(|(_, default)| *default)
}

/// The places of members by their texts: those of values, and those of keys by the names of the keys.
struct Places {
    values: BTreeMap<String, VecDeque<usize>>,
    keys: BTreeMap<Vec<String>, BTreeMap<String, VecDeque<usize>>>,
}

impl Places {
    fn new<'m>(members: impl Iterator<Item = &'m Member>) -> Self {
        let mut places = Self {
            values: BTreeMap::new(),
            keys: BTreeMap::new(),
        };
        for (place, member) in members.enumerate() {
            let same_text = match member {
                Member::Value(value) => places.values.entry(value.to_string()),
                Member::Keys(keys) => {
                    let names = keys.keys().cloned().collect();
                    let same_names = places.keys.entry(names).or_default();
                    same_names.entry(text_of(keys.values()))
                }
            };
            same_text.or_default().push_back(place);
        }
        places
    }

    /// Takes out the first place for an item that has all keys; with `defaults`, keys with a default may be missing.
    fn take(&mut self, item: &Value, defaults: bool) -> Option<usize> {
        if !self.values.is_empty()
            && let Some(places) = self.values.get_mut(&item.to_string())
            && let Some(place) = places.pop_front()
        {
            return Some(place);
        }
        self.keys.iter_mut().find_map(|(names, places)| {
            let text = keys_text(names, item, defaults)?;
            places.get_mut(&text)?.pop_front()
        })
    }
}

/// Returns the text of the keys of an item; none if a key is missing.
fn keys_text(names: &[String], item: &Value, defaults: bool) -> Option<String> {
    let values: Option<Vec<Value>> = names
        .iter()
        .map(|name| {
            let default = default_of(name).filter(|_| defaults).map(Value::from);
            item.get(name).cloned().or(default)
        })
        .collect();
    Some(text_of(values?.iter()))
}

fn text_of<'v>(values: impl Iterator<Item = &'v Value>) -> String {
    values.map(|value| format!("{value},")).collect()
}

/// The items of an observed list by the texts of their keys.
struct Observed<'v> {
    items: &'v [Value],
    /// None until a member is a value.
    values: Option<BTreeMap<String, usize>>,
    keys: BTreeMap<Vec<String>, BTreeMap<String, usize>>,
    compared: usize,
}

impl<'v> Observed<'v> {
    fn new(items: &'v [Value]) -> Self {
        Self {
            items,
            values: None,
            keys: BTreeMap::new(),
            compared: 0,
        }
    }

    /// Returns the item that a member identifies.
    fn find(&mut self, member: &Member) -> Option<&'v Value> {
        let items = self.items;
        let place = match member {
            Member::Value(value) => {
                let texts = || items.iter().map(Value::to_string).zip(0..).collect();
                let places = self.values.get_or_insert_with(texts);
                return Some(&items[*places.get(&value.to_string())?]);
            }
            Member::Keys(keys) => {
                let names: Vec<String> = keys.keys().cloned().collect();
                let places = self.keys.entry(names.clone()).or_insert_with(|| {
                    let last_first = items.iter().enumerate().rev();
                    last_first
                        .filter_map(|(place, item)| Some((keys_text(&names, item, true)?, place)))
                        .collect()
                });
                places.get(&text_of(keys.values())).copied()
            }
        };
        if let Some(place) = place {
            return Some(&items[place]);
        }
        self.compared += items.len();
        let mut rest = items.iter().filter(|_| self.compared <= COMPARISONS_MAX);
        rest.find(|item| member.matches(item))
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
            let mut observed = Observed::new(observed);
            items_owned == items.len()
                && match_items(owned, items)
                    .into_iter()
                    .zip(items)
                    .all(|(found, item)| item_owned_exactly(found, item, &mut observed))
        }
        _ => same(stated, observed),
    }
}

fn item_owned_exactly(
    found: Option<(Member, &Owned<'_>)>,
    item: &Value,
    observed: &mut Observed<'_>,
) -> bool {
    let Some((member, owned)) = found else {
        return false;
    };
    let observed = observed.find(&member);
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
