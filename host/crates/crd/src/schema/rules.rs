//! Validation rules in CEL (`x-kubernetes-validations`).
//!
//! The `kube-cel` crate compiles and evaluates one node's rules. [`Node`] walks over the values,
//! because the crate does not report map keys as the API server does. Transition rules are skipped, as on create.
//!
//! [`Node`]: super::node::Node

use std::{collections::BTreeMap, error::Error as _, sync::LazyLock};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;
use kube_cel::{CompiledSchema, ErrorKind, ValidationError, compile_schema, validate_compiled};
use regex::{Captures, Regex};
use serde_json::{Map, Number, Value, json};

use super::{
    Error, bounds,
    cause::RejectionCause,
    node::{Node, SchemaValue, child, entries, entry, field, items, property},
};

/// The longest message that the API server takes from an expression, in bytes.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// The start of the API server's message for a rule without one.
const FAILED: &str = "failed rule: ";

/// The words that CEL reserves.
const RESERVED: &str = "as break const continue else false for function if import in let loop \
                        namespace null package return true var void while";

/// A schema's compiled rules, by node path.
#[derive(Debug, Default)]
pub(super) struct CompiledRules(pub(super) BTreeMap<String, Vec<CompiledSchema>>);

impl CompiledRules {
    /// Compiles a schema's rules; `typed` is the same node, or, inside an `allOf`, the node that has the types.
    pub(super) fn collect(&mut self, node: &Node, typed: &Node, path: &str) -> Result<(), Error> {
        let stated = node.x_kubernetes_validations.iter().flatten();
        let mut rules = Vec::new();
        for rule in stated {
            // Before compiling them: stack and error texts of the compiler grow with the rule.
            [Some(&rule.rule), rule.message_expression.as_ref()]
                .into_iter()
                .flatten()
                .try_for_each(|text| bounds::check_rule(text))
                .map_err(|problem| Error::schema(path, problem))?;
            rules.push(translate(rule));
        }
        if !rules.is_empty() {
            let mut schema = types(typed);
            schema["x-kubernetes-validations"] = rules.into();
            let mut compiled = compile_schema(&schema);
            let broken = compiled.validations.iter().position(Result::is_err);
            if let Some(Err(error)) = broken.map(|index| compiled.validations.remove(index)) {
                // The parser shows the rest of the rule for each unclosed bracket.
                return Err(Error::schema(path, bounds::cut(&error.to_string())));
            }
            self.0.entry(path.to_owned()).or_default().push(compiled);
        }
        for (name, inner) in node.properties.iter().flatten() {
            let typed = property(typed, name).unwrap_or(inner);
            self.collect(inner, typed, &child(path, name))?;
        }
        for below in [entries, items] {
            if let Some(inner) = below(node) {
                self.collect(inner, below(typed).unwrap_or(inner), &entry(path, ""))?;
            }
        }
        node.all_of
            .iter()
            .flatten()
            .try_for_each(|part| self.collect(part, typed, path))
    }

    /// Returns a cause for every broken rule in a node.
    pub(super) fn check(&self, place: &SchemaValue<'_>) -> Vec<RejectionCause> {
        let mut causes = Vec::new();
        for compiled in self.0.get(&place.schema_path).into_iter().flatten() {
            let value = convert(place.value, Some(place.node));
            let cause = |error| cause(error, compiled, &place.path);
            if let Err(errors) = validate_compiled(compiled, &value, None) {
                causes.extend(errors.iter().map(cause));
            }
        }
        causes
    }
}

fn cause(error: &ValidationError, compiled: &CompiledSchema, path: &str) -> RejectionCause {
    let fixed = compiled
        .validations
        .iter()
        .flatten()
        .find(|compiled| compiled.rule.rule == error.rule)
        .and_then(|compiled| compiled.rule.message.as_deref())
        .unwrap_or_default();
    if error.kind != ErrorKind::ValidationFailure {
        let source = error.source().map(ToString::to_string);
        let problem = source.as_ref().unwrap_or(&error.message);
        let fixed = fixed.trim_start_matches(FAILED);
        let message = format!("failed to evaluate the rule \"{fixed}\": {problem}");
        return RejectionCause::new(path, message);
    }
    let text = error.message.trim();
    // The API server then shows the fixed message instead, too.
    let is_usable = !text.is_empty() && !text.contains('\n') && text.len() <= MESSAGE_BYTES_MAX;
    // `fieldPath` looks like `.a.b` or `['a']`.
    let field = error.field_path.replace("['", "[").replace("']", "]");
    let path = match field.strip_prefix('.') {
        Some(field) => child(path, field),
        None => format!("{path}{field}"),
    };
    RejectionCause::new(path, if is_usable { text } else { fixed })
}

/// Returns a rule as `kube-cel` evaluates it like the API server.
fn translate(rule: &ValidationRule) -> Value {
    static TYPE_TEST: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\btype\(([^()\s]+)\)\s*(==|!=)\s*(int|string)\b")
            .expect("the pattern is a literal")
    });
    let original = rule.rule.trim();
    // `kube-cel` has no `type()`. Rules use it to tell integers from texts, and only a text is equal to itself as a
    // text.
    let mut text = TYPE_TEST.replace_all(original, |captures: &Captures<'_>| {
        let is_text = (&captures[2] == "==") == (&captures[3] == "string");
        let not = if is_text { "" } else { "!" };
        format!("{not}(string({0}) == {0})", &captures[1])
    });
    // The API server binds an optional `oldSelf` to an optional value, and `kube-cel` binds it to null. A comprehension
    // over one empty optional value binds it as the API server does.
    if rule.optional_old_self == Some(true) && text.contains("oldSelf") {
        text = format!("[optional.none()].all(oldSelf, ({text}))").into();
    }
    let message = rule
        .message
        .as_deref()
        .map(str::trim)
        .filter(|text| !text.is_empty());
    json!({
        "rule": text,
        "message": message.map_or_else(|| format!("{FAILED}{original}"), str::to_owned),
        "messageExpression": rule.message_expression,
        "fieldPath": rule.field_path,
        "optionalOldSelf": rule.optional_old_self,
    })
}

/// Returns a schema's types without rules, defaults and limits.
fn types(node: &Node) -> Value {
    // Every object becomes a map whose keys are the field names in rules: `kube-cel` leaves the keys of maps alone, and
    // has other names than the API server for fields with an underscore.
    let properties = node
        .properties
        .iter()
        .flatten()
        .map(|(name, inner)| (name_in_rules(name), types(inner)));
    // A date is a point in time, and `kube-cel` knows only the longer form.
    let format = node.format.as_deref();
    let is_date = format == Some("date");
    let format = if is_date { Some("date-time") } else { format };
    json!({
        "type": node.type_,
        "format": format,
        "x-kubernetes-embedded-resource": node.x_kubernetes_embedded_resource,
        "x-kubernetes-int-or-string": node.x_kubernetes_int_or_string,
        "properties": properties.collect::<Map<_, _>>(),
        "additionalProperties": entries(node).map_or(json!(true), types),
        "items": items(node).map(types),
    })
}

/// Returns a value with the names and number types that rules see.
fn convert(value: &Value, node: Option<&Node>) -> Value {
    let type_ = node.and_then(|node| node.type_.as_deref());
    let format = node.and_then(|node| node.format.as_deref());
    match value {
        Value::Object(map) => {
            let is_map = node.is_some_and(|node| entries(node).is_some());
            let convert = |(key, value): (&String, &Value)| {
                let value = convert(value, node.and_then(|node| field(node, key)));
                let name = (!is_map).then(|| name_in_rules(key));
                (name.unwrap_or_else(|| key.clone()), value)
            };
            map.iter().map(convert).collect()
        }
        Value::Array(values) => {
            let inner = node.and_then(items);
            values.iter().map(|value| convert(value, inner)).collect()
        }
        Value::Number(number) if type_ == Some("number") => {
            // A user may write 1 for 1.0, which are different types in CEL.
            let float = number.as_f64().and_then(Number::from_f64);
            Value::Number(float.unwrap_or_else(|| number.clone()))
        }
        Value::String(text) if format == Some("date") => {
            json!(format!("{text}T00:00:00Z"))
        }
        other => other.clone(),
    }
}

/// Returns a field's name in rules.
fn name_in_rules(name: &str) -> String {
    if RESERVED.split(' ').any(|word| word == name) {
        return format!("__{name}__");
    }
    // Double underscores first, because the other escapes contain them.
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}
