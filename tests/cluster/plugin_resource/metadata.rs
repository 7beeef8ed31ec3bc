//! The metadata of Plugins with grants that only the verb `grant` may change: labels, owner references, finalizers, and the
//! managers of fields.

use anyhow::Result;
use innkeeper_tests::{
    eventually,
    user::{Kind, User},
};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{PLUGIN, children, denied, patch, plugin, stage};

/// A Plugin with metadata of each kind that decides who serves, keeps or deletes it. Its owner exists.
fn kept(name: &str, more: Value) -> Value {
    let mut plugin = plugin(name, more);
    let metadata = plugin["metadata"].as_object_mut().unwrap();
    metadata.insert("labels".to_owned(), json!({"team": "web"}));
    metadata.insert("finalizers".to_owned(), json!(["example.com/a"]));
    metadata.insert("ownerReferences".to_owned(), json!([existing_owner()]));
    plugin
}

fn existing_owner() -> Value {
    let namespaces = Kind::cluster("v1", "Namespace");
    let namespace = stage().plane.user().get(namespaces, "default").unwrap();
    owner("default", &namespace.unwrap()["metadata"]["uid"])
}

/// The garbage collector removes such an owner reference, or deletes an object that has no others.
fn missing_owner() -> Value {
    owner("gone", &json!("11111111-1111-1111-1111-111111111111"))
}

fn owner(name: &str, uid: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": uid})
}

/// Changes of the metadata of [`kept`], and if the right to update `plugins/finalizers` is enough for them.
fn metadata_changes() -> Vec<(&'static str, Value, bool)> {
    let existing = existing_owner();
    let mut blocking = existing.clone();
    blocking["blockOwnerDeletion"] = json!(true);
    let renamed = owner("gone", &existing["uid"]);
    vec![
        ("labels", json!({"team": "shop"}), false),
        ("labels", json!({"team": "web", "a": "b"}), false),
        ("labels", Value::Null, false),
        ("ownerReferences", json!([existing, missing_owner()]), false),
        ("ownerReferences", json!([missing_owner()]), false),
        ("ownerReferences", json!([renamed]), false),
        ("ownerReferences", json!([blocking]), true),
        ("ownerReferences", Value::Null, true),
        (
            "finalizers",
            json!(["example.com/a", "example.com/b"]),
            true,
        ),
        ("finalizers", json!(["example.com/b"]), true),
        ("finalizers", Value::Null, true),
    ]
}

/// Sends a change of the metadata by server-side apply, as a patch and as an update, which have the same result.
fn send_change(user: &User, before: &Value, field: &str, value: &Value) -> Vec<Result<Value>> {
    let name = before["metadata"]["name"].as_str().unwrap();
    let change = |object: &Value| {
        let mut object = object.clone();
        object["metadata"][field] = value.clone();
        object
    };
    let current = user.get(PLUGIN, name).unwrap().unwrap();
    vec![
        user.apply(&change(before)),
        user.merge(PLUGIN, name, &json!({"metadata": {field: value}})),
        user.replace(&change(&current)),
    ]
}

/// Removes a Plugin at once.
fn remove(name: &str) {
    let admin = stage().plane.user();
    let unfinalized = json!({"metadata": {"finalizers": null}});
    admin.merge(PLUGIN, name, &unfinalized).unwrap();
    admin.delete(PLUGIN, name).unwrap();
}

/// With `--plugin-selector` the labels decide which host serves a Plugin, with its grants. The garbage collector deletes a
/// Plugin without an owner that exists, and the host's finalizer keeps a Plugin while its parents need it.
#[test]
fn a_user_without_the_verb_grant_cannot_change_the_metadata_that_keeps_a_plugin_with_grants() {
    let stage = stage();
    for (number, (field, value, _)) in metadata_changes().into_iter().enumerate() {
        let name = &*format!("kept-{number}");
        let granted = kept(name, children("Pod"));
        stage.granter.apply(&granted).unwrap();
        for result in send_change(&stage.editor, &granted, field, &value) {
            let error = format!("{:#}", result.as_ref().expect_err(field));
            assert!(
                error.contains(&format!("metadata.{field} ")),
                "{value}: {error}"
            );
            denied(result, &[]);
        }
        // The status has its own right, and its writes leave the metadata as it is.
        let before = stage.editor.get(PLUGIN, name).unwrap().unwrap();
        let patch = json!({"metadata": {field: value}, "status": {}});
        let admin = stage.plane.user();
        admin.merge_status(PLUGIN, name, &patch).unwrap();
        let mut applied = granted.clone();
        applied["metadata"][field] = value.clone();
        drop(admin.apply_status_as("other", &applied));
        let after = stage.editor.get(PLUGIN, name).unwrap().unwrap();
        assert_eq!(after["metadata"][field], before["metadata"][field]);
        // No other rule refuses it.
        let change = json!({"metadata": {field: value}});
        stage.granter.merge(PLUGIN, name, &change).unwrap();
        remove(name);

        let ungranted = kept(name, json!({}));
        stage.editor.apply(&ungranted).unwrap();
        stage.editor.merge(PLUGIN, name, &change).unwrap();
        remove(name);
    }
    let annotated = json!({"metadata": {"annotations": {"a": "b"}}});
    stage
        .granter
        .create(&plugin("free", children("Pod")))
        .unwrap();
    stage.editor.merge(PLUGIN, "free", &annotated).unwrap();
    stage.editor.delete(PLUGIN, "free").unwrap();
}

/// A host sets its finalizer, and the garbage collector removes owner references and its own finalizers.
#[test]
fn the_right_to_update_finalizers_is_enough_to_remove_what_keeps_a_plugin_with_grants() {
    let stage = stage();
    for (number, (field, value, is_enough)) in metadata_changes().into_iter().enumerate() {
        let name = &*format!("finalized-{number}");
        stage.granter.apply(&kept(name, children("Pod"))).unwrap();
        let change = json!({"metadata": {field: value}});
        let changed = stage.keeper.merge(PLUGIN, name, &change);
        if is_enough {
            changed.expect(field);
        } else {
            denied(changed, &[]);
        }
        denied(
            stage.keeper.merge(PLUGIN, name, &patch(children("Secret"))),
            &["grants"],
        );
        remove(name);
    }
}

/// The policy is no obstacle for the garbage collector: it removes the owner that is missing, and its finalizer of a Plugin
/// that is deleted in the foreground.
#[test]
fn the_garbage_collector_maintains_a_plugin_with_grants() {
    let stage = stage();
    let name = "collected";
    let mut granted = plugin(name, children("Pod"));
    granted["metadata"]["ownerReferences"] = json!([existing_owner(), missing_owner()]);
    stage.granter.apply(&granted).unwrap();
    eventually("the missing owner is removed", || {
        let plugin = stage.editor.get(PLUGIN, name).unwrap().unwrap();
        match &plugin["metadata"]["ownerReferences"] {
            owners if *owners == json!([existing_owner()]) => Ok(()),
            owners => Err(owners.to_string()),
        }
    });
    let foreground = DeleteParams::foreground();
    stage.editor.delete_with(PLUGIN, name, &foreground).unwrap();
    eventually("the Plugin is deleted", || {
        match stage.editor.get(PLUGIN, name).unwrap() {
            None => Ok(()),
            Some(plugin) => Err(plugin["metadata"].to_string()),
        }
    });
}

/// Server-side apply removes a field only if its manager owns the field and no other manager does.
#[test]
fn a_user_without_the_verb_grant_cannot_keep_a_grant_that_its_manager_removes() {
    let stage = stage();
    let name = "disowned";
    let granted = |kinds: &[&str]| {
        let kinds: Vec<Value> = kinds.iter().map(|kind| json!({"kind": kind})).collect();
        plugin(name, json!({"grants": {"children": kinds}}))
    };
    let both = granted(&["Pod", "Secret"]);
    stage.granter.apply_as("administrator", &both).unwrap();
    let reset = json!({"metadata": {"managedFields": [{}]}});
    for result in [
        stage.editor.apply_as("other", &both),
        stage.editor.merge(PLUGIN, name, &reset),
    ] {
        let error = format!("{:#}", result.as_ref().unwrap_err());
        assert!(error.contains("metadata.managedFields "), "{error}");
        denied(result, &[]);
    }
    // Fields that the user may change have its manager.
    let mut suspended = plugin(name, json!({"suspend": true}));
    suspended["spec"].as_object_mut().unwrap().remove("source");
    stage.editor.apply_as("other", &suspended).unwrap();
    let after = stage
        .granter
        .apply_as("administrator", &granted(&["Pod"]))
        .unwrap();
    let children = after["spec"]["grants"]["children"].as_array().unwrap();
    let kinds: Vec<&Value> = children.iter().map(|child| &child["kind"]).collect();
    assert_eq!(
        (kinds, &after["spec"]["suspend"]),
        (vec![&json!("Pod")], &json!(true))
    );
    remove(name);
}
