//! The walk over a schema and a value, and the paths of fields.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

/// One node of a schema.
pub(super) type Node = JSONSchemaProps;

/// The schema of the items of a list.
pub(super) fn items(node: &Node) -> Option<&Node> {
    match node.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(inner) => Some(inner),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

/// The schema of the entries of a map.
pub(super) fn entries(node: &Node) -> Option<&Node> {
    match node.additional_properties.as_ref()? {
        JSONSchemaPropsOrBool::Schema(inner) => Some(inner),
        JSONSchemaPropsOrBool::Bool(_) => None,
    }
}

/// The schema of a named field.
pub(super) fn property<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    node.properties.as_ref()?.get(name)
}

/// The schema of a field or of an entry.
pub(super) fn field<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    property(node, name).or_else(|| entries(node))
}

/// A value with its schema.
#[derive(Clone, Debug)]
pub(super) struct SchemaValue<'a> {
    pub(super) node: &'a Node,
    pub(super) value: &'a Value,
    /// The path of the value: `spec.list[2].name`.
    pub(super) path: String,
    /// The path of the schema: `spec.list[].name`.
    pub(super) schema_path: String,
}

impl<'a> SchemaValue<'a> {
    /// Calls `check` with this place and all below it that have a schema, except nulls, which the type alone judges.
    pub(super) fn visit(&self, check: &mut impl FnMut(&Self)) {
        if self.value.is_null() {
            return;
        }
        check(self);
        let (path, schema_path) = (&self.path, &self.schema_path);
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
