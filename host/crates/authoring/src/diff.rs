//! Compares two JSON values line by line.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Returns each place where two values differ, with both values; a missing one and a null are `absent`.
pub fn of(expected: &Value, found: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    add(expected, found, String::new(), &mut lines);
    lines
}

fn add(expected: &Value, found: &Value, place: String, lines: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
            for name in names {
                let field =
                    |object: &Map<String, Value>| object.get(name).cloned().unwrap_or_default();
                let dot = if place.is_empty() { "" } else { "." };
                add(
                    &field(expected),
                    &field(found),
                    format!("{place}{dot}{name}"),
                    lines,
                );
            }
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            for (at, (expected, found)) in expected.iter().zip(found).enumerate() {
                add(expected, found, format!("{place}[{at}]"), lines);
            }
        }
        (expected, found) if expected == found => {}
        (expected, found) => {
            let expected = shown(expected);
            let actual = shown(found);
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
        let differs = |now: Value| of(&recorded, &now).into_iter().next();
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
