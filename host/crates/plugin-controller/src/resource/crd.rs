//! The Plugin resource's CustomResourceDefinition.

use kube::CustomResourceExt;
use schemars::{JsonSchema as _, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use super::{LimitsSpec, Plugin};

/// The CustomResourceDefinition's name.
pub const NAME: &str = "plugins.innkeeper.dev";

/// The resource's only version.
const VERSION: &str = "v1alpha1";

/// Returns the Plugin resource's CustomResourceDefinition.
pub fn crd() -> Map<String, Value> {
    // Never fails: a definition is plain data, and an object.
    let crd = serde_json::to_value(Plugin::crd()).unwrap_or_default();
    // Without `nullable`, the API server drops a null as if the field were absent.
    let Value::Object(mut crd) = without_nullable(crd) else {
        return Map::new();
    };
    // Only the API server fills it in.
    crd.remove("status");
    crd
}

/// Returns this host's first field that an installed definition lacks.
pub fn missing_field(installed: &Map<String, Value>) -> Option<String> {
    fn version(crd: &Map<String, Value>) -> Option<&Value> {
        crd.get("spec")?
            .get("versions")?
            .as_array()?
            .iter()
            .find(|version| version["name"] == VERSION)
    }
    const SCHEMA: &str = "/schema/openAPIV3Schema";

    let own = crd();
    let own = version(&own)?.pointer(SCHEMA)?;
    let Some(installed) = version(installed).and_then(|version| version.pointer(SCHEMA)) else {
        return Some(format!("the version {VERSION}"));
    };
    missing_property(own, installed, "")
}

/// Returns the path to the first property that another schema lacks.
fn missing_property(own: &Value, other: &Value, path: &str) -> Option<String> {
    // Not bounds: the API server reports a value that breaks a bound, but drops an unknown field silently.
    let properties = own.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let path = format!("{path}{name}");
        let Some(other) = other.get("properties").and_then(|all| all.get(name)) else {
            return Some(path);
        };
        let missing = missing_property(property, other, &format!("{path}."));
        if missing.is_some() {
            return missing;
        }
    }
    own.get("items")
        .zip(other.get("items"))
        .and_then(|(own, other)| missing_property(own, other, path))
}

/// Removes `nullable` everywhere: no property of the resource has this name.
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

/// Returns the schema for limits in a status, which has neither bounds nor defaults: another host version's limits may
/// differ, and may lack some.
pub(super) fn limits_in_force(generator: &mut SchemaGenerator) -> Schema {
    let mut limits = LimitsSpec::json_schema(generator);
    let properties = limits.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(Map::values_mut) {
        if let Some(property) = property.as_object_mut() {
            property.retain(|name, _| ["description", "format", "type"].contains(&name.as_str()));
        }
    }
    limits
}

/// Returns a schema for an object with any members, which the API server stores unchanged.
pub(super) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Returns the schema for conditions: the library's schema has neither bounds nor these descriptions.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "items": {
            "type": "object",
            "description": "One aspect of the plugin's state.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {"description": "The type in CamelCase.", "type": "string", "maxLength": 316},
                "status": {
                    "description": "The status of the condition.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "One word in CamelCase.",
                    "type": "string", "minLength": 1, "maxLength": 1024,
                },
                "message": {
                    "description": "The state and the remedy.", "type": "string", "maxLength": 32768,
                },
                "observedGeneration": {
                    "description": "The spec generation that the condition describes.",
                    "type": "integer", "format": "int64", "minimum": 0,
                },
                "lastTransitionTime": {
                    "description": "When the status last changed.",
                    "type": "string", "format": "date-time",
                },
            },
        },
    })
}
