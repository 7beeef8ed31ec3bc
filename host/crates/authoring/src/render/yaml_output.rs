//! The children as manifests, ready for `kubectl apply`.

use base64::{Engine, engine::general_purpose::STANDARD};
use innkeeper_command::{Failure, Output};
use innkeeper_model::{ANNOTATION_GENERATED, ApplyPolicy, Child, Generated, ObjectId};
use innkeeper_plan as plan;
use innkeeper_sandbox::CallOutput;
use serde_json::{Map, Value};

use super::{observed::ObservedObjects, seed};
use crate::document::Document;

/// Returns all children that the host would write, in the answer's order, regardless of their dependencies.
///
/// Omits children on hold, and existing children with the policy "once".
pub(super) fn children(
    answer: &CallOutput,
    observed: &ObservedObjects,
    seed: u64,
) -> Result<Output, Failure> {
    let manifests: Vec<Value> = answer
        .children
        .iter()
        .filter_map(|child| {
            let id = child.id();
            let existing = observed.objects.iter().find(|object| object.id() == id);
            let written = match child.apply {
                ApplyPolicy::Always => true,
                ApplyPolicy::Once => existing.is_none(),
                ApplyPolicy::Hold => false,
            };
            written.then(|| Value::Object(manifest(child, &id, existing, seed)))
        })
        .collect();
    Output::yaml(&manifests)
}

/// Returns the child with generated values: the existing ones with an unchanged token, else new ones from the seed.
fn manifest(
    child: &Child,
    id: &ObjectId,
    existing: Option<&Document>,
    seed: u64,
) -> Map<String, Value> {
    let mut object = child.object.clone();
    if child.generate.is_empty() {
        return object;
    }
    let data = object
        .entry("data")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(data) = data {
        for entry in &child.generate {
            let value = existing
                .filter(|secret| !is_rotated(entry, secret))
                .and_then(|secret| secret.object.get("data")?.get(&entry.key))
                .cloned()
                .unwrap_or_else(|| STANDARD.encode(seed::generated(seed, id, entry)).into());
            data.insert(entry.key.clone(), value);
        }
    }
    object
}

fn is_rotated(entry: &Generated, secret: &Document) -> bool {
    let drawn = secret
        .metadata_field("annotations")
        .and_then(|all| all.get(ANNOTATION_GENERATED)?.as_str());
    plan::is_rotated(entry, drawn)
}
