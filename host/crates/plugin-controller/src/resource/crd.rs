//! The CustomResourceDefinition of the Plugin resource.

use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use super::Plugin;

/// Its name.
pub const NAME: &str = "plugins.innkeeper.dev";

/// The CustomResourceDefinition of the Plugin resource.
///
/// Removes `nullable` from the derived schema, so that the API server drops a null as if it were absent.
pub fn crd() -> Map<String, Value> {
    // A definition is plain data, and an object.
    let crd = serde_json::to_value(Plugin::crd()).unwrap_or_default();
    let Value::Object(mut crd) = without_nullable(crd) else {
        return Map::new();
    };
    // Only the API server fills it in.
    crd.remove("status");
    crd
}

/// Drops `nullable`, which no property of the resource is named.
fn without_nullable(value: Value) -> Value {
    match value {
        Value::Object(mut members) => {
            members.remove("nullable");
            members
                .into_iter()
                .map(|(key, member)| (key, without_nullable(member)))
                .collect()
        }
        Value::Array(items) => items.into_iter().map(without_nullable).collect(),
        other => other,
    }
}

/// An object with any members, kept as they are.
pub(super) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Conditions, whose type in the library has neither bounds nor the words of this project.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "items": {
            "type": "object",
            "description": "One thing that is known of the plugin.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "description": "The type in CamelCase.",
                    "type": "string",
                    "maxLength": 316,
                },
                "status": {
                    "description": "Whether it holds.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "One word in CamelCase.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                },
                "message": {
                    "description": "What is so, and what to do about it.",
                    "type": "string",
                    "maxLength": 32768,
                },
                "observedGeneration": {
                    "description": "The generation of the spec for which it was stated.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
                "lastTransitionTime": {
                    "description": "When the status last changed.",
                    "type": "string",
                    "format": "date-time",
                },
            },
        },
    })
}
