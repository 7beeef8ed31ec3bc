//! Definitions: one test per refusal.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use expect_test::{Expect, expect};
use innkeeper_model::{
    Access, Gvk, LABEL_PLUGIN, Object, ParentKind, PluginName, ResourceVersion, Scope, Uid,
};
use serde_json::{Map, Value, json};

use super::{Installed, Refusal, check, check_installed};

fn plugin() -> PluginName {
    PluginName::new("web").unwrap()
}

fn fields(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// Returns a definition with this schema for `spec`.
fn definition(spec: Value) -> Value {
    let conditions = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
    });
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": spec,
            "status": {"type": "object", "properties": {"conditions": conditions}},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "webs.example.dev"},
        "spec": {
            "group": "example.dev",
            "scope": "Namespaced",
            "names": {"kind": "Web", "plural": "webs"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

/// Returns the definition as the API server stores it after an apply for a plugin.
fn stored(plugin: &PluginName, desired: &Value) -> Value {
    let mut object = desired.clone();
    object["metadata"]["labels"] = json!({LABEL_PLUGIN: plugin.as_str()});
    object["status"] = json!({"storedVersions": ["v1"]});
    object
}

fn observed(definition: &Value) -> Object {
    let metadata = &definition["metadata"];
    let labels = metadata["labels"].as_object().unwrap();
    Object {
        kind: Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        namespace: None,
        name: metadata["name"].as_str().unwrap().into(),
        uid: Uid("u1".into()),
        resource_version: ResourceVersion(7),
        generation: None,
        deletion_timestamp: metadata["deletionTimestamp"].as_str().map(Into::into),
        controller: None,
        finalizers: Vec::new(),
        labels: labels
            .iter()
            .map(|(key, value)| (key.as_str().into(), value.as_str().unwrap().into()))
            .collect(),
        annotations: BTreeMap::new(),
        retained_for: None,
        managed: Vec::new(),
        form: Access::Full,
        json: definition.to_string().into(),
    }
}

fn compare(existing: &Value, desired: &Value, has_served: bool) -> Result<Installed, Refusal> {
    let desired = fields(desired.clone());
    check_installed(&plugin(), &observed(existing), &desired, has_served)
}

#[track_caller]
fn check_refused(existing: &Value, desired: &Value, expected: Expect) {
    expected.assert_eq(&compare(existing, desired, false).unwrap_err().to_string());
}

#[test]
fn rejects_unnamed() {
    let refused = check(&fields(json!({"kind": "CustomResourceDefinition"})), &[]);
    expect!["this is not an apiextensions.k8s.io/v1 CustomResourceDefinition with a metadata.name"]
        .assert_eq(&refused.unwrap_err().to_string());
}

#[test]
fn rejects_conversion_webhook() {
    let mut desired = definition(json!({"type": "object"}));
    desired["spec"]["conversion"] = json!({"strategy": "Webhook"});
    let refused = check(&fields(desired), &[]).unwrap_err();
    expect!["CustomResourceDefinition webs.example.dev converts versions with a webhook, which a plugin cannot serve: set spec.conversion.strategy to None"]
        .assert_eq(&refused.to_string());
}

#[test]
fn rejects_foreign() {
    let desired = definition(json!({"type": "object"}));
    let mut existing = stored(&plugin(), &desired);
    existing["metadata"]["labels"] = json!({});
    check_refused(
        &existing,
        &desired,
        expect![
            "CustomResourceDefinition webs.example.dev exists and was not installed by innkeeper: to hand it to this plugin, run kubectl label --overwrite crd webs.example.dev innkeeper.dev/plugin=web"
        ],
    );
    let other = stored(&PluginName::new("other").unwrap(), &desired);
    check_refused(
        &other,
        &desired,
        expect![
            "CustomResourceDefinition webs.example.dev exists and belongs to plugin other: to hand it to this plugin, run kubectl label --overwrite crd webs.example.dev innkeeper.dev/plugin=web"
        ],
    );
}

#[test]
fn rejects_deleting() {
    let desired = definition(json!({"type": "object"}));
    let mut existing = stored(&plugin(), &desired);
    existing["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    check_refused(
        &existing,
        &desired,
        expect![
            "CustomResourceDefinition webs.example.dev is being deleted: wait until it is gone"
        ],
    );
}

#[test]
fn rejects_scope() {
    let mut desired = definition(json!({"type": "object"}));
    let existing = stored(&plugin(), &desired);
    desired["spec"]["scope"] = json!("Cluster");
    check_refused(
        &existing,
        &desired,
        expect![
            "CustomResourceDefinition webs.example.dev exists with scope Namespaced, the plugin defines it with Cluster: delete it together with all its objects, or use the plugin that installed it"
        ],
    );
}

#[test]
fn rejects_version_gone() {
    let desired = definition(json!({"type": "object"}));
    let mut existing = stored(&plugin(), &desired);
    existing["status"]["storedVersions"] = json!(["v1alpha1", "v1"]);
    check_refused(
        &existing,
        &desired,
        expect![
            "CustomResourceDefinition webs.example.dev serves or stores version v1alpha1, which the plugin does not define: add it to the plugin, or set spec.crds: Ignore in the Plugin to keep the installed definition"
        ],
    );
    let mut existing = stored(&plugin(), &desired);
    let mut beta = existing["spec"]["versions"][0].clone();
    beta["name"] = json!("v1beta1");
    existing["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .push(beta);
    check_refused(
        &existing,
        &desired,
        expect![
            "CustomResourceDefinition webs.example.dev serves or stores version v1beta1, which the plugin does not define: add it to the plugin, or set spec.crds: Ignore in the Plugin to keep the installed definition"
        ],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn rejects_narrower() {
    let old = json!({
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 5},
            "mode": {"type": "string", "enum": ["a", "b"]},
            "name": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "map": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 9}},
        },
    });
    let existing = stored(&plugin(), &definition(old.clone()));
    let narrowed = |pointer: &str, field: &str, value: Value| {
        let mut new = old.clone();
        let place = new.pointer_mut(pointer).unwrap();
        if value.is_null() {
            place.as_object_mut().unwrap().remove(field);
        } else {
            place[field] = value;
        }
        match compare(&existing, &definition(new), false) {
            Ok(_) => "wider".to_owned(),
            Err(refused) => {
                let text = refused.to_string();
                let (_, rest) = text.split_once("would become narrower (").unwrap();
                let (changes, _) = rest.split_once("): use a plugin").unwrap();
                changes.to_owned()
            }
        }
    };
    for (pointer, field, value, expected) in [
        (
            "/properties",
            "name",
            Value::Null,
            "v1 spec.name is dropped",
        ),
        ("/properties", "more", json!({"type": "string"}), "wider"),
        (
            "/properties/size",
            "type",
            json!("string"),
            "v1 spec.size gets the type string",
        ),
        ("/properties/size", "type", json!("number"), "wider"),
        (
            "/properties/size",
            "minimum",
            json!(2),
            "v1 spec.size gets a narrower minimum",
        ),
        ("/properties/size", "minimum", json!(0), "wider"),
        (
            "/properties/size",
            "maximum",
            json!(4),
            "v1 spec.size gets a narrower maximum",
        ),
        ("/properties/size", "maximum", Value::Null, "wider"),
        (
            "/properties/name",
            "pattern",
            json!("^a"),
            "v1 spec.name gets another pattern",
        ),
        (
            "/properties/mode",
            "enum",
            json!(["a"]),
            "v1 spec.mode no longer takes \"b\"",
        ),
        ("/properties/mode", "enum", json!(["a", "b", "c"]), "wider"),
        (
            "/properties/name",
            "enum",
            json!(["a"]),
            "v1 spec.name gets an enum",
        ),
        (
            "",
            "properties",
            json!({"size": {"type": "string"}, "mode": {}, "name": {}, "list": {}, "free": {}}),
            "v1 spec.free loses x-kubernetes-preserve-unknown-fields, v1 spec.list.[] is dropped, \
             v1 spec.map is dropped, v1 spec.size gets the type string",
        ),
        (
            "",
            "required",
            json!(["size", "name"]),
            "v1 spec requires name",
        ),
        ("", "required", json!([]), "wider"),
        (
            "/properties/list/items/properties",
            "x",
            Value::Null,
            "v1 spec.list.[].x is dropped",
        ),
        (
            "/properties/free",
            "x-kubernetes-preserve-unknown-fields",
            Value::Null,
            "v1 spec.free loses x-kubernetes-preserve-unknown-fields",
        ),
        (
            "/properties/map/additionalProperties",
            "maxLength",
            json!(3),
            "v1 spec.map.* gets a narrower maxLength",
        ),
        (
            "/properties/map",
            "additionalProperties",
            Value::Null,
            "v1 spec.map.* is dropped",
        ),
        (
            "",
            "x-kubernetes-validations",
            json!([{"rule": "self.size > 1"}]),
            "wider",
        ),
    ] {
        assert_eq!(
            narrowed(pointer, field, value),
            expected,
            "{pointer} {field}"
        );
    }
}

#[test]
fn a_narrower_schema_is_reported_with_its_changes_and_a_remedy() {
    let property = |names: &[&str]| {
        let properties: Map<String, Value> = names
            .iter()
            .map(|name| ((*name).to_owned(), json!({"type": "string"})))
            .collect();
        definition(json!({"type": "object", "properties": properties}))
    };
    let names: Vec<String> = (0..12).map(|index| format!("f{index:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let existing = stored(&plugin(), &property(&names));
    check_refused(
        &existing,
        &property(&names[2..]),
        expect![
            "the schema of CustomResourceDefinition webs.example.dev would become narrower (v1 spec.f00 is dropped, v1 spec.f01 is dropped): use a plugin with a compatible schema, set spec.crds: Ignore in the Plugin to keep the installed definition, or, if the change is intended, apply the CustomResourceDefinition that innkeeper manifests FILE prints, with kubectl apply --server-side --force-conflicts"
        ],
    );
    let Err(all) = compare(&existing, &property(&[]), false) else {
        panic!("everything is dropped");
    };
    let all = all.to_string();
    assert!(all.contains("v1 spec.f09 is dropped and 2 more)"), "{all}");
    let mut foreign = existing;
    foreign["metadata"]["labels"] = json!({});
    check_refused(
        &foreign,
        &property(&names[1..]),
        expect![
            "CustomResourceDefinition webs.example.dev exists and was not installed by innkeeper, and the plugin's is narrower (v1 spec.f00 is dropped): to hand it to this plugin, run kubectl label --overwrite crd webs.example.dev innkeeper.dev/plugin=web"
        ],
    );
}

/// A later revision's definition stays for an earlier one if the later one only added optional fields.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn an_earlier_revision_keeps_a_definition_that_only_adds_optional_fields() {
    let early = json!({
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1},
            "mode": {"type": "string", "enum": ["a", "b"]},
            "list": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["x"],
                "items": {"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}},
            },
            "cache": {
                "type": "object", "default": {"size": 1}, "properties": {"size": {"type": "integer"}},
            },
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    });
    let text = || json!({"type": "string"});
    let cache = |default: Value| {
        let properties = json!({"size": {"type": "integer"}, "ttl": {"type": "integer"}});
        json!({"type": "object", "default": default, "properties": properties})
    };
    /// A change's name, the fields that it sets, and true if the definition with it stays.
    type Row<'a> = (&'a str, &'a [(&'a str, Value)], bool);

    let rows: [Row<'_>; 18] = [
        ("a field", &[("/properties/more", text())], true),
        (
            "a field with a default",
            &[(
                "/properties/more",
                json!({"type": "string", "default": "x"}),
            )],
            true,
        ),
        (
            "a field of an item",
            &[("/properties/list/items/properties/more", text())],
            true,
        ),
        (
            "a field with a default, which is that of its object, too",
            &[("/properties/cache", cache(json!({"size": 1, "ttl": 5})))],
            true,
        ),
        (
            "an object with rules and required fields of its own",
            &[(
                "/properties/more",
                json!({
                    "type": "object", "required": ["x"], "properties": {"x": {"type": "string"}},
                    "x-kubernetes-validations": [{"rule": "self.x != ''"}],
                }),
            )],
            true,
        ),
        (
            "a required field with a default",
            &[
                (
                    "/properties/more",
                    json!({"type": "string", "default": "x"}),
                ),
                ("/required", json!(["size", "more"])),
            ],
            true,
        ),
        (
            "other words",
            &[("/properties/more", text()), ("/description", json!("new"))],
            true,
        ),
        (
            "a required field",
            &[
                ("/properties/more", text()),
                ("/required", json!(["size", "more"])),
            ],
            false,
        ),
        (
            "a field that became required",
            &[
                ("/properties/more", text()),
                ("/required", json!(["size", "mode"])),
            ],
            false,
        ),
        (
            "a required field of an item",
            &[
                ("/properties/list/items/properties/more", text()),
                ("/properties/list/items/required", json!(["x", "more"])),
            ],
            false,
        ),
        (
            "a value more of an enum",
            &[("/properties/mode/enum", json!(["a", "b", "c"]))],
            false,
        ),
        (
            "a narrower enum",
            &[
                ("/properties/more", text()),
                ("/properties/mode/enum", json!(["a"])),
            ],
            false,
        ),
        (
            "a narrower bound",
            &[
                ("/properties/more", text()),
                ("/properties/size/minimum", json!(2)),
            ],
            false,
        ),
        (
            "a wider type",
            &[
                ("/properties/more", text()),
                ("/properties/size/type", json!("number")),
            ],
            false,
        ),
        (
            "another default",
            &[("/properties/cache", cache(json!({"size": 2, "ttl": 5})))],
            false,
        ),
        (
            "a rule",
            &[
                ("/properties/more", text()),
                (
                    "/x-kubernetes-validations",
                    json!([{"rule": "self.size > 1"}]),
                ),
            ],
            false,
        ),
        (
            "other keys of a list",
            &[
                ("/properties/list/items/properties/more", text()),
                (
                    "/properties/list/x-kubernetes-list-map-keys",
                    json!(["x", "more"]),
                ),
            ],
            false,
        ),
        (
            "values of a map that have fields",
            &[(
                "/properties/map",
                json!({"type": "object", "properties": {"a": {"type": "string"}}}),
            )],
            false,
        ),
    ];
    let desired = definition(early.clone());
    for (name, edits, stays) in rows {
        let mut late = early.clone();
        for (pointer, value) in edits {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            late.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        let existing = stored(&plugin(), &definition(late));
        let verdict = compare(&existing, &desired, true).map_err(|refusal| refusal.to_string());
        assert_eq!(
            verdict == Ok(Installed::Stays),
            stays,
            "{name}: {verdict:?}"
        );
        // A plugin that never served would drop the values of the fields.
        assert_ne!(
            compare(&existing, &desired, false),
            Ok(Installed::Stays),
            "{name}"
        );
    }
}

#[test]
fn a_definition_with_another_version_does_not_stay() {
    let early = definition(json!({"type": "object"}));
    let late = definition(json!({"type": "object", "properties": {"a": {"type": "string"}}}));
    let with_more = |definition: &Value| {
        let mut longer = definition.clone();
        let mut version = definition["spec"]["versions"][0].clone();
        version["name"] = json!("v2");
        version["storage"] = json!(false);
        longer["spec"]["versions"]
            .as_array_mut()
            .unwrap()
            .push(version);
        longer
    };
    for (existing, desired) in [(with_more(&late), early.clone()), (late, with_more(&early))] {
        let refused = compare(&stored(&plugin(), &existing), &desired, true);
        assert!(refused.is_err(), "{refused:?}");
    }
}

#[test]
fn an_own_definition_may_gain_rules_and_reports_them() {
    let with = |rules: Value| {
        definition(json!({
            "type": "object",
            "properties": {"size": {"type": "integer", "x-kubernetes-validations": rules}},
        }))
    };
    let existing = stored(&plugin(), &with(json!([{"rule": "self > 1"}])));
    let rules = json!([{"rule": "self > 1", "message": "more"}, {"rule": "self < 9"}]);
    let new_rules = |rules: Value| match compare(&existing, &with(rules), false).unwrap() {
        Installed::Replaceable { new_rules } => new_rules,
        Installed::Stays => panic!("it does not only add fields"),
    };
    assert_eq!(
        new_rules(rules),
        ["v1 spec.size gets the rule \"self < 9\""]
    );
    assert_eq!(new_rules(json!([])), Vec::<String>::new());
}

#[test]
fn rejects_parents_whose_status_cannot_be_written() {
    let desired = definition(json!({"type": "object"}));
    let check = |desired: &Value, version: &str| {
        let parent = ParentKind {
            kind: Gvk::new("example.dev", version, "Web"),
            plural: "webs".to_owned(),
            scope: Scope::Namespaced,
        };
        check(&fields(desired.clone()), &[parent]).map_err(|refusal| refusal.to_string())
    };
    assert_eq!(check(&desired, "v1"), Ok(()));
    expect!["CustomResourceDefinition webs.example.dev does not serve example.dev/v2 Web, which the plugin uses"]
        .assert_eq(&check(&desired, "v2").unwrap_err());
    let mut without = desired.clone();
    without["spec"]["versions"][0]["subresources"] = json!({});
    expect!["CustomResourceDefinition webs.example.dev has no status subresource for example.dev/v1 Web: add subresources.status"]
        .assert_eq(&check(&without, "v1").unwrap_err());
    let mut cluster = desired.clone();
    cluster["spec"]["scope"] = json!("Cluster");
    expect!["CustomResourceDefinition webs.example.dev has the scope Cluster, the plugin's parent has Namespaced: make them the same"]
        .assert_eq(&check(&cluster, "v1").unwrap_err());
    let mut atomic = desired;
    atomic["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        ["conditions"]["x-kubernetes-list-type"] = json!("atomic");
    expect!["CustomResourceDefinition webs.example.dev does not declare status.conditions of example.dev/v1 Web as a map: add x-kubernetes-list-type: map and x-kubernetes-list-map-keys: [type]"]
        .assert_eq(&check(&atomic, "v1").unwrap_err());
}

/// A definition is as large as a description may be, and its comparison runs beside the passes of all plugins.
#[test]
fn a_comparison_of_large_definitions_takes_little_time_and_memory() {
    let names = |prefix: &str| -> Vec<String> {
        (0..40_000).map(|name| format!("{prefix}{name}")).collect()
    };
    let rules = |above: usize| -> Vec<Value> {
        (0..20_000)
            .map(|rule| json!({"rule": format!("self > {}", rule + above)}))
            .collect()
    };
    let long = "x".repeat(200_000);
    let spec = |prefix: &str, above: usize| {
        let inner = json!({
            "type": "object", "properties": {"mode": {"enum": names(prefix)}},
            "required": names(prefix), "x-kubernetes-validations": rules(above),
        });
        definition(json!({"type": "object", "properties": {&long: inner}}))
    };
    let started = Instant::now();
    let existing = stored(&plugin(), &spec("a", 0));
    let refusal = compare(&existing, &spec("b", 50_000), false)
        .unwrap_err()
        .to_string();
    assert!(
        started.elapsed() < Duration::from_mins(1),
        "{:?}",
        started.elapsed()
    );
    assert!(refusal.contains("would become narrower"), "{refusal}");
    assert!(refusal.len() < 8_000, "{} bytes", refusal.len());
}
