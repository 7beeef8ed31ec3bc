//! Compares two JSON values line by line.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Returns each place where two values differ, with both values; a missing one and a null are `absent`.
pub fn differences(expected: &Value, actual: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    add(expected, actual, String::new(), &mut lines);
    lines
}

fn add(expected: &Value, actual: &Value, place: String, lines: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            let names: BTreeSet<&String> = expected.keys().chain(actual.keys()).collect();
            for name in names {
                let field =
                    |object: &Map<String, Value>| object.get(name).cloned().unwrap_or_default();
                let dot = if place.is_empty() { "" } else { "." };
                add(
                    &field(expected),
                    &field(actual),
                    format!("{place}{dot}{name}"),
                    lines,
                );
            }
        }
        (Value::Array(expected), Value::Array(actual)) if expected.len() == actual.len() => {
            for (at, (expected, actual)) in expected.iter().zip(actual).enumerate() {
                add(expected, actual, format!("{place}[{at}]"), lines);
            }
        }
        (expected, actual) if expected == actual => {}
        (expected, actual) => {
            let expected = shown(expected);
            let actual = shown(actual);
            lines.push(format!("{place} is {actual}, and was {expected}"));
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "absent".to_owned(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_difference_is_named_with_both_values() {
        let recorded = json!({"children": [{"object": {"spec": {"replicas": 2}}}], "status": {}});
        let differs = |now: Value| differences(&recorded, &now).into_iter().next();
        assert_eq!(differs(recorded.clone()), None);
        let now = json!({"children": [{"object": {"spec": {"replicas": 3}}}], "status": {}});
        let place = "children[0].object.spec.replicas is 3, and was 2";
        assert_eq!(differs(now).as_deref(), Some(place));
        let now = json!({"children": recorded["children"], "status": {"a": 1}});
        assert_eq!(
            differs(now).as_deref(),
            Some("status.a is 1, and was absent")
        );
        let now = json!({"children": [], "status": {}});
        assert!(
            differs(now)
                .unwrap()
                .starts_with("children is [], and was [")
        );
    }
}
