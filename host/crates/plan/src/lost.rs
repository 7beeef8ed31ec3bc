//! The host's own metadata that is missing from an object: admission may change what the host has applied.

use innkeeper_model::{Operation, join_first};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The prefix for the host's labels and annotations.
pub(super) const OWN_PREFIX: &str = "innkeeper.dev/";

/// The most lost fields that a message names: all that the host writes on one object.
const NAMED_MAX: usize = 8;

/// The metadata that binds an object to the host.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Binding {
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
    owner_references: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnsweredObject {
    metadata: Binding,
}

/// Names the host metadata that an operation wrote and the API server's answer lacks; none if it lacks nothing.
pub fn lost_metadata(operation: &Operation, answer: &str) -> Option<String> {
    let sent = match operation {
        Operation::Create { body, .. } | Operation::Update { body, .. } => applied(body),
        Operation::Transfer { patch, .. } => patched(patch),
        Operation::AddFinalizer | Operation::Prune { .. } | Operation::RemoveFinalizer => {
            return None;
        }
    };
    let AnsweredObject { metadata: left } = serde_json::from_str(answer).ok()?;
    let mut lost = Vec::new();
    for (what, sent, left) in [
        ("label", &sent.labels, &left.labels),
        ("annotation", &sent.annotations, &left.annotations),
    ] {
        let missing = sent
            .iter()
            .filter(|(key, _)| key.starts_with(OWN_PREFIX))
            .filter(|(key, value)| left.get(*key) != Some(*value));
        lost.extend(missing.map(|(key, _)| format!("the {what} {key}")));
    }
    let is_left = |owner: &Value| {
        left.owner_references
            .iter()
            .any(|left| left["uid"] == owner["uid"] && left["controller"] == true)
    };
    if !sent.owner_references.iter().all(is_left) {
        lost.push("the owner reference".to_owned());
    }
    join_first(lost, NAMED_MAX)
}

fn applied(body: &Map<String, Value>) -> Binding {
    let metadata = body.get("metadata").cloned().unwrap_or_default();
    serde_json::from_value(metadata).unwrap_or_default()
}

/// Returns the metadata that a JSON patch adds.
fn patched(patch: &Value) -> Binding {
    let mut sent = Binding::default();
    for step in patch.as_array().into_iter().flatten() {
        let (Some("add" | "replace"), Some(pointer)) = (step["op"].as_str(), step["path"].as_str())
        else {
            continue;
        };
        let value = &step["value"];
        let key = |prefix| {
            let key: &str = pointer.strip_prefix(prefix)?;
            Some(key.replace("~1", "/"))
        };
        if let Some(key) = key("/metadata/labels/") {
            sent.labels.insert(key, value.clone());
        } else if let Some(key) = key("/metadata/annotations/") {
            sent.annotations.insert(key, value.clone());
        } else if pointer.starts_with("/metadata/ownerReferences") {
            match value {
                Value::Array(owners) => sent.owner_references.extend(owners.iter().cloned()),
                owner => sent.owner_references.push(owner.clone()),
            }
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use innkeeper_model::{Gvk, ObjectId, RemovalPolicy, ResourceVersion, Uid};
    use serde_json::json;

    use super::*;

    fn id() -> ObjectId {
        let kind = Gvk::new("", "v1", "ConfigMap").group_kind();
        ObjectId::new(kind, Some("demo"), "a")
    }

    fn create(body: &Value) -> Operation {
        Operation::Create {
            key: "a".to_owned(),
            id: id(),
            kind: Gvk::new("", "v1", "ConfigMap"),
            body: Arc::new(body.as_object().unwrap().clone()),
            generate: Vec::new(),
        }
    }

    fn transfer(patch: Value) -> Operation {
        Operation::Transfer {
            key: "a".to_owned(),
            id: id(),
            kind: Gvk::new("", "v1", "ConfigMap"),
            uid: Uid("u".into()),
            resource_version: ResourceVersion(1),
            patch,
            to: RemovalPolicy::Delete,
        }
    }

    /// Each row removes a pointer from an answer that has the whole sent object.
    #[test]
    fn an_answer_without_metadata_of_the_host_names_it() {
        let body = json!({
            "metadata": {
                "labels": {"innkeeper.dev/plugin": "web", "app": "a"},
                "annotations": {"innkeeper.dev/key": "a", "innkeeper.dev/applied": "v1:x", "note": "b"},
                "ownerReferences": [{"uid": "p1", "controller": true}],
            },
            "data": {"a": "b"},
        });
        for (pointer, field, lost) in [
            (
                "/metadata",
                "annotations",
                "the annotation innkeeper.dev/applied, the annotation innkeeper.dev/key",
            ),
            (
                "/metadata/labels",
                "innkeeper.dev/plugin",
                "the label innkeeper.dev/plugin",
            ),
            (
                "/metadata/annotations",
                "innkeeper.dev/key",
                "the annotation innkeeper.dev/key",
            ),
            ("/metadata", "ownerReferences", "the owner reference"),
            (
                "/metadata/ownerReferences/0",
                "controller",
                "the owner reference",
            ),
            ("/metadata/labels", "app", ""),
            ("/metadata/annotations", "note", ""),
            ("", "data", ""),
        ] {
            let mut answer = body.clone();
            answer
                .pointer_mut(pointer)
                .unwrap()
                .as_object_mut()
                .unwrap()
                .remove(field);
            let named = lost_metadata(&create(&body), &answer.to_string());
            assert_eq!(named.unwrap_or_default(), lost, "{pointer} {field}");
        }
    }

    #[test]
    fn an_answer_to_a_transfer_has_what_the_patch_adds() {
        let owner = json!({"uid": "p1", "controller": true});
        let mark = "/metadata/annotations/innkeeper.dev~1retained-for";
        for (step, answer, lost) in [
            (
                json!({"op": "add", "path": "/metadata/ownerReferences", "value": [owner]}),
                json!({}),
                "the owner reference",
            ),
            (
                json!({"op": "add", "path": "/metadata/ownerReferences/-", "value": owner}),
                json!({"ownerReferences": [{"uid": "p0"}, owner]}),
                "",
            ),
            (
                json!({"op": "add", "path": mark, "value": "x"}),
                json!({"annotations": {}}),
                "the annotation innkeeper.dev/retained-for",
            ),
            (json!({"op": "remove", "path": mark}), json!({}), ""),
        ] {
            let answer = json!({"metadata": answer}).to_string();
            let named = lost_metadata(&transfer(json!([step])), &answer);
            assert_eq!(named.unwrap_or_default(), lost, "{step}");
        }
    }
}
