//! The control plane that every other test in the suite relies on.

use std::fs;

use innkeeper_tests::{
    ControlPlane, Write, eventually,
    manifest::{at, load},
    user::Kind,
};
use serde_json::{Value, json};

const ROLE: Kind<'static> = Kind {
    api_version: "rbac.authorization.k8s.io/v1",
    kind: "ClusterRole",
    namespace: None,
};

#[test]
fn a_deployment_becomes_ready_and_its_writes_are_audited() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("plane").unwrap();
    let mark = plane.audit().mark().unwrap();
    let labels = json!({ "app": "web" });
    plane
        .user()
        .apply(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "web", "namespace": namespace },
            "spec": {
                "replicas": 2,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [{ "name": "web", "image": "web:1" }] },
                },
            },
        }))
        .unwrap();

    eventually("the Deployment is ready", || {
        let deployment = plane
            .user()
            .get(Kind::new("apps/v1", "Deployment", &namespace), "web")
            .map_err(|error| error.to_string())?
            .ok_or("it does not exist")?;
        match at(&deployment, "/status/readyReplicas").as_u64() {
            Some(2) => Ok(()),
            _ => Err(deployment["status"].to_string()),
        }
    });

    let writes = plane.audit().since(mark).unwrap();
    let ours = writes
        .iter()
        .find(|write| write.namespace == namespace && write.name == "web");
    assert_eq!(
        ours.map(Write::line).as_deref(),
        Some("patch deployments.apps web 201")
    );
}

#[test]
fn a_control_plane_that_a_test_has_left_is_as_new() {
    // With a timeout of its own, because no other test may take the control plane meanwhile.
    let take = || ControlPlane::take(&["--api-only", "--timeout", "119s"]).unwrap();
    let plane = take();
    let directory = plane.directory().to_owned();
    let first = (labels_of_roles(&plane), definitions(&plane));

    let namespace = plane.namespace("left").unwrap();
    let gadget = json!({
        "apiVersion": "test.innkeeper.dev/v1", "kind": "Gadget",
        "metadata": { "name": "left", "namespace": namespace, "finalizers": ["test.innkeeper.dev/stays"] },
    });
    for object in load("tests/cluster/gadget.yaml").unwrap() {
        plane.user().apply(&object).unwrap();
    }
    eventually("the kind is served", || plane.user().apply(&gadget));
    let label = json!({ "metadata": { "labels": { "edited": "true" } } });
    plane.user().merge(ROLE, "view", &label).unwrap();
    plane.user().delete(ROLE, "edit").unwrap();
    fs::write(directory.join("left"), "").unwrap();
    drop(plane);

    let plane = take();
    assert_eq!(plane.directory(), directory);
    assert_eq!((labels_of_roles(&plane), definitions(&plane)), first);
    let namespaces = Kind::cluster("v1", "Namespace");
    assert_eq!(plane.user().get(namespaces, &namespace).unwrap(), None);
    assert!(!directory.join("left").exists());
    let writes = plane.audit().since(0).unwrap();
    let of_gadget = |write: &&Write| write.name == "left";
    assert_eq!(writes.iter().find(of_gadget), None);

    for verb in ["restart", "wait"] {
        plane.control(&[verb, "apiserver"]).unwrap();
    }
    drop(plane);
    assert_ne!(take().directory(), directory);
}

fn labels_of_roles(plane: &ControlPlane) -> Vec<(Value, Value)> {
    let roles = plane.user().list(ROLE, "").unwrap();
    let labels = |role: &Value| {
        (
            role["metadata"]["name"].clone(),
            role["metadata"]["labels"].clone(),
        )
    };
    roles.iter().map(labels).collect()
}

fn definitions(plane: &ControlPlane) -> Vec<Value> {
    let kind = Kind::cluster("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    plane.user().list(kind, "").unwrap()
}
