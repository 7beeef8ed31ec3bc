//! Limits of the right to create a parent.

use super::*;

fn check_refused(spec: &Value, tenants: &Value, message: &str) {
    let request = |tenants: &Value| {
        TestRequest::new(&parent("shop", spec)).config(&json!({ "tenants": tenants }))
    };
    let fault = fault(&request(tenants));
    assert_eq!(fault.kind, FaultKind::Invalid);
    assert_eq!(fault.message, message);
}

#[test]
fn images_outside_the_list() {
    let tenants = json!({ "images": ["wordpress"] });
    let allows = "is outside the repositories that the plugin's configuration allows: wordpress";
    check_refused(
        &json!({ "image": "evil:1" }),
        &tenants,
        &format!("spec.image: image evil:1 {allows}"),
    );
    check_refused(
        &json!({ "database": { "managed": { "image": "evil:1" } } }),
        &tenants,
        &format!("spec.database.managed.image: image evil:1 {allows}"),
    );
    let fine = TestRequest::new(&parent("shop", &json!({ "image": "wordpress:7" })));
    pass(&fine.config(&json!({ "tenants": tenants })));
}

#[test]
fn annotations_of_the_ingress() {
    let annotations = json!({ "nginx.ingress.kubernetes.io/server-snippet": "x" });
    check_refused(
        &json!({ "routes": [{ "domain": "a.org" }], "ingress": { "annotations": annotations } }),
        &json!({ "ingressAnnotations": ["cert-manager.io/"] }),
        "spec.ingress.annotations: the plugin's configuration does not allow the annotation \
         nginx.ingress.kubernetes.io/server-snippet",
    );
}

fn check_reference(spec: &Value, kind: &str, mut object: Value) {
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let reconcile = |object: &Value, tenants: Value| {
        let request = TestRequest::new(&parent("shop", spec));
        let request = request.config(&json!({ "tenants": tenants })).build();
        let host = host().objects(std::slice::from_ref(object));
        Plugin::reconcile(&request, &host).map(|_| ())
    };
    assert_eq!(reconcile(&object, json!({})), Ok(()));
    object["metadata"]["labels"] = json!({ "innkeeper.dev/plugin": "wordpress" });
    object["metadata"]["annotations"] =
        json!({ "innkeeper.dev/retained-for": "example.com/Wordpress/default/other" });
    let expected = format!(
        "{kind} {name} belongs to another parent: annotate it with innkeeper.dev/shared-with: \
         Wordpress/shop, or name another"
    );
    let fault = reconcile(&object, json!({})).unwrap_err();
    assert_eq!((fault.kind, fault.message), (FaultKind::Invalid, expected));
    assert_eq!(
        reconcile(&object, json!({ "references": "namespace" })),
        Ok(())
    );
    object["metadata"]["annotations"] = json!({ "innkeeper.dev/shared-with": "Wordpress/shop" });
    assert_eq!(reconcile(&object, json!({})), Ok(()));
}

#[test]
fn secrets_of_other_parents() {
    let env =
        json!([{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "x", "key": "k" } } }]);
    let external =
        json!({ "host": "db", "databaseName": "d", "credentialsSecretRef": { "name": "x" } });
    for spec in [
        json!({ "env": env }),
        json!({ "envFrom": [{ "secretRef": { "name": "x" } }] }),
        json!({ "database": { "external": external } }),
        json!({ "database": { "managed": { "credentialsSecretRef": { "name": "x" } } } }),
        json!({ "routes": [{ "domain": "a.org" }], "tlsSecretRef": "x" }),
    ] {
        check_reference(&spec, "Secret", secret("x", &["k"]));
    }
}

#[test]
fn sources_of_data_whose_owner_is_not_known() {
    let source = json!({ "kind": "VolumeSnapshot", "name": "x" });
    let spec = json!({ "code": { "persistentVolumeClaim": { "dataSource": source } } });
    check_refused(
        &spec,
        &json!({}),
        "dataSource: the owner of a VolumeSnapshot is not known; name a PersistentVolumeClaim, or set \
         tenants.references of the plugin's configuration to namespace",
    );
    let scope = json!({ "tenants": { "references": "namespace" } });
    pass(&TestRequest::new(&parent("shop", &spec)).config(&scope));
}

#[test]
fn claims_of_other_parents() {
    let source = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": "x" } });
    for spec in [
        json!({ "code": { "persistentVolumeClaim": { "existingClaim": "x" } } }),
        json!({ "code": { "persistentVolumeClaim": source } }),
        json!({ "database": { "managed": { "storage": source } } }),
    ] {
        check_reference(&spec, "claim", claim("x", "1Gi", &["ReadWriteOnce"]));
    }
}
