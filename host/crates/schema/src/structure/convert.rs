//! The dialect of CustomResourceDefinitions as JSON schema.

use jsonschema::{Keyword, ValidationError, paths::Location};
use serde_json::{Map, Value, json};

use crate::{
    format,
    go::{self, Num},
};

/// Keyword for what JSON schema cannot say of numbers: that they fit 32 or 64 bits.
pub(super) const RANGE: &str = "x-innkeeper-range";

/// Keywords that mean the same in both.
const SAME: [&str; 13] = [
    "enum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "required",
    "uniqueItems",
];

/// Translates one node and everything below it; pointers into the result are pointers into the original.
pub(super) fn schema(raw: &Value) -> Value {
    let Value::Object(raw) = raw else {
        return raw.clone();
    };
    let mut out = Map::new();
    for name in SAME {
        if let Some(value) = raw.get(name).filter(|value| !value.is_null()) {
            out.insert(name.to_owned(), value.clone());
        }
    }
    // An enumeration never takes null, whatever it lists.
    if let Some(Value::Array(values)) = out.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    for (flag, bound) in [
        ("exclusiveMinimum", "minimum"),
        ("exclusiveMaximum", "maximum"),
    ] {
        if raw.get(flag) == Some(&Value::Bool(true))
            && let Some(limit) = out.remove(bound)
        {
            out.insert(flag.to_owned(), limit);
        }
    }
    if let Some(types) = types(raw) {
        out.insert("type".to_owned(), types);
    }
    if let Some(format) = checked_format(raw) {
        match raw.get("type").and_then(Value::as_str) {
            Some("integer" | "number") => {}
            _ => drop(out.insert("format".to_owned(), format::internal_name(format).into())),
        }
    }
    if let Some(range) = number_range(raw) {
        out.insert(RANGE.to_owned(), range.into());
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        if let Some(Value::Array(branches)) = raw.get(name) {
            out.insert(name.to_owned(), branches.iter().map(schema).collect());
        }
    }
    for name in ["not", "items", "additionalProperties"] {
        if let Some(inner) = raw.get(name) {
            out.insert(name.to_owned(), schema(inner));
        }
    }
    if let Some(Value::Object(properties)) = raw.get("properties") {
        let properties: Map<String, Value> = properties
            .iter()
            .map(|(name, property)| (name.clone(), schema(property)))
            .collect();
        out.insert("properties".to_owned(), Value::Object(properties));
    }
    Value::Object(out)
}

/// Whether a node takes integers and texts.
pub(super) fn is_int_or_string(raw: &Map<String, Value>) -> bool {
    raw.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true))
}

fn types(raw: &Map<String, Value>) -> Option<Value> {
    let mut types: Vec<&str> = if is_int_or_string(raw) {
        vec!["integer", "string"]
    } else {
        vec![raw.get("type")?.as_str().filter(|name| !name.is_empty())?]
    };
    if raw.get("nullable") == Some(&Value::Bool(true)) {
        types.push("null");
    }
    Some(json!(types))
}

/// The format of a node, if the API server checks it.
pub(super) fn checked_format(raw: &Map<String, Value>) -> Option<&str> {
    let format = raw.get("format")?.as_str()?;
    let known = match raw.get("type").and_then(Value::as_str) {
        _ if is_int_or_string(raw) => false,
        None | Some("" | "string") => format::is_text_format(format),
        Some("integer") => matches!(format, "int32" | "int64"),
        Some("number") => matches!(format, "float" | "double"),
        Some(_) => false,
    };
    known.then_some(format)
}

fn number_range(raw: &Map<String, Value>) -> Option<&str> {
    if is_int_or_string(raw) {
        return Some("int-or-string");
    }
    match (raw.get("type")?.as_str()?, checked_format(raw)) {
        ("integer", format) => Some(format.unwrap_or("integer")),
        ("number", Some("float")) => Some("float"),
        _ => None,
    }
}

/// What a range found; the text of its error.
pub(super) mod found {
    /// A number that is no integer, or none that is held exactly.
    pub(in crate::structure) const NOT_AN_INTEGER: &str = "not an integer";
    /// A number that the format does not hold.
    pub(in crate::structure) const OUT_OF_RANGE: &str = "out of range";
}

struct Range {
    format: String,
}

/// Makes the keyword [`RANGE`].
#[expect(
    clippy::unnecessary_wraps,
    reason = "the validator wants a function that may fail"
)]
pub(super) fn range<'a>(
    _parent: &'a Map<String, Value>,
    value: &'a Value,
    _path: Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    Ok(Box::new(Range {
        format: value.as_str().unwrap_or_default().to_owned(),
    }))
}

impl Range {
    fn problem(&self, value: &Value) -> Option<&'static str> {
        let Value::Number(number) = value else {
            return None;
        };
        match (self.format.as_str(), go::number(number)) {
            ("int32", Num::Int(integer)) => {
                i32::try_from(integer).err().map(|_| found::OUT_OF_RANGE)
            }
            ("float", Num::Float(float)) => {
                (float.abs() > f64::from(f32::MAX)).then_some(found::OUT_OF_RANGE)
            }
            ("float", _) | (_, Num::Int(_)) => None,
            ("int32", Num::Float(float)) if go::is_integral(float) => {
                let fits = (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&float);
                (!fits).then_some(found::OUT_OF_RANGE)
            }
            (_, Num::Float(float)) => (!go::is_integral(float)).then_some(found::NOT_AN_INTEGER),
        }
    }
}

impl<'i> Keyword<'i> for Range {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        match self.problem(instance) {
            Some(problem) => Err(ValidationError::custom(problem)),
            None => Ok(()),
        }
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        self.problem(instance).is_none()
    }
}
