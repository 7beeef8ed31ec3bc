//! Label selectors in Kubernetes' text form, for the fake host only.

use serde_json::Value;

/// Returns true if the object's labels match; no selector matches each object.
///
/// Supports `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a` and `!a`, joined by
/// commas.
pub(super) fn matches(selector: Option<&str>, object: &Value) -> bool {
    let label = |key: &str| {
        object
            .pointer("/metadata/labels")
            .and_then(|labels| labels.get(key))
            .and_then(Value::as_str)
    };
    requirements(selector.unwrap_or_default())
        .iter()
        .all(|requirement| holds(requirement, &label))
}

fn holds<'a>(requirement: &str, label: &impl Fn(&str) -> Option<&'a str>) -> bool {
    if let Some((key, values)) = requirement.split_once(" notin ") {
        return label(key.trim()).is_none_or(|value| !one_of(values, value));
    }
    if let Some((key, values)) = requirement.split_once(" in ") {
        return label(key.trim()).is_some_and(|value| one_of(values, value));
    }
    if let Some((key, value)) = requirement.split_once("!=") {
        return label(key.trim()) != Some(value.trim());
    }
    if let Some((key, value)) = requirement.split_once('=') {
        return label(key.trim()) == Some(value.trim_start_matches('=').trim());
    }
    match requirement.strip_prefix('!') {
        Some(key) => label(key.trim()).is_none(),
        None => label(requirement).is_some(),
    }
}

fn one_of(values: &str, value: &str) -> bool {
    values
        .trim()
        .trim_start_matches('(')
        .trim_end_matches(')')
        .split(',')
        .any(|candidate| candidate.trim() == value)
}

/// The parts between the commas that are not inside parentheses.
fn requirements(selector: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0_usize;
    let mut depth = 0_usize;
    for (at, character) in selector.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(selector[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(selector[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}
