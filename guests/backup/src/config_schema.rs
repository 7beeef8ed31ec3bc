//! Builds the schemas of gobackup's keys from the catalog.

use std::collections::BTreeMap;

use schemars::{Schema, json_schema};
use serde_json::{Map, Value, json};

use crate::catalog::{Family, Form, Key, Type};

/// Returns the schema for the names of types.
pub(crate) fn names<'a>(types: impl IntoIterator<Item = &'a Type>) -> Schema {
    let names: Vec<&str> = types.into_iter().map(|type_| type_.name).collect();
    json_schema!({"type": "string", "enum": names})
}

/// Returns the schema for the keys of all types in a family, and their Secrets.
///
/// A key that the object's type lacks only causes a warning, because older manifests may have it.
pub(crate) fn keys(family: &Family, secret_key: &Value) -> Schema {
    let mut properties = Map::new();
    let mut rules = BTreeMap::new();
    for key in family
        .types
        .iter()
        .flat_map(|type_| type_.keys)
        .chain(family.old)
    {
        properties.insert(key.name.to_owned(), value(key));
        if key.has_twin() {
            let twin = format!("{}_ref", key.name);
            let rule = json!({
                "rule": format!("!has(self.{}) || !has(self.{twin})", key.name),
                "message": format!("set either config.{} or config.{twin}", key.name),
            });
            rules.insert(key.name, rule);
            let description = format!("Secret key that holds the value of {}.", key.name);
            let mut schema = secret_key.clone();
            schema["description"] = json!(description);
            properties.insert(twin, schema);
        }
    }
    let rules: Vec<Value> = rules.into_values().collect();
    json_schema!({
        "type": "object",
        "properties": properties,
        "x-kubernetes-validations": rules,
    })
}

/// Longest script or credential in characters: an RSA key as PEM has 3,300, a Google service account 2,400.
const DATA_CHARS_MAX: u32 = 16_384;

/// Maximum length of a list, such as table names.
const TEXTS_MAX: u32 = 256;

fn value(key: &Key) -> Value {
    let is_data = key.is_secret || key.name.ends_with("_script");
    let mut schema = match key.form {
        Form::Text if is_data => json!({"type": "string", "maxLength": DATA_CHARS_MAX}),
        Form::Text => json!({"type": "string"}),
        Form::Choice(texts) => json!({"type": "string", "enum": texts}),
        Form::Number => json!({"type": "integer", "minimum": 0}),
        Form::Port => json!({"type": "integer", "minimum": 1, "maximum": 65535}),
        Form::Flag => json!({"type": "boolean"}),
        Form::Texts => {
            json!({"type": "array", "maxItems": TEXTS_MAX, "items": {"type": "string", "maxLength": 253}})
        }
    };
    schema["description"] = json!(key.description);
    schema
}
