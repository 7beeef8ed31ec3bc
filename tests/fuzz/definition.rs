//! A plugin's CustomResourceDefinition: checked, compared with the installed one, and compiled to admit objects.

use innkeeper_crd::{self as crd, Installed, Schema};
use innkeeper_model::{Access, Gvk, HashKey, PluginName};
use serde_json::{Map, Value, json};

use super::{run::run_with, shapes};

#[test]
fn a_definition_is_refused_or_used_within_limits() {
    run_with(
        "definition",
        Vec::new(),
        Some(|shape| shapes::definition(shape).into()),
    );
}

/// Reaches the comparison with an installed definition, and an admitted object.
pub(super) fn check(input: &[u8]) -> [bool; 2] {
    let Ok(definition) = serde_json::from_slice::<Map<String, Value>>(input) else {
        return [false; 2];
    };
    [compare(&definition).is_some(), admit(&definition).is_some()]
}

/// Compares the definition with itself in another order, as another release might have installed it.
fn compare(definition: &Map<String, Value>) -> Option<()> {
    crd::check(definition, &[]).ok()?;
    let mut installed = definition.clone();
    installed
        .get_mut("metadata")?
        .as_object_mut()?
        .insert("labels".to_owned(), json!({"innkeeper.dev/plugin": "pond"}));
    for list in lists(&mut installed) {
        list.reverse();
    }
    let kind = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let key = HashKey::new([7; 32]);
    let installed = innkeeper_cluster::present(&installed, &kind, Access::Full, &key).ok()?;
    let plugin = PluginName::new("pond").unwrap();
    let verdict = crd::check_installed(&plugin, &installed, definition, false).ok()?;
    assert!(matches!(verdict, Installed::Replaceable { .. }));
    let name = crd::name_of(definition)?;
    let write = innkeeper_plan::plan_definition(&plugin, &key, name, Some(&installed), definition);
    assert!(write.is_some());
    Some(())
}

/// The value lists in the schemas.
fn lists(definition: &mut Map<String, Value>) -> Vec<&mut Vec<Value>> {
    let mut lists = Vec::new();
    let mut rest: Vec<&mut Value> = definition.values_mut().collect();
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    let is_list = ["enum", "required"].contains(&&**name) && field.is_array();
                    match field {
                        field if !is_list => rest.push(field),
                        Value::Array(items) => lists.push(items),
                        _ => {}
                    }
                }
            }
            Value::Array(items) => rest.extend(items),
            _ => {}
        }
    }
    lists
}

fn admit(definition: &Map<String, Value>) -> Option<()> {
    let schema = Schema::new(definition, "v1").ok()?;
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "Pond",
        "metadata": {"name": "a", "namespace": "demo"},
        "spec": {"a": "a".repeat(64), "f0": "b".repeat(64)},
    });
    let admitted = schema.admit(object.as_object()?.clone());
    match admitted {
        Ok(_) => Some(()),
        Err(rejection) => {
            assert!(!rejection.causes().is_empty());
            None
        }
    }
}
