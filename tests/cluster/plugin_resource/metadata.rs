//! Changing labels, owner references, finalizers or field managers of a Plugin with grants needs the
//! verb `grant`.

use anyhow::Result;
use innkeeper_tests::{
    eventually,
    user::{Kind, User},
};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{PLUGIN, children, denied, patch, plugin, stage};

/// A Plugin with a label, a finalizer, and a reference to an owner that exists.
fn with_metadata(name: &str, more: Value) -> Value {
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

/// A reference that the garbage collector removes; it deletes an object that has no others.
fn missing_owner() -> Value {
    owner("gone", &json!("11111111-1111-1111-1111-111111111111"))
}

fn owner(name: &str, uid: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": uid})
}

/// Changes to the metadata from [`with_metadata`], and whether permission to update
/// `plugins/finalizers` is enough for them.
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

/// Sends a metadata change as server-side apply, patch and update, which must have the same result.
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

/// Deletes a Plugin without waiting for finalizers.
fn remove(name: &str) {
    let admin = stage().plane.user();
    let unfinalized = json!({"metadata": {"finalizers": null}});
    admin.merge(PLUGIN, name, &unfinalized).unwrap();
    admin.delete(PLUGIN, name).unwrap();
}

/// With `--plugin-selector`, labels decide which host serves a Plugin and its grants. The garbage
/// collector deletes a Plugin whose owners are all missing, and the host's finalizer keeps a Plugin
/// while parents need it.
#[test]
fn a_user_without_the_verb_grant_cannot_change_the_metadata_that_keeps_a_plugin_with_grants() {
    let stage = stage();
    for (number, (field, value, _)) in metadata_changes().into_iter().enumerate() {
        let name = &*format!("kept-{number}");
        let granted = with_metadata(name, children("Pod"));
        stage.granter.apply(&granted).unwrap();
        for result in send_change(&stage.editor, &granted, field, &value) {
            let error = format!("{:#}", result.as_ref().expect_err(field));
            assert!(
                error.contains(&format!("metadata.{field} ")),
                "{value}: {error}"
            );
            denied(result, &[]);
        }
        // Status writes need no verb `grant`, because they do not change metadata.
        let before = stage.editor.get(PLUGIN, name).unwrap().unwrap();
        let patch = json!({"metadata": {field: value}, "status": {}});
        let admin = stage.plane.user();
        admin.merge_status(PLUGIN, name, &patch).unwrap();
        let mut applied = granted.clone();
        applied["metadata"][field] = value.clone();
        drop(admin.apply_status_as("other", &applied));
        let after = stage.editor.get(PLUGIN, name).unwrap().unwrap();
        assert_eq!(after["metadata"][field], before["metadata"][field]);
        // A user with the verb may make the change, so only the policy denied it.
        let change = json!({"metadata": {field: value}});
        stage.granter.merge(PLUGIN, name, &change).unwrap();
        remove(name);

        let ungranted = with_metadata(name, json!({}));
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

/// Hosts and the garbage collector need this permission: they set and remove finalizers, and remove
/// owner references.
#[test]
fn the_right_to_update_finalizers_is_enough_to_remove_what_keeps_a_plugin_with_grants() {
    let stage = stage();
    for (number, (field, value, is_enough)) in metadata_changes().into_iter().enumerate() {
        let name = &*format!("finalized-{number}");
        stage
            .granter
            .apply(&with_metadata(name, children("Pod")))
            .unwrap();
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

/// The policy lets the garbage collector remove the reference to a missing owner, and the finalizer
/// for foreground deletion.
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

/// Server-side apply keeps a field while another manager owns it, so co-owning a grant would preserve
/// it.
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
    // The user may own fields that anyone may change.
    let mut suspended = plugin(name, json!({"suspend": true}));
    suspended["spec"].as_object_mut().unwrap().remove("source");
    stage.editor.apply_as("other", &suspended).unwrap();
    let after = stage
        .granter
        .apply_as("administrator", &granted(&["Pod"]))
        .unwrap();
    let kinds: Vec<&Value> = after["spec"]["grants"]["children"]
        .as_array()
        .unwrap()
        .iter()
        .map(|child| &child["kind"])
        .collect();
    assert_eq!(
        (kinds, &after["spec"]["suspend"]),
        (vec![&json!("Pod")], &json!(true))
    );
    remove(name);
}
