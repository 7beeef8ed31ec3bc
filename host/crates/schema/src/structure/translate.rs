//! The validator's findings in the API server's words.

use std::collections::{BTreeMap, BTreeSet};

use jsonschema::{ValidationError, error::ValidationErrorKind as Kind};
use serde_json::{Map, Value};

use super::{
    convert::{self, found},
    score::{score, type_problem},
};
use crate::{
    cause::{Cause, CauseKind},
    go::{self, Num},
    node,
};

/// Translates everything that was found in an object.
pub(super) fn causes<'i>(
    errors: impl Iterator<Item = ValidationError<'i>>,
    raw: &Value,
    object: &Value,
) -> Vec<Cause> {
    let translator = Translator { raw, object };
    let errors: Vec<ValidationError<'i>> = errors.collect();
    translator.branch(&errors.iter().collect::<Vec<_>>(), "")
}

struct Translator<'a> {
    raw: &'a Value,
    object: &'a Value,
}

type Errors<'e, 'i> = Vec<&'e ValidationError<'i>>;

impl Translator<'_> {
    /// The findings of one alternative; `base` is the pointer to its schema.
    fn branch(&self, errors: &[&ValidationError<'_>], base: &str) -> Vec<Cause> {
        let mut causes = Vec::new();
        // The findings below an `allOf` come one by one, and are one more finding together.
        let mut all_of: BTreeMap<(String, String), BTreeMap<String, Errors<'_, '_>>> =
            BTreeMap::new();
        let spoken = text_checks_to_report(errors);
        for (index, error) in errors.iter().copied().enumerate() {
            if let Some(place) = AllOf::find(error, base) {
                all_of
                    .entry((place.schema, place.instance))
                    .or_default()
                    .entry(place.branch)
                    .or_default()
                    .push(error);
            } else if !spoken.contains(&index) {
                causes.extend(self.one(error));
            }
        }
        for ((schema, instance), branches) in all_of {
            // Null is looked at by its type alone.
            if self.object.pointer(&instance).is_some_and(Value::is_null) {
                continue;
            }
            let all = format!("{schema}/allOf");
            for (number, errors) in &branches {
                causes.extend(self.branch(errors, &format!("{all}/{number}")));
            }
            let total = self
                .raw
                .pointer(&all)
                .and_then(Value::as_array)
                .map_or(0, Vec::len);
            let none = if branches.len() == total {
                ". None validated"
            } else {
                ""
            };
            causes.push(Cause::unplaced(&format!(
                "{} must validate all the schemas (allOf){none}",
                go::quote(&self.path(&instance))
            )));
        }
        causes
    }

    /// A JSON pointer into the object as a path of fields.
    fn path(&self, pointer: &str) -> String {
        let mut path = String::new();
        let mut value = Some(self.object);
        for segment in pointer.split('/').skip(1) {
            let name = segment.replace("~1", "/").replace("~0", "~");
            let index = name.parse::<usize>().ok();
            (path, value) = match (value, index) {
                (Some(Value::Array(items)), Some(index)) => {
                    (node::item(&path, index), items.get(index))
                }
                (value, _) => (
                    node::child(&path, &name),
                    value.and_then(|value| value.get(&name)),
                ),
            };
        }
        path
    }

    fn one(&self, error: &ValidationError<'_>) -> Vec<Cause> {
        let empty = Map::new();
        let (site, _) = split_last(error.schema_path().as_str());
        let schema = self
            .raw
            .pointer(site)
            .and_then(Value::as_object)
            .unwrap_or(&empty);
        let path = self.path(error.instance_path().as_str());
        let value = error.instance().as_ref();
        match error.kind() {
            Kind::AnyOf { .. }
            | Kind::OneOfNotValid { .. }
            | Kind::OneOfMultipleValid { .. }
            | Kind::Not { .. } => self.junctor(error, site, &path),
            Kind::Type { .. } => type_cause(schema, value, &path).into_iter().collect(),
            Kind::Custom { message, .. } => number_causes(schema, value, &path, message),
            Kind::Enum { .. } => vec![enum_cause(schema, value, &path)],
            Kind::Format { .. } => vec![format_cause(schema, value, &path)],
            Kind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                vec![Cause::required(&node::child(&path, name), "")]
            }
            other => vec![
                size_cause(other, value, &path)
                    .or_else(|| value_cause(other, value, &path))
                    // Nothing else can be said in a CustomResourceDefinition.
                    .unwrap_or_else(|| Cause::invalid(&path, value, &error.to_string())),
            ],
        }
    }

    /// `anyOf`, `oneOf` and `not`. Null is looked at by its type alone.
    fn junctor(&self, error: &ValidationError<'_>, site: &str, path: &str) -> Vec<Cause> {
        let value = error.instance().as_ref();
        if value.is_null() {
            return Vec::new();
        }
        let place = go::quote(path);
        match error.kind() {
            Kind::AnyOf { context } => {
                let message = format!("{place} must validate at least one schema (anyOf)");
                self.alternatives(message, context, &format!("{site}/anyOf"), value)
            }
            Kind::OneOfNotValid { context } => {
                let message = format!(
                    "{place} must validate one and only one schema (oneOf). Found none valid"
                );
                self.alternatives(message, context, &format!("{site}/oneOf"), value)
            }
            Kind::OneOfMultipleValid { context } => {
                let valid = context.iter().filter(|errors| errors.is_empty()).count();
                vec![Cause::unplaced(&format!(
                    "{place} must validate one and only one schema (oneOf). Found {valid} valid alternatives"
                ))]
            }
            _ => vec![Cause::unplaced(&format!(
                "{place} must not validate the schema (not)"
            ))],
        }
    }

    /// That no alternative fits, and what is wrong by the one that fits best.
    fn alternatives(
        &self,
        message: String,
        context: &[Vec<ValidationError<'_>>],
        site: &str,
        value: &Value,
    ) -> Vec<Cause> {
        let branches = self.raw.pointer(site).and_then(Value::as_array);
        let mut best: Option<(usize, u32)> = None;
        for (index, branch) in branches.into_iter().flatten().enumerate() {
            let score = score(branch, value);
            if best.is_none_or(|(_, highest)| score > highest) {
                best = Some((index, score));
            }
        }
        let mut causes = vec![Cause::unplaced(&message)];
        if let Some((index, _)) = best
            && let Some(errors) = context.get(index)
        {
            let errors: Vec<&ValidationError<'_>> = errors.iter().collect();
            causes.extend(self.branch(&errors, &format!("{site}/{index}")));
        }
        causes
    }
}

/// Of the checks of one text only the first that fails is reported; these are the others.
fn text_checks_to_report(errors: &[&ValidationError<'_>]) -> BTreeSet<usize> {
    let rank = |error: &ValidationError<'_>| match error.kind() {
        Kind::MaxLength { .. } => Some(0),
        Kind::MinLength { .. } => Some(1),
        Kind::Pattern { .. } => Some(2),
        _ => None,
    };
    let mut by_place: BTreeMap<(&str, &str), Vec<(i32, usize)>> = BTreeMap::new();
    for (index, error) in errors.iter().enumerate() {
        if let Some(rank) = rank(error) {
            let place = (
                error.instance_path().as_str(),
                split_last(error.schema_path().as_str()).0,
            );
            by_place.entry(place).or_default().push((rank, index));
        }
    }
    by_place
        .into_values()
        .flat_map(|mut checks| {
            checks.sort_unstable();
            checks.into_iter().skip(1).map(|(_, index)| index)
        })
        .collect()
}

/// A list, map or text of the wrong size.
fn size_cause(kind: &Kind, value: &Value, path: &str) -> Option<Cause> {
    let plural = |limit: u64, one: &str| {
        if limit == 1 {
            one.to_owned()
        } else {
            format!("{one}s")
        }
    };
    let too_few = |wanted: &str| {
        Cause::with_value(
            CauseKind::Invalid,
            path,
            &size(value).to_string(),
            &format!("{path} in body should have at least {wanted}"),
        )
    };
    Some(match kind {
        Kind::MaxLength { limit } => Cause::without_value(
            CauseKind::TooLong,
            path,
            &format!("may not be more than {limit} {}", plural(*limit, "byte")),
        ),
        Kind::MaxItems { limit } | Kind::MaxProperties { limit } => Cause::with_value(
            CauseKind::TooMany,
            path,
            &size(value).to_string(),
            &format!("must have at most {limit} {}", plural(*limit, "item")),
        ),
        Kind::MinItems { limit } => too_few(&format!("{limit} items")),
        Kind::MinProperties { limit } => too_few(&format!("{limit} properties")),
        _ => return None,
    })
}

/// A number out of bounds, or a text of the wrong form.
fn value_cause(kind: &Kind, value: &Value, path: &str) -> Option<Cause> {
    let should = match kind {
        Kind::MinLength { limit } => format!("be at least {limit} chars long"),
        Kind::Pattern { pattern } => format!("match '{pattern}'"),
        Kind::Minimum { limit } => {
            format!("be greater than or equal to {}", bound(value, float(limit)))
        }
        Kind::ExclusiveMinimum { limit } => {
            format!("be greater than {}", bound(value, float(limit)))
        }
        Kind::Maximum { limit } => {
            format!("be less than or equal to {}", bound(value, float(limit)))
        }
        Kind::ExclusiveMaximum { limit } => format!("be less than {}", bound(value, float(limit))),
        Kind::MultipleOf { multiple_of } => {
            format!("be a multiple of {}", bound(value, *multiple_of))
        }
        _ => return None,
    };
    let detail = format!("{path} in body should {should}");
    Some(Cause::invalid(path, value, &detail))
}

fn format_cause(schema: &Map<String, Value>, value: &Value, path: &str) -> Cause {
    let format = schema
        .get("format")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let text = go::value(value);
    Cause::with_value(
        CauseKind::TypeInvalid,
        path,
        &text,
        &format!("{path} in body must be of type {format}: {text}"),
    )
}

fn type_cause(schema: &Map<String, Value>, value: &Value, path: &str) -> Option<Cause> {
    let (wanted, is) = type_problem(schema, value)?;
    let is = go::quote(is);
    Some(Cause::with_value(
        CauseKind::TypeInvalid,
        path,
        &is,
        &format!("{path} in body must be of type {wanted}: {is}"),
    ))
}

fn number_causes(
    schema: &Map<String, Value>,
    value: &Value,
    path: &str,
    problem: &str,
) -> Vec<Cause> {
    if convert::is_int_or_string(schema) {
        return type_cause(schema, value, path).into_iter().collect();
    }
    let kind = schema
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or("integer");
    let format = match schema.get("format").and_then(Value::as_str) {
        Some(format @ ("int32" | "int64" | "float" | "double")) => format!("with format {format}"),
        _ => "(default format)".to_owned(),
    };
    let range = Cause::unplaced(&format!(
        "Checked value must be of type {kind} {format} in {path}"
    ));
    if problem == found::NOT_AN_INTEGER {
        type_cause(schema, value, path)
            .into_iter()
            .chain([range])
            .collect()
    } else {
        vec![range]
    }
}

fn enum_cause(schema: &Map<String, Value>, value: &Value, path: &str) -> Cause {
    let supported: Vec<String> = schema
        .get("enum")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|value| match value {
            Value::String(text) => go::quote(text),
            other => go::quote(&go::json(other)),
        })
        .collect();
    Cause::with_value(
        CauseKind::NotSupported,
        path,
        &go::value(value),
        &format!("supported values: {}", supported.join(", ")),
    )
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    }
}

/// A bound as the API server prints it: for an integer cut to an integer.
fn bound(value: &Value, limit: f64) -> String {
    match value {
        Value::Number(number) if matches!(go::number(number), Num::Int(_)) => {
            format!("{:.0}", limit.trunc())
        }
        _ => go::float(limit),
    }
}

fn float(limit: &Value) -> f64 {
    limit.as_f64().unwrap_or(f64::NAN)
}

fn split_last(pointer: &str) -> (&str, &str) {
    pointer.rsplit_once('/').unwrap_or(("", pointer))
}

/// Where a finding below an `allOf` belongs.
struct AllOf {
    /// Pointer to the schema that has the `allOf`.
    schema: String,
    /// The number of the branch.
    branch: String,
    /// Pointer to the value that the schema is for.
    instance: String,
}

impl AllOf {
    fn find(error: &ValidationError<'_>, base: &str) -> Option<Self> {
        let rest = error.schema_path().as_str().strip_prefix(base)?;
        let segments: Vec<&str> = rest.split('/').skip(1).collect();
        let mut at = 0;
        while at < segments.len() {
            match segments[at] {
                "allOf" => {
                    let branch = (*segments.get(at + 1)?).to_owned();
                    let depth = values_below(&segments[at + 2..]);
                    let mut instance = error.instance_path().as_str();
                    for _ in 0..depth {
                        instance = split_last(instance).0;
                    }
                    let prefix: String =
                        segments[..at].iter().flat_map(|name| ["/", name]).collect();
                    return Some(Self {
                        schema: format!("{base}{prefix}"),
                        branch,
                        instance: instance.to_owned(),
                    });
                }
                "properties" => at += 2,
                _ => at += 1,
            }
        }
        None
    }
}

/// How many steps into the value the steps into a schema are.
fn values_below(segments: &[&str]) -> usize {
    let mut at = 0;
    let mut depth = 0;
    while at < segments.len() {
        match segments[at] {
            "properties" => {
                depth += 1;
                at += 2;
            }
            "items" | "additionalProperties" => {
                depth += 1;
                at += 1;
            }
            "allOf" => at += 2,
            _ => at += 1,
        }
    }
    depth
}
