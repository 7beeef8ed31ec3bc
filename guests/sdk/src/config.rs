//! The configuration schema from a Rust type.

use kube::core::schema::OptionalEnum;
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::crd::simplify::{KeepDescription, as_written, for_each_below};

/// Keywords that the host accepts: those in the structural schemas of CustomResourceDefinitions.
const ACCEPTED: [&str; 27] = [
    "additionalProperties",
    "default",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "nullable",
    "pattern",
    "properties",
    "required",
    "title",
    "type",
    "uniqueItems",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "$schema",
];

/// Keywords that only inform, and that the host does not know.
const NOTES: [&str; 5] = ["deprecated", "example", "examples", "readOnly", "writeOnly"];

/// Returns a configuration schema in the form that the host accepts: inlined subschemas, options as `nullable`, and enums
/// without data as `enum`.
///
/// # Panics
///
/// Panics if the type has no such schema: it is recursive, or an enum with data.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let mut schema = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(PlainEnum)
        .with_transform(KeepDescription)
        .with_transform(OptionalEnum)
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    tidy(&mut schema);
    let problem = problem(&schema, "config-schema");
    assert!(
        problem.is_none(),
        "{} is no configuration: {}",
        T::schema_name(),
        problem.unwrap_or_default()
    );
    schema
}

/// Merges an enum whose variants have descriptions into one value list; schemars creates an alternative for each.
#[derive(Clone, Debug)]
struct PlainEnum;

impl Transform for PlainEnum {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(members) = schema.as_object_mut() else {
            return;
        };
        let Some((values, type_)) = members.get("oneOf").and_then(plain_values) else {
            return;
        };
        members.remove("oneOf");
        members.insert("enum".to_owned(), values.into());
        members.insert("type".to_owned(), type_);
    }
}

/// The values and the type, if all alternatives are value lists with one type.
fn plain_values(alternatives: &Value) -> Option<(Vec<Value>, Value)> {
    let alternatives = alternatives.as_array()?;
    let type_ = alternatives.first()?.get("type")?;
    let mut values = Vec::new();
    for alternative in alternatives {
        if alternative.get("type")? != type_ {
            return None;
        }
        values.extend(alternative.get("enum")?.as_array()?.iter().cloned());
    }
    Some((values, type_.clone()))
}

/// Removes keywords without effect and writes bounds as definitions do, at every depth.
fn tidy(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    for note in NOTES {
        members.remove(note);
    }
    // schemars writes the exclusive bound itself; OpenAPI 3.0 has a flag beside the bound.
    for (exclusive, bound) in [
        ("exclusiveMinimum", "minimum"),
        ("exclusiveMaximum", "maximum"),
    ] {
        if let Some(limit) = members.remove(exclusive) {
            members.insert(bound.to_owned(), limit);
            members.insert(exclusive.to_owned(), json!(true));
        }
    }
    for keyword in ["minimum", "maximum", "multipleOf"] {
        if let Some(bound) = members.get_mut(keyword) {
            as_written(bound);
        }
    }
    if let Some(values) = members.get_mut("enum").and_then(Value::as_array_mut) {
        values.retain(|value| !value.is_null());
    }
    for_each_below(members, &mut tidy);
}

/// Returns the first part that the host would refuse, with the path and a remedy.
fn problem(schema: &Value, path: &str) -> Option<String> {
    let members = schema.as_object()?;
    if let Some(keyword) = members
        .keys()
        .find(|keyword| !ACCEPTED.contains(&keyword.as_str()))
    {
        let remedy = remedy(keyword);
        return Some(format!("{path} has {keyword}: {remedy}"));
    }
    if members.get("type").is_some_and(Value::is_array) {
        return Some(format!(
            "{path} has several types: use one type for the field"
        ));
    }
    let mut below: Vec<(String, &Value)> = properties(members)
        .map(|(name, schema)| (format!("{path}.properties.{name}"), schema))
        .collect();
    for keyword in ["items", "additionalProperties"] {
        if let Some(schema) = members.get(keyword) {
            below.push((format!("{path}.{keyword}"), schema));
        }
    }
    below
        .iter()
        .find_map(|(path, schema)| problem(schema, path))
}

fn properties(members: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    members
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

fn remedy(keyword: &str) -> &'static str {
    match keyword {
        "$ref" | "components" => "the type contains itself; use types of limited depth",
        "oneOf" | "anyOf" | "allOf" | "not" => {
            "an enum with data has several forms; use a struct with optional fields, and check in \
             reconcile that they fit together"
        }
        "patternProperties" | "propertyNames" => {
            "names of members are not checked; use a map, and check its keys in reconcile"
        }
        _ => {
            "the host does not accept it; remove the attribute, or state the schema with config_schema_json"
        }
    }
}

#[cfg(test)]
mod tests;
