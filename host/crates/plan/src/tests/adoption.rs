//! Adoption: an object without an owner becomes a child only if the parent's annotation and the grants both
//! allow it: A6.

use innkeeper_model::{
    ANNOTATION_ADOPT, Access, GroupKind, ObjectId, Operation, Outcome, RemovalPolicy,
};
use innkeeper_policy::{ChildGrant, PodSecurity, check_adoption};
use serde_json::{Value, json};

use super::{build::*, server::Server};
use crate::{Effects, conclude};

const OWNERS: [&str; 2] = ["metadata", "ownerReferences"];

fn id() -> ObjectId {
    ObjectId::new(GroupKind::new("", "ConfigMap"), Some("demo"), "a")
}

/// Returns a server where another client created an object with the child's name.
fn found() -> Server {
    let mut server = Server::default();
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "demo"},
        "data": {"mine": "yes"},
    });
    server.apply(&id(), "kubectl", fields(object));
    server
}

/// Returns a scene with this adoption annotation on the parent, and with or without the grant.
fn scene_of(asked: Option<&str>, granted: bool) -> Scene {
    let mut scene = scene();
    if let Some(asked) = asked {
        let annotations = json!({ ANNOTATION_ADOPT: asked });
        scene.parent = scene.parent.with("/metadata", "annotations", annotations);
    }
    if granted {
        let adopt = ChildGrant {
            adopt: true,
            ..ChildGrant::default()
        };
        scene.grants.children.insert(id().kind, adopt);
    }
    scene
}

fn answer(removal: RemovalPolicy) -> Outcome {
    let mut child = config_map("a");
    child.removal = removal;
    desired(vec![child, config_map("b")])
}

#[test]
fn annotation_or_grant_alone_adopts_nothing() {
    let answer = answer(RemovalPolicy::Delete);
    for (asked, granted, line, reason, part) in [
        (None, false, "not ours", "ChildNotOwned", "delete it"),
        (
            Some("false"),
            false,
            "not ours",
            "ChildNotOwned",
            "delete it",
        ),
        (
            None,
            true,
            "not adopted",
            "AdoptionPending",
            "annotate this parent with innkeeper.dev/adopt: \"true\"",
        ),
        (
            Some("yes"),
            true,
            "not adopted",
            "AdoptionPending",
            "annotate this parent",
        ),
        (
            Some("true"),
            false,
            "not adopted",
            "AdoptionPending",
            "grant the plugin adopt: true",
        ),
    ] {
        let plan = scene_of(asked, granted).plan(&found().objects(), &answer);
        let expected = format!("create v1 ConfigMap demo/b\nrefuse v1 ConfigMap demo/a: {line}\n");
        assert_eq!(plan.to_string(), expected, "{asked:?} {granted}");
        let synced = conclude(&plan, &Effects::default()).synced;
        assert_eq!(synced.reason, reason, "{asked:?} {granted}");
        for part in [part, "ConfigMap demo/a"] {
            assert!(synced.message.contains(part), "{}", synced.message);
        }
    }
}

#[test]
fn an_object_with_an_owner_is_not_adopted() {
    let answer = answer(RemovalPolicy::Delete);
    let scene = scene_of(Some("true"), true);
    let mut owned = found();
    let controller = json!([{"uid": "p9", "controller": true}]);
    owned.edit(&id(), &OWNERS, Some(controller));
    let mut retained = found();
    let other = json!({"innkeeper.dev/retained-for": "example.dev/Web/demo/other"});
    retained.edit(&id(), &["metadata", "annotations"], Some(other));
    for server in [owned, retained] {
        let plan = scene.plan(&server.objects(), &answer);
        let expected = "create v1 ConfigMap demo/b\nrefuse v1 ConfigMap demo/a: not ours\n";
        assert_eq!(plan.to_string(), expected);
    }
    let mut leaving = found();
    leaving.mark_deleting(&id());
    let plan = scene.plan(&leaving.objects(), &answer);
    let expected = "create v1 ConfigMap demo/b\ndeleting v1 ConfigMap demo/a\n";
    assert_eq!(plan.to_string(), expected);
}

#[test]
fn a_deleting_parent_adopts_nothing() {
    let mut scene = scene_of(Some("true"), true);
    scene.parent = scene.parent.deleting();
    let plan = scene
        .plan(&found().objects(), &answer(RemovalPolicy::Delete))
        .to_string();
    assert!(
        plan.contains("refuse v1 ConfigMap demo/a: not ours"),
        "{plan}"
    );
}

#[test]
fn an_adopted_object_is_first_owned_and_then_applied() {
    let scene = scene_of(Some("true"), true);
    for (removal, verb) in [
        (RemovalPolicy::Delete, "own"),
        (RemovalPolicy::Retain, "retain"),
    ] {
        let answer = answer(removal);
        let mut server = found();
        let plan = scene.plan(&server.objects(), &answer);
        let expected = format!("{verb} v1 ConfigMap demo/a\ncreate v1 ConfigMap demo/b\n");
        assert_eq!(plan.to_string(), expected);
        let transfer = plan.operations.first().unwrap();
        // The transfer is rejected if the object has changed since it was observed.
        server.edit(&id(), &["data", "mine"], Some(json!("still")));
        assert!(server.write(transfer).is_err());
        for operation in &scene.plan(&server.objects(), &answer).operations {
            server.write(operation).unwrap();
        }
        let owned = server.get(&id()).unwrap();
        assert_eq!(owned["metadata"]["labels"]["innkeeper.dev/plugin"], "web");
        assert_eq!(owned["data"], json!({"mine": "still"}));

        // From now on it is a child like any other, even without the annotation.
        let scene = scene_of(None, false);
        let plan = scene.plan(&server.objects(), &answer);
        assert_eq!(plan.to_string(), "update v1 ConfigMap demo/a\n");
        assert!(matches!(plan.operations[..], [Operation::Update { .. }]));
        server.write(&plan.operations[0]).unwrap();
        let adopted = server.get(&id()).unwrap();
        assert_eq!(adopted["data"]["mine"], "still");
        assert!(scene.plan(&server.objects(), &answer).is_settled());
    }
}

/// Other managers' fields stay, so an adopted object must meet the grants as a stated one does.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn an_object_beyond_the_grants_is_not_adopted() {
    let hardened = json!({
        "runAsNonRoot": true,
        "allowPrivilegeEscalation": false,
        "seccompProfile": {"type": "RuntimeDefault"},
        "capabilities": {"drop": ["ALL"]},
    });
    let mut privileged = hardened.clone();
    privileged["privileged"] = json!(true);
    let deployment_of = |security: &Value| {
        let container = json!({"name": "c", "image": "i", "securityContext": security});
        let spec = json!({"template": {"spec": {"containers": [container]}}});
        ("apps/v1", "Deployment", "spec", spec)
    };
    let token = (
        "v1",
        "Secret",
        "type",
        json!("kubernetes.io/service-account-token"),
    );
    let address = (
        "v1",
        "Service",
        "spec",
        json!({"externalIPs": ["192.0.2.1"]}),
    );
    let broken = "spec.template.spec.containers[0].securityContext.privileged must be false";
    for (object, level, refused) in [
        (deployment_of(&hardened), PodSecurity::Restricted, None),
        (
            deployment_of(&privileged),
            PodSecurity::Restricted,
            Some(broken),
        ),
        (
            deployment_of(&privileged),
            PodSecurity::Baseline,
            Some(broken),
        ),
        (deployment_of(&privileged), PodSecurity::Privileged, None),
        (
            token,
            PodSecurity::Privileged,
            Some("a credential of the cluster"),
        ),
        (
            address,
            PodSecurity::Privileged,
            Some("`spec.externalIPs` takes the traffic"),
        ),
    ] {
        let (api_version, kind, field, value) = object;
        let child = child(api_version, kind, "a");
        let id = ObjectId::new(child.kind.group_kind(), Some("demo"), "a");
        let mut server = Server::default();
        let mut object = crate::stated(&child);
        object.insert(field.to_owned(), value);
        server.apply(&id, "kubectl", object);
        let mut scene = scene_of(Some("true"), true);
        let adopt = *scene.grants.children.values().next().unwrap();
        scene.grants.children.insert(id.kind.clone(), adopt);
        scene.grants.pod_security = level;
        let plan = scene.plan(&server.objects(), &desired(vec![child]));
        let Some(rule) = refused else {
            assert_eq!(
                plan.to_string(),
                format!("own {api_version} {kind} demo/a\n")
            );
            continue;
        };
        assert_eq!(
            plan.to_string(),
            format!("refuse {api_version} {kind} demo/a: not allowed\n")
        );
        let synced = conclude(&plan, &Effects::default()).synced;
        assert_eq!(synced.reason, "ChildForbidden");
        assert!(synced.message.contains(rule), "{}", synced.message);
    }
    let mut unknown = observed(&found().objects()[0]);
    unknown.form = Access::Metadata;
    let grants = scene_of(None, true).grants;
    assert!(check_adoption(&unknown, &grants).is_err(), "not read whole");
}

#[test]
fn the_metadata_of_an_object_that_is_nested_too_deep_to_parse_stays() {
    let scene = scene_of(Some("true"), true);
    let write = |server: &mut Server, removal| {
        let plan = scene.plan(&server.objects(), &answer(removal));
        let transfer = plan
            .operations
            .iter()
            .find(|operation| operation.child() == Some(&id()));
        server.write(transfer.unwrap()).unwrap();
    };
    for (before, after) in [
        (RemovalPolicy::Delete, RemovalPolicy::Retain),
        (RemovalPolicy::Retain, RemovalPolicy::Delete),
    ] {
        let mut server = found();
        for (field, value) in [
            ("labels", json!({"mine": "yes"})),
            ("annotations", json!({"mine": "yes"})),
            ("ownerReferences", json!([{"uid": "p9"}])),
        ] {
            server.edit(&id(), &["metadata", field], Some(value));
        }
        write(&mut server, before);
        // Such an object is not adopted, but an adopted one may become so.
        let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
        server.edit(&id(), &["data", "deep"], Some(deep));
        write(&mut server, after);
        let metadata = &server.get(&id()).unwrap()["metadata"];
        assert_eq!(metadata["labels"]["mine"], "yes");
        assert_eq!(metadata["annotations"]["mine"], "yes");
        assert_eq!(metadata["ownerReferences"][0]["uid"], "p9");
    }
}
