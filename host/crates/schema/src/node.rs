//! The part of a schema that decides about the form of an object: which fields there are, and their defaults.

use std::collections::BTreeMap;

use serde_json::Value;

/// What a map holds besides its named fields.
#[derive(Debug)]
pub(super) enum Additional {
    /// Anything, which is to say nothing that is kept of an object below it.
    Any,
    /// Values of one schema.
    Of(Box<Node>),
}

/// How the entries of a list are told apart.
#[derive(Debug)]
pub(super) enum ListType {
    /// Not at all.
    Atomic,
    /// By their value.
    Set,
    /// By the fields named.
    Map(Vec<String>),
}

/// One node of a schema.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) properties: BTreeMap<String, Self>,
    pub(super) additional: Option<Additional>,
    pub(super) items: Option<Box<Self>>,
    pub(super) list_type: ListType,
    pub(super) default: Option<Value>,
    pub(super) nullable: bool,
    pub(super) preserves_unknown: bool,
    /// Holds a whole object with `apiVersion`, `kind` and `metadata`.
    pub(super) is_object: bool,
}

impl Node {
    pub(super) fn new(schema: &Value) -> Self {
        let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        Self {
            properties: schema
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(name, property)| (name.clone(), Self::new(property)))
                .collect(),
            additional: match schema.get("additionalProperties") {
                None | Some(Value::Bool(false)) => None,
                Some(Value::Object(_)) => schema
                    .get("additionalProperties")
                    .map(|inner| Additional::Of(Box::new(Self::new(inner)))),
                Some(_) => Some(Additional::Any),
            },
            items: schema.get("items").map(|items| Box::new(Self::new(items))),
            list_type: list_type(schema),
            default: schema
                .get("default")
                .filter(|default| !default.is_null())
                .cloned(),
            nullable: flag("nullable"),
            preserves_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            is_object: flag("x-kubernetes-embedded-resource"),
        }
    }

    /// The node of a whole object.
    pub(super) fn into_root(self) -> Self {
        Self {
            is_object: true,
            ..self
        }
    }

    /// The schema of a field; none where the field has none.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        match (self.properties.get(name), &self.additional) {
            (Some(node), _) => Some(node),
            (None, Some(Additional::Of(node))) => Some(node),
            (None, Some(Additional::Any) | None) => None,
        }
    }
}

fn list_type(schema: &Value) -> ListType {
    match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(
            schema
                .get("x-kubernetes-list-map-keys")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
        ),
        _ => ListType::Atomic,
    }
}

/// The path of a named field.
pub(super) fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// The path of a map's entry.
pub(super) fn entry(path: &str, key: &str) -> String {
    format!("{path}[{key}]")
}

/// The path of a list's item.
pub(super) fn item(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}
