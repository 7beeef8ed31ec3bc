//! Manifests: YAML files and JSON values of Kubernetes objects.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// The checkout root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ has a parent")
        .to_owned()
}

/// Reads all objects from a file below the root, in order.
pub fn load(path: &str) -> Result<Vec<Value>> {
    let path = root().join(path);
    let text =
        fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
    parse(&text).with_context(|| format!("failed to parse {}", path.display()))
}

/// Parses all objects in a YAML text, in order; skips empty documents.
pub fn parse(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect())
}

/// Returns the value at a JSON pointer, or null.
pub fn at<'a>(object: &'a Value, pointer: &str) -> &'a Value {
    object.pointer(pointer).unwrap_or(&Value::Null)
}

/// Returns the condition with this type as `Status/Reason: message`.
pub fn condition(object: &Value, kind: &str) -> Option<String> {
    let condition = at(object, "/status/conditions")
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)?;
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    Some(format!(
        "{}/{}: {}",
        text("status"),
        text("reason"),
        text("message")
    ))
}

/// Returns a condition's status: `True`, `False`, `Unknown`, or an empty text if the condition is missing.
pub fn condition_status(object: &Value, kind: &str) -> String {
    condition(object, kind)
        .unwrap_or_default()
        .split('/')
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Returns true if an object has a condition with this type that was observed at the current generation.
pub fn is_condition_current(object: &Value, kind: &str) -> bool {
    at(object, "/status/conditions")
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| {
            condition["type"] == kind
                && condition["observedGeneration"] == object["metadata"]["generation"]
        })
}

/// Returns true if a parent is Synced and Ready, both for its current generation.
pub fn is_ready(parent: &Value) -> bool {
    ["Synced", "Ready"]
        .iter()
        .all(|kind| condition_status(parent, kind) == "True" && is_condition_current(parent, kind))
}
