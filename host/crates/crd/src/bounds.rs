//! Limits on the costly parts of an untrusted definition: rules and patterns.
//!
//! Texts are only counted: a parser that knew CEL's quotes could be misled.

use jsonschema::ValidationError;
use serde_json::Value;

/// The longest rule, in bytes, and the most brackets and operators in it. The longest of this project has a twentieth of
/// these. `cel` evaluates some 4,000 operators in a row on a stack of 2 MiB, and its errors for a rule of 31 KB with 1,000
/// brackets have 860 MB.
const RULE_BYTES_MAX: usize = 16 << 10;
const BRACKETS_MAX: usize = 128;
const OPERATORS_MAX: usize = 1000;

/// The most patterns in a schema, and the largest compiled one, in bytes: together 250 MB. A pattern of 1,000 ordinary
/// characters takes 100 KB.
const PATTERNS_MAX: usize = 1000;
pub(super) const COMPILED_BYTES_MAX: usize = 256 << 10;

/// The longest error text, in characters: it may show a rule's line or a whole value.
pub(super) const PROBLEM_CHARS_MAX: usize = 1000;

/// Returns why a schema does not compile, with the remedy. The compiler calls a pattern above its bound a wrong one.
pub(super) fn uncompiled(error: &ValidationError<'_>) -> String {
    let problem = error.to_string();
    let line: Vec<&str> = problem.split_whitespace().collect();
    format!(
        "{}: correct it; a pattern cannot look around or refer back, and takes at most {COMPILED_BYTES_MAX} bytes of memory",
        cut(&line.join(" "))
    )
}

pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(PROBLEM_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns why a rule is not compiled.
pub(super) fn check_rule(rule: &str) -> Result<(), String> {
    let count = |characters: &str| rule.matches(|c| characters.contains(c)).count();
    for (what, count, max) in [
        ("bytes", rule.len(), RULE_BYTES_MAX),
        ("brackets", count("([{"), BRACKETS_MAX),
        ("operators", count("+-*/%!?.<>=&|:"), OPERATORS_MAX),
    ] {
        if count > max {
            return Err(format!(
                "a rule has {count} {what}, at most {max} are allowed: split it"
            ));
        }
    }
    Ok(())
}

/// Returns why a schema is not compiled.
pub(super) fn check_schema(schema: &Value) -> Result<(), String> {
    let count = patterns(schema);
    if count > PATTERNS_MAX {
        return Err(format!(
            "the schema has {count} patterns, at most {PATTERNS_MAX} are allowed: remove some"
        ));
    }
    Ok(())
}

fn patterns(schema: &Value) -> usize {
    match schema {
        Value::Object(fields) => {
            // A property may be named `pattern`, and the schema of a property is no string.
            let own = fields.get("pattern").is_some_and(Value::is_string);
            usize::from(own) + fields.values().map(patterns).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(patterns).sum(),
        _ => 0,
    }
}
