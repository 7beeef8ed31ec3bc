//! Types and values as rules see them.

use serde_json::{Map, Number, Value, json};

/// Keywords of a schema that decide about the types of values in rules.
const KEPT: [&str; 5] = [
    "format",
    "type",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
];

/// The types of a schema without rules, defaults and limits.
///
/// Of an object's own metadata rules see the name alone.
/// Every object is given out as a map with the names that its fields have in rules: the crate takes the keys of maps as
/// they are, and has other names than the API server for fields with an underscore.
pub(super) fn types(raw: &Value, is_root: bool) -> Value {
    let Value::Object(raw) = raw else {
        return raw.clone();
    };
    let mut out: Map<String, Value> = KEPT
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), raw.get(*name)?.clone())))
        .collect();
    // A date is a point in time like any other; the crate knows the longer form alone.
    if out.get("format").is_some_and(|format| format == "date") {
        out.insert("format".to_owned(), "date-time".into());
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = raw.get(name) {
            out.insert(name.to_owned(), types(inner, false));
        }
    }
    if let Some(Value::Object(properties)) = raw.get("properties") {
        let properties: Map<String, Value> = properties
            .iter()
            .map(|(name, property)| (name_in_rules(name), types(property, false)))
            .collect();
        out.insert("properties".to_owned(), Value::Object(properties));
    }
    if out.get("type").is_some_and(|name| name == "object") {
        out.entry("additionalProperties")
            .or_insert(Value::Bool(true));
    }
    if is_root && let Some(Value::Object(properties)) = out.get_mut("properties") {
        let text = json!({"type": "string"});
        properties.insert("apiVersion".to_owned(), text.clone());
        properties.insert("kind".to_owned(), text.clone());
        properties.insert(
            "metadata".to_owned(),
            json!({
                "type": "object",
                "additionalProperties": true,
                "properties": {"name": text, "generateName": text},
            }),
        );
    }
    Value::Object(out)
}

/// A value with numbers of the declared types, because JSON does not tell 1 from 1.0.
pub(super) fn value(value: &Value, typed: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries = typed
                .get("additionalProperties")
                .filter(|inner| inner.is_object());
            let fields = typed.get("properties");
            Value::Object(
                map.iter()
                    .map(|(key, value)| {
                        if let Some(inner) = entries {
                            return (key.clone(), self::value(value, inner));
                        }
                        let name = name_in_rules(key);
                        let inner = fields.and_then(|fields| fields.get(&name));
                        let value = self::value(value, inner.unwrap_or(&Value::Null));
                        (name, value)
                    })
                    .collect(),
            )
        }
        Value::Array(items) => {
            let inner = typed.get("items").unwrap_or(&Value::Null);
            items.iter().map(|item| self::value(item, inner)).collect()
        }
        Value::Number(number) => {
            let is_float = typed.get("type").is_some_and(|name| name == "number");
            let float = is_float.then(|| number.as_f64().and_then(Number::from_f64));
            Value::Number(float.flatten().unwrap_or_else(|| number.clone()))
        }
        Value::String(text)
            if typed
                .get("format")
                .is_some_and(|format| format == "date-time") =>
        {
            // Only dates have ten characters.
            if text.len() == 10 {
                format!("{text}T00:00:00Z").into()
            } else {
                value.clone()
            }
        }
        other => other.clone(),
    }
}

/// Words that mean something else in rules.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// The name of a field in rules.
pub(super) fn name_in_rules(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}
