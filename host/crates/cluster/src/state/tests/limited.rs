//! A host that is limited to namespaces: one request for each of them, whose objects are one cache.

use std::collections::BTreeSet;

use innkeeper_model::{Resource, Scope};

use super::*;
use crate::wire::WireFailure;

const NODE: &str = "v1 Node";

/// A state that sees the namespaces `a` and `b`, and a plugin that reads Pods there by this scope.
fn limited(scope: ReadScope) -> World {
    let mut world = World::new();
    let names: Vec<Arc<str>> = ["a", "b"].map(Arc::from).into();
    world.state = CacheState::within(Some(names.into()));
    let key = Some(HashKey::new([7_u8; 32]));
    world.state.set_hash_key(key, world.now);
    // The watches are wanted before discovery has shown that the kinds are namespaced.
    world.add_reading_subscriber(vec![read(POD, Access::Metadata, scope, None)]);
    world.namespace = "a";
    world.serve(&[CACHE, SERVICE, SECRET, POD]);
    world
}

fn task_in(world: &World, kind: &str, namespace: &str) -> ((SlotId, u64), Shape) {
    let mut orders = world.state.orders().into_iter().filter(|(_, order)| {
        let target = &order.target;
        target.served.kind == gvk(kind) && target.namespace.as_deref() == Some(namespace)
    });
    let (task, order) = orders.next().unwrap();
    (task, order.shape)
}

fn list_in(world: &mut World, kind: &str, namespace: &str, objects: Vec<Value>) {
    let (task, _) = task_in(world, kind, namespace);
    let stored: Vec<Stored> = objects
        .into_iter()
        .map(|object| world.stored(kind, object))
        .collect();
    let version = ResourceVersion(world.version);
    let begun = world.state.begin_list(task, Since::Now, version);
    assert_eq!(begun, Ok(()));
    assert_eq!(world.state.page(task, stored), Ok(()));
    let ended = world.state.end_list(task, version, world.now);
    assert_eq!(ended, Ok(()));
}

fn put_in(world: &mut World, kind: &str, namespace: &str, mut object: Value) -> ResourceVersion {
    object["metadata"]["namespace"] = json!(namespace);
    let (task, _) = task_in(world, kind, namespace);
    let stored = world.stored(kind, object);
    let version = stored.version;
    let put = world.state.put(task, stored, world.now);
    assert_eq!(put, Ok(()));
    version
}

fn list_all_in(world: &mut World, namespace: &str) {
    for kind in [CACHE, SERVICE, SECRET, POD] {
        list_in(world, kind, namespace, Vec::new());
    }
}

/// Lists both namespaces, and puts a parent into each.
fn put_parents(world: &mut World) {
    for namespace in ["a", "b"] {
        list_all_in(world, namespace);
        put_in(
            world,
            CACHE,
            namespace,
            json!({"metadata": {"name": "web", "uid": namespace}}),
        );
    }
}

fn id_in(namespace: &str, name: &str) -> ObjectId {
    ObjectId::new(gvk(CACHE).group_kind(), Some(namespace), name)
}

fn named(namespace: &str, name: &str, uid: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name, "uid": uid}})
}

/// The kept objects of a kind as `namespace/name`.
fn kept(world: &World, kind: &str) -> Vec<String> {
    let mut slots = world.state.slots.values();
    let slot = slots.find(|slot| slot.key.kind == gvk(kind)).unwrap();
    let all = slot.store.all(None);
    all.map(|stored| format!("{}/{}", stored.namespace, stored.name))
        .collect()
}

#[test]
fn there_is_one_request_for_each_kind_and_namespace_and_none_for_all() {
    let mut world = limited(ReadScope::Cluster);
    let asked = |world: &World| -> BTreeSet<String> {
        let orders = world.state.orders().into_values();
        let line = |order: Order| {
            let namespace = order.target.namespace.unwrap_or_else(|| "*".into());
            format!("{} {namespace}", order.target.served.kind.kind)
        };
        orders.map(line).collect()
    };
    let check = |world: &World, kinds: &[&str]| {
        let each = |kind: &&str| ["a", "b"].map(|name| format!("{kind} {name}"));
        let expected: BTreeSet<String> = kinds.iter().flat_map(each).collect();
        assert_eq!(asked(world), expected);
    };
    check(&world, &["Cache", "Pod"]);
    for namespace in ["a", "b"] {
        list_in(&mut world, CACHE, namespace, Vec::new());
    }
    check(&world, &["Cache", "Pod", "Secret", "Service"]);

    // A cluster-scoped kind still has a single request, even if its scope is learned late.
    let node = gvk(NODE);
    world.state.watch_metadata(&node, world.now);
    let mut kinds = kinds(&[CACHE, SERVICE, SECRET, POD].map(gvk));
    kinds.add(Resource {
        kind: node,
        plural: "nodes".into(),
        scope: Scope::Cluster,
    });
    world.state.serve(kinds, world.now);
    assert!(asked(&world).contains("Node *"), "{:?}", asked(&world));
    assert_eq!(world.state.orders().len(), 9);
}

#[test]
fn a_list_of_one_namespace_leaves_the_others_unchanged() {
    let mut world = limited(ReadScope::ParentNamespace);
    put_parents(&mut world);
    world.due();
    assert_eq!(kept(&world, CACHE), ["a/web", "b/web"]);
    // In `a` an object was replaced by another while the watch was down; `b` did not change.
    list_in(&mut world, CACHE, "a", vec![named("a", "db", "other")]);
    assert_eq!(kept(&world, CACHE), ["a/db", "b/web"]);
    assert_eq!(world.due(), ["db parent-changed", "web parent-gone"]);
    // A list that is the truth may go back; it does not make b go back with it.
    let (task, shape) = task_in(&world, CACHE, "a");
    let old = ResourceVersion(3);
    assert_eq!(world.state.begin_list(task, Since::Now, old), Ok(()));
    let mut object = named("a", "old", "old");
    object["metadata"]["resourceVersion"] = json!("2");
    let stored = keep(&object.to_string(), &shape).unwrap();
    assert_eq!(world.state.page(task, vec![stored]), Ok(()));
    assert_eq!(world.state.end_list(task, old, world.now), Ok(()));
    assert_eq!(kept(&world, CACHE), ["a/old", "b/web"]);
    let (other, _) = task_in(&world, CACHE, "b");
    assert!(world.state.version(task) < world.state.version(other));
    let put = world.state.bookmark(other, old, world.now);
    assert_eq!(
        put,
        Err(Stale::WentBack),
        "each goes by its own last version"
    );
}

#[test]
fn a_namespace_that_cannot_be_read_holds_up_its_own_parents_only() {
    let mut world = limited(ReadScope::ParentNamespace);
    for namespace in ["a", "b"] {
        for kind in [CACHE, SECRET, POD] {
            list_in(&mut world, kind, namespace, Vec::new());
        }
        put_in(
            &mut world,
            CACHE,
            namespace,
            json!({"metadata": {"name": namespace, "uid": namespace}}),
        );
    }
    world.due();
    let (task, _) = task_in(&world, SERVICE, "b");
    let refused = WireFailure::Status {
        code: 403,
        message: "not in b".to_owned(),
        retry_after: None,
    };
    world.state.failed(task, &refused, world.now).unwrap();
    list_in(&mut world, SERVICE, "a", Vec::new());
    assert_eq!(world.due(), ["a kind-changed"], "b still waits");
    let waiting = |world: &World, namespace: Option<&str>| -> Vec<String> {
        let waiting = world.state.waiting(world.subscriber, namespace).into_iter();
        waiting.map(|waiting| waiting.why.to_string()).collect()
    };
    assert_eq!(waiting(&world, Some("a")), [""; 0]);
    assert!(waiting(&world, Some("b"))[0].contains("not in b"));
    assert_eq!(
        waiting(&world, None),
        waiting(&world, Some("b")),
        "and is told of the whole"
    );
    let services = gvk(SERVICE).group_kind();
    assert_eq!(
        world.state.child_count(world.subscriber, &services),
        None,
        "not all are known"
    );

    list_in(&mut world, SERVICE, "b", Vec::new());
    assert_eq!(world.due(), ["b kind-changed"]);
    assert_eq!(waiting(&world, None), [""; 0]);
    assert_eq!(
        world.state.child_count(world.subscriber, &services),
        Some(0)
    );
}

#[test]
fn own_writes_are_waited_for_in_their_own_namespace() {
    let mut world = limited(ReadScope::ParentNamespace);
    put_parents(&mut world);
    let web = Reader {
        subscriber_id: world.subscriber,
        parent: id_in("b", "web"),
    };
    let child = ObjectId::new(gvk(SERVICE).group_kind(), Some("b"), "s");
    let written = ResourceVersion(world.version + 1);
    let due = world.now + Duration::from_secs(5);
    let expected = ExpectedState::Version(written);
    world.state.expect(&web, &child, expected, due);
    world.version += 5;
    let later = ResourceVersion(world.version);
    let (elsewhere, _) = task_in(&world, SERVICE, "a");
    let passed = world.state.bookmark(elsewhere, later, world.now);
    assert_eq!(passed, Ok(()));
    let status = |world: &mut World| world.state.expectation_status(&web, world.now);
    assert_eq!(status(&mut world), ExpectationStatus::Until(due));
    let (there, _) = task_in(&world, SERVICE, "b");
    let passed = world.state.bookmark(there, later, world.now);
    assert_eq!(passed, Ok(()));
    assert_eq!(status(&mut world), ExpectationStatus::None);
}

#[test]
fn each_namespace_has_its_own_freshness_check() {
    let mut world = limited(ReadScope::ParentNamespace);
    for namespace in ["a", "b"] {
        list_all_in(&mut world, namespace);
    }
    put_in(
        &mut world,
        CACHE,
        "a",
        json!({"metadata": {"name": "web", "uid": "one"}}),
    );
    world.state.require_freshness_checks(world.now);
    let unchecked = world.state.unchecked();
    assert_eq!(unchecked.len(), 8);
    let mut caches = world
        .state
        .slots
        .iter()
        .filter(|(_, slot)| slot.key.kind == gvk(CACHE));
    let id = *caches.next().unwrap().0;
    let contents = Contents::new();
    assert!(
        !world
            .state
            .check_by_contents(&(id, Some("a".into())), &contents)
    );
    assert!(
        world
            .state
            .check_by_contents(&(id, Some("b".into())), &contents)
    );
    assert_eq!(world.state.unchecked().len(), 7);
    for one in world.state.unchecked() {
        if one.1.as_deref() == Some("a") {
            let version = ResourceVersion::default();
            assert!(world.state.check_by_version(&one, version));
        }
    }
    assert_eq!(world.state.waiting(world.subscriber, Some("a")), []);
    assert_eq!(
        world.state.waiting(world.subscriber, Some("b"))[0].why,
        Why::Unchecked
    );
}

#[test]
fn a_read_of_another_namespace_is_refused() {
    let list = |world: &mut World, namespace: Option<&str>| {
        let read = world.pods(&mut Made::default(), namespace, "");
        read.map(|pods| pods.len())
    };
    let unseen = |namespace: &str| {
        Err(ReadFailure::OutOfSight {
            kind: gvk(POD),
            namespace: namespace.into(),
        })
    };
    let ready = |scope| {
        let mut world = limited(scope);
        for namespace in ["a", "b"] {
            list_all_in(&mut world, namespace);
            put_in(
                &mut world,
                POD,
                namespace,
                json!({"metadata": {"name": "p", "uid": namespace}}),
            );
        }
        world
    };
    let mut world = ready(ReadScope::Cluster);
    assert_eq!(list(&mut world, None), Ok(2), "all that the host sees");
    assert_eq!(list(&mut world, Some("b")), Ok(1));
    assert_eq!(list(&mut world, Some("c")), unseen("c"));
    let got = world.object(&mut Made::default(), POD, Some("c"), "p");
    assert_eq!(got.unwrap_err(), unseen("c").unwrap_err());

    let mut world = ready(ReadScope::Namespaces(["a", "c"].map(Arc::from).into()));
    assert_eq!(list(&mut world, Some("a")), Ok(1));
    // The part that is seen is not all that is granted.
    assert_eq!(list(&mut world, None), unseen("c"));
    let not_granted = Err(ReadFailure::NotGranted(gvk(POD)));
    assert_eq!(list(&mut world, Some("b")), not_granted);
}
