//! Tests of managed fields: A1, A2, A4.

use std::time::{Duration, Instant};

use innkeeper_model::{Access, ManagedEntry, Object};
use serde_json::{Value, json};

use super::build::{fields, observed};
use crate::{
    fields::{Owned, covers, owns_exactly},
    first_difference, owned_part,
};

#[track_caller]
fn check_covers(owned: Value, stated: Value, expected: bool) {
    let text = owned.to_string();
    let covered = Owned::parse(&text).is_some_and(|owned| covers(&owned, &fields(stated.clone())));
    assert_eq!(covered, expected, "{owned} {stated}");
}

/// Returns true if a manager with the fields `owned` owns exactly the stated fields, with the observed values.
fn owns(owned: &Value, stated: &Value, observed: &Value) -> bool {
    let text = owned.to_string();
    owns_exactly(Owned::parse(&text).as_ref(), stated, observed)
}

#[test]
fn names_are_found_in_any_order() {
    let owned = Owned::parse(
        r#"{"f:b": {"f:x": {}}, ".": {}, "f:a\u0062": {}, "k:{}": {}, "é": {}, "f:": {}}"#,
    )
    .unwrap();
    for name in ["b", "ab", ""] {
        assert!(owned.field(name).is_some(), "{name}");
    }
    for name in ["a", "x", "b:", "é"] {
        assert!(owned.field(name).is_none(), "{name}");
    }
    assert!(owned.into_field("b").unwrap().field("x").is_some());
    for text in ["", "[]", "{\"f:a\": 1}", "{\"f:a\": {}} x"] {
        assert!(Owned::parse(text).is_none(), "{text}");
    }
}

#[test]
fn every_leaf_has_to_be_covered() {
    let owned = json!({"f:data": {"f:a": {}}, "f:metadata": {"f:labels": {"f:x": {}}}});
    check_covers(owned.clone(), json!({"data": {"a": "1"}}), true);
    check_covers(owned.clone(), json!({"data": {"a": "1", "b": "2"}}), false);
    check_covers(
        owned.clone(),
        json!({"metadata": {"labels": {"x": "1"}}}),
        true,
    );
    check_covers(
        owned.clone(),
        json!({"metadata": {"labels": {"y": "1"}}}),
        false,
    );
    check_covers(owned, json!({"type": "Opaque"}), false);
    check_covers(json!({}), json!({"data": {"a": "1"}}), false);
    check_covers(Value::Null, json!({"data": {"a": "1"}}), false);
}

#[test]
fn identity_and_status_need_no_cover() {
    let stated = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}, "status": {"x": 1},
    });
    check_covers(json!({"f:metadata": {}}), stated, true);
}

#[test]
fn empty_lists_need_no_cover_and_empty_maps_do() {
    let owned = json!({"f:spec": {"f:a": {}}});
    check_covers(owned.clone(), json!({"spec": {"a": 1, "list": []}}), true);
    check_covers(
        owned.clone(),
        json!({"spec": {"a": 1}, "more": {"list": []}}),
        true,
    );
    check_covers(owned, json!({"spec": {"a": 1, "map": {}}}), false);
    check_covers(
        json!({"f:spec": {"f:map": {}}}),
        json!({"spec": {"map": {}}}),
        true,
    );
}

#[test]
fn a_member_without_members_covers_all_fields_below_it() {
    let owned = json!({"f:spec": {"f:selector": {}}});
    check_covers(
        owned.clone(),
        json!({"spec": {"selector": {"app": "web"}}}),
        true,
    );
    check_covers(owned, json!({"spec": {"selector": [{"a": 1}, 2]}}), true);
}

#[test]
fn list_items_are_found_by_their_keys_with_the_servers_defaults() {
    let port =
        |port: u16, protocol: &str| format!("k:{{\"port\":{port},\"protocol\":\"{protocol}\"}}");
    let node = json!({".": {}, "f:port": {}});
    let both = json!({"f:ports": {port(53, "TCP"): node, port(53, "UDP"): {".": {}, "f:port": {}, "f:protocol": {}}}});
    let udp = json!({"port": 53, "protocol": "UDP"});
    let tcp = json!({"port": 53});
    check_covers(both.clone(), json!({"ports": [tcp, udp]}), true);
    check_covers(both.clone(), json!({"ports": [udp, tcp]}), true);
    check_covers(both.clone(), json!({"ports": [{"port": 54}]}), false);
    check_covers(both, json!({"ports": [{"port": 53, "name": "dns"}]}), false);
    let only_udp = json!({"f:ports": {port(53, "UDP"): {".": {}, "f:port": {}, "f:protocol": {}}}});
    check_covers(only_udp.clone(), json!({"ports": [udp]}), true);
    check_covers(only_udp, json!({"ports": [tcp]}), false);
}

#[test]
fn an_unknown_default_of_a_key_is_matched_once() {
    let owned = json!({"f:list": {"k:{\"mode\":\"x\",\"name\":\"a\"}": {".": {}, "f:name": {}}}});
    check_covers(owned.clone(), json!({"list": [{"name": "a"}]}), true);
    check_covers(
        owned,
        json!({"list": [{"name": "a"}, {"name": "a"}]}),
        false,
    );
}

#[test]
fn items_of_sets_are_found_by_their_value() {
    let owned = json!({"f:metadata": {"f:finalizers": {".": {}, "v:\"a\"": {}, "v:\"b\"": {}}}});
    check_covers(
        owned.clone(),
        json!({"metadata": {"finalizers": ["b", "a"]}}),
        true,
    );
    check_covers(owned, json!({"metadata": {"finalizers": ["c"]}}), false);
}

#[test]
fn owning_exactly_means_the_same_paths_with_the_same_values() {
    let observed = json!({
        "n": 1, "text": "a", "theirs": true, "list": [1, 2], "map": {"a": "1", "b": "2"}, "empty": {"x": 1}, "none": [],
        "members": [{"name": "x", "ok": true, "more": 1}, {"name": "y"}],
    });
    let x = "k:{\"name\":\"x\"}";
    for (owned, stated, expected) in [
        (json!({"f:n": {}}), json!({"n": 1.0}), true),
        (json!({"f:n": {}}), json!({"n": 2}), false),
        (json!({"f:n": {}, "f:text": {}}), json!({"n": 1}), false),
        (json!({"f:n": {}}), json!({"n": 1, "text": "a"}), false),
        (json!({"f:list": {}}), json!({"list": [1, 2]}), true),
        (json!({"f:list": {}}), json!({"list": [2, 1]}), false),
        (
            json!({"f:map": {"f:a": {}}}),
            json!({"map": {"a": "1"}}),
            true,
        ),
        (
            json!({"f:map": {"f:a": {}, "f:b": {}}}),
            json!({"map": {"a": "1"}}),
            false,
        ),
        (json!({"f:map": {}}), json!({"map": {"a": "1"}}), false),
        (json!({"f:empty": {}}), json!({"empty": {}}), true),
        (json!({"f:n": {}}), json!({"n": 1, "none": []}), true),
        (json!({"f:n": {}}), json!({"n": 1, "absent": []}), false),
        (
            json!({"f:members": {x: {".": {}, "f:name": {}, "f:ok": {}}}}),
            json!({"members": [{"name": "x", "ok": true}]}),
            true,
        ),
        (
            json!({"f:members": {x: {".": {}, "f:name": {}, "f:ok": {}}}}),
            json!({"members": [{"name": "x", "ok": false}]}),
            false,
        ),
        (
            json!({"f:members": {x: {".": {}, "f:name": {}}}}),
            json!({"members": [{"name": "x"}, {"name": "y"}]}),
            false,
        ),
        (
            json!({"f:members": {x: {".": {}, "f:name": {}}}}),
            json!({"members": []}),
            false,
        ),
    ] {
        assert_eq!(
            owns(&owned, &stated, &observed),
            expected,
            "{owned} {stated}"
        );
    }
    assert!(!owns_exactly(None, &json!({"n": 1}), &observed));
    assert!(!owns(
        &json!({"f:list": {}}),
        &json!({"list": [1]}),
        &json!({})
    ));
    let large = (
        json!({"n": 9_007_199_254_740_993_u64}),
        json!({"n": 9_007_199_254_740_992_u64}),
    );
    assert!(!owns(&json!({"f:n": {}}), &large.0, &large.1));
}

#[test]
fn the_first_field_that_differs_is_named() {
    let object = observed(&json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "uid": "u", "resourceVersion": "1", "labels": {"b": "1"}},
        "data": {"a": "1", "b": "2"},
    }));
    let named = |body: Value| {
        let field = first_difference(&fields(body), &object);
        field.map(|field| field.to_string())
    };
    let same = json!({
        "metadata": {"name": "a", "annotations": {}, "labels": {"b": "1"}}, "data": {"a": "1"},
    });
    assert_eq!(
        named(json!({"metadata": {"name": "a"}, "data": {"a": "1"}})),
        None
    );
    assert_eq!(named(same).as_deref(), Some("metadata.annotations"));
    assert_eq!(
        named(json!({"data": {"a": "1", "b": "3"}})).as_deref(),
        Some("data.b")
    );
    assert_eq!(
        named(json!({"data": {"c": "1"}})).as_deref(),
        Some("data.c")
    );
    let hashed = Object {
        form: Access::Hash,
        ..object
    };
    assert_eq!(
        first_difference(&fields(json!({"data": {}})), &hashed),
        None
    );
}

#[test]
fn a3_the_owners_of_a_field_are_named() {
    let entry = |manager: &str, fields: Value| ManagedEntry {
        manager: manager.into(),
        subresource: None,
        applied: false,
        fields: fields.to_string().into(),
    };
    let object = Object {
        managed: vec![
            entry("scaler", json!({"f:spec": {"f:replicas": {}}})),
            entry("atomic", json!({"f:spec": {}})),
            entry(
                "other",
                json!({"f:spec": {"f:paused": {}}, "f:metadata": {}}),
            ),
            entry("broken", json!([])),
            entry("scaler", json!({"f:spec": {"f:replicas": {}}})),
        ],
        ..observed(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "1"},
            "spec": {"replicas": 7},
        }))
    };
    let body = fields(json!({"spec": {"replicas": 1}}));
    let field = first_difference(&body, &object).unwrap();
    assert_eq!(
        Vec::from_iter(field.managers(&object)),
        ["atomic", "scaler"]
    );
}

#[test]
fn only_the_own_part_of_an_object_is_compared() {
    let owned = json!({"f:spec": {
        "f:replicas": {}, "f:paused": {},
        "f:items": {"k:{\"name\":\"a\"}": {"f:n": {}}, "k:{\"name\":\"gone\"}": {"f:n": {}}},
    }});
    let object = Object {
        managed: vec![ManagedEntry {
            manager: "own".into(),
            subresource: None,
            applied: true,
            fields: owned.to_string().into(),
        }],
        ..observed(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "1"},
            "spec": {
                "replicas": 7, "paused": true, "theirs": 1,
                "items": [
                    {"name": "injected"}, {"name": "gone", "n": 1, "defaulted": 2},
                    {"name": "a", "n": 1, "defaulted": 2},
                ],
            },
        }))
    };
    let body = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"replicas": 1, "items": [{"name": "a", "n": 3}]},
    });
    let part = owned_part(&fields(body), &object, "own");
    let expected = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {
            "replicas": 7, "paused": true,
            "items": [{"name": "a", "n": 1}, {"name": "gone", "n": 1, "defaulted": 2}],
        },
    });
    assert_eq!(part, expected);
}

/// A child of 1 MiB has so many items, and every pass compares them with the managed fields.
#[test]
fn the_items_of_a_long_list_are_matched_in_little_time() {
    const ITEMS: usize = 30_000;
    let fresh = |name: &str, make: &dyn Fn(usize) -> (String, Value, Value)| {
        let all: Vec<_> = (0..ITEMS).map(make).collect();
        let members = all.iter().map(|(member, ..)| (member.clone(), json!({})));
        let owned = json!({"f:list": Value::Object(members.collect())});
        // The API server sorts members, and the plugin states the items in another order.
        let stated: Vec<&Value> = all.iter().rev().map(|(_, stated, _)| stated).collect();
        let observed: Vec<&Value> = all.iter().map(|(.., observed)| observed).collect();
        let started = Instant::now();
        check_covers(owned.clone(), json!({"list": stated}), true);
        assert!(
            owns(&owned["f:list"], &json!(stated), &json!(observed)),
            "{name}"
        );
        let took = started.elapsed();
        assert!(took < Duration::from_secs(10), "{name}: {took:?}");
    };
    fresh("values", &|number| {
        let value = json!(format!("v{number}"));
        (format!("v:{value}"), value.clone(), value)
    });
    fresh("keys", &|number| {
        let item = json!({"name": format!("n{number}")});
        (format!("k:{item}"), item.clone(), item)
    });
    fresh("keys with a default", &|number| {
        let item = json!({"port": number, "protocol": "TCP"});
        (format!("k:{item}"), json!({"port": number}), item)
    });
}
