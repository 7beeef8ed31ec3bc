//! Walks a schema and a value together, and builds field paths.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

/// One schema node.
pub(super) type Node = JSONSchemaProps;

/// The schema for list items.
pub(super) fn items(node: &Node) -> Option<&Node> {
    match node.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(inner) => Some(inner),
        // The API server refuses a list of schemas here.
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

/// The schema for map entries.
pub(super) fn entries(node: &Node) -> Option<&Node> {
    match node.additional_properties.as_ref()? {
        JSONSchemaPropsOrBool::Schema(inner) => Some(inner),
        JSONSchemaPropsOrBool::Bool(_) => None,
    }
}

/// The schema for a named field.
pub(super) fn property<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    node.properties.as_ref()?.get(name)
}

/// The schema for a field or an entry.
pub(super) fn field<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    property(node, name).or_else(|| entries(node))
}

/// A value with a schema.
#[derive(Clone, Debug)]
pub(super) struct SchemaValue<'a> {
    pub(super) node: &'a Node,
    pub(super) value: &'a Value,
    /// The value's path: `spec.list[2].name`.
    pub(super) path: String,
    /// The schema's path: `spec.list[].name`.
    pub(super) schema_path: String,
}

impl<'a> SchemaValue<'a> {
    /// Calls `check` with this place and all below it that have a schema, except nulls, which the type alone judges.
    pub(super) fn visit(&self, check: &mut impl FnMut(&Self)) {
        if self.value.is_null() {
            return;
        }
        check(self);
        let path = &self.path;
        let schema_path = &self.schema_path;
        let mut below = |node: Option<&'a Node>, value: &'a Value, path, schema_path| {
            if let Some(node) = node {
                let place = Self {
                    node,
                    value,
                    path,
                    schema_path,
                };
                place.visit(check);
            }
        };
        match self.value {
            Value::Object(map) => {
                for (key, value) in map {
                    match property(self.node, key) {
                        None => {
                            let inner = entries(self.node);
                            below(inner, value, entry(path, key), entry(schema_path, ""));
                        }
                        inner => below(inner, value, child(path, key), child(schema_path, key)),
                    }
                }
            }
            Value::Array(values) => {
                for (index, value) in values.iter().enumerate() {
                    let inner = items(self.node);
                    below(inner, value, item(path, index), entry(schema_path, ""));
                }
            }
            _ => {}
        }
    }
}

/// A named field's path.
pub(super) fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// A map entry's path.
pub(super) fn entry(path: &str, key: &str) -> String {
    format!("{path}[{key}]")
}

/// A list item's path.
pub(super) fn item(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}
