//! Checks a reported status against the parent's CRD.

use serde_json::Value;

use crate::crd::WHOLE;
use crate::manifest::Manifest;
use crate::request::Request;

/// Lists status fields that the API server would refuse for their type, name, bound or enumeration, and CRD constraints
/// that refuse the host's conditions before the first status.
///
/// A parent without a CRD in the manifest passes. `innkeeper test` also checks patterns, formats and rules.
pub(super) fn problems(manifest: &Manifest, request: &Request, status: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(schema) = schema_of(manifest, request) {
        problems.extend(refusals("status", schema));
        check("status", schema, status, &mut problems);
    }
    // The host adds conditions to each status.
    problems.retain(|problem| problem != "status.conditions: is required");
    problems
}

/// Lists constraints that a status with only the host's conditions may break.
pub(super) fn refusals(path: &str, status: &Value) -> impl Iterator<Item = String> {
    WHOLE.into_iter().filter_map(move |keyword| {
        let constraint = status.get(keyword)?;
        Some(format!(
            "{path} has {keyword} {constraint}, which may refuse the host's conditions"
        ))
    })
}

/// The status schema for the request's parent.
fn schema_of<'a>(manifest: &'a Manifest, request: &Request) -> Option<&'a Value> {
    let group = request.parent_group();
    let kind = request.parent_kind();
    let version = request.parent_value()["apiVersion"]
        .as_str()?
        .rsplit('/')
        .next();
    let crd = manifest.crds.iter().find(|crd| {
        crd["spec"]["group"].as_str() == Some(group)
            && crd["spec"]["names"]["kind"].as_str() == Some(kind)
    })?;
    crd["spec"]["versions"]
        .as_array()?
        .iter()
        .find(|served| served["name"].as_str() == version)?
        .pointer("/schema/openAPIV3Schema/properties/status")
}

fn check(path: &str, schema: &Value, value: &Value, problems: &mut Vec<String>) {
    if schema["x-kubernetes-int-or-string"] == true {
        if !value.is_string() && !value.is_i64() {
            problems.push(format!("{path}: {value} is no integer and no text"));
        }
        return;
    }
    if let Some(type_) = schema["type"].as_str()
        && !is_of_type(value, type_)
    {
        problems.push(format!("{path}: {value} is not of the type {type_}"));
        return;
    }
    if let Some(values) = schema["enum"].as_array()
        && !values.contains(value)
    {
        let values = schema["enum"].to_string();
        problems.push(format!("{path}: {value} is none of {values}"));
    }
    bounds(path, schema, value, problems);
    match value {
        Value::Object(members) => fields(path, schema, members, problems),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                check(
                    &format!("{path}[{index}]"),
                    &schema["items"],
                    item,
                    problems,
                );
            }
        }
        _ => {}
    }
}

fn is_of_type(value: &Value, type_: &str) -> bool {
    match type_ {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        _ => true,
    }
}

fn fields(
    path: &str,
    schema: &Value,
    members: &serde_json::Map<String, Value>,
    problems: &mut Vec<String>,
) {
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap_or_default();
        if !members.contains_key(name) {
            problems.push(format!("{path}.{name}: is required"));
        }
    }
    let keeps_unknown = schema["x-kubernetes-preserve-unknown-fields"] == true;
    for (name, member) in members {
        let path = format!("{path}.{name}");
        match schema["properties"].get(name) {
            Some(below) => check(&path, below, member, problems),
            None if schema["additionalProperties"].is_object() => {
                check(&path, &schema["additionalProperties"], member, problems);
            }
            None if keeps_unknown || schema["additionalProperties"] == true => {}
            None => problems.push(format!("{path}: the definition has no such field")),
        }
    }
}

/// Reports a number, string, list or map that is out of bounds.
fn bounds(path: &str, schema: &Value, value: &Value, problems: &mut Vec<String>) {
    let size = match value {
        Value::String(text) => Some(("Length", text.chars().count())),
        Value::Array(items) => Some(("Items", items.len())),
        Value::Object(members) => Some(("Properties", members.len())),
        _ => None,
    };
    let (least, most, number) = match size {
        Some((what, size)) => (
            format!("min{what}"),
            format!("max{what}"),
            u32::try_from(size).ok().map(f64::from),
        ),
        None => ("minimum".to_owned(), "maximum".to_owned(), value.as_f64()),
    };
    let Some(number) = number else { return };
    let limit = |keyword: &str| schema[keyword].as_f64();
    if limit(&least).is_some_and(|limit| number < limit) {
        problems.push(format!("{path}: breaks {least} {}", schema[&least]));
    }
    if limit(&most).is_some_and(|limit| number > limit) {
        problems.push(format!("{path}: breaks {most} {}", schema[&most]));
    }
}
