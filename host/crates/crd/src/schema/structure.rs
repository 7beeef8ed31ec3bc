//! The constraints that JSON schema has, too: types, bounds, lengths, patterns, enumerations and alternatives.
//!
//! The `jsonschema` crate validates; this module translates the CustomResourceDefinition dialect for it.

use jsonschema::{
    PatternOptions, ValidationError, Validator, error::ValidationErrorKind as Kind,
    paths::LocationSegment,
};
use serde_json::{Map, Number, Value, json};

use super::{
    bounds::COMPILED_BYTES_MAX,
    cause::{RejectionCause, joined, shown},
    format,
    node::{Node, child, item},
};

/// The largest integer up to which a float represents every integer exactly.
const FLOAT_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// The keywords that are left once a schema is translated; a CustomResourceDefinition cannot have others.
const KEYWORDS: &str = "additionalProperties else enum exclusiveMaximum exclusiveMinimum format if items \
                        maxItems maxLength maxProperties maximum minItems minLength minProperties minimum \
                        multipleOf pattern properties required type uniqueItems";

/// Compiles a schema.
pub(super) fn compile(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    let mut schema = schema.clone();
    translate(&mut schema);
    let patterns = PatternOptions::regex().size_limit(COMPILED_BYTES_MAX);
    let options = jsonschema::options().with_pattern_options(patterns);
    format::register(options).build(&schema)
}

/// Returns a whole float as an integer, and any other value as it is.
fn without_fraction(value: &Value) -> Value {
    let whole = value
        .as_f64()
        .filter(|float| value.is_f64() && float.fract() == 0.0 && float.abs() <= FLOAT_INTEGER_MAX);
    whole
        .and_then(|float| format!("{float:.0}").parse::<i64>().ok())
        .map_or_else(|| value.clone(), Value::from)
}

fn translate(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    let (types, format) = types(schema);
    for (name, value) in schema.iter_mut() {
        match (name.as_str(), value) {
            ("properties", Value::Object(all)) => all.values_mut().for_each(translate),
            ("allOf" | "anyOf" | "oneOf", Value::Array(all)) => all.iter_mut().for_each(translate),
            ("items" | "additionalProperties" | "not", inner) => translate(inner),
            // An enumeration never takes null, even if it lists null.
            ("enum", Value::Array(values)) => values.retain(|value| !value.is_null()),
            // Definitions made from Rust types have bounds as floats: messages show 10000, not 10000.0.
            ("maximum" | "minimum", bound) => *bound = without_fraction(bound),
            _ => {}
        }
    }
    translate_exclusive_bounds(schema);
    let junctors: Map<String, Value> = ["allOf", "anyOf", "oneOf", "not"]
        .into_iter()
        .filter_map(|name| schema.remove_entry(name))
        .collect();
    let more = schema.remove("x-innkeeper");
    schema.insert("type".to_owned(), types);
    schema.insert("format".to_owned(), format.into());
    // The API server judges null by type alone.
    schema.insert("if".to_owned(), json!({"type": "null"}));
    schema.insert("else".to_owned(), Value::Object(junctors));
    schema.retain(|name, value| {
        !value.is_null() && KEYWORDS.split(' ').any(|keyword| keyword == name)
    });
    if let Some(Value::Object(more)) = more {
        schema.extend(more);
    }
}

/// Replaces draft 4's flags beside the bounds, as CustomResourceDefinitions have them, by the bounds of later drafts.
pub(crate) fn translate_exclusive_bounds(schema: &mut Map<String, Value>) {
    for (flag, bound) in [
        ("exclusiveMinimum", "minimum"),
        ("exclusiveMaximum", "maximum"),
    ] {
        if schema.remove(flag) == Some(Value::Bool(true))
            && let Some(limit) = schema.remove(bound)
        {
            schema.insert(flag.to_owned(), limit);
        }
    }
}

/// The types that a schema allows, or null for all, and the text format, if the API server checks it.
fn types(schema: &Map<String, Value>) -> (Value, Option<&'static str>) {
    let is = |flag: &str| schema.get(flag) == Some(&Value::Bool(true));
    let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut format = None;
    let mut types = match text("type") {
        _ if is("x-kubernetes-int-or-string") => vec!["integer", "string"],
        name => {
            let is_text = ["", "string"].contains(&name);
            format = format::known(text("format")).filter(|_| is_text);
            vec![name]
        }
    };
    types.extend(is("nullable").then_some("null"));
    // The API server leaves a text with a format to the format check, and accepts lists there, too.
    types.extend(format.map(|_| "array"));
    let takes_all = types[0].is_empty();
    (if takes_all { Value::Null } else { json!(types) }, format)
}

/// Returns everything that is wrong with an object.
pub(super) fn check(validator: &Validator, object: &Value) -> Vec<RejectionCause> {
    validator
        .iter_errors(object)
        .map(|error| cause(&error))
        .collect()
}

fn cause(error: &ValidationError<'_>) -> RejectionCause {
    let mut path = String::new();
    for segment in error.instance_path() {
        path = match segment {
            LocationSegment::Property(name) => child(&path, &name),
            LocationSegment::Index(index) => item(&path, index),
        };
    }
    let value = shown(error.instance());
    let text = error
        .masked_with(value.as_str())
        .to_string()
        // A list is not the remedy, although the API server accepts it there.
        .replace(r#"types "string", "array""#, r#"type "string""#);
    let plain = |text: &str| RejectionCause::new(path.as_str(), text);
    match error.kind() {
        Kind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            RejectionCause::new(child(&path, name), "is required").blocking(true)
        }
        Kind::AnyOf { context } => alternatives(path, "anyOf", context),
        Kind::OneOfNotValid { context } => alternatives(path, "oneOf", context),
        Kind::OneOfMultipleValid { .. } => plain("matches more than one alternative (oneOf)"),
        Kind::Not { schema } if *schema == json!({}) => plain("must not be set"),
        Kind::Not { .. } => plain("has a form that is excluded (not)"),
        // Only metadata.json has this keyword, for owner references.
        Kind::Contains => plain("has more than one entry with controller: true"),
        Kind::PropertyNames { error } => RejectionCause::new(path, cause(error).message),
        Kind::Format { format } => plain(&format!("{value} is not a valid {format}"))
            .blocking(format::known(format).is_some()),
        Kind::Type { .. }
        | Kind::Enum { .. }
        | Kind::MaxLength { .. }
        | Kind::MaxItems { .. }
        | Kind::MaxProperties { .. } => plain(&text).blocking(true),
        _ => plain(&text),
    }
}

/// Names every alternative's problems, because nothing tells which one was meant.
fn alternatives(
    path: String,
    keyword: &str,
    context: &[Vec<ValidationError<'_>>],
) -> RejectionCause {
    let causes: Vec<RejectionCause> = context.iter().flatten().map(cause).collect();
    let problems = joined(&causes, ", ");
    let message = format!("matches no alternative ({keyword}): {problems}");
    RejectionCause::new(path, message).blocking(causes.iter().any(|cause| cause.blocks_rules))
}

/// Finds a number that the type cannot hold; JSON schema's integers have any size.
pub(super) fn check_number(number: &Number, node: &Node, path: &str) -> Option<RejectionCause> {
    let float = number.as_f64()?;
    let type_ = node.type_.as_deref().unwrap_or_default();
    let message = |format| format!("{number} is out of the range of {format}");
    let is_integer = type_ == "integer" || node.x_kubernetes_int_or_string == Some(true);
    // The API server reads numbers beyond 64 bits as floats, and takes only exact floats for integers.
    if is_integer && !number.is_i64() && float.abs() > FLOAT_INTEGER_MAX {
        return Some(RejectionCause::new(path, message("int64")).blocking(true));
    }
    let format = node.format.as_deref()?;
    let range = match (type_, format) {
        ("integer", "int32") => f64::from(i32::MIN)..=f64::from(i32::MAX),
        ("number", "float") if !number.is_i64() => f64::from(f32::MIN)..=f64::from(f32::MAX),
        _ => return None,
    };
    (!range.contains(&float)).then(|| RejectionCause::new(path, message(format)))
}
