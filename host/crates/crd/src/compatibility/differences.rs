//! The differences between two schemas.
//!
//! A new schema is narrower where it rejects values that the old one accepts, or drops fields that the old one keeps.
//! A change that this module cannot classify counts as narrower.
//! Added validation rules are listed separately, because the API server ratchets them: an object that breaks a new rule
//! stays valid until a write changes the part that breaks it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The most changes of each type that are kept as texts. A path can be as long as a definition, and lists have as many
/// entries.
const TEXTS_MAX: usize = 64;

/// The longest text kept for a change, in characters.
const TEXT_CHARS_MAX: usize = 256;

/// Bounds for which a higher value is narrower.
const LOWER_BOUNDS: [&str; 4] = ["minItems", "minLength", "minProperties", "minimum"];

/// Bounds for which a lower value is narrower.
const UPPER_BOUNDS: [&str; 4] = ["maxItems", "maxLength", "maxProperties", "maximum"];

/// Restrictions for which every change counts as narrower, because comparing them is not possible in general.
const RESTRICTIONS: [&str; 10] = [
    "allOf",
    "anyOf",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "uniqueItems",
];

/// Fields that decide how values are merged, not which ones are accepted.
const MERGES: [&str; 3] = [
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
];

const ANY_FIELDS: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const RULES: &str = "x-kubernetes-validations";

/// The differences, each with a path: `spec.size gets the type string`.
#[derive(Debug, Default)]
pub(super) struct Differences {
    /// The changes that make the new schema narrower, at most 64.
    pub(super) narrower: Vec<String>,
    /// The rules that the new schema adds, at most 64.
    pub(super) rules: Vec<String>,
    /// True if the new schema is narrower in another way than by lacking fields, or changes what the API server makes of
    /// values that both accept.
    are_beyond_fields: bool,
    path: Vec<String>,
}

/// Returns true if the old schema accepts and keeps all that the new one does, and differs from it only by more optional
/// fields.
///
/// A required field with a default is optional for users.
pub(super) fn only_adds_fields(old: &Value, new: &Value) -> bool {
    let back = Differences::between(new, old);
    !Differences::between(old, new).are_beyond_fields
        && back.narrower.is_empty()
        && back.rules.is_empty()
}

/// Returns true if the defaults are equal, or the old one only has more members, for fields that the new schema lacks.
fn has_same_default(old: Option<&Value>, new: Option<&Value>, schema: Option<&Value>) -> bool {
    let (Some(Value::Object(old)), Some(Value::Object(new))) = (old, new) else {
        return old == new;
    };
    let property = |name: &str| schema?.get("properties")?.get(name);
    new.keys().all(|name| old.contains_key(name))
        && old.iter().all(|(name, old)| {
            let new = new.get(name);
            let property = property(name);
            new.is_none() && property.is_none() || has_same_default(Some(old), new, property)
        })
}

fn place(path: &[String]) -> String {
    if path.is_empty() {
        "the object".to_owned()
    } else {
        path.join(".")
    }
}

/// Adds a text, if there are few.
fn add(texts: &mut Vec<String>, text: impl FnOnce() -> String) {
    if texts.len() < TEXTS_MAX {
        texts.push(text().chars().take(TEXT_CHARS_MAX).collect());
    }
}

impl Differences {
    /// Compares two whole schemas.
    pub(super) fn between(old: &Value, new: &Value) -> Self {
        let mut differences = Self::default();
        differences.compare(old, new);
        differences
    }

    fn compare(&mut self, old: &Value, new_schema: &Value) {
        if let (Value::Object(old), Value::Object(new)) = (old, new_schema) {
            self.compare_types(old, new);
            self.compare_bounds(old, new);
            self.compare_lists(old, new);
            self.compare_rules(old, new);
            self.are_beyond_fields |= MERGES.iter().any(|name| old.get(*name) != new.get(*name));
            let same_default =
                has_same_default(old.get("default"), new.get("default"), Some(new_schema));
            self.are_beyond_fields |= !same_default;
            self.descend(old, new);
        }
    }

    fn note(&mut self, change: &str) {
        self.are_beyond_fields = true;
        self.note_field(change);
    }

    /// Notes a change that is only about the field at this place as a whole.
    fn note_field(&mut self, change: &str) {
        add(&mut self.narrower, || {
            format!("{} {change}", place(&self.path))
        });
    }

    fn compare_types(&mut self, old: &Map<String, Value>, new: &Map<String, Value>) {
        let types = (
            old.get("type").and_then(Value::as_str),
            new.get("type").and_then(Value::as_str),
        );
        match types {
            // Every integer is a number, and a schema without a type accepts all types.
            (Some("integer"), Some("number")) | (_, None) => {}
            (Some(old), Some(new)) if old == new => {}
            (None, Some(_)) if !flag(old, INT_OR_STRING) && !flag(old, ANY_FIELDS) => {}
            (_, Some(new)) => self.note(&format!("gets the type {new}")),
        }
        for name in [ANY_FIELDS, INT_OR_STRING, "nullable"] {
            if flag(old, name) && !flag(new, name) {
                self.note(&format!("loses {name}"));
            }
        }
    }

    fn compare_bounds(&mut self, old: &Map<String, Value>, new: &Map<String, Value>) {
        let bound = |schema: &Map<String, Value>, name| schema.get(name).and_then(Value::as_f64);
        for (names, higher_is_narrower) in [(LOWER_BOUNDS, true), (UPPER_BOUNDS, false)] {
            for name in names {
                let narrower = match (bound(old, name), bound(new, name)) {
                    (_, None) => false,
                    (None, Some(_)) => true,
                    (Some(old), Some(new)) if higher_is_narrower => new > old,
                    (Some(old), Some(new)) => new < old,
                };
                if narrower {
                    self.note(&format!("gets a narrower {name}"));
                }
            }
        }
        for name in RESTRICTIONS {
            // Without the restriction, the schema only accepts more.
            if new.contains_key(name) && new.get(name) != old.get(name) {
                self.note(&format!("gets another {name}"));
            }
        }
    }

    /// Compares `required` and `enum`.
    fn compare_lists(&mut self, old: &Map<String, Value>, new: &Map<String, Value>) {
        // The API server fills in defaults before it validates, so requiring such a field rejects no object.
        let has_default = |field: &str| {
            let property = new
                .get("properties")
                .and_then(|properties| properties.get(field));
            property.is_some_and(|property| property.get("default").is_some())
        };
        let was_required = texts(items(old, "required"));
        let required = items(new, "required")
            .iter()
            .filter(|field| !was_required.contains(&field.to_string()))
            .filter_map(Value::as_str)
            .filter(|field| !has_default(field));
        for field in required {
            self.note(&format!("requires {field}"));
        }
        if !new.contains_key("enum") {
            return;
        }
        if !old.contains_key("enum") {
            self.note("gets an enum");
        }
        let accepted = texts(items(new, "enum"));
        for value in texts(items(old, "enum")).difference(&accepted) {
            self.note(&format!("no longer takes {value}"));
        }
    }

    fn compare_rules(&mut self, old: &Map<String, Value>, new: &Map<String, Value>) {
        let rule = |entry: &Value| entry.get("rule").unwrap_or(&Value::Null).to_string();
        let old_rules: BTreeSet<String> = items(old, RULES).iter().map(rule).collect();
        for rule in items(new, RULES).iter().map(rule) {
            if !old_rules.contains(&rule) {
                add(&mut self.rules, || {
                    format!("{} gets the rule {rule}", place(&self.path))
                });
            }
        }
    }

    fn descend(&mut self, old: &Map<String, Value>, new: &Map<String, Value>) {
        let keeps_any = flag(new, ANY_FIELDS) || new.contains_key("additionalProperties");
        let new_properties = new.get("properties");
        let old_properties = old.get("properties").and_then(Value::as_object);
        for (name, old) in old_properties.into_iter().flatten() {
            let new = new_properties.and_then(|properties| properties.get(name));
            self.path.push(name.clone());
            match new {
                Some(new) => self.compare(old, new),
                None if keeps_any => {}
                None => self.note_field("is dropped"),
            }
            self.path.pop();
        }
        for (name, place) in [("items", "[]"), ("additionalProperties", "*")] {
            let Some(old) = old.get(name) else {
                continue;
            };
            self.path.push(place.to_owned());
            match new.get(name) {
                Some(new) => self.compare(old, new),
                None if flag(new, ANY_FIELDS) => {}
                None => self.note("is dropped"),
            }
            self.path.pop();
        }
    }
}

fn flag(schema: &Map<String, Value>, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool) == Some(true)
}

/// Returns values as an ordered set, because comparing every pair would be quadratic.
fn texts(values: &[Value]) -> BTreeSet<String> {
    values.iter().map(ToString::to_string).collect()
}

fn items<'a>(schema: &'a Map<String, Value>, name: &str) -> &'a [Value] {
    schema
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}
