//! Managed fields: A1, A2, A4.

use std::time::{Duration, Instant};

use innkeeper_model::{Access, ManagedEntry, Object};
use proptest::{collection, option, prelude::*};
use serde_json::{Map, Value, json};

use super::build::{fields, observed};
use crate::{
    body::is_covered,
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
fn a_field_that_is_stated_as_absent_needs_an_owner_only_where_it_is_there() {
    let stated = fields(json!({"spec": {"a": 1, "b": null, "c": {"d": null}}}));
    let owned = |fields: Value| ManagedEntry {
        manager: "own".into(),
        subresource: None,
        applied: true,
        fields: json!({"f:spec": fields}).to_string().into(),
    };
    for (spec, fields, expected) in [
        // The object around an absent field is stated.
        (json!({"a": 1}), json!({"f:a": {}}), false),
        (
            json!({"a": 1, "c": {}}),
            json!({"f:a": {}, "f:c": {}}),
            true,
        ),
        (
            json!({"a": 1, "b": null, "c": {}}),
            json!({"f:a": {}, "f:c": {}}),
            true,
        ),
        (
            json!({"a": 1, "b": 2}),
            json!({"f:a": {}, "f:c": {}}),
            false,
        ),
        (
            json!({"a": 1, "b": 2}),
            json!({"f:a": {}, "f:b": {}, "f:c": {}}),
            true,
        ),
        (
            json!({"a": 1, "c": {"d": {}}}),
            json!({"f:a": {}, "f:c": {"f:e": {}}}),
            false,
        ),
        (
            json!({"a": 1, "c": {"d": {}}}),
            json!({"f:a": {}, "f:c": {}}),
            true,
        ),
        // The only stated value has no owner.
        (json!({"a": 1}), json!({"f:b": {}, "f:c": {}}), false),
    ] {
        let mut object = observed(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "demo", "uid": "u", "resourceVersion": "1"},
            "spec": spec.clone(),
        }));
        object.managed = vec![owned(fields.clone())];
        assert_eq!(
            is_covered(&object, "own", &stated),
            expected,
            "{spec} {fields}"
        );
    }
}

#[test]
fn a_field_that_is_stated_as_absent_differs_only_where_it_is_there() {
    let stated = fields(json!({"spec": {"a": 1, "b": null, "c": {"d": null}}}));
    for (spec, expected) in [
        (json!({"a": 1, "c": {}}), None),
        (json!({"a": 1, "b": null, "c": {"d": null}}), None),
        (json!({"a": 1, "c": {"d": 0}}), Some("spec.c.d")),
        (json!({"a": 1, "b": {}, "c": {}}), Some("spec.b")),
    ] {
        let object = observed(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "demo", "uid": "u", "resourceVersion": "1"},
            "spec": spec,
        }));
        let difference = first_difference(&stated, &object).map(|path| path.to_string());
        assert_eq!(difference.as_deref(), expected);
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
    // The kind may have another default than the kinds of Kubernetes: we own what an apply of the same text made.
    check_covers(only_udp.clone(), json!({"ports": [tcp]}), true);
    check_covers(only_udp, json!({"ports": [tcp, udp]}), false);
}

#[test]
fn list_keys_and_set_items_are_equal_as_numbers() {
    let owned =
        json!({"f:list": {"k:{\"at\":2,\"name\":\"a\"}": {".": {}, "f:at": {}, "f:name": {}}}});
    for at in [json!(2), json!(2.0), json!(2e0)] {
        check_covers(
            owned.clone(),
            json!({"list": [{"at": at, "name": "a"}]}),
            true,
        );
    }
    check_covers(owned, json!({"list": [{"at": "2", "name": "a"}]}), false);
    let set = json!({"f:set": {"v:2": {}, "v:1000": {}, "v:0.5": {}, "v:0": {}}});
    check_covers(set.clone(), json!({"set": [2.0, 1e3, 0.5, -0.0]}), true);
    check_covers(set, json!({"set": [2.5]}), false);
}

#[test]
fn a_partial_key_takes_no_member_of_another_item() {
    // Another manager's item without a key comes before the own item.
    let udp = "k:{\"port\":80,\"protocol\":\"UDP\"}";
    let owned = json!({"f:ports": {udp: {".": {}, "f:port": {}, "f:protocol": {}, "f:name": {}}}});
    let stated = json!({"ports": [{"port": 80, "protocol": "UDP", "name": "own"}]});
    let observed = json!({"ports": [{"port": 80, "name": "theirs"}, {"port": 80, "protocol": "UDP", "name": "own"}]});
    assert!(owns(&owned, &stated, &observed));
}

/// A list key or set value, as a plugin may state it.
fn scalars() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-3..3_i64).prop_map(Value::from),
        (-6..6_i8).prop_map(|half| json!(f64::from(half) / 2.0)),
        Just(json!(1e3)),
        prop_oneof!["[ab]{0,2}", Just("k:{\"a\":1}".to_owned())].prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
    ]
}

/// Returns the value as the API server records it.
fn recorded(value: &Value) -> Value {
    match value.as_f64() {
        Some(float) if value.is_f64() && float.fract() == 0.0 => {
            serde_json::from_str(&format!("{:.0}", float + 0.0)).unwrap()
        }
        _ => value.clone(),
    }
}

/// A list key and the schema's default for it, if there is one.
type ListKey = (&'static str, Option<Value>);

fn list_keys() -> impl Strategy<Value = Vec<ListKey>> {
    collection::vec(option::of(scalars()), 1..4).prop_map(|defaults| {
        ["port", "protocol", "zone"]
            .into_iter()
            .zip(defaults)
            .collect()
    })
}

/// Returns the stated items, with distinct keys, and the members that the API server records for them.
fn list_map(keys: &[ListKey], rows: &[Vec<Option<Value>>]) -> (Vec<Value>, Map<String, Value>) {
    let mut items = Vec::new();
    let mut members = Map::new();
    for row in rows {
        let mut item = json!({"note": "x"});
        let mut complete = Map::new();
        for ((key, default), stated) in keys.iter().zip(row) {
            if let Some(stated) = stated {
                item[key] = stated.clone();
            }
            if let Some(value) = stated.as_ref().or(default.as_ref()) {
                complete.insert((*key).to_owned(), recorded(value));
            }
        }
        let mut node = json!({".": {}, "f:note": {}});
        for key in item.as_object().unwrap().keys() {
            node[format!("f:{key}")] = json!({});
        }
        let member = format!("k:{}", Value::Object(complete.clone()));
        // The API server refuses an item without any key, and two items with the same keys.
        if !complete.is_empty() && !members.contains_key(&member) {
            members.insert(member, node);
            items.push(item);
        }
    }
    (items, members)
}

proptest! {
    #[test]
    fn an_applied_list_map_is_covered_until_a_member_goes(
        keys in list_keys(),
        rows in collection::vec(collection::vec(option::of(scalars()), 3), 1..6),
        lost in any::<prop::sample::Index>(),
    ) {
        let (items, mut members) = list_map(&keys, &rows);
        prop_assume!(!items.is_empty());
        let is_covered = |members: &Map<String, Value>| {
            let text = json!({"f:list": members}).to_string();
            covers(&Owned::parse(&text).unwrap(), &fields(json!({"list": items})))
        };
        prop_assert!(is_covered(&members), "{:?} {:?}", members, items);
        let lost = members.keys().nth(lost.index(members.len())).unwrap().clone();
        members.remove(&lost);
        prop_assert!(members.is_empty() || !is_covered(&members), "{:?} {:?}", members, items);
    }

    #[test]
    fn an_applied_set_is_covered_in_any_order(values in collection::vec(scalars(), 1..8)) {
        let members: Map<String, Value> =
            values.iter().map(|value| (format!("v:{}", recorded(value)), json!({}))).collect();
        let mut distinct: Vec<Value> = Vec::new();
        for value in &values {
            if !distinct.iter().any(|known| recorded(known) == recorded(value)) {
                distinct.push(value.clone());
            }
        }
        distinct.reverse();
        let text = json!({"f:set": members}).to_string();
        let owned = Owned::parse(&text).unwrap();
        prop_assert!(covers(&owned, &fields(json!({"set": distinct}))), "{:?} {:?}", members, distinct);
        distinct.push(json!("absent"));
        let is_covered = covers(&owned, &fields(json!({"set": distinct})));
        prop_assert!(!is_covered);
    }
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
    let named =
        |body: Value| first_difference(&fields(body), &object).map(|field| field.to_string());
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
fn the_owners_of_a_field_are_named() {
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
        let begin = Instant::now();
        check_covers(owned.clone(), json!({"list": stated}), true);
        // A stated item without the default differs from the observed one.
        let expected = !name.contains("default");
        assert_eq!(
            owns(&owned["f:list"], &json!(stated), &json!(observed)),
            expected,
            "{name}"
        );
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(30), "{name}: {took:?}");
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
