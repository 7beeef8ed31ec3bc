//! The CRD and the configuration schema.

use innkeeper_sdk::testing::definition_problems;
use serde_json::{Value, json};

use super::{PLUGIN, parent};
use crate::api::Wordpress;

fn properties() -> &'static Value {
    PLUGIN.root("Wordpress")
}

#[test]
fn defaults_are_in_the_definition() {
    let schema = properties();
    let default = |path: &str| {
        let pointer = path.replace('.', "/properties/");
        schema.pointer(&pointer).unwrap()["default"].clone()
    };
    assert_eq!(default(".spec.containerPort"), 80);
    assert_eq!(default(".spec.deletionPolicy"), "Retain");
    assert_eq!(default(".spec.podDisruptionBudget.enabled"), false);
    let managed = ".spec.database.managed";
    assert_eq!(default(&format!("{managed}.databaseName")), "wordpress");
    assert_eq!(default(&format!("{managed}.startupSeconds")), 600);
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
    let text = PLUGIN.manifest.crds[0].to_string();
    assert!(text.len() < 256 * 1024, "{} bytes", text.len());
    let schema = properties();
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

// A new plugin version works with the last version's grants.
#[test]
fn kinds_of_features_are_optional() {
    let required: Vec<&str> = PLUGIN
        .manifest
        .children
        .iter()
        .filter(|child| child.required)
        .map(|child| &*child.kind)
        .collect();
    let always = [
        "Secret",
        "PersistentVolumeClaim",
        "Service",
        "StatefulSet",
        "Deployment",
    ];
    assert_eq!(required, always);
}

#[test]
fn the_article_parses_with_its_defaults() {
    let article = json!({ "sqlrootpassword": "abc" });
    let parsed: Wordpress = serde_json::from_value(parent("example-wordpress", &article)).unwrap();
    assert_eq!(parsed.spec.root_password(), Some("abc"));
    assert_eq!(parsed.spec.container_port, 80);
}

#[test]
fn the_configuration_admits_no_other_keys() {
    let schema = PLUGIN.manifest.config_schema.as_ref().unwrap();
    assert_eq!(schema["additionalProperties"], false);
    let keys: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["assignUser", "images", "ingressClassName", "tenants"]
    );
    let images = &schema["properties"]["images"];
    assert_eq!(images["additionalProperties"], false);
}

/// The paths of enums whose description omits a value.
fn unexplained(path: &str, schema: &Value, found: &mut Vec<String>) {
    let text = schema["description"].as_str().unwrap_or_default();
    let items = schema.get("items").unwrap_or(schema);
    let mut values = items["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|value| value.as_str().unwrap_or_default());
    if !values.all(|value| text.contains(value)) {
        found.push(path.to_owned());
    }
    for (name, below) in items["properties"].as_object().into_iter().flatten() {
        unexplained(&format!("{path}.{name}"), below, found);
    }
}

#[test]
fn a_field_explains_each_value_of_an_enum() {
    let mut paths = Vec::new();
    unexplained("", properties(), &mut paths);
    assert_eq!(paths, Vec::<String>::new());
}

#[test]
fn the_definition_describes_each_field_and_has_no_default_in_the_status() {
    let problems = definition_problems(&PLUGIN.manifest);
    assert_eq!(problems, Vec::<String>::new());
}
