//! Parents that a pass rejects, always with a complete report.

use innkeeper_kit::prelude::*;
use innkeeper_sdk::testing::{FakeHost, TestRequest};
use serde_json::{Value, json};

use super::{claim, fault, host, parent, pass};
use crate::Plugin;

fn check_invalid(request: &TestRequest, host: &FakeHost, message: &str) {
    let fault = Plugin::reconcile(&request.clone().build(), host).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Invalid);
    assert_eq!(fault.message, message);
    let report = fault.report.unwrap();
    assert_eq!(report.status.as_ref().unwrap()["observedGeneration"], 1);
    assert!(report.find_condition("Ready").is_some());
}

fn check_spec(spec: &Value, message: &str) {
    check_invalid(&TestRequest::new(&parent("shop", spec)), &host(), message);
}

#[test]
fn a_quantity_that_is_none() {
    check_spec(
        &json!({ "resources": { "limits": { "cpu": "lots" } } }),
        "spec.resources.limits.cpu: \"lots\" is not a quantity",
    );
    check_spec(
        &json!({ "database": { "managed": { "storage": { "size": "10 Gi" } } } }),
        "spec.database.managed.storage.size: \"10 Gi\" is not a quantity",
    );
    check_spec(
        &json!({ "code": { "persistentVolumeClaim": { "size": "" } } }),
        "spec.code.persistentVolumeClaim.size: \"\" is not a quantity",
    );
}

#[test]
fn a_request_above_its_limit() {
    let resources = json!({ "requests": { "cpu": 2 }, "limits": { "cpu": "1500m" } });
    check_spec(
        &json!({ "database": { "managed": { "resources": resources } } }),
        "spec.database.managed.resources.cpu: request 2 exceeds limit 1500m",
    );
}

#[test]
fn keys_and_values_that_no_child_can_have() {
    let annotation = "write at most 63 letters, digits, '-', '_' or '.', after a DNS name and a slash if need be";
    for (block, path) in [
        ("service", "spec.service.annotations"),
        ("ingress", "spec.ingress.annotations"),
        ("podMetadata", "spec.podMetadata.annotations"),
    ] {
        check_spec(
            &json!({ block: { "annotations": { "100%": "x" } } }),
            &format!("{path}: \"100%\" is not an annotation key: {annotation}"),
        );
    }
    check_spec(
        &json!({ "podMetadata": { "labels": { "a/": "x" } } }),
        &format!("spec.podMetadata.labels: \"a/\" is not a label key: {annotation}"),
    );
    check_spec(
        &json!({ "podMetadata": { "labels": { "team": "a b" } } }),
        "spec.podMetadata.labels.team: \"a b\" is not a label value: write at most 63 letters, digits, \
         '-', '_' or '.', or nothing",
    );
}

#[test]
fn replicas_on_a_claim_that_cannot_be_shared() {
    let spec = json!({
        "replicas": 2, "code": { "persistentVolumeClaim": { "existingClaim": "old" } },
    });
    let host = host().object(&claim("old", "1Gi", &["ReadWriteOnce"]));
    check_invalid(
        &TestRequest::new(&parent("shop", &spec)),
        &host,
        "spec.code.persistentVolumeClaim.existingClaim: claim old has no access mode ReadWriteMany",
    );
}

#[test]
fn a_claim_that_exists_with_something_else() {
    let spec = json!({ "code": { "persistentVolumeClaim": {
        "storageClassName": "fast", "accessModes": ["ReadWriteMany"],
    } } });
    let mut observed = claim("shop-code", "1Gi", &["ReadWriteOnce"]);
    let request = TestRequest::new(&parent("shop", &spec));
    check_invalid(
        &request.clone().retained("code-claim", &observed),
        &host(),
        "spec.code.persistentVolumeClaim: claim shop-code exists with accessModes ReadWriteOnce, \
         which cannot change",
    );
    observed["spec"]["storageClassName"] = json!("slow");
    check_invalid(
        &request.retained("code-claim", &observed),
        &host(),
        "spec.code.persistentVolumeClaim: claim shop-code exists with storageClassName slow, \
         which cannot change",
    );
}

#[test]
fn a_main_route_that_the_image_does_not_serve() {
    let message = |image: &str| {
        format!(
            "spec.routes[0].path: the image {image} serves the root of a domain and not /a: remove the \
             path, or give spec.image an image that serves it"
        )
    };
    let routes = json!([{ "domain": "a.org", "path": "/a/" }, { "domain": "b.org" }]);
    check_spec(
        &json!({ "routes": routes }),
        &message("wordpress:7.1-apache"),
    );
    let request = |spec: Value| TestRequest::new(&parent("shop", &spec));
    let image =
        |image: &str| json!({ "images": { "wordpress": image }, "tenants": { "images": [] } });
    let mirrored = "mirror:5000/library/wordpress:7";
    check_invalid(
        &request(json!({ "routes": routes })).config(&image(mirrored)),
        &host(),
        &message(mirrored),
    );
    pass(&request(json!({ "routes": routes })).config(&image("bitpoke/wordpress-runtime")));
    pass(&request(json!({ "routes": routes, "image": "mine" })));
}

#[test]
fn a_parent_that_does_not_parse_has_no_report() {
    let fault = fault(&TestRequest::new(&parent(
        "shop",
        &json!({ "replicas": "2" }),
    )));
    assert_eq!(fault.kind, FaultKind::Invalid);
    assert!(
        fault.message.starts_with("spec.replicas: "),
        "{}",
        fault.message
    );
    assert_eq!(fault.report, None);
}

#[test]
fn a_read_that_is_not_granted_is_tried_again() {
    let spec = json!({
        "envFrom": [{ "prefix": "APP_", "configMapRef": { "name": "flags" } }],
        "code": { "persistentVolumeClaim": { "existingClaim": "old" } },
    });
    let request = TestRequest::new(&parent("shop", &spec)).build();
    for kind in ["Secret", "ConfigMap", "PersistentVolumeClaim"] {
        let host = FakeHost::new().not_granted("v1", kind);
        let fault = Plugin::reconcile(&request, &host).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Retry);
        assert!(fault.message.contains(kind), "{}", fault.message);
        assert_eq!(fault.report, None);
    }
}
