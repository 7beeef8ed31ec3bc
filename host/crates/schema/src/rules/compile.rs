//! One rule: compiled, evaluated, and its failure put into words.

mod prepare;

use std::{error, fmt, sync::LazyLock};

use kube_cel::{
    CompilationError, CompiledSchema, ErrorKind, Validator, cel::ExecutionError, compile_schema,
};
use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

use crate::{
    Error,
    cause::{Cause, CauseKind},
    go,
    node::child,
};

/// The longest message that an expression may make, in bytes.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// Why a rule does not compile.
#[derive(Debug)]
pub struct CompileError(CompilationError);

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl error::Error for CompileError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.source()
    }
}

/// One rule of one node.
#[derive(Debug)]
pub(super) struct Rule {
    text: String,
    message: Option<String>,
    reason: Option<String>,
    /// Where the failure is reported, below the node; already a path of fields.
    field: Option<String>,
    /// The type that the node declares; empty for one that takes integers and texts.
    declared: String,
    typed: Value,
    compiled: CompiledSchema,
}

/// Compiles the rules that stand at a node; `typed` is the schema of its values.
pub(super) fn rules(
    node: &Value,
    typed: &Value,
    path: &str,
    is_root: bool,
) -> Result<Vec<Rule>, Error> {
    let Some(Value::Array(all)) = node.get("x-kubernetes-validations") else {
        return Ok(Vec::new());
    };
    let typed = prepare::types(typed, is_root);
    all.iter()
        .filter_map(Value::as_object)
        .map(|rule| Rule::new(rule, &typed, path))
        .collect()
}

impl Rule {
    fn new(rule: &Map<String, Value>, typed: &Value, path: &str) -> Result<Self, Error> {
        let text_of = |name: &str| {
            rule.get(name)
                .and_then(Value::as_str)
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty())
        };
        let text = text_of("rule").unwrap_or_default();
        let mut schema = typed.clone();
        if let Value::Object(schema) = &mut schema {
            schema.insert(
                "x-kubernetes-validations".to_owned(),
                json!([for_evaluation(rule, &text)]),
            );
        }
        let mut compiled = compile_schema(&schema);
        if let Some(position) = compiled.validations.iter().position(Result::is_err)
            && let Err(source) = compiled.validations.swap_remove(position)
        {
            return Err(Error::Rule {
                rule: text,
                at: path.to_owned(),
                source: CompileError(source),
            });
        }
        Ok(Self {
            field: text_of("fieldPath").map(|field| normalized(&field, typed)),
            message: text_of("message"),
            reason: text_of("reason"),
            declared: typed
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            typed: typed.clone(),
            compiled,
            text,
        })
    }

    /// The failure of the rule for a value, if it fails.
    pub(super) fn check(&self, value: &Value, path: &str) -> Option<Cause> {
        let prepared = prepare::value(value, &self.typed);
        let errors = Validator::new()
            .validate_compiled(&self.compiled, &prepared, None)
            .err()?;
        let error = errors.into_iter().next()?;
        if error.kind != ErrorKind::ValidationFailure {
            return Some(self.evaluation_failed(&error, value, path));
        }
        let message = Some(error.message.trim())
            .filter(|text| {
                !text.is_empty() && !text.contains('\n') && text.len() <= MESSAGE_BYTES_MAX
            })
            // Without a message the crate gives the text that it evaluated, which may not be the rule's own.
            .filter(|text| !text.starts_with("failed rule: "))
            .map_or_else(|| self.default_message(), str::to_owned);
        Some(self.failed(&message, value, path))
    }

    fn default_message(&self) -> String {
        self.message
            .clone()
            .unwrap_or_else(|| format!("failed rule: {}", self.text))
    }

    fn failed(&self, message: &str, value: &Value, path: &str) -> Cause {
        let path = match &self.field {
            Some(field) => child(path, field),
            None => path.to_owned(),
        };
        let is_container = matches!(self.declared.as_str(), "object" | "array");
        let shown = (!is_container).then(|| go::value(value));
        let with = |kind: CauseKind, detail: &str| match &shown {
            Some(shown) => Cause::with_value(kind, &path, shown, detail),
            None => Cause::without_value(kind, &path, detail),
        };
        match self.reason.as_deref() {
            Some("FieldValueForbidden") => {
                Cause::without_value(CauseKind::Forbidden, &path, message)
            }
            Some("FieldValueRequired") => Cause::required(&path, message),
            Some("FieldValueDuplicate") => with(CauseKind::Duplicate, ""),
            _ => with(CauseKind::Invalid, message),
        }
    }

    fn evaluation_failed(
        &self,
        error: &kube_cel::ValidationError,
        value: &Value,
        path: &str,
    ) -> Cause {
        let rule = self.message.as_deref().unwrap_or(&self.text);
        let problem = error::Error::source(error)
            .and_then(|source| source.downcast_ref::<ExecutionError>())
            .map_or_else(|| error.message.clone(), |error| problem_text(error, value));
        let detail = if problem.starts_with("no such overload") {
            format!(
                "'{problem}': call arguments did not match a supported operator, function or macro signature for rule: {rule}"
            )
        } else {
            format!("{problem} evaluating rule: {rule}")
        };
        Cause::invalid(path, &Value::from(self.declared.as_str()), &detail)
    }
}

/// The rule as it is given to the crate.
///
/// The crate has no `type()`. Rules use it to tell what an integer or text is, and a text is what is equal to itself as
/// a text.
/// Where `oldSelf` is optional the API server binds it to an optional value, the crate to null: a comprehension over one
/// empty optional value binds it as the API server does.
fn for_evaluation(rule: &Map<String, Value>, text: &str) -> Value {
    static TYPE_TEST: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\btype\(([^()\s]+)\)\s*(==|!=)\s*(int|string)\b")
            .expect("the pattern is a literal")
    });
    let text = TYPE_TEST.replace_all(text, |found: &Captures<'_>| {
        let is_text = (&found[2] == "==") == (&found[3] == "string");
        let not = if is_text { "" } else { "!" };
        format!("{not}(string({0}) == {0})", &found[1])
    });
    let mut rule = rule.clone();
    rule.remove("fieldPath");
    rule.insert("rule".to_owned(), text.as_ref().into());
    let takes_optional = rule.get("optionalOldSelf") == Some(&Value::Bool(true));
    if takes_optional && text.contains("oldSelf") {
        rule.insert(
            "rule".to_owned(),
            format!("[optional.none()].all(oldSelf, ({text}))").into(),
        );
        // There the message sees no `oldSelf` at all on a create, and falls back.
        let unusable = |value: &Value| value.as_str().is_some_and(|text| text.contains("oldSelf"));
        if rule.get("messageExpression").is_some_and(unusable) {
            rule.remove("messageExpression");
        }
    }
    Value::Object(rule)
}

/// The words that the API server's evaluator has for its errors; `value` is what the rule is about.
fn problem_text(error: &ExecutionError, value: &Value) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(kube_cel::cel::Value::Int(index)) => {
            format!("index out of bounds: {index}")
        }
        ExecutionError::NoSuchOverload
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::ValuesNotComparable(..) => "no such overload".to_owned(),
        ExecutionError::FunctionError { function, message } if function == "quantity" => {
            quantity_problem(message, value).to_owned()
        }
        ExecutionError::FunctionError { function, message }
            if matches!(function.as_str(), "int" | "uint" | "double")
                && message.starts_with("string parse error") =>
        {
            format!("type conversion error from 'string' to '{function}'")
        }
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

/// What the API server says of a text that is no quantity: one of the right form has a suffix that nobody knows.
///
/// The evaluator's message quotes the whole text, or what follows its number, or what it takes for the number. Of the
/// last the text is looked for in the value: it has the same beginning and no digit after it.
fn quantity_problem(message: &str, value: &Value) -> &'static str {
    static FORM: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^[+-]?[0-9]*(\.[0-9]*)?([eEinumkKMGTP]*[+-]?[0-9]*)$")
            .expect("the expression should be valid")
    });
    let quoted = message
        .split_once('\'')
        .and_then(|(_, rest)| rest.rsplit_once('\''))
        .map_or("", |(quoted, _)| quoted);
    let is_number = message.starts_with("invalid number");
    let text = if is_number {
        number_begins(value, quoted).unwrap_or(quoted)
    } else {
        quoted
    };
    let suffix = FORM.captures(text).and_then(|parts| parts.get(2));
    match suffix {
        Some(_) if !text.is_empty() => "unable to parse quantity's suffix",
        _ => {
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        }
    }
}

/// The first text in a value that has this beginning, and after it neither a digit nor a point.
fn number_begins<'a>(value: &'a Value, beginning: &str) -> Option<&'a str> {
    match value {
        Value::String(text) => {
            let rest = text.strip_prefix(beginning)?;
            (!rest.starts_with(|next: char| next.is_ascii_digit() || next == '.')).then_some(text)
        }
        Value::Array(items) => items.iter().find_map(|item| number_begins(item, beginning)),
        Value::Object(members) => members
            .values()
            .find_map(|member| number_begins(member, beginning)),
        _ => None,
    }
}

/// A `fieldPath` as the path of fields that the API server makes of it.
fn normalized(field: &str, typed: &Value) -> String {
    let mut path = String::new();
    let mut node = Some(typed);
    let mut rest = field;
    while !rest.is_empty() {
        let (name, after) = if let Some(quoted) = rest.strip_prefix("['") {
            let end = quoted.find("']").unwrap_or(quoted.len());
            (
                quoted[..end].replace("\\'", "'"),
                quoted.get(end + 2..).unwrap_or_default(),
            )
        } else {
            let plain = rest.strip_prefix('.').unwrap_or(rest);
            let end = plain.find(['.', '[']).unwrap_or(plain.len());
            (plain[..end].to_owned(), &plain[end..])
        };
        let is_map = node.is_some_and(|node| node.get("properties").is_none());
        path = if is_map {
            super::entry(&path, &name)
        } else {
            child(&path, &name)
        };
        node = node.and_then(|node| {
            if is_map {
                node.get("additionalProperties")
            } else {
                node.get("properties")?.get(prepare::name_in_rules(&name))
            }
        });
        rest = after;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_an_unknown_suffix_from_a_wrong_form() {
        for (text, message, suffix) in [
            ("-m64", "invalid number: '-'", true),
            ("-v", "invalid number: '-'", false),
            ("1Kn", "unknown quantity suffix: 'Kn'", true),
            ("m64", "no numeric value in 'm64'", true),
            ("1ex", "unknown quantity suffix: 'ex'", false),
            ("many", "no numeric value in 'many'", false),
            ("--port=1", "invalid number: '--'", false),
            ("", "empty quantity string", false),
        ] {
            let value = json!({"others": ["-1", 5], "size": text});
            let problem = quantity_problem(message, &value);
            assert_eq!(problem.ends_with("suffix"), suffix, "{message}: {problem}");
        }
    }
}
