//! Matches list items with members of managed fields.
//!
//! The API server fills in defaults for list keys before it records a member. Only the kind's schema has these
//! defaults, so an item that omits a key takes the one member that agrees in all keys that it states and that no other
//! item needs. Values are equal as for the API server: `2.0` is `2`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Number, Value};

use super::{Owned, item_keys};

/// The only key in a set, whose items are identified by value. List keys are not empty.
const VALUE: &str = "";

/// Keys with their values in canonical form, ordered by key.
type Identity<'a> = Vec<(&'a str, String)>;

/// An owned list item: the place in the managed fields, and the keys.
struct Member {
    place: usize,
    keys: BTreeMap<String, String>,
}

impl Member {
    fn parse((place, (name, _)): (usize, (&str, &Owned<'_>))) -> Option<Self> {
        let keys = if let Some(keys) = item_keys(name) {
            keys.iter()
                .map(|(key, value)| (key.clone(), canonical(value)))
                .collect()
        } else {
            let value = serde_json::from_str(name.strip_prefix("v:")?).ok()?;
            [(VALUE.to_owned(), canonical(&value))].into()
        };
        Some(Self { place, keys })
    }

    /// Returns the values for these keys, or `None` if the member lacks one.
    fn identity<'k>(&self, keys: &[&'k str]) -> Option<Identity<'k>> {
        keys.iter()
            .map(|key| Some((*key, self.keys.get(*key)?.clone())))
            .collect()
    }
}

/// The members that an item takes in one search step; items with better matches come first.
#[derive(Clone, Copy)]
enum Step {
    /// One with exactly the stated keys.
    Exact,
    /// The only one that is left.
    Only,
    /// The first if there are several.
    First,
}

/// The members that can still match, by the keys that items state.
///
/// An index per stated key combination keeps the search linear: a guest's list may have thousands of items.
struct Candidates<'m> {
    members: &'m [Member],
    combinations: BTreeSet<Vec<&'m str>>,
    /// Members with fewer keys come first: one with exactly the stated keys needs no default.
    by_identity: BTreeMap<Identity<'m>, BTreeSet<(usize, usize)>>,
}

impl<'m> Candidates<'m> {
    fn new(members: &'m [Member], identities: &[Identity<'m>]) -> Self {
        let combinations = identities
            .iter()
            .map(|identity| identity.iter().map(|(key, _)| *key).collect())
            .collect();
        let mut candidates = Self {
            members,
            combinations,
            by_identity: BTreeMap::new(),
        };
        for (index, member) in members.iter().enumerate() {
            for identity in candidates.identities(member) {
                candidates
                    .by_identity
                    .entry(identity)
                    .or_default()
                    .insert((member.keys.len(), index));
            }
        }
        candidates
    }

    /// Returns the identities that this member can match.
    fn identities(&self, member: &Member) -> Vec<Identity<'m>> {
        self.combinations
            .iter()
            .filter_map(|keys| member.identity(keys))
            .collect()
    }

    /// Takes the member for an item, if one is good enough.
    fn take(&mut self, identity: &Identity<'m>, step: Step) -> Option<&'m Member> {
        let members = self.by_identity.get(identity)?;
        let (keys, index) = *members.first()?;
        let is_good_enough = match step {
            Step::Exact => keys == identity.len(),
            Step::Only => members.len() == 1,
            Step::First => true,
        };
        if !is_good_enough {
            return None;
        }
        let member = &self.members[index];
        for identity in self.identities(member) {
            if let Some(members) = self.by_identity.get_mut(&identity) {
                members.remove(&(keys, index));
            }
        }
        Some(member)
    }
}

/// Returns for each list item the member's place in `owned`, or `None`; uses no member twice.
pub(super) fn match_items(owned: &Owned<'_>, items: &[Value]) -> Vec<Option<usize>> {
    let members: Vec<Member> = owned
        .members()
        .enumerate()
        .filter_map(Member::parse)
        .collect();
    let keys: BTreeSet<&str> = members
        .iter()
        .flat_map(|member| member.keys.keys().map(String::as_str))
        .collect();
    let identities: Vec<Identity<'_>> = items.iter().map(|item| identity(item, &keys)).collect();
    let mut candidates = Candidates::new(&members, &identities);
    let mut places = vec![None; items.len()];
    for step in [Step::Exact, Step::Only, Step::First] {
        // A match can leave another item with a single candidate.
        let mut is_changed = true;
        while is_changed {
            is_changed = false;
            for (place, identity) in places.iter_mut().zip(&identities) {
                if place.is_none() {
                    *place = candidates.take(identity, step).map(|member| member.place);
                    is_changed |= place.is_some();
                }
            }
        }
    }
    places
}

/// Returns the list keys that an item states, with their values.
fn identity<'k>(item: &Value, keys: &BTreeSet<&'k str>) -> Identity<'k> {
    keys.iter()
        .filter_map(|key| {
            let value = match item {
                _ if *key == VALUE => Some(item),
                item => item.get(key),
            };
            Some((*key, canonical(value?)))
        })
        .collect()
}

/// Returns one text for all values that the API server considers equal.
fn canonical(value: &Value) -> String {
    match value {
        Value::Number(number) => canonical_number(number),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.to_string(),
    }
}

fn canonical_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 => {
            // A negative zero without the sign.
            format!("{:.0}", float + 0.0)
        }
        _ => number.to_string(),
    }
}
