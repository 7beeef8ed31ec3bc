//! Schema functions for `#[schemars(schema_with = "...")]`, for fields whose Rust type has no fitting
//! schema.

use schemars::{Schema, SchemaGenerator, json_schema};

/// A number or a string, such as `IntOrString` or a quantity.
///
/// Types of k8s-openapi have this schema themselves; fields of another type need this function.
pub fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true})
}

/// A resource quantity: both `1` and `500m`.
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
        "description": "Observations about the object, one per type.",
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
                    "description": "True, False or Unknown.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "The cause of the status: one word in CamelCase.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                },
                "message": {
                    "description": "Details of the status for users.",
                    "type": "string",
                    "maxLength": 32768,
                },
                "observedGeneration": {
                    "description": "The generation of the object for which the condition was set.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
                "lastTransitionTime": {
                    "description": "The time of the last change of the status.",
                    "type": "string",
                    "format": "date-time",
                },
            },
        },
    })
}
