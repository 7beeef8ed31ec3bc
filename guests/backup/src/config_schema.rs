//! The schemas of the keys of gobackup, made from the catalog.

use std::collections::BTreeMap;

use schemars::{Schema, json_schema};
use serde_json::{Map, Value, json};

use crate::catalog::{Family, Form, Key, Type};

/// The names of types.
pub(crate) fn names<'a>(types: impl IntoIterator<Item = &'a Type>) -> Schema {
    let names: Vec<&str> = types.into_iter().map(|type_| type_.name).collect();
    json_schema!({"type": "string", "enum": names})
}

/// The keys of all types of a family, and the names of Secrets for some of them.
///
/// A key that the object's type does not have causes a warning and no rejection, because older
/// manifests may carry it.
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

/// The longest script or credential in characters: a key of RSA as PEM has 3,300, a service account of Google 2,400.
const DATA_CHARS_MAX: u32 = 16_384;

/// The most texts of a list, such as the names of tables.
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
