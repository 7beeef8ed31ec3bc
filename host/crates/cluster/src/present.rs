//! Converts cached objects for the rest of the host.

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_model::{
    Access, DOMAIN_PREFIX, Gvk, HashKey, ManagedEntry, Object, ResourceVersion, Uid,
};
use serde_json::{Map, Value, value::RawValue};

use super::{
    fields::{Fields, ObjectFields, RawManagedEntry, Text},
    stored::{self, LAST_APPLIED, Malformed, Shape, Stored, value_hash},
};

/// Converts any object as the cache would; for passes without a cluster.
///
/// A missing UID becomes empty and a missing resourceVersion becomes 0. Fails if `metadata.name` is missing or a field
/// that the host reads has the wrong type.
pub fn present(
    object: &Map<String, Value>,
    kind: &Gvk,
    access: Access,
    key: &HashKey,
) -> Result<Object, Malformed> {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.entry("uid").or_insert_with(|| "".into());
        metadata
            .entry("resourceVersion")
            .or_insert_with(|| "0".into());
    }
    let shape = Shape {
        kind: kind.clone(),
        form: access,
        // All, because the field managers that write children are unknown here.
        managers: None,
        hash_key: Some(key.clone()),
    };
    let text = Value::Object(object).to_string();
    object_of(&stored::keep(&text, &shape)?, kind, access)
}

/// Returns all labels in an object's text.
pub fn labels(json: &str) -> BTreeMap<String, String> {
    let labels = || -> Option<BTreeMap<String, String>> {
        let object: ObjectFields<'_> = serde_json::from_str(json).ok()?;
        serde_json::from_str(object.metadata?.rest.get("labels")?).ok()
    };
    labels().unwrap_or_default()
}

/// Replaces each Secret value by the hash that guests see, for a copy outside the cluster.
pub fn hash_values(secret: &mut Value, key: &HashKey) {
    let Value::Object(fields) = secret else {
        return;
    };
    // No API server returns it, but an object from a file may have plain values there.
    fields.remove("stringData");
    let metadata = fields.get_mut("metadata");
    if let Some(annotations) = metadata.and_then(|metadata| metadata.get_mut("annotations"))
        && let Value::Object(annotations) = annotations
    {
        annotations.remove(LAST_APPLIED);
    }
    let metadata = fields.get("metadata").cloned().unwrap_or_default();
    let place =
        ["namespace", "name", "uid"].map(|name| metadata[name].as_str().unwrap_or_default());
    if let Some(Value::Object(data)) = fields.get_mut("data") {
        for (data_key, value) in data {
            let text = value.as_str().unwrap_or_default();
            *value = value_hash(key, place, data_key, text).into();
        }
    }
}

/// Converts a cached object into the model's object.
pub(super) fn object_of(stored: &Stored, kind: &Gvk, form: Access) -> Result<Object, Malformed> {
    let metadata = Fields::parse(stored.metadata())?;
    let read = |name: &str| metadata.get(name).unwrap_or("null");
    let deletion: Option<Text<'_>> = serde_json::from_str(read("deletionTimestamp"))?;
    let finalizers: Option<Vec<Text<'_>>> = serde_json::from_str(read("finalizers"))?;
    Ok(Object {
        kind: kind.clone(),
        namespace: Some(Arc::clone(&stored.namespace)).filter(|name| !name.is_empty()),
        name: Arc::clone(&stored.name),
        uid: Uid(Arc::clone(&stored.uid.0)),
        resource_version: ResourceVersion(stored.version.0),
        generation: serde_json::from_str(read("generation"))?,
        deletion_timestamp: deletion.map(|Text(time)| time.into()),
        controller: stored.controller.clone(),
        finalizers: finalizers
            .into_iter()
            .flatten()
            .map(|Text(name)| name.into())
            .collect(),
        labels: host_entries(read("labels"))?,
        annotations: host_entries(read("annotations"))?,
        retained_for: stored.retained_for.clone(),
        managed: managed_entries(stored.managed.as_deref())?,
        form,
        json: Arc::clone(&stored.json),
    })
}

/// Labels or annotations with the host's prefix.
fn host_entries(text: &str) -> Result<BTreeMap<Arc<str>, Arc<str>>, serde_json::Error> {
    let mut entries = BTreeMap::new();
    for (name, value) in Fields::parse_nullable(text)?.iter() {
        if name.starts_with(DOMAIN_PREFIX) {
            let Text(value) = serde_json::from_str(value)?;
            entries.insert(name.into(), value.into());
        }
    }
    Ok(entries)
}

fn managed_entries(text: Option<&str>) -> Result<Vec<ManagedEntry>, serde_json::Error> {
    let entries: Vec<RawManagedEntry<'_>> = serde_json::from_str(text.unwrap_or("[]"))?;
    let entry = |entry: RawManagedEntry<'_>| ManagedEntry {
        manager: entry
            .manager
            .map_or_else(|| "".into(), |Text(name)| name.into()),
        subresource: entry
            .subresource
            .map(|Text(name)| name.into())
            .filter(|name: &Arc<str>| !name.is_empty()),
        applied: entry.operation.is_some_and(|Text(name)| name == "Apply"),
        fields: entry.fields.map_or("{}", RawValue::get).into(),
    };
    Ok(entries.into_iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn converts_an_object_from_a_file() {
        let Value::Object(object) = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": "a", "namespace": "demo",
                "labels": {"innkeeper.dev/plugin": "p", "app": "x"},
            },
            "data": {"password": "c2VjcmV0"},
        }) else {
            panic!("an object")
        };
        let kind = Gvk::new("", "v1", "Secret");
        let key = HashKey::new([7_u8; 32]);
        let hashed = present(&object, &kind, Access::Hash, &key).unwrap();
        assert_eq!(hashed.labels.len(), 1);
        assert!(!hashed.json.contains("c2VjcmV0"), "{}", hashed.json);
        assert!(hashed.json.contains("hmac-sha256:"), "{}", hashed.json);
        let full = present(&object, &kind, Access::Full, &key).unwrap();
        assert!(full.json.contains("c2VjcmV0"), "{}", full.json);
    }

    #[test]
    fn rejects_an_object_without_a_name() {
        let Value::Object(object) = json!({"metadata": {}}) else {
            panic!("an object")
        };
        let kind = Gvk::new("", "v1", "Secret");
        let object = present(&object, &kind, Access::Full, &HashKey::new([7_u8; 32]));
        assert!(matches!(object, Err(Malformed::Missing("metadata.name"))));
    }
}
