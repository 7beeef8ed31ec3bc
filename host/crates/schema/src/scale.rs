//! The number of replicas that the scale subresource points to.

use serde_json::Value;

use super::{
    cause::Cause,
    go::{self, Num},
};

/// The scale subresource of a kind.
#[derive(Debug)]
pub(super) struct Scale {
    path: String,
}

impl Scale {
    pub(super) fn new(scale: &Value) -> Option<Self> {
        let path = scale.get("specReplicasPath")?.as_str()?.to_owned();
        Some(Self { path })
    }

    /// What is wrong with the number.
    pub(super) fn check(&self, object: &Value) -> Option<Cause> {
        let mut value = object;
        for name in self.path.split('.').filter(|name| !name.is_empty()) {
            value = match value {
                Value::Object(map) => map.get(name)?,
                other => return Some(self.unusable(other, "map[string]interface{}")),
            };
        }
        let integer = match value {
            Value::Number(number) => match go::number(number) {
                Num::Int(integer) => integer,
                Num::Float(_) => return Some(self.unusable(value, "int64")),
            },
            _ => return Some(self.unusable(value, "int64")),
        };
        let detail = if integer < 0 {
            "should be a non-negative integer".to_owned()
        } else if integer > i64::from(i32::MAX) {
            format!("should be less than or equal to {}", i32::MAX)
        } else {
            return None;
        };
        Some(Cause::invalid(&self.path, value, &detail))
    }

    fn unusable(&self, value: &Value, expected: &str) -> Cause {
        let (text, kind) = match value {
            Value::String(text) => (text.clone(), "string"),
            Value::Null => ("<nil>".to_owned(), "<nil>"),
            Value::Bool(_) => (go::value(value), "bool"),
            Value::Number(number) => match go::number(number) {
                Num::Int(_) => (go::value(value), "int64"),
                Num::Float(_) => (go::value(value), "float64"),
            },
            Value::Array(_) => (go::plain(value), "[]interface {}"),
            Value::Object(_) => (go::plain(value), "map[string]interface {}"),
        };
        let detail = format!(
            "{} accessor error: {text} is of the type {kind}, expected {expected}",
            self.path
        );
        Cause::invalid(&self.path, &Value::from(0), &detail)
    }
}
