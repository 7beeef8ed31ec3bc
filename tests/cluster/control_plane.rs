//! The control plane that every other test in the suite relies on.

use innkeeper_tests::{ControlPlane, Write, eventually, manifest::at, user::Kind};
use serde_json::json;

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
