//! Property tests: A1, A2, A4, A6.

use std::collections::BTreeMap;

use innkeeper_model::{ApplyPolicy, Child, ObjectId, Operation, Outcome, Readiness, RemovalPolicy};
use proptest::{collection, prelude::*};
use serde_json::{Value, json};

use super::{build::*, server::Server};
use crate::plan;

/// A child's random parts; key and name come from the position.
type Seed = (u8, ApplyPolicy, bool, Readiness, BTreeMap<u8, u8>, Vec<u8>);

fn seed() -> impl Strategy<Value = Seed> {
    let apply = prop_oneof![
        6 => Just(ApplyPolicy::Always),
        1 => Just(ApplyPolicy::Once),
        1 => Just(ApplyPolicy::Hold),
    ];
    let readiness = prop_oneof![
        3 => Just(Readiness::Derive),
        2 => Just(Readiness::Ready),
        1 => Just(Readiness::NotReady),
    ];
    (
        0..5_u8,
        apply,
        prop::bool::weighted(0.2),
        readiness,
        collection::btree_map(0..4_u8, 0..3_u8, 0..4),
        collection::vec(any::<u8>(), 0..2),
    )
}

/// Makes children from seeds; `after` names earlier children only, so that there is no cycle.
fn children(seeds: &[Seed]) -> Vec<Child> {
    let mut children: Vec<Child> = Vec::new();
    for (place, (kind, apply, retained, readiness, data, after)) in seeds.iter().enumerate() {
        let name = format!("c{place}");
        let data = |prefix: &str| -> Value {
            let data = data
                .iter()
                .map(|(key, value)| (format!("{prefix}{key}"), json!(value.to_string())));
            Value::Object(data.collect())
        };
        let mut child = match kind {
            0 => child("v1", "ConfigMap", &name).set("data", data("k")),
            1 => deployment(&name).set("spec", json!({"template": data("t"), "list": []})),
            2 => secret(&name).set("stringData", data("s")),
            3 => {
                let ports = [json!({"port": 53}), json!({"port": 53, "protocol": "UDP"})];
                let ports = &ports[..=usize::from(*apply == ApplyPolicy::Always)];
                child("v1", "Service", &name)
                    .set("spec", json!({"ports": ports, "selector": data("l")}))
            }
            _ => child("monitoring.coreos.com/v1", "ServiceMonitor", &name),
        };
        child.apply = *apply;
        child.readiness = *readiness;
        if *retained {
            child.removal = RemovalPolicy::Retain;
        }
        if place > 0 {
            let keys = after
                .iter()
                .map(|other| children[usize::from(*other) % place].key.clone());
            child.after = keys.collect();
        }
        children.push(child);
    }
    children
}

fn seeds() -> impl Strategy<Value = Vec<Seed>> {
    collection::vec(seed(), 0..6)
}

/// Runs passes with successful writes until a plan has no operations.
fn converge(scene: &Scene, server: &mut Server, answer: &Outcome) {
    for _ in 0..12 {
        let plan = scene.plan(&server.objects(), answer);
        if plan.is_settled() {
            return;
        }
        for operation in &plan.operations {
            server.write(operation).unwrap();
        }
    }
    panic!("still to do:\n{}", scene.plan(&server.objects(), answer));
}

/// Adds other owners' objects, some with the children's names.
fn strangers(server: &mut Server) -> Vec<ObjectId> {
    let mut ids = Vec::new();
    for (name, owner) in [("c1", "p9"), ("other", "p9")] {
        let id = ObjectId::new(gvk("v1", "ConfigMap").group_kind(), Some("demo"), name);
        let owners = json!([{"uid": owner, "controller": true}]);
        server.apply(
            &id,
            "somebody",
            fields(json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": name,
                    "namespace": "demo",
                    "ownerReferences": owners,
                    "labels": {"innkeeper.dev/plugin": "web"},
                },
                "data": {"theirs": "1"},
            })),
        );
        ids.push(id);
    }
    ids
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_plan_of_an_applied_plan_is_empty_a1(first in seeds(), second in seeds()) {
        let scene = scene();
        let mut server = Server::default();
        converge(&scene, &mut server, &desired(children(&first)));
        converge(&scene, &mut server, &desired(children(&second)));
    }

    #[test]
    fn an_earlier_answer_leaves_no_fields_behind_a4(first in seeds(), second in seeds()) {
        let scene = scene();
        let owned = |seeds: &[Seed]| -> Outcome {
            let plain = children(seeds).into_iter().map(|child| Child {
                apply: ApplyPolicy::Always,
                removal: RemovalPolicy::Delete,
                after: Vec::new(),
                ..child
            });
            desired(plain.collect())
        };
        let mut fresh = Server::default();
        converge(&scene, &mut fresh, &owned(&second));
        let mut used = Server::default();
        converge(&scene, &mut used, &owned(&first));
        converge(&scene, &mut used, &owned(&second));
        let shown = |server: &Server| -> Vec<Value> {
            let strip = |mut object: Value| {
                for field in ["uid", "resourceVersion", "generation"] {
                    object["metadata"].as_object_mut().unwrap().remove(field);
                }
                // The API server keeps an empty map after the last entry was removed.
                for pointer in ["/data", "/spec/template", "/spec/selector"] {
                    if object.pointer(pointer).is_some_and(|value| *value == json!({})) {
                        let (parent, last) = pointer.rsplit_once('/').unwrap();
                        object.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(last);
                    }
                }
                object
            };
            server.objects().into_iter().map(strip).collect()
        };
        prop_assert_eq!(shown(&used), shown(&fresh));
    }

    #[test]
    fn what_others_take_or_remove_is_put_right_once_a2(
        first in seeds(),
        edits in collection::vec((0..6_usize, 0..4_u8, prop::option::of(0..3_u8)), 1..6),
    ) {
        let scene = scene();
        let answer = desired(children(&first));
        let mut server = Server::default();
        converge(&scene, &mut server, &answer);
        let ids: Vec<ObjectId> = server.ids().into_iter().collect();
        let mut taken = std::collections::BTreeSet::new();
        for (place, key, value) in edits {
            let Some(id) = ids.get(place % ids.len().max(1)) else { continue };
            let value = value.map(|value| json!(format!("theirs{value}")));
            if server.edit(id, &["data", &format!("k{key}")], value) {
                taken.insert(id.clone());
            }
        }
        let repaired = scene.plan(&server.objects(), &answer);
        let always = |id: &ObjectId| children(&first).iter().any(|child| {
            *child.name == *id.name && child.apply == ApplyPolicy::Always
        });
        let expected: Vec<ObjectId> = taken.into_iter().filter(always).collect();
        let mut updated: Vec<ObjectId> = repaired.operations.iter().filter_map(Operation::child).cloned().collect();
        updated.sort();
        prop_assert_eq!(updated, expected);
        converge(&scene, &mut server, &answer);
    }

    #[test]
    fn no_object_of_another_owner_is_ever_written_a6(first in seeds(), second in seeds()) {
        let scene = scene();
        let mut server = Server::default();
        let theirs = strangers(&mut server);
        let before: Vec<Option<Value>> = theirs.iter().map(|id| server.get(id)).collect();
        for answer in [desired(children(&first)), desired(children(&second)), desired(vec![])] {
            for _ in 0..4 {
                let plan = scene.plan(&server.objects(), &answer);
                for operation in &plan.operations {
                    prop_assert!(!theirs.iter().any(|id| operation.child() == Some(id)), "{}", operation);
                    server.write(operation).unwrap();
                }
            }
        }
        let after: Vec<Option<Value>> = theirs.iter().map(|id| server.get(id)).collect();
        prop_assert_eq!(before, after);
        // The last answer is empty: only foreign and retained objects are left.
        for object in server.objects() {
            let id = observed(&object).id();
            let retained = object.pointer("/metadata/annotations/innkeeper.dev~1retained-for").is_some();
            prop_assert!(retained || theirs.contains(&id), "{} is left", id);
        }
    }

    #[test]
    fn the_order_of_children_does_not_matter((first, shuffled) in seeds().prop_flat_map(|seeds| {
        let children = children(&seeds);
        (Just(children.clone()), Just(children).prop_shuffle())
    })) {
        let scene = scene();
        let a = scene.plan(&[], &desired(first));
        let b = scene.plan(&[], &desired(shuffled));
        prop_assert_eq!(a.operations, b.operations);
    }

    #[test]
    fn the_same_input_gives_the_same_bytes(seeds in seeds(), others in seeds()) {
        let scene = scene();
        let mut server = Server::default();
        converge(&scene, &mut server, &desired(children(&seeds)));
        let answer = desired(children(&others));
        let twice = || format!("{:?}", scene.plan(&server.objects(), &answer));
        prop_assert_eq!(twice(), twice());
    }

    #[test]
    fn a_child_comes_after_the_children_that_it_waits_for(seeds in seeds()) {
        let scene = scene();
        let answer = desired(children(&seeds));
        let plan = scene.plan(&[], &answer);
        let place = |key: &String| plan.children.iter().position(|child| child.key == *key);
        for child in children(&seeds) {
            for earlier in &child.after {
                prop_assert!(place(earlier) < place(&child.key));
            }
        }
    }
}

#[test]
fn an_object_that_is_observed_twice_counts_once_with_its_newer_state() {
    let scene = scene();
    let answer = desired(vec![config_map("a")]);
    let mut server = Server::default();
    converge(&scene, &mut server, &answer);
    let old = server.objects().remove(0);
    let id = server.ids().into_iter().next().unwrap();
    server.edit(&id, &["data", "b"], Some(json!("theirs")));
    server.edit(&id, &["data", "a"], Some(json!("theirs")));
    let new = server.objects().remove(0);
    for objects in [[old.clone(), new.clone()], [new, old]] {
        let plan = scene.plan(&objects, &answer);
        assert_eq!(plan.to_string(), "update v1 ConfigMap demo/a\n");
    }
    let parent = scene.parent.object();
    let context = crate::Context {
        plugin: &scene.manifest.name,
        manager: "innkeeper:web",
        manifest: &scene.manifest,
        hash_key: &scene.key,
        parent: &parent,
        phase: innkeeper_model::Phase::Reconcile,
        namespace_terminating: false,
        resources: &scene.cluster,
        unreadable: &scene.unreadable,
        grants: &scene.grants,
    };
    let shared = [std::sync::Arc::new(observed(&server.objects()[0]))];
    assert_eq!(plan(&context, &shared, &answer).operations.len(), 1);
}
