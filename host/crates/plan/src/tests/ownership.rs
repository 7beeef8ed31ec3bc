//! Child owners, and retained children: A6, A7.

use expect_test::expect;
use innkeeper_model::{ApplyPolicy, Operation, Retry};
use serde_json::{Value, json};

use super::{
    build::*,
    children::{applied, check_plan, edit, id},
    server::Refused,
};
use crate::{Effects, conclude};

#[test]
fn transfers_ownership_before_any_apply() {
    let scene = scene();
    let owned = desired(vec![config_map("a")]);
    let retained = desired(vec![config_map("a").retained()]);
    let mut server = applied(&scene, &owned);
    check_plan(
        &scene,
        &server.objects(),
        &retained,
        expect![[r#"
        retain v1 ConfigMap demo/a
    "#]],
    );
    for operation in scene.plan(&server.objects(), &retained).operations {
        server.write(&operation).unwrap();
    }
    let object = server.get(&id("ConfigMap", "a")).unwrap();
    assert_eq!(object["metadata"]["ownerReferences"], json!([]));
    check_plan(
        &scene,
        &server.objects(),
        &retained,
        expect![[r#"
        update v1 ConfigMap demo/a
    "#]],
    );
    for operation in scene.plan(&server.objects(), &retained).operations {
        server.write(&operation).unwrap();
    }
    check_plan(&scene, &server.objects(), &retained, expect![""]);
    check_plan(
        &scene,
        &server.objects(),
        &owned,
        expect![[r#"
        own v1 ConfigMap demo/a
    "#]],
    );
    // An ownership transfer is the only write that `hold` and an existing `once` allow.
    for policy in [ApplyPolicy::Hold, ApplyPolicy::Once] {
        let answer = desired(vec![config_map("a").applied(policy)]);
        check_plan(
            &scene,
            &server.objects(),
            &answer,
            expect![[r#"
            own v1 ConfigMap demo/a
        "#]],
        );
    }
}

#[test]
fn a_transfer_of_ownership_is_bound_to_the_observed_version() {
    // A6
    let scene = scene();
    let mut server = applied(&scene, &desired(vec![config_map("a")]));
    let retained = desired(vec![config_map("a").retained()]);
    let plan = scene.plan(&server.objects(), &retained);
    assert_eq!(plan.to_string(), "retain v1 ConfigMap demo/a\n");
    assert!(server.edit(&id("ConfigMap", "a"), &["data", "a"], Some(json!("theirs"))));
    assert_eq!(server.write(&plan.operations[0]), Err(Refused("changed")));
}

#[test]
fn never_deletes_a_child_marked_as_retained() {
    // A6: also if the parent still controls the object, for example if a user set the annotation by hand.
    let scene = scene();
    let mut objects = applied(&scene, &desired(vec![config_map("a")])).objects();
    let mark = "innkeeper.dev/retained-for";
    edit(&mut objects[0], "/metadata/annotations", mark, json!("x"));
    check_plan(&scene, &objects, &desired(vec![]), expect![""]);
}

#[test]
fn never_deletes_a_retained_child() {
    let scene = scene();
    let server = applied(&scene, &desired(vec![config_map("a").retained()]));
    check_plan(&scene, &server.objects(), &desired(vec![]), expect![""]);
}

#[test]
fn a_successor_takes_over_only_retained_children() {
    // A6
    let mut scene = scene();
    let answer = desired(vec![config_map("kept").retained(), config_map("owned")]);
    let server = applied(&scene, &answer);
    scene.parent = parent("p2");
    check_plan(
        &scene,
        &server.objects(),
        &answer,
        expect![[r#"
        refuse v1 ConfigMap demo/owned: not ours
    "#]],
    );
    check_plan(&scene, &server.objects(), &desired(vec![]), expect![""]);
    let own = desired(vec![config_map("kept")]);
    check_plan(
        &scene,
        &server.objects(),
        &own,
        expect![[r#"
        own v1 ConfigMap demo/kept
    "#]],
    );
}

/// A claim template can give every object any annotation, also one that was copied from a retained child.
#[test]
fn an_object_marked_as_retained_without_the_proof_is_foreign() {
    // A6
    let scene = scene();
    let server = applied(&scene, &desired(vec![config_map("a").retained()]));
    let object = server.get(&id("ConfigMap", "a")).unwrap();
    let mark = |object: &Value| {
        object["metadata"]["annotations"]["innkeeper.dev/retained-for"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let copied = |field: &str, value: &str| {
        let mut copy = object.clone();
        copy["metadata"][field] = json!(value);
        copy
    };
    let marked = |mark: &str| {
        let mut object = object.clone();
        object["metadata"]["annotations"]["innkeeper.dev/retained-for"] = json!(mark);
        object
    };
    let mut elsewhere = Scene {
        parent: parent("p1").with("/metadata", "name", json!("other")),
        ..self::scene()
    };
    let of_other = applied(&elsewhere, &desired(vec![config_map("a").retained()]));
    let proof_of_other = mark(&of_other.get(&id("ConfigMap", "a")).unwrap());
    let (_, proof_of_other) = proof_of_other.split_once(' ').unwrap();
    let forged = [
        copied("name", "b"),
        marked("example.dev/Web/demo/shop"),
        marked(&format!("example.dev/Web/demo/shop {proof_of_other}")),
        marked(&mark(&object).replace("v1:", "v1:0")),
    ];
    for forged in forged {
        let name = forged["metadata"]["name"].as_str().unwrap();
        for child in [config_map(name), config_map(name).retained()] {
            let plan = scene.plan(std::slice::from_ref(&forged), &desired(vec![child]));
            assert_eq!(
                plan.to_string(),
                format!("refuse v1 ConfigMap demo/{name}: not ours\n")
            );
            let synced = conclude(&plan, &Effects::default()).synced;
            assert_eq!(synced.reason, "ChildNotOwned");
            assert!(
                synced.message.contains("remove the annotation"),
                "{}",
                synced.message
            );
        }
        let plan = scene.plan(&[forged], &desired(vec![]));
        assert!(plan.is_settled(), "{plan}");
    }
    // A copy in another namespace does not belong to the parent there, which has the same name.
    elsewhere.parent = parent("p1").with("/metadata", "namespace", json!("there"));
    let mut child = config_map("a").retained();
    child.namespace = Some("there".to_owned());
    let mut copy = copied("namespace", "there");
    for mark in [mark(&object), mark(&object).replace("/demo/", "/there/")] {
        copy["metadata"]["annotations"]["innkeeper.dev/retained-for"] = json!(mark);
        let plan = elsewhere.plan(std::slice::from_ref(&copy), &desired(vec![child.clone()]));
        assert_eq!(plan.to_string(), "refuse v1 ConfigMap there/a: not ours\n");
    }
}

#[test]
fn touches_no_object_of_another_owner() {
    // A6
    let scene = scene();
    let answer = desired(vec![config_map("a"), config_map("b")]);
    let mut server = applied(&scene, &answer);
    let reference = |kind: &str, name: &str| {
        let api_version = "example.dev/v1";
        let uid = "p9";
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}])
    };
    for (owner, what, said) in [
        (json!([]), "no owner", "lost the owner reference"),
        (
            reference("Pond", "shop"),
            "another kind",
            "belongs to example.dev/v1 Pond shop: delete it",
        ),
        (
            reference("Web", "other"),
            "another parent",
            "belongs to example.dev/v1 Web other: delete it",
        ),
        (
            reference("Web", "shop"),
            "a former parent",
            "waits for the garbage collector",
        ),
        (
            json!([{"uid": "p1", "controller": false}]),
            "not the controller",
            "adopt it with innkeeper.dev/adopt: \"true\" on this parent and a grant",
        ),
    ] {
        server.edit(
            &id("ConfigMap", "a"),
            &["metadata", "ownerReferences"],
            Some(owner),
        );
        let plan = scene.plan(&server.objects(), &answer);
        assert_eq!(
            plan.to_string(),
            "refuse v1 ConfigMap demo/a: not ours\n",
            "{what}"
        );
        let message = conclude(&plan, &Effects::default()).synced.message;
        assert!(message.contains(said), "{what}: {message}");
        let pruning = scene.plan(&server.objects(), &desired(vec![config_map("b")]));
        assert_eq!(pruning.to_string(), "", "{what}");
    }
    let conclusion = conclude(&scene.plan(&server.objects(), &answer), &Effects::default());
    assert_eq!(conclusion.synced.reason, "MetadataLost");
    assert_eq!(conclusion.ready.reason, "ChildNotOwned");
    assert!(conclusion.synced.message.contains("ConfigMap demo/a"));
    assert_eq!(conclusion.retry, Some(Retry::Backoff));
}

#[test]
fn prunes_only_objects_with_the_plugin_label() {
    // A6
    let scene = scene();
    let mut objects = applied(&scene, &desired(vec![config_map("a")])).objects();
    edit(
        &mut objects[0],
        "/metadata/labels",
        "innkeeper.dev/plugin",
        json!("other"),
    );
    check_plan(&scene, &objects, &desired(vec![]), expect![""]);
}

#[test]
fn prunes_nothing_while_a_child_has_another_owner() {
    // A7
    let scene = scene();
    let mut server = applied(&scene, &desired(vec![config_map("a"), config_map("old")]));
    server.edit(
        &id("ConfigMap", "a"),
        &["metadata", "ownerReferences"],
        None,
    );
    check_plan(
        &scene,
        &server.objects(),
        &desired(vec![config_map("a")]),
        expect![[r#"
        refuse v1 ConfigMap demo/a: not ours
    "#]],
    );
}

/// A revision that deleted the kind has owned children, which the garbage collector would delete.
#[test]
fn a_child_of_a_kind_that_is_never_deleted_is_retained_instead_of_pruned() {
    let mut scene = scene();
    let mut server = applied(&scene, &desired(vec![config_map("a"), deployment("web")]));
    for kind in &mut scene.manifest.children {
        kind.never_deleted = &*kind.kind.kind == "ConfigMap";
    }
    let nothing = desired(Vec::new());
    let plan = scene.plan(&server.objects(), &nothing);
    assert_eq!(
        plan.to_string(),
        "retain v1 ConfigMap demo/a\nprune apps/v1 Deployment demo/web\n"
    );
    for operation in plan.operations {
        server.write(&operation).unwrap();
    }
    check_plan(&scene, &server.objects(), &nothing, expect![""]);
}

/// A StatefulSet makes itself the claims' controller.
#[test]
fn a_retained_child_with_another_controller_is_kept_up_and_not_fought_over() {
    let scene = scene();
    let retained = desired(vec![config_map("a").retained()]);
    let mut server = applied(&scene, &retained);
    let owners = json!([{
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "s1", "controller": true,
    }]);
    let child = id("ConfigMap", "a");
    server.edit(
        &child,
        &["metadata", "ownerReferences"],
        Some(owners.clone()),
    );
    check_plan(&scene, &server.objects(), &retained, expect![""]);
    // Nor does the parent take it back, or prune it.
    check_plan(
        &scene,
        &server.objects(),
        &desired(vec![config_map("a")]),
        expect![""],
    );
    check_plan(&scene, &server.objects(), &desired(Vec::new()), expect![""]);
    let other = desired(vec![
        config_map("a").retained().set("data", json!({"a": "2"})),
    ]);
    for operation in scene.plan(&server.objects(), &other).operations {
        server.write(&operation).unwrap();
    }
    let written = server.get(&child).unwrap();
    assert_eq!(written["data"]["a"], "2");
    assert_eq!(written["metadata"]["ownerReferences"], owners);
}

#[test]
fn retained_children_name_their_parent_and_have_no_owner() {
    let plan = scene().plan(&[], &desired(vec![config_map("a").retained()]));
    let Operation::Create { body, .. } = &plan.operations[0] else {
        panic!("{plan}");
    };
    let metadata = &body["metadata"];
    let mark = &metadata["annotations"]["innkeeper.dev/retained-for"];
    assert_eq!(
        key().verified(mark.as_str().unwrap(), &id("ConfigMap", "a")),
        Some("example.dev/Web/demo/shop")
    );
    assert!(metadata.get("ownerReferences").is_none());
}
