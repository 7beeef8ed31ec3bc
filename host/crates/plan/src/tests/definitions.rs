//! Applies for CustomResourceDefinitions.

use innkeeper_model::{HashKey, Object, PluginName};
use serde_json::{Value, json};

use super::build::{fields, observed};
use crate::{DefinitionWrite, plan_definition};

const NAME: &str = "webs.example.dev";

fn plugin() -> PluginName {
    PluginName::new("web").unwrap()
}

fn plan(existing: Option<&Object>, desired: &Value) -> Option<DefinitionWrite> {
    let key = HashKey::new(*b"key");
    plan_definition(&plugin(), &key, NAME, existing, &fields(desired.clone()))
}

fn definition(spec: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": spec,
    })
}

/// Returns the definition as the API server stores it after an apply for the plugin.
fn stored(desired: &Value) -> Value {
    let mut object = Value::Object(plan(None, desired).unwrap().body);
    object["metadata"]["uid"] = json!("u1");
    object["metadata"]["resourceVersion"] = json!("7");
    object["metadata"]["managedFields"] = json!([{
        "manager": plugin().field_manager(),
        "operation": "Apply",
        "fieldsV1": {"f:metadata": {"f:labels": {}, "f:annotations": {}}, "f:spec": {}},
    }]);
    object
}

#[test]
fn is_created_once_and_then_unchanged_a1() {
    let desired = definition(json!({"scope": "Namespaced"}));
    let write = plan(None, &desired).unwrap();
    assert_eq!(write.replaces, None);
    assert_eq!(
        write.body["metadata"]["labels"]["innkeeper.dev/plugin"],
        "web"
    );
    let existing = stored(&desired);
    assert_eq!(plan(Some(&observed(&existing)), &desired), None);
    let other = definition(json!({"scope": "Namespaced", "names": {"kind": "Web"}}));
    let write = plan(Some(&observed(&existing)), &other).unwrap();
    assert_eq!(write.replaces.unwrap().1.0, 7);
    // Another field manager took over all fields.
    let mut taken = existing;
    taken["metadata"]["managedFields"] = json!([]);
    assert!(plan(Some(&observed(&taken)), &desired).is_some());
}
