//! The definition: its defaults and its rules, evaluated without a cluster.

use innkeeper_sdk::{prelude::*, testing::definition_problems};
use kube_cel::{ValidationErrors, Validator};
use serde_json::{Value, json};

use super::parent;
use crate::{Plugin, api::Wordpress};

fn definition() -> Value {
    Plugin::describe().crds[0].clone()
}

fn schema() -> Value {
    definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// The messages of the rules that an object breaks.
fn broken(object: &Value, old: Option<&Value>) -> Vec<String> {
    let verdict = Validator::new().validate(&schema(), object, old);
    verdict
        .err()
        .map(ValidationErrors::into_vec)
        .unwrap_or_default()
        .into_iter()
        .map(|error| error.message)
        .collect()
}

fn check(spec: &Value, message: Option<&str>) {
    let expected: Vec<&str> = message.into_iter().collect();
    assert_eq!(broken(&parent("shop", spec), None), expected, "{spec}");
}

#[test]
fn names_leave_room_for_derived_names() {
    let cases = [
        ("shop", None),
        ("a-b-1", None),
        (&*"a".repeat(40), None),
        (
            &*"a".repeat(41),
            Some("metadata.name must be at most 40 characters"),
        ),
        (
            "9shop",
            Some("metadata.name must be a DNS label that starts with a letter"),
        ),
        (
            "shop.eu",
            Some("metadata.name must be a DNS label that starts with a letter"),
        ),
        (
            "shop-mysql",
            Some(
                "metadata.name must not end in -mysql or -mysql-exporter: these names belong to \
                 the database of another site",
            ),
        ),
    ];
    for (name, message) in cases {
        let expected: Vec<&str> = message.into_iter().collect();
        assert_eq!(broken(&parent(name, &json!({})), None), expected, "{name}");
    }
}

#[test]
fn rules_on_passwords() {
    let differ =
        "sqlrootpassword and sqlRootPassword are two spellings of one field and must not differ";
    let characters = "the root password must not contain quotes, backslashes or control characters";
    check(&json!({ "sqlrootpassword": "abc" }), None);
    check(
        &json!({ "sqlrootpassword": "a", "sqlRootPassword": "a" }),
        None,
    );
    check(
        &json!({ "sqlrootpassword": "a", "sqlRootPassword": "b" }),
        Some(differ),
    );
    for password in ["it's", "a\\b", "a\"b", "a\nb", "a\u{7f}"] {
        check(&json!({ "sqlrootpassword": password }), Some(characters));
        check(&json!({ "sqlRootPassword": password }), Some(characters));
    }
    let external = json!({ "host": "db", "credentialsSecretRef": { "name": "s" } });
    check(&json!({ "database": { "external": external } }), None);
    check(
        &json!({ "sqlRootPassword": "a", "database": { "external": external } }),
        Some("sqlrootpassword has no use with an external database"),
    );
    check(
        &json!({
            "sqlrootpassword": "a",
            "database": { "managed": { "credentialsSecretRef": { "name": "s" } } },
        }),
        Some("give either sqlrootpassword or database.managed.credentialsSecretRef"),
    );
    check(
        &json!({ "database": { "external": external, "managed": {} } }),
        Some("choose one of database.managed and database.external"),
    );
}

#[test]
fn rules_on_replicas_and_budgets() {
    let shared = "more than one replica needs code and media on ReadWriteMany claims, git, \
                  emptyDir or object storage";
    let code = |claim: Value| json!({ "persistentVolumeClaim": claim });
    check(&json!({ "replicas": 1 }), None);
    check(&json!({ "replicas": 2 }), Some(shared));
    check(&json!({ "replicas": 2, "code": {} }), Some(shared));
    check(
        &json!({ "replicas": 2, "code": code(json!({})) }),
        Some(shared),
    );
    check(
        &json!({ "replicas": 2, "code": code(json!({ "existingClaim": "a" })) }),
        None,
    );
    let many = code(json!({ "accessModes": ["ReadWriteMany"] }));
    check(&json!({ "replicas": 2, "code": many }), None);

    let budget = |budget: Value, message: Option<&str>| {
        let spec = json!({ "replicas": 2, "code": many, "podDisruptionBudget": budget });
        check(&spec, message);
    };
    let exactly = "podDisruptionBudget needs exactly one of minAvailable and maxUnavailable";
    let lower = "podDisruptionBudget.minAvailable must be lower than the number of replicas";
    let block = "podDisruptionBudget would block every eviction";
    let number = "minAvailable and maxUnavailable must be a number or a percentage";
    budget(json!({}), None);
    budget(json!({ "enabled": true }), Some(exactly));
    budget(
        json!({ "enabled": true, "minAvailable": 1, "maxUnavailable": 1 }),
        Some(exactly),
    );
    budget(json!({ "enabled": true, "minAvailable": 1 }), None);
    budget(json!({ "enabled": true, "minAvailable": 2 }), Some(lower));
    for value in ["50%", "0%"] {
        budget(json!({ "enabled": true, "minAvailable": value }), None);
    }
    for value in [json!(1), json!("100%"), json!("5%")] {
        budget(json!({ "enabled": true, "maxUnavailable": value }), None);
    }
    for (value, message) in [
        (json!("100%"), block),
        (json!("101%"), number),
        (json!("x"), number),
        (json!("0x1"), number),
        (json!(-1), number),
    ] {
        budget(
            json!({ "enabled": true, "minAvailable": value }),
            Some(message),
        );
    }
    for (value, message) in [
        (json!(0), block),
        (json!("0%"), block),
        (json!("-5%"), number),
        (json!("1"), number),
    ] {
        budget(
            json!({ "enabled": true, "maxUnavailable": value }),
            Some(message),
        );
    }
    check(
        &json!({ "podDisruptionBudget": { "enabled": true, "minAvailable": 1 } }),
        Some(lower),
    );
}

#[test]
fn rules_on_serving() {
    let routes = json!([{ "domain": "a.org" }]);
    check(
        &json!({ "tlsSecretRef": "t" }),
        Some("tlsSecretRef needs at least one route"),
    );
    check(&json!({ "tlsSecretRef": "t", "routes": routes }), None);
    check(
        &json!({ "ingress": { "enabled": true }, "routes": [] }),
        Some("ingress.enabled needs at least one route"),
    );
    check(
        &json!({ "ingress": { "enabled": true }, "routes": routes }),
        None,
    );
    check(&json!({ "ingress": { "enabled": false } }), None);
    let port = "service.nodePort needs service.type NodePort or LoadBalancer";
    check(&json!({ "service": { "nodePort": 30080 } }), Some(port));
    check(
        &json!({ "service": { "nodePort": 30080, "type": "ClusterIP" } }),
        Some(port),
    );
    check(
        &json!({ "service": { "nodePort": 30080, "type": "NodePort" } }),
        None,
    );
}

#[test]
fn rules_on_variables_and_metadata() {
    check(
        &json!({ "env": [{ "name": "WORDPRESS_CONFIG_EXTRA", "value": "x" }] }),
        Some("use configExtra instead of the variable WORDPRESS_CONFIG_EXTRA"),
    );
    check(&json!({ "env": [{ "name": "OTHER", "value": "x" }] }), None);
    let prefixes = "podMetadata must not use the prefixes app.kubernetes.io/ (labels) and \
                    example.com/ (annotations)";
    let labels = json!({ "labels": { "app.kubernetes.io/name": "x" } });
    check(&json!({ "podMetadata": labels }), Some(prefixes));
    let annotations = json!({ "annotations": { "example.com/a": "x" } });
    check(&json!({ "podMetadata": annotations }), Some(prefixes));
    let fine = json!({ "labels": { "example.com/a": "x" }, "annotations": { "a": "b" } });
    check(&json!({ "podMetadata": fine }), None);
}

#[test]
fn rules_on_claims_and_on_changes() {
    for size in [json!("0"), json!(0)] {
        check(
            &json!({ "code": { "persistentVolumeClaim": { "size": size } } }),
            Some("size must be greater than zero"),
        );
    }
    let managed = |block: Value| parent("shop", &json!({ "database": { "managed": block } }));
    let storage = |claim: Value| managed(json!({ "storage": claim }));
    let change = |old: &Value, new: &Value, message: Option<&str>| {
        let expected: Vec<&str> = message.into_iter().collect();
        assert_eq!(broken(new, Some(old)), expected, "{new}");
    };
    let base = storage(json!({ "size": "10Gi", "accessModes": ["ReadWriteOnce"] }));
    let with = |size: &str, class: Option<&str>, mode: &str| {
        let mut claim = json!({ "size": size, "accessModes": [mode] });
        if let Some(class) = class {
            claim["storageClassName"] = json!(class);
        }
        storage(claim)
    };
    change(&base, &with("10240Mi", None, "ReadWriteOnce"), None);
    change(&base, &with("20Gi", None, "ReadWriteOnce"), None);
    change(
        &base,
        &with("5Gi", None, "ReadWriteOnce"),
        Some("a claim cannot shrink"),
    );
    let class = Some("the storage class of a claim cannot change");
    change(&base, &with("10Gi", Some("a"), "ReadWriteOnce"), class);
    change(&with("10Gi", Some("a"), "ReadWriteOnce"), &base, class);
    let modes = Some("the access modes of a claim cannot change");
    change(&base, &with("10Gi", None, "ReadWriteMany"), modes);
    change(
        &managed(json!({ "databaseName": "a" })),
        &managed(json!({ "databaseName": "b" })),
        Some("database.managed.databaseName cannot change"),
    );
}

#[test]
fn defaults_are_in_the_definition() {
    let schema = schema();
    let default = |path: &str| {
        let pointer = path.replace('.', "/properties/");
        schema.pointer(&pointer).unwrap()["default"].clone()
    };
    assert_eq!(default(".spec.containerPort"), 80);
    assert_eq!(default(".spec.deletionPolicy"), "Retain");
    assert_eq!(default(".spec.podDisruptionBudget.enabled"), false);
    let managed = ".spec.database.managed";
    assert_eq!(default(&format!("{managed}.databaseName")), "wordpress");
    let storage = json!({ "size": "10Gi", "accessModes": ["ReadWriteOnce"] });
    assert_eq!(default(&format!("{managed}.storage")), storage);
    let reference = format!("{managed}.credentialsSecretRef");
    assert_eq!(
        default(&format!("{reference}.rootPasswordKey")),
        "root-password"
    );
    assert_eq!(default(".spec.database.external.port"), 3306);
    assert_eq!(default(".spec.code.persistentVolumeClaim.size"), "10Gi");
}

#[test]
fn the_definition_is_small_and_has_no_field_without_effect() {
    let text = definition().to_string();
    assert!(text.len() < 256 * 1024, "{} bytes", text.len());
    let schema = schema();
    let path = "/properties/spec/properties/database/properties/managed/properties/storage";
    let storage = schema.pointer(path).unwrap()["properties"]
        .as_object()
        .unwrap();
    assert_eq!(
        storage.keys().collect::<Vec<_>>(),
        ["accessModes", "dataSource", "size", "storageClassName"]
    );
    assert!(
        schema
            .pointer("/properties/spec/properties/autoscaling")
            .is_none()
    );
}

#[test]
fn the_published_examples_are_admitted() {
    let article = json!({ "sqlrootpassword": "abc" });
    check(&article, None);
    let parsed: Wordpress = serde_json::from_value(parent("example-wordpress", &article)).unwrap();
    assert_eq!(parsed.spec.root_password(), Some("abc"));
    assert_eq!(parsed.spec.container_port, 80);
}

#[test]
fn the_configuration_admits_no_other_keys() {
    let schema = Plugin::describe().config_schema.unwrap();
    assert_eq!(schema["additionalProperties"], false);
    let keys: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["assignUser", "images", "ingressClassName", "tenants"]
    );
    let images = &schema["properties"]["images"];
    assert_eq!(images["additionalProperties"], false);
}

#[test]
fn the_definition_describes_each_field_and_has_no_default_in_the_status() {
    let problems = definition_problems(&Plugin::describe());
    assert_eq!(problems, Vec::<String>::new());
}
