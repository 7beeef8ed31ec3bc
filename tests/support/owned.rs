//! The fields that a field manager owns in an object, read from `metadata.managedFields`.

use serde_json::{Map, Value};

/// Returns the fields that a manager has applied to an object or to one subresource; `None` if `managedFields` has no
/// such entry.
///
/// Owned fields that the object lacks are `null`: the API server drops some empty values.
pub fn owned(object: &Value, manager: &str, subresource: Option<&str>) -> Option<Value> {
    let entry = object["metadata"]["managedFields"]
        .as_array()?
        .iter()
        .find(|entry| {
            entry["manager"] == manager
                && entry["operation"] == "Apply"
                && entry["subresource"].as_str() == subresource
        })?;
    Some(part(&entry["fieldsV1"], object))
}

/// Returns the part of a value that a field set (`fieldsV1`) selects.
fn part(fields: &Value, value: &Value) -> Value {
    let members: Vec<(&str, &Value)> = fields
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, fields)| (name.as_str(), fields))
        .filter(|(name, _)| *name != ".")
        .collect();
    let is_container = fields.get(".").is_some();
    match value {
        // A name without members selects the whole value below it.
        _ if members.is_empty() && !is_container => value.clone(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .filter_map(|(index, item)| {
                let mut members = members.iter();
                let (_, fields) = members.find(|(name, _)| is_of(name, index, item))?;
                Some(part(fields, item))
            })
            .collect(),
        Value::Object(map) => {
            let fields = members.iter().map(|(name, fields)| {
                let name = name.strip_prefix("f:").unwrap_or(name);
                let inner = map.get(name).unwrap_or(&Value::Null);
                (name.to_owned(), part(fields, inner))
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

/// Returns true if a `fieldsV1` name (`k:`, `v:` or `i:`) refers to this list item.
fn is_of(name: &str, index: usize, item: &Value) -> bool {
    let Some((kind, text)) = name.split_once(':') else {
        return false;
    };
    let parsed = || serde_json::from_str::<Value>(text).expect("names of items are JSON");
    match kind {
        "k" => parsed()
            .as_object()
            .into_iter()
            .flatten()
            .all(|(key, value)| item[key] == *value),
        "v" => parsed() == *item,
        "i" => text == index.to_string(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn takes_fields_items_values_and_whole_values() {
        let object = json!({
            "metadata": {
                "finalizers": ["a/b", "c/d"],
                "managedFields": [
                    { "manager": "m", "operation": "Update", "fieldsV1": { "f:data": {} } },
                    { "manager": "m", "operation": "Apply", "subresource": "status", "fieldsV1": { "f:status": {} } },
                    { "manager": "m", "operation": "Apply", "fieldsV1": {
                        "f:metadata": { "f:finalizers": { "v:\"c/d\"": {} } },
                        "f:spec": {
                            "f:args": {},
                            "f:empty": { "." : {} },
                            "f:gone": {},
                            "f:ports": { "k:{\"port\":2,\"protocol\":\"TCP\"}": { ".": {}, "f:port": {} } },
                        },
                    } },
                ],
            },
            "spec": {
                "args": ["x", { "y": 1 }],
                "empty": { "foreign": 1 },
                "foreign": 1,
                "ports": [
                    { "port": 2, "protocol": "UDP" },
                    { "port": 2, "protocol": "TCP", "name": "foreign" },
                ],
            },
            "status": { "ready": 1 },
        });
        assert_eq!(
            owned(&object, "m", None).unwrap(),
            json!({
                "metadata": { "finalizers": ["c/d"] },
                "spec": {
                    "args": ["x", { "y": 1 }],
                    "empty": {},
                    "gone": null,
                    "ports": [{ "port": 2 }],
                },
            })
        );
        assert_eq!(
            owned(&object, "m", Some("status")).unwrap(),
            json!({ "status": { "ready": 1 } })
        );
        assert_eq!(owned(&object, "other", None), None);
    }
}
