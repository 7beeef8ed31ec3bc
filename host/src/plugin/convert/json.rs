//! JSON texts that a guest hands over.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::Rejected;

/// Levels of nesting in one text; the deepest Kubernetes objects, custom resource definitions, have about 30.
const DEPTH_MAX: usize = 64;

/// Where the one `null` that is no mistake may stand: Kubernetes' own types always write it.
const NULL_ALLOWED: [&str; 2] = ["metadata", "creationTimestamp"];

/// Parses a text that has to be an object with no `null` in it.
pub(super) fn object(at: &str, text: &str) -> Result<Map<String, Value>, Rejected> {
    let value = value(at, text)?;
    let found = type_name(&value);
    let Value::Object(object) = value else {
        return Err(Rejected::new(
            at,
            format!("this is {found}, a JSON object is needed"),
        ));
    };
    let mut path = Vec::new();
    for (key, value) in &object {
        path.push(Step::Key(key));
        check(value, &mut path).map_err(|problem| Rejected::new(place(at, &path), problem))?;
        path.pop();
    }
    Ok(object)
}

/// Parses any JSON text.
pub(super) fn value(at: &str, text: &str) -> Result<Value, Rejected> {
    serde_json::from_str(text).map_err(|error| {
        let problem = error.to_string();
        // The parser has a limit of its own, far above ours, and tells it by its text alone.
        if problem.starts_with("recursion limit exceeded") {
            return Rejected::new(at, too_deep());
        }
        Rejected::new(at, format!("this is not JSON: {problem}"))
    })
}

fn too_deep() -> String {
    format!("this is nested more than {DEPTH_MAX} levels deep: state flatter objects")
}

/// A text field of an object.
pub(super) fn text<'a>(
    at: &str,
    object: &'a Map<String, Value>,
    path: &[&str],
) -> Result<Option<&'a str>, Rejected> {
    let mut value = None;
    let mut inside = Some(object);
    for key in path {
        value = inside.and_then(|object| object.get(*key));
        inside = value.and_then(Value::as_object);
    }
    match value {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(Rejected::new(
            format!("{at}.{}", path.join(".")),
            format!("this is {}, a text is needed", type_name(other)),
        )),
    }
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Leaves the path to the problem behind when it finds one.
fn check<'a>(value: &'a Value, path: &mut Vec<Step<'a>>) -> Result<(), String> {
    if path.len() > DEPTH_MAX {
        return Err(too_deep());
    }
    match value {
        Value::Null if !null_allowed(path) => {
            Err("null is refused, because it would delete the field for every manager: leave the field out".to_owned())
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(Step::Index(index));
                check(item, path)?;
                path.pop();
            }
            Ok(())
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                path.push(Step::Key(key));
                check(field, path)?;
                path.pop();
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Also in templates of other objects, where Kubernetes' types write it too.
fn null_allowed(path: &[Step<'_>]) -> bool {
    let [.., Step::Key(outer), Step::Key(inner)] = path else {
        return false;
    };
    [*outer, *inner] == NULL_ALLOWED
}

fn place(at: &str, path: &[Step<'_>]) -> String {
    let mut place = at.to_owned();
    for step in path {
        let written = match step {
            Step::Key(key) => write!(place, ".{key}"),
            Step::Index(index) => write!(place, "[{index}]"),
        };
        // Writing to a String cannot fail.
        debug_assert!(written.is_ok());
    }
    place
}

pub(super) const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_rejected(text: &str, at: &str, problem: &str) {
        let rejected = object("object", text).unwrap_err();
        assert_eq!(rejected.at, at, "{text}");
        assert!(rejected.problem.contains(problem), "{}", rejected.problem);
    }

    #[test]
    fn takes_objects() {
        let text = r#"{"metadata":{"creationTimestamp":null},"spec":{"template":{"metadata":{"creationTimestamp":null}}}}"#;
        assert_eq!(object("object", text).unwrap().len(), 2);
    }

    #[test]
    fn names_the_place_of_a_null() {
        let problem = "null is refused";
        check_rejected(r#"{"a":{"b":[1,{"c":null}]}}"#, "object.a.b[1].c", problem);
        check_rejected(
            r#"{"creationTimestamp":null}"#,
            "object.creationTimestamp",
            problem,
        );
    }

    #[test]
    fn refuses_what_is_no_object() {
        check_rejected("", "object", "not JSON");
        check_rejected("{\"a\":1} x", "object", "not JSON");
        check_rejected("[]", "object", "this is a list");
        check_rejected("null", "object", "this is null");
    }

    #[test]
    fn refuses_depth() {
        let nested =
            |levels: usize| format!("{{\"a\":{}1{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(object("object", &nested(DEPTH_MAX - 1)).is_ok());
        let rejected = object("object", &nested(DEPTH_MAX)).unwrap_err();
        assert!(rejected.problem.contains("64 levels"), "{rejected:?}");
        // Deeper than the parser itself goes.
        for levels in [127, 128, 10_000] {
            check_rejected(&nested(levels), "object", "64 levels");
        }
    }

    #[test]
    fn reads_texts() {
        let object = object("object", r#"{"a":{"b":"x","c":1}}"#).unwrap();
        assert_eq!(text("o", &object, &["a", "b"]).unwrap(), Some("x"));
        assert_eq!(text("o", &object, &["a", "d"]).unwrap(), None);
        assert_eq!(text("o", &object, &["x", "b"]).unwrap(), None);
        assert_eq!(text("o", &object, &["a", "c"]).unwrap_err().at, "o.a.c");
    }
}
