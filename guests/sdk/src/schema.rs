//! Schema functions for `#[schemars(schema_with = "...")]`: what the Rust types cannot say about a
//! CRD field.

use schemars::{Schema, SchemaGenerator, json_schema};

/// A number or a string, as `IntOrString` and a quantity are.
///
/// Types of k8s-openapi have this schema by themselves; a field of another type asks for it.
pub fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true})
}

/// A resource quantity: `cpu: 1` is accepted as well as `500m`.
pub fn quantity(generator: &mut SchemaGenerator) -> Schema {
    int_or_string(generator)
}

/// A map of resource names to quantities.
pub fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {"x-kubernetes-int-or-string": true},
    })
}

/// An object with any members, kept as they are; a field of it is `serde_json::Value` or a map.
pub fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Any value, kept as it is.
pub fn any_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-preserve-unknown-fields": true})
}

/// A list of objects with any members.
pub fn any_objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    })
}

/// Conditions as a list-map by `type`.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "What is known about the object, by type.",
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
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
                    "description": "A sentence for people.",
                    "type": "string",
                    "maxLength": 32768,
                },
                "observedGeneration": {
                    "description": "The generation of the object for which it was stated.",
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
