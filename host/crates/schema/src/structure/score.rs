//! How well a value fits an alternative, which decides about whose problems the API server reports.

use serde_json::{Map, Value};

use super::convert;
use crate::go::{self, Num};

/// What is wrong with the type of a value: the type that the schema wants, and the one that the value has.
pub(super) fn type_problem(
    raw: &Map<String, Value>,
    value: &Value,
) -> Option<(String, &'static str)> {
    let wanted: Vec<&str> = if convert::is_int_or_string(raw) {
        vec!["integer", "string"]
    } else {
        raw.get("type")
            .and_then(Value::as_str)
            .into_iter()
            .collect()
    };
    let format = convert::checked_format(raw);
    if wanted.is_empty() && format.is_none() {
        return None;
    }
    let wants = |name: &str| wanted.contains(&name);
    let (is, is_format, counts_as_wanted) = match value {
        Value::Null => {
            let may_be_null = wanted.is_empty() || raw.get("nullable") == Some(&Value::Bool(true));
            return (!may_be_null).then(|| (wanted.join(","), "null"));
        }
        Value::Bool(_) => ("boolean", "", false),
        Value::String(_) => ("string", "", false),
        Value::Array(_) => ("array", "", false),
        Value::Object(_) => ("object", "", false),
        Value::Number(number) => match go::number(number) {
            Num::Int(_) => ("integer", "int64", wants("number")),
            Num::Float(float) => (
                "number",
                "float64",
                wants("integer") && go::is_integral(float),
            ),
        },
    };
    let fits = wants(is) || counts_as_wanted;
    let textual = matches!(value, Value::String(_) | Value::Array(_));
    match format {
        Some(format) if !textual && !fits && format != is_format => {
            Some((format.to_owned(), is_format))
        }
        // A text (or list) with a format is judged by the format alone.
        Some(_) if textual && !wants("number") && !wants("integer") => None,
        _ if fits => None,
        _ => Some((wanted.join(","), is)),
    }
}

/// The number of checks that a value passes.
///
/// Every check that runs counts one; a type that fits counts one more, and so do the parts of a value.
pub(super) fn score(raw: &Value, value: &Value) -> u32 {
    let Value::Object(node) = raw else { return 0 };
    let has_type = node.contains_key("type")
        || convert::is_int_or_string(node)
        || convert::checked_format(node).is_some();
    let type_fits = u32::from(type_problem(node, value).is_none());
    if value.is_null() {
        return type_fits;
    }
    let mut total = 1 + alternatives(node, value) + 1 + 1;
    if has_type {
        total += 1 + type_fits;
    }
    total += match value {
        Value::String(_) => {
            1 + u32::from(convert::checked_format(node).is_some() && type_fits == 1)
        }
        Value::Number(_) => 2,
        Value::Array(items) => {
            let inner = node.get("items");
            2 + items
                .iter()
                .map(|item| inner.map_or(0, |inner| score(inner, item)))
                .sum::<u32>()
        }
        Value::Object(map) => {
            1 + map
                .iter()
                .filter_map(|(key, value)| {
                    let inner = node
                        .get("properties")
                        .and_then(|properties| properties.get(key))
                        .or_else(|| node.get("additionalProperties"))?;
                    Some(score(inner, value))
                })
                .sum::<u32>()
        }
        Value::Null | Value::Bool(_) => 0,
    };
    total
}

/// The checks passed by `allOf` and the alternatives of a node, plus one.
fn alternatives(node: &Map<String, Value>, value: &Value) -> u32 {
    let branches = |name: &str| node.get(name).and_then(Value::as_array);
    let best = |name: &str| {
        branches(name)
            .and_then(|branches| branches.iter().map(|branch| score(branch, value)).max())
            .unwrap_or(0)
    };
    let all: u32 = branches("allOf")
        .into_iter()
        .flatten()
        .map(|branch| score(branch, value))
        .sum();
    1 + all + best("anyOf") + best("oneOf")
}
