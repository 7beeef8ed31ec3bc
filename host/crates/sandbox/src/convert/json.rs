//! A guest's JSON texts.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value, error::Category, map::Entry};

use super::Rejected;

/// Nesting levels in one text; the deepest Kubernetes objects, custom resource definitions, have about 30.
const DEPTH_MAX: usize = 64;

/// The path to a `null` that says nothing: Kubernetes' types always write it.
const UNSET_TIME: [&str; 2] = ["metadata", "creationTimestamp"];

/// The places in which a text may have a `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nulls {
    /// Nowhere.
    Refused,
    /// In objects that no list has, where it states that a field is absent.
    Absence,
}

/// Parses an object.
pub(super) fn object(at: &str, text: &str, nulls: Nulls) -> Result<Map<String, Value>, Rejected> {
    let value = value(at, text)?;
    let actual = type_name(&value);
    let Value::Object(object) = value else {
        return Err(Rejected::new(
            at,
            format!("this is {actual}, a JSON object is needed"),
        ));
    };
    check_fields(&object, "", 0, nulls).map_err(|inner| inner.below(at))?;
    Ok(object)
}

/// Parses a JSON text. Refuses an object with duplicate member names.
pub(super) fn value(at: &str, text: &str) -> Result<Value, Rejected> {
    serde_json::from_str(text)
        .map(|Strict(value)| value)
        .map_err(|error| {
            let problem = error.to_string();
            // The parser itself stops at 128 levels, and only the error's text shows it.
            if problem.starts_with("recursion limit exceeded") {
                return Rejected::new(at, too_deep());
            }
            // Not a syntax error: `StrictVisitor` refused a member, and the text has the remedy.
            if error.classify() == Category::Data {
                return Rejected::new(at, problem);
            }
            Rejected::new(at, format!("this is not JSON: {problem}"))
        })
}

/// A value whose objects have no duplicate members.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Strict(item)) = access.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some((name, Strict(member))) = access.next_entry::<String, _>()? {
            match members.entry(name) {
                Entry::Vacant(place) => drop(place.insert(member)),
                // Parsers disagree on which one counts.
                Entry::Occupied(taken) => {
                    let name = taken.key();
                    return Err(A::Error::custom(format!(
                        "the member \"{name}\" is stated twice: state it once"
                    )));
                }
            }
        }
        Ok(Value::Object(members))
    }
}

fn too_deep() -> String {
    format!("this is nested more than {DEPTH_MAX} levels deep: state flatter objects")
}

/// Returns an object's text field.
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

/// Checks a value at a depth below the fields `parent.key`. A problem's place is the path below the value.
fn check(
    value: &Value,
    [parent, key]: [&str; 2],
    depth: usize,
    nulls: Nulls,
) -> Result<(), Rejected> {
    if depth > DEPTH_MAX {
        return Err(Rejected::new("", too_deep()));
    }
    match value {
        // Allowed at any depth, because templates contain metadata too.
        Value::Null if [parent, key] == UNSET_TIME => Ok(()),
        // The object's own metadata is also the host's.
        Value::Null if nulls == Nulls::Absence && !(parent == "metadata" && depth == 2) => Ok(()),
        Value::Null => Err(Rejected::new("", refused(nulls))),
        Value::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            check(item, ["", ""], depth + 1, Nulls::Refused)
                .map_err(|inner| inner.below(&format!("[{index}]")))
        }),
        Value::Object(fields) => check_fields(fields, key, depth, nulls),
        _ => Ok(()),
    }
}

const fn refused(nulls: Nulls) -> &'static str {
    match nulls {
        Nulls::Refused => {
            "null is refused here: leave the field out; only an object that is in no list can state a field as absent"
        }
        Nulls::Absence => {
            "null is refused here, because the host states a part of it: leave the field out"
        }
    }
}

fn check_fields(
    fields: &Map<String, Value>,
    parent: &str,
    depth: usize,
    nulls: Nulls,
) -> Result<(), Rejected> {
    fields.iter().try_for_each(|(key, field)| {
        check(field, [parent, key], depth + 1, nulls)
            .map_err(|inner| inner.below(&format!(".{key}")))
    })
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
        let rejected = object("object", text, Nulls::Absence).unwrap_err();
        assert_eq!(rejected.at, at, "{text}");
        assert!(rejected.problem.contains(problem), "{}", rejected.problem);
    }

    #[test]
    fn refuses_members_that_are_stated_twice() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"x":{"a":1,"b":2,"a":3}}"#,
            r#"{"x":[{"a":[],"\u0061":{}}]}"#,
        ] {
            check_rejected(text, "object", "the member \"a\" is stated twice");
        }
        // The same name in another place is another member.
        let text = r#"{"a":{"a":[{"a":1},{"a":2}]},"n":[-1,1.5,18446744073709551615,true,"x"]}"#;
        let parsed = object("object", text, Nulls::Absence).unwrap();
        assert_eq!(
            Value::Object(parsed),
            serde_json::from_str::<Value>(text).unwrap()
        );
    }

    #[test]
    fn takes_objects() {
        let text = r#"{"metadata":{"creationTimestamp":null},"spec":{"template":{"metadata":{"creationTimestamp":null}}}}"#;
        for nulls in [Nulls::Absence, Nulls::Refused] {
            assert_eq!(object("object", text, nulls).unwrap().len(), 2);
        }
        let absent = r#"{"metadata":{"labels":{"a":null}},"spec":{"strategy":{"rollingUpdate":null}},"data":null}"#;
        assert!(object("object", absent, Nulls::Absence).is_ok());
        let rejected = object("status", absent, Nulls::Refused).unwrap_err();
        assert!(rejected.problem.contains("null is refused"), "{rejected:?}");
    }

    #[test]
    fn names_the_place_of_a_null() {
        let problem = "null is refused";
        check_rejected(r#"{"a":{"b":[1,{"c":null}]}}"#, "object.a.b[1].c", problem);
        check_rejected(r#"{"a":[null]}"#, "object.a[0]", problem);
        check_rejected(
            r#"{"metadata":{"labels":null}}"#,
            "object.metadata.labels",
            problem,
        );
    }

    #[test]
    fn refuses_texts_that_are_not_objects() {
        check_rejected("", "object", "not JSON");
        check_rejected("{\"a\":1} x", "object", "not JSON");
        check_rejected("[]", "object", "this is a list");
        check_rejected("null", "object", "this is null");
    }

    #[test]
    fn refuses_depth() {
        let nested =
            |levels: usize| format!("{{\"a\":{}1{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(object("object", &nested(DEPTH_MAX - 1), Nulls::Absence).is_ok());
        let rejected = object("object", &nested(DEPTH_MAX), Nulls::Absence).unwrap_err();
        assert!(rejected.problem.contains("64 levels"), "{rejected:?}");
        // Beyond the parser's own limit.
        for levels in [127, 128, 10_000] {
            check_rejected(&nested(levels), "object", "64 levels");
        }
    }

    #[test]
    fn reads_texts() {
        let text_of = r#"{"a":{"b":"x","c":1}}"#;
        let object = object("object", text_of, Nulls::Absence).unwrap();
        assert_eq!(text("o", &object, &["a", "b"]).unwrap(), Some("x"));
        assert_eq!(text("o", &object, &["a", "d"]).unwrap(), None);
        assert_eq!(text("o", &object, &["x", "b"]).unwrap(), None);
        assert_eq!(text("o", &object, &["a", "c"]).unwrap_err().at, "o.a.c");
    }
}
