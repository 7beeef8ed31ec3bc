//! Shows a plan's changes to one parent's objects as lines, without Secret values.

use innkeeper_authoring::diff;
use innkeeper_model::{ANNOTATION_APPLIED, Access, Object, Operation, yaml};
use innkeeper_plan::{self as plan, StatusWrite, absence};
use innkeeper_reconcile::Draft;
use serde_json::{Map, Value, json};

/// The fields with values in Secrets and ConfigMaps.
const VALUES: [&str; 3] = ["data", "stringData", "binaryData"];

/// Returns each operation with its changed fields, and the changes of the status.
pub(super) fn lines(draft: &Draft, status: Option<&StatusWrite>) -> Vec<String> {
    let mut lines = Vec::new();
    for operation in &draft.plan.operations {
        lines.push(operation.to_string());
        let observed = draft
            .observed
            .iter()
            .find(|object| Some(&object.id()) == operation.child());
        lines.extend(fields(operation, observed, &draft.manager));
    }
    if let Some(status) = status {
        lines.push("status".to_owned());
        lines.extend(indented(status_fields(&draft.parent, &status.status)));
    }
    lines
}

fn fields(operation: &Operation, observed: Option<&Object>, manager: &str) -> Vec<String> {
    match (operation, observed) {
        (Operation::Create { body, id, .. }, _) => {
            // A create omits fields that are stated as absent.
            let body = absence::without_absences(body, &Value::Null, &[]);
            let printable = printable(Value::Object(body), id.kind.is_secret());
            let text = yaml::write(&[printable]).unwrap_or_default();
            indented(text.lines().map(str::to_owned).collect())
        }
        (Operation::Update { body, id, .. }, Some(observed)) => {
            // Other forms have no values to compare with.
            let hides = id.kind.is_secret() || observed.form != Access::Full;
            let before = printable(plan::owned_part(body, observed, manager), hides);
            let after = printable(Value::Object((**body).clone()), hides);
            let mut lines = diff::differences(&before, &after);
            if lines.is_empty() {
                let why = if hides {
                    "hidden values"
                } else {
                    "field ownership"
                };
                lines.push(why.to_owned());
            }
            indented(lines)
        }
        _ => Vec::new(),
    }
}

/// Removes the host's hash, and values that must not be printed.
fn printable(mut object: Value, hides: bool) -> Value {
    let annotations = object.pointer_mut("/metadata/annotations");
    if let Some(Value::Object(annotations)) = annotations {
        annotations.remove(ANNOTATION_APPLIED);
    }
    if hides && let Value::Object(fields) = &mut object {
        fields.retain(|name, _| !VALUES.contains(&name.as_str()));
    }
    object
}

fn status_fields(parent: &Object, after: &Map<String, Value>) -> Vec<String> {
    let parent: Value = serde_json::from_str(&parent.json).unwrap_or_default();
    let before = after
        .keys()
        .map(|name| (name.clone(), parent["status"][name].clone()));
    let before = by_type(Value::Object(before.collect()));
    diff::differences(&before, &by_type(Value::Object(after.clone())))
}

/// Turns conditions into an object by type, because their order has no meaning.
fn by_type(mut status: Value) -> Value {
    if let Some(conditions) = status.get_mut("conditions") {
        let by_type = conditions
            .as_array()
            .into_iter()
            .flatten()
            .map(|condition| {
                // Without times and generations, whose changes say nothing.
                let content = json!({
                    "status": condition["status"],
                    "reason": condition["reason"],
                    "message": condition["message"],
                });
                let name = condition["type"].as_str().unwrap_or_default();
                (name.to_owned(), content)
            });
        *conditions = Value::Object(by_type.collect());
    }
    status
}

fn indented(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().map(|line| format!("  {line}")).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use innkeeper_cluster::present;
    use innkeeper_model::{Gvk, HashKey, ObjectId, ResourceVersion, Uid};

    use super::*;

    fn secret(value: &str, metadata: Value) -> Map<String, Value> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"password": value},
        });
        secret.as_object().cloned().unwrap()
    }

    #[test]
    fn values_of_secrets_are_not_printed() {
        let kind = Gvk::new("", "v1", "Secret");
        let id = ObjectId::new(kind.group_kind(), Some("demo"), "a");
        let stated = json!({
            "name": "a", "namespace": "demo", "annotations": {(ANNOTATION_APPLIED): "v1:new"},
        });
        let body = Arc::new(secret("bmV3", stated));
        let create = Operation::Create {
            key: "a".to_owned(),
            id: id.clone(),
            kind: kind.clone(),
            body: Arc::clone(&body),
            generate: Vec::new(),
        };
        let created = fields(&create, None, "own");
        let expected = [
            "  apiVersion: v1",
            "  kind: Secret",
            "  metadata:",
            "    annotations: {}",
            "    name: a",
            "    namespace: demo",
        ];
        assert_eq!(created, expected);
        let known = json!({
            "name": "a", "namespace": "demo", "uid": "u", "resourceVersion": "1",
            "annotations": {(ANNOTATION_APPLIED): "v1:old"},
        });
        let known = secret("b2xk", known);
        let update = Operation::Update {
            restores: false,
            key: "a".to_owned(),
            id,
            kind: kind.clone(),
            uid: Uid("u".into()),
            resource_version: ResourceVersion(1),
            body,
            generate: Vec::new(),
        };
        for access in [Access::Full, Access::Hash] {
            let observed = present(&known, &kind, access, &HashKey::new([0; 32])).unwrap();
            let changed = fields(&update, Some(&observed), "own");
            assert_eq!(changed, ["  hidden values"], "{access}");
        }
    }

    #[test]
    fn a_field_that_is_stated_as_absent_is_shown_so() {
        let kind = Gvk::new("apps", "v1", "Deployment");
        let object = |spec: Value, version: Option<&str>| {
            let object = json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "a", "namespace": "demo", "uid": "u", "resourceVersion": version},
                "spec": spec,
            });
            object.as_object().cloned().unwrap()
        };
        let known = object(
            json!({"paused": false, "strategy": {"rollingUpdate": {"maxSurge": 1}}}),
            Some("1"),
        );
        let observed = present(&known, &kind, Access::Full, &HashKey::new([0; 32])).unwrap();
        let mut body = object(
            json!({"paused": null, "strategy": {"rollingUpdate": null}, "b": null}),
            None,
        );
        body.insert(
            "metadata".to_owned(),
            json!({"name": "a", "namespace": "demo"}),
        );
        let id = ObjectId::new(kind.group_kind(), Some("demo"), "a");
        let update = Operation::Update {
            restores: false,
            key: "a".to_owned(),
            id: id.clone(),
            kind: kind.clone(),
            uid: Uid("u".into()),
            resource_version: ResourceVersion(1),
            body: Arc::new(body.clone()),
            generate: Vec::new(),
        };
        let expected = [
            "  spec.paused is absent, and was false",
            "  spec.strategy.rollingUpdate is absent, and was {\"maxSurge\":1}",
        ];
        assert_eq!(fields(&update, Some(&observed), "own"), expected);
        let create = Operation::Create {
            key: "a".to_owned(),
            id,
            kind,
            body: Arc::new(body),
            generate: Vec::new(),
        };
        let created = fields(&create, None, "own").join("\n");
        assert!(!created.contains("rollingUpdate"), "{created}");
    }
}
