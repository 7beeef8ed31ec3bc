//! Object ownership, and the patches that change it.

use innkeeper_model::{ANNOTATION_RETAINED_FOR, LABEL_PLUGIN, Object, RemovalPolicy};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Context, ForeignOwner, absence::pointer};

/// Decides if an existing object belongs to a parent; otherwise the host must not touch it. The name proves nothing.
///
/// An object belongs to the parent if the parent's UID controls it, or if it has the host's proof that it is retained for a
/// parent with this identity. Another controller may control a retained object, as a StatefulSet does with claims.
pub(super) fn belongs_to(existing: &Object, parent: &Object) -> bool {
    is_controlled_by(existing, parent) || is_retained_for(existing, parent)
}

/// Returns true if the parent's UID controls an object.
pub(super) fn is_controlled_by(object: &Object, parent: &Object) -> bool {
    object.controller.as_ref() == Some(&parent.uid)
}

fn is_retained_for(existing: &Object, parent: &Object) -> bool {
    existing.retained_for.as_deref() == Some(&parent.id().identity())
}

/// Returns true if another controller than the parent controls an object.
pub(super) fn has_other_controller(object: &Object, parent: &Object) -> bool {
    let controller = object.controller.as_ref();
    controller.is_some_and(|controller| *controller != parent.uid)
}

/// Returns true if an object has neither a controller nor a `retained-for` annotation.
pub(super) fn has_no_owner(object: &Object) -> bool {
    object.controller.is_none() && object.annotation(ANNOTATION_RETAINED_FOR).is_none()
}

/// Returns who owns an object that does not belong to the parent.
pub(super) fn foreign_owner(object: &Object, parent: &Object) -> ForeignOwner {
    let Some(controller) = &object.controller else {
        let marked = object.annotation(ANNOTATION_RETAINED_FOR).is_some();
        return match &object.retained_for {
            Some(parent) => ForeignOwner::Retained(parent.to_string()),
            None if marked => ForeignOwner::Unproven,
            None => ForeignOwner::None,
        };
    };
    let reference = owners(object)
        .into_iter()
        .find(|owner| owner["uid"] == *controller.0)
        .unwrap_or_default();
    let text = |field: &str| reference[field].as_str().unwrap_or_default().to_owned();
    let api_version = text("apiVersion");
    let kind = text("kind");
    let name = text("name");
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    // The UID is another one, or the object would belong to the parent. Owners are in the object's namespace, so the
    // name is enough.
    if (group, &*kind, &*name) == (&*parent.kind.group, &*parent.kind.kind, &*parent.name) {
        return ForeignOwner::FormerParent;
    }
    ForeignOwner::Controller(format!("{api_version} {kind} {name}"))
}

/// Returns the ownerReference to a parent.
pub(super) fn owner_reference(parent: &Object) -> Value {
    json!({
        "apiVersion": parent.kind.api_version(),
        "kind": *parent.kind.kind,
        "name": *parent.name,
        "uid": *parent.uid.0,
        "controller": true,
        // A foreground deletion of the parent waits only for children that block it.
        "blockOwnerDeletion": true,
    })
}

/// Returns the JSON patch that changes a child's link to the parent; `None` if the link is already as desired.
///
/// The patch changes only the ownerReference and the annotation, and it tests the observed UID and resourceVersion.
pub(super) fn transfer(context: &Context<'_>, object: &Object, to: RemovalPolicy) -> Option<Value> {
    let parent = context.parent;
    let owned = is_controlled_by(object, parent);
    let marked = object.annotation(ANNOTATION_RETAINED_FOR).is_some();
    let mut patch = Vec::new();
    patch.extend(bound_to(object));
    match to {
        RemovalPolicy::Delete if owned && !marked => return None,
        RemovalPolicy::Retain if !owned && is_retained_for(object, parent) => return None,
        RemovalPolicy::Delete => {
            patch.extend((!owned).then(|| add_owner(object, parent)));
            patch.extend(marked.then(|| json!({"op": "remove", "path": annotation_path()})));
        }
        RemovalPolicy::Retain => {
            patch.extend(owned.then(|| remove_owner(object, parent)).flatten());
            patch.extend(add_annotation(object, &context.mark(&object.id())));
        }
    }
    Some(Value::Array(patch))
}

/// Returns the JSON patch that gives an object without an owner to a parent.
///
/// The patch also sets the label on which the child watches select. The host applies all other fields in a later
/// pass, after the watch has shown the object.
pub(super) fn adoption(context: &Context<'_>, object: &Object, to: RemovalPolicy) -> Value {
    let mut patch = Vec::from(bound_to(object));
    match to {
        RemovalPolicy::Delete => patch.push(add_owner(object, context.parent)),
        RemovalPolicy::Retain => patch.extend(add_annotation(object, &context.mark(&object.id()))),
    }
    let has_labels = metadata(object).contains_key("labels");
    patch.extend(
        (!has_labels).then(|| json!({"op": "add", "path": "/metadata/labels", "value": {}})),
    );
    let label = pointer(&["metadata", "labels", LABEL_PLUGIN]);
    patch.push(json!({"op": "add", "path": label, "value": context.plugin.as_str()}));
    Value::Array(patch)
}

/// Returns the tests that make a JSON patch fail if the object is no longer the observed version.
fn bound_to(object: &Object) -> [Value; 2] {
    [
        json!({"op": "test", "path": "/metadata/uid", "value": *object.uid.0}),
        json!({
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": object.resource_version.to_string(),
        }),
    ]
}

fn annotation_path() -> String {
    pointer(&["metadata", "annotations", ANNOTATION_RETAINED_FOR])
}

fn add_annotation(object: &Object, value: &str) -> Vec<Value> {
    let there = !object.annotations.is_empty() || metadata(object).contains_key("annotations");
    let parent =
        (!there).then(|| json!({"op": "add", "path": "/metadata/annotations", "value": {}}));
    // RFC 6902: `add` fails without the map, and replaces a value that is there, such as a mark without the host's
    // proof.
    let add = json!({"op": "add", "path": annotation_path(), "value": value});
    parent.into_iter().chain([add]).collect()
}

fn add_owner(object: &Object, parent: &Object) -> Value {
    let reference = owner_reference(parent);
    let owners = owners(object);
    if owners.is_empty() {
        return json!({"op": "add", "path": "/metadata/ownerReferences", "value": [reference]});
    }
    match place(&owners, parent) {
        // The parent is an owner already, but not the controller.
        Some(index) => json!({
            "op": "replace",
            "path": format!("/metadata/ownerReferences/{index}"),
            "value": reference,
        }),
        None => json!({"op": "add", "path": "/metadata/ownerReferences/-", "value": reference}),
    }
}

fn remove_owner(object: &Object, parent: &Object) -> Option<Value> {
    let index = place(&owners(object), parent)?;
    Some(json!({"op": "remove", "path": format!("/metadata/ownerReferences/{index}")}))
}

fn place(owners: &[Value], parent: &Object) -> Option<usize> {
    owners
        .iter()
        .position(|owner| owner.get("uid").and_then(Value::as_str) == Some(&*parent.uid.0))
}

fn owners(object: &Object) -> Vec<Value> {
    match metadata(object).remove("ownerReferences") {
        Some(Value::Array(owners)) => owners,
        _ => Vec::new(),
    }
}

fn metadata(object: &Object) -> Map<String, Value> {
    #[derive(Default, Deserialize)]
    struct WithMetadata {
        metadata: Map<String, Value>,
    }
    // The other fields are not read: they may be nested deeper than the parser allows.
    let object: WithMetadata = serde_json::from_str(&object.json).unwrap_or_default();
    object.metadata
}
