//! The schema for a plugin's configuration: which form is accepted, and how configurations are checked.
//!
//! The schema is untrusted. [`check`] walks it once, compiles nothing, and accepts only the structural form of
//! CustomResourceDefinitions, in which no part refers to another one: the cost is linear in the bytes.
//! [`problems`] compiles it. Patterns and large configurations still cost time and memory there, so a host calls it in a
//! process with limits only.

use std::fmt;

use jsonschema::{Draft, PatternOptions, ValidationError};
use serde_json::{Map, Value};

use crate::{
    bounds::{self, COMPILED_BYTES_MAX, cut},
    schema::translate_exclusive_bounds,
};

/// The longest schema, as JSON in bytes: ten times the largest in this repository. Parsing it takes up to a
/// hundred times as much memory.
pub const BYTES_MAX: usize = 128 << 10;

/// Schema levels; Kubernetes' own types have up to twelve.
const DEPTH_MAX: usize = 32;
/// Schemas within one schema, itself included.
const NODES_MAX: usize = 4096;
/// Value levels in `default` or `enum`.
const VALUE_DEPTH_MAX: usize = 16;
/// The longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1024;
/// The most problems listed: as many as a user corrects at once.
const PROBLEMS_MAX: usize = 10;
/// The longest path or schema text that an error shows, in characters.
const SHOWN_CHARS_MAX: usize = 64;

/// The value types.
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// The accepted keywords, as the remedy for another one names them.
const ACCEPTED: &str = "additionalProperties, default, description, enum, exclusiveMaximum, exclusiveMinimum, format, items, maxItems, maxLength, maxProperties, maximum, minItems, minLength, minProperties, minimum, multipleOf, nullable, pattern, properties, required, title, type, uniqueItems, and $schema at the root";

/// A schema that is not accepted: the place, the problem and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {problem}")]
pub struct Refusal {
    /// The place in the schema: a JSON path, such as `config-schema.properties.image`.
    pub at: String,
    /// The problem and the remedy.
    pub problem: String,
}

/// A path in a schema, as a list on the walk's stack: only errors format it.
#[derive(Clone, Copy)]
struct At<'a> {
    above: Option<&'a Self>,
    step: &'a str,
}

impl<'a> At<'a> {
    const ROOT: At<'static> = At {
        above: None,
        step: "config-schema",
    };

    fn below(&'a self, step: &'a str) -> Self {
        At {
            above: Some(self),
            step,
        }
    }

    fn refuse<T>(&self, problem: impl Into<String>) -> Result<T, Refusal> {
        Err(Refusal {
            at: self.to_string(),
            problem: problem.into(),
        })
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            write!(f, "{above}.")?;
        }
        f.write_str(&shown(self.step))
    }
}

/// Returns a schema text for an error: on one line, and not longer than a line.
fn shown(text: &str) -> String {
    let mut characters = text.chars();
    let start: String = characters.by_ref().take(SHOWN_CHARS_MAX).collect();
    let end = if characters.next().is_some() {
        "…"
    } else {
        ""
    };
    format!("{}{end}", start.escape_debug())
}

/// Checks that a text is short enough to be parsed as a schema.
pub fn check_size(bytes: usize) -> Result<(), Refusal> {
    if bytes <= BYTES_MAX {
        return Ok(());
    }
    At::ROOT.refuse(format!(
        "it has {bytes} bytes, at most {BYTES_MAX} are accepted: shorten descriptions, or declare fewer fields"
    ))
}

/// Checks that a schema has the accepted form. Compiles nothing; the text's size has been checked before.
pub fn check(schema: &Value) -> Result<(), Refusal> {
    let mut nodes = 0;
    let root = At::ROOT;
    let type_ = schema.get("type").and_then(Value::as_str);
    if type_.is_some_and(|type_| type_ != "object") {
        return root
            .below("type")
            .refuse("a configuration is an object: state object");
    }
    check_node(schema, root, 1, &mut nodes)
}

fn check_node(schema: &Value, at: At<'_>, depth: usize, nodes: &mut usize) -> Result<(), Refusal> {
    *nodes += 1;
    // On the way down, so that the walk itself cannot overflow the stack.
    if depth > DEPTH_MAX {
        return at.refuse(format!(
            "it is more than {DEPTH_MAX} levels deep: declare flatter objects"
        ));
    }
    if *nodes > NODES_MAX {
        return at.refuse(format!(
            "the schema has more than {NODES_MAX} parts: declare fewer fields"
        ));
    }
    let Some(members) = schema.as_object() else {
        return at.refuse("this is no schema: state an object of keywords");
    };
    for (keyword, value) in members {
        let at = at.below(keyword);
        match (keyword.as_str(), value) {
            ("properties", Value::Object(all)) => {
                for (name, inner) in all {
                    check_node(inner, at.below(name), depth + 1, nodes)?;
                }
            }
            ("additionalProperties", Value::Bool(_)) => {}
            ("items" | "additionalProperties", inner) => check_node(inner, at, depth + 1, nodes)?,
            ("$schema", Value::String(_)) if depth == 1 => {}
            _ => check_keyword(keyword, value, members, at)?,
        }
    }
    Ok(())
}

/// The form of a keyword's value.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Flag,
    Number,
    Count,
    /// Any value with few levels.
    Value,
    Type,
    Pattern,
    Required,
    Enum,
    /// True or false beside this bound.
    Exclusive(&'static str),
    MultipleOf,
}

/// Returns the form for a keyword without schemas below it; none if the keyword is not accepted.
fn form(keyword: &str) -> Option<Form> {
    Some(match keyword {
        "title" | "description" | "format" => Form::Text,
        "nullable"
        | "uniqueItems"
        | "x-kubernetes-int-or-string"
        | "x-kubernetes-preserve-unknown-fields" => Form::Flag,
        "minimum" | "maximum" => Form::Number,
        "exclusiveMinimum" => Form::Exclusive("minimum"),
        "exclusiveMaximum" => Form::Exclusive("maximum"),
        "multipleOf" => Form::MultipleOf,
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            Form::Count
        }
        "default" => Form::Value,
        "enum" => Form::Enum,
        "type" => Form::Type,
        "pattern" => Form::Pattern,
        "required" => Form::Required,
        _ => return None,
    })
}

/// Checks a keyword without schemas below it.
fn check_keyword(
    keyword: &str,
    value: &Value,
    members: &Map<String, Value>,
    at: At<'_>,
) -> Result<(), Refusal> {
    if keyword == "properties" {
        return at.refuse("an object of schemas by name is needed");
    }
    let Some(form) = form(keyword) else {
        let remedy = remedy(keyword);
        let keyword = shown(keyword);
        return at.refuse(format!("{keyword} is not accepted: {remedy}"));
    };
    let items = value.as_array();
    let (is_valid, problem) = match form {
        Form::Type => return check_type(value, at),
        Form::Pattern => return check_pattern(value, at),
        Form::Text => (value.is_string(), "a text is needed"),
        Form::Flag => (value.is_boolean(), "true or false is needed"),
        Form::Number => (value.is_number(), "a number is needed"),
        Form::Count => (value.is_u64(), "a whole number from zero is needed"),
        Form::MultipleOf => (
            value.as_f64().is_some_and(|number| number > 0.0),
            "a number above zero is needed",
        ),
        Form::Exclusive(bound) => (
            value.is_boolean() && members.contains_key(bound),
            "true or false beside minimum or maximum is needed, as in a CustomResourceDefinition: state the bound there",
        ),
        Form::Required => (
            items.is_some_and(|names| names.iter().all(Value::is_string)),
            "a list of names is needed",
        ),
        Form::Enum if items.is_none_or(Vec::is_empty) => {
            (false, "a list with at least one value is needed")
        }
        Form::Enum | Form::Value => (
            !is_deeper(value, VALUE_DEPTH_MAX),
            "the value is nested more than 16 levels deep: state a flatter one",
        ),
    };
    if is_valid { Ok(()) } else { at.refuse(problem) }
}

fn check_type(value: &Value, at: At<'_>) -> Result<(), Refusal> {
    match value {
        Value::String(name) if TYPES.contains(&name.as_str()) => Ok(()),
        Value::Array(_) => {
            at.refuse("one type is needed: state nullable: true for a value that may be null")
        }
        _ => at.refuse(format!("one of {} is needed", TYPES.join(", "))),
    }
}

fn check_pattern(value: &Value, at: At<'_>) -> Result<(), Refusal> {
    let Some(pattern) = value.as_str() else {
        return at.refuse("a text is needed");
    };
    let bytes = pattern.len();
    if bytes > PATTERN_BYTES_MAX {
        return at.refuse(format!(
            "the pattern has {bytes} bytes, at most {PATTERN_BYTES_MAX} are accepted: shorten it, or check the value in the plugin"
        ));
    }
    Ok(())
}

/// Returns true if a value has more levels than this.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let below = levels.checked_sub(1);
    let is_deeper = |inner: &Value| below.is_none_or(|levels| is_deeper(inner, levels));
    match value {
        Value::Array(items) => items.iter().any(is_deeper),
        Value::Object(members) => members.values().any(is_deeper),
        _ => false,
    }
}

/// Returns the remedy for a keyword that is not accepted.
fn remedy(keyword: &str) -> String {
    match keyword {
        "$ref" | "$dynamicRef" | "$recursiveRef" => {
            "state the schema in place of the reference, as config_schema of the SDK does"
        }
        "$defs" | "definitions" | "$anchor" | "$dynamicAnchor" | "$recursiveAnchor" | "$id" => {
            "state each schema where it is used, as config_schema of the SDK does"
        }
        "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" | "dependentSchemas"
        | "dependentRequired" | "dependencies" => {
            "state one schema, with nullable: true for a value that may be null, and check other rules in the plugin"
        }
        "unevaluatedProperties" => "state additionalProperties: false",
        "unevaluatedItems" | "prefixItems" | "additionalItems" | "contains" | "minContains"
        | "maxContains" => "state one schema for all items, and check other rules in the plugin",
        "patternProperties" | "propertyNames" => {
            "state additionalProperties with the schema of all values, and check names in the plugin"
        }
        "const" => "state enum with one value",
        "$schema" => "state it at the root only",
        _ => return format!("remove it; accepted are {ACCEPTED}"),
    }
    .to_owned()
}

/// Compiles an accepted schema, and returns a configuration's problems, each with the place; at most ten.
///
/// Takes as much time and memory as schema and configuration demand: a host must not call it in its own process.
///
/// # Errors
///
/// Fails if the schema does not compile: a pattern is wrong, or too large once it is compiled.
pub fn problems(schema: &Value, config: &Value) -> Result<Vec<String>, Refusal> {
    check(schema)?;
    let mut schema = schema.clone();
    translate(&mut schema);
    let validator = jsonschema::options()
        .with_draft(Draft::Draft202012)
        // Linear in the text, other than expressions that look around or refer back.
        .with_pattern_options(PatternOptions::regex().size_limit(COMPILED_BYTES_MAX))
        .build(&schema)
        .map_err(|error| uncompiled(&error))?;
    let problem = |error: ValidationError<'_>| match error.instance_path().as_str() {
        "" => cut(&error.to_string()),
        path => cut(&format!("{path}: {error}")),
    };
    Ok(validator
        .iter_errors(config)
        .take(PROBLEMS_MAX)
        .map(problem)
        .collect())
}

/// Explains why a schema does not compile.
fn uncompiled(error: &ValidationError<'_>) -> Refusal {
    // A wrong pattern violates the meta-schema, and a large one is found at its own place.
    let at = match error.instance_path().as_str() {
        "" => error.schema_path().as_str(),
        path => path,
    };
    let path = format!("{}{at}", At::ROOT).replace('/', ".");
    Refusal {
        at: cut(&path.escape_debug().to_string()),
        problem: bounds::uncompiled(error),
    }
}

/// Translates CustomResourceDefinition keywords into JSON schema.
fn translate(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    let is = |flag: &str| members.get(flag) == Some(&Value::Bool(true));
    let is_nullable = is("nullable");
    let mut types: Vec<Value> = if is("x-kubernetes-int-or-string") {
        vec!["integer".into(), "string".into()]
    } else {
        members.get("type").cloned().into_iter().collect()
    };
    // A schema without types accepts null already.
    if is_nullable && !types.is_empty() {
        types.push("null".into());
    }
    // The root may name another draft, and none is to be fetched.
    for keyword in ["$schema", "nullable", "format", "type"] {
        members.remove(keyword);
    }
    if !types.is_empty() {
        members.insert("type".to_owned(), types.into());
    }
    // In JSON schema, an enumeration without null rejects null whatever the type says.
    if let Some(Value::Array(values)) = members.get_mut("enum")
        && is_nullable
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    translate_exclusive_bounds(members);
    for (name, value) in members.iter_mut() {
        match (name.as_str(), value) {
            ("properties", Value::Object(all)) => all.values_mut().for_each(translate),
            ("items" | "additionalProperties", inner) => translate(inner),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
