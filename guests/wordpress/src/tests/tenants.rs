//! What a user who may create parents cannot do.

use innkeeper_sdk::testing::Read;

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
        "spec.ingress.annotations: tenants.ingressAnnotations of the plugin's configuration does not list \
         nginx.ingress.kubernetes.io/server-snippet",
    );
}

/// Checks that the default configuration rejects a spec, and another one allows it.
fn check_switch(spec: &Value, tenants: &Value, message: &str) {
    check_refused(spec, &json!({}), message);
    let request = TestRequest::new(&parent("shop", spec));
    pass(&request.config(&json!({ "tenants": tenants })));
}

#[test]
fn labels_and_annotations_that_other_controllers_obey() {
    check_switch(
        &json!({ "podMetadata": { "labels": { "azure.workload.identity/use": "true" } } }),
        &json!({ "podMetadata": { "labels": ["azure.workload.identity/"] } }),
        "spec.podMetadata.labels: tenants.podMetadata.labels of the plugin's configuration does not list \
         azure.workload.identity/use",
    );
    check_switch(
        &json!({ "podMetadata": { "annotations": { "sidecar.istio.io/inject": "true" } } }),
        &json!({ "podMetadata": { "annotations": ["sidecar.istio.io/inject"] } }),
        "spec.podMetadata.annotations: tenants.podMetadata.annotations of the plugin's configuration does \
         not list sidecar.istio.io/inject",
    );
    let annotations = json!({ "service.beta.kubernetes.io/aws-load-balancer-internal": "false" });
    check_switch(
        &json!({ "service": { "annotations": annotations } }),
        &json!({ "serviceAnnotations": ["service.beta.kubernetes.io/"] }),
        "spec.service.annotations: tenants.serviceAnnotations of the plugin's configuration does not list \
         service.beta.kubernetes.io/aws-load-balancer-internal",
    );
}

#[test]
fn types_of_services_that_reach_beyond_the_cluster() {
    let routes = json!([{ "domain": "a.org" }]);
    for (spec, type_) in [
        (
            json!({ "service": { "type": "LoadBalancer" } }),
            "LoadBalancer",
        ),
        (
            json!({ "service": { "type": "NodePort" }, "routes": routes }),
            "NodePort",
        ),
        (
            json!({ "service": { "type": "NodePort", "nodePort": 30080 } }),
            "NodePort",
        ),
    ] {
        check_switch(
            &spec,
            &json!({ "serviceTypes": [type_] }),
            &format!(
                "spec.service.type: tenants.serviceTypes of the plugin's configuration does not list \
                 {type_}"
            ),
        );
    }
    // Without routes, an absent type means NodePort.
    for type_ in ["ClusterIP", "NodePort"] {
        let spec = json!({ "service": { "type": type_ } });
        pass(&TestRequest::new(&parent("shop", &spec)));
    }
    pass(&TestRequest::new(&parent(
        "shop",
        &json!({ "sqlrootpassword": "abc" }),
    )));
}

fn check_reference(spec: &Value, kind: &str, mut object: Value) {
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let reconcile = |object: &Value, tenants: Value| {
        let request = TestRequest::new(&parent("shop", spec))
            .config(&json!({ "tenants": tenants }))
            .build();
        let host = host().objects(std::slice::from_ref(object));
        Plugin::reconcile(&request, &host).map(|_| ())
    };
    assert_eq!(reconcile(&object, json!({})), Ok(()));
    object["metadata"]["labels"] = json!({ "innkeeper.dev/plugin": "wordpress" });
    object["metadata"]["annotations"] =
        json!({ "innkeeper.dev/retained-for": "example.com/Wordpress/default/other" });
    let expected = format!(
        "{kind} {name} belongs to another parent: annotate it with innkeeper.dev/shared-with: \
         Wordpress.example.com/shop, or name another"
    );
    let fault = reconcile(&object, json!({})).unwrap_err();
    assert_eq!((fault.kind, fault.message), (FaultKind::Invalid, expected));
    assert_eq!(
        reconcile(&object, json!({ "references": "namespace" })),
        Ok(())
    );
    for with in ["Wordpress/shop", "Wordpress.example.com/shop"] {
        object["metadata"]["annotations"] = json!({ "innkeeper.dev/shared-with": with });
        assert_eq!(reconcile(&object, json!({})), Ok(()));
    }
}

#[test]
fn secrets_of_other_parents() {
    let env =
        json!([{ "name": "APP_A", "valueFrom": { "secretKeyRef": { "name": "x", "key": "k" } } }]);
    let external =
        json!({ "host": "db", "databaseName": "d", "credentialsSecretRef": { "name": "x" } });
    for spec in [
        json!({ "env": env }),
        json!({ "envFrom": [{ "prefix": "APP_", "secretRef": { "name": "x" } }] }),
        json!({ "imagePullSecrets": [{ "name": "x" }] }),
        json!({ "database": { "external": external } }),
        json!({ "database": { "managed": { "credentialsSecretRef": { "name": "x" } } } }),
        json!({ "routes": [{ "domain": "a.org" }], "tlsSecretRef": "x" }),
    ] {
        check_reference(&spec, "Secret", secret("x", &["k"]));
    }
    // The Pods read the salts from a Secret whose name depends on the site's.
    check_reference(&json!({}), "Secret", secret("shop-wp", &["AUTH_KEY"]));
}

/// The object, marked as another parent's child.
fn owned_by_another(mut object: Value) -> Value {
    object["metadata"]["labels"] = json!({ "innkeeper.dev/plugin": "wordpress" });
    object
}

/// Specs that reference one object, with that object and the condition while it is missing.
fn named() -> Vec<(Value, Value, &'static str)> {
    let required = json!({ "secretKeyRef": { "name": "x", "key": "k" } });
    let optional = json!({ "secretKeyRef": { "name": "x", "key": "k", "optional": true } });
    let env = |source: Value| json!({ "env": [{ "name": "APP_A", "valueFrom": source }] });
    let external =
        json!({ "host": "db", "databaseName": "d", "credentialsSecretRef": { "name": "x" } });
    let source = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": "x" } });
    let secrets = [
        env(required),
        env(optional),
        json!({ "imagePullSecrets": [{ "name": "x" }] }),
        json!({ "database": { "external": external } }),
        json!({ "database": { "managed": { "credentialsSecretRef": { "name": "x" } } } }),
    ];
    let claims = [
        json!({ "code": { "persistentVolumeClaim": { "existingClaim": "x" } } }),
        json!({ "code": { "persistentVolumeClaim": source } }),
        json!({ "database": { "managed": { "storage": source } } }),
    ];
    let keys = ["k", "root-password", "username", "password"];
    let secrets = secrets.map(|spec| {
        let reported = "Degraded=True/SecretNotFound: Secret not found: x";
        (spec, secret("x", &keys), reported)
    });
    let claims = claims.map(|spec| {
        let reported = "Degraded=True/ClaimNotFound: claim not found: x";
        (spec, claim("x", "1Gi", &["ReadWriteOnce"]), reported)
    });
    secrets.into_iter().chain(claims).collect()
}

#[test]
fn nothing_is_made_that_waits_for_an_object_of_a_later_parent() {
    for (spec, object, reported) in named() {
        let request = TestRequest::new(&parent("shop", &spec));
        let missing = pass(&request);
        assert!(matches!(missing, Answer::Keep(_)), "{spec}");
        assert_eq!(condition(&missing, "Degraded"), reported, "{spec}");
        let outcome = pass_with(&request, &host().object(&object));
        assert!(outcome.child("web").is_some(), "{spec}");
        let namespace = json!({ "tenants": { "references": "namespace" } });
        let waiting = pass(&request.config(&namespace));
        assert!(waiting.child("web").is_some(), "{spec}");
    }
}

/// The next pass for a site with existing children, after an edit.
fn edited(before: &TestRequest, spec: &Value) -> TestRequest {
    let children = before.clone().build().children;
    let request = TestRequest::new(&parent("shop", spec));
    children.iter().fold(request, |request, child| {
        request.observed(child.key.as_deref(), child.retained, child.object())
    })
}

#[test]
fn a_site_whose_pods_name_a_missing_object_already_follows_its_spec() {
    for (mut spec, object, reported) in named() {
        if spec.to_string().contains("dataSource") {
            continue;
        }
        spec["deletionPolicy"] = json!("Delete");
        let mut shared = object.clone();
        shared["spec"]["accessModes"] = json!(["ReadWriteMany"]);
        let before = running_with(&parent("shop", &spec), &host().object(&shared));
        spec["deletionPolicy"] = json!("Retain");
        spec["image"] = json!("wordpress:9");
        let outcome = pass(&edited(&before, &spec));
        assert_eq!(condition(&outcome, "Degraded"), reported, "{spec}");
        assert_eq!(container(&outcome, "web")["image"], "wordpress:9", "{spec}");
        let salts = outcome.child("salts").unwrap();
        assert_eq!(salts.removal, RemovalPolicy::Retain, "{spec}");
    }
}

#[test]
fn an_edit_that_names_a_missing_object_waits_and_data_follows_the_removal_policy() {
    for (spec, object, _) in named() {
        if spec.to_string().contains("dataSource") {
            continue;
        }
        let name = object["kind"].as_str().unwrap();
        let delete = json!({ "deletionPolicy": "Delete" });
        let external = spec["database"]["external"].is_object();
        let start = if external {
            let other = json!({
                "host": "db", "databaseName": "d", "credentialsSecretRef": { "name": "y" },
            });
            json!({ "deletionPolicy": "Delete", "database": { "external": other } })
        } else {
            delete
        };
        let keys = ["username", "password"];
        let other = host().object(&secret("y", &keys));
        let before = running_with(&parent("shop", &start), &other);
        let mut spec = spec;
        spec["image"] = json!("wordpress:9");
        let outcome = pass_with(&edited(&before, &spec), &other);
        let children = before.clone().build().children;
        assert_eq!(outcome.children().len(), children.len(), "{spec}");
        for child in outcome.children() {
            assert_eq!(child.apply, ApplyPolicy::Hold, "{spec}");
            let is_data = matches!(child.kind(), "Secret" | "PersistentVolumeClaim");
            assert_eq!(child.removal == RemovalPolicy::Retain, is_data, "{spec}");
        }
        let (reason, text) = match name {
            "Secret" => ("SecretNotFound", "Secret not found: x"),
            _ => ("ClaimNotFound", "claim not found: x"),
        };
        assert_eq!(
            condition(&outcome, "Ready"),
            format!("Ready=False/{reason}: changes wait: {text}"),
        );
    }
}

#[test]
fn data_of_a_refused_parent_follows_the_removal_policy() {
    for (from, to, removal) in [
        ("Delete", "Retain", RemovalPolicy::Retain),
        ("Retain", "Delete", RemovalPolicy::Delete),
    ] {
        let before = running(&parent("shop", &json!({ "deletionPolicy": from })));
        let spec = json!({
            "deletionPolicy": to, "image": "wordpress:9",
            "resources": { "limits": { "cpu": "lots" } },
        });
        let request = edited(&before, &spec);
        let outcome = pass(&request);
        let observed = request.clone().build().children;
        assert_eq!(outcome.children().len(), observed.len());
        for child in outcome.children() {
            assert_eq!(child.apply, ApplyPolicy::Hold, "{}", child.key);
            let is_data = matches!(child.kind(), "Secret" | "PersistentVolumeClaim");
            let expected = if is_data {
                removal
            } else {
                RemovalPolicy::Delete
            };
            assert_eq!(child.removal, expected, "{}", child.key);
        }
        let refused = fault(&request.answered(&outcome));
        assert_eq!(refused.kind, FaultKind::Invalid);
        let message = "spec.resources.limits.cpu: \"lots\" is not a quantity";
        assert_eq!(refused.message, message);
    }
}

#[test]
fn an_object_that_another_parent_makes_later_is_refused_then() {
    for (spec, object, _) in named() {
        let parent = parent("shop", &spec);
        let own = host().object(&object);
        let is_source = spec.to_string().contains("dataSource");
        let request = if is_source {
            TestRequest::new(&parent)
        } else {
            running_with(&parent, &own)
        };
        let read = |host: &FakeHost| {
            let outcome = Plugin::reconcile(&request.clone().build(), host);
            let named = host
                .reads()
                .into_iter()
                .filter(|read| matches!(read, Read::Get(object) if object.name == "x"));
            (outcome.map(|_| ()), named.count())
        };
        assert_eq!(read(&own).0, Ok(()));
        // Each pass reads the object, so the host runs a pass when it changes.
        let (refused, reads) = read(&host().object(&owned_by_another(object)));
        assert_eq!(reads, 1, "{spec}");
        let fault = refused.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Invalid);
        assert!(
            fault.message.contains("x belongs to another parent"),
            "{}",
            fault.message
        );
    }
}

#[test]
fn the_source_of_a_claim_that_exists_may_go() {
    let source = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": "x" } });
    let spec = json!({ "code": { "persistentVolumeClaim": source } });
    let parent = parent("shop", &spec);
    let before = host().object(&claim("x", "1Gi", &["ReadWriteOnce"]));
    let outcome = pass(&running_with(&parent, &before));
    assert!(outcome.child("web").is_some());
    assert!(condition(&outcome, "Degraded").starts_with("Degraded=False"));
}

#[test]
fn sources_of_data_whose_owner_is_not_known() {
    let source = json!({ "kind": "VolumeSnapshot", "name": "x" });
    let spec = json!({ "code": { "persistentVolumeClaim": { "dataSource": source } } });
    check_refused(
        &spec,
        &json!({}),
        "dataSource: the owner of a VolumeSnapshot is unknown; use a PersistentVolumeClaim, or set \
         tenants.references of the plugin's configuration to namespace",
    );
    let other = json!({ "apiGroup": "example.org", "kind": "PersistentVolumeClaim", "name": "x" });
    check_refused(
        &json!({ "code": { "persistentVolumeClaim": { "dataSource": other } } }),
        &json!({}),
        "dataSource: the owner of a PersistentVolumeClaim is unknown; use a PersistentVolumeClaim, or \
         set tenants.references of the plugin's configuration to namespace",
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
