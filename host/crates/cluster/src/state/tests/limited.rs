//! A host that is limited to namespaces has one request for each, and one store for all.

use std::{collections::BTreeSet, time::Duration};

use innkeeper_model::{Resource, Scope, Shards};

use super::*;
use crate::{discovery::tests::kinds, stored::keep, wire::WireFailure};

const NODE: &str = "v1 Node";

/// A state that is limited to the namespaces `a` and `b`, with a plugin that reads Pods in this scope.
fn limited(scope: ReadScope) -> Harness {
    let mut harness = Harness::new();
    let names: Vec<Arc<str>> = ["a", "b"].map(Arc::from).into();
    harness.state = CacheState::new(Some(names.into()), Shards::ONE);
    let key = Some(HashKey::new([7_u8; 32]));
    harness.state.set_hash_key(key, harness.now);
    // Registered before discovery has shown that the kinds are namespaced.
    harness.add_reading_subscriber(vec![read(POD, Access::Metadata, scope, None)]);
    harness.namespace = "a";
    harness.serve(&[CACHE, SERVICE, SECRET, POD]);
    harness
}

fn named_section(namespace: &str) -> Section {
    Section::Namespace(namespace.into())
}

/// Lists both namespaces, and puts a parent into each.
fn put_parents(harness: &mut Harness) {
    for namespace in ["a", "b"] {
        list_all_in(harness, namespace);
        put_in(
            harness,
            CACHE,
            namespace,
            json!({"metadata": {"name": "web", "uid": namespace}}),
        );
    }
}

#[test]
fn there_is_one_request_for_each_kind_and_namespace_and_none_for_all() {
    let mut harness = limited(ReadScope::Cluster);
    let requests = |harness: &Harness| -> BTreeSet<String> {
        let tasks = harness.state.table.wanted_tasks().into_values();
        let line = |task: TaskSpec| {
            let namespace = task.target.section.namespace().map_or("*", |name| &**name);
            format!("{} {namespace}", task.target.served.kind.kind)
        };
        tasks.map(line).collect()
    };
    let check = |harness: &Harness, kinds: &[&str]| {
        let each = |kind: &&str| ["a", "b"].map(|name| format!("{kind} {name}"));
        let expected: BTreeSet<String> = kinds.iter().flat_map(each).collect();
        assert_eq!(requests(harness), expected);
    };
    check(&harness, &["Cache", "Pod"]);
    for namespace in ["a", "b"] {
        list_in(&mut harness, CACHE, namespace, Vec::new());
    }
    check(&harness, &["Cache", "Pod", "Secret", "Service"]);

    // A cluster-scoped kind still has a single request, even if discovery shows the scope late.
    let node = gvk(NODE);
    harness.state.watch_metadata(&node, harness.now);
    let mut kinds = kinds(&[CACHE, SERVICE, SECRET, POD].map(gvk));
    kinds.add(Resource {
        kind: node,
        plural: "nodes".into(),
        scope: Scope::Cluster,
    });
    harness.state.serve(kinds, harness.now);
    assert!(
        requests(&harness).contains("Node *"),
        "{:?}",
        requests(&harness)
    );
    assert_eq!(harness.state.table.wanted_tasks().len(), 9);
}

#[test]
fn a_list_of_one_namespace_leaves_the_others_unchanged() {
    let mut harness = limited(ReadScope::ParentNamespace);
    put_parents(&mut harness);
    harness.due();
    assert_eq!(kept(&harness, CACHE), ["a/web", "b/web"]);
    // In `a` an object was replaced by another while the watch was down; `b` did not change.
    list_in(&mut harness, CACHE, "a", vec![named("a", "db", "other")]);
    assert_eq!(kept(&harness, CACHE), ["a/db", "b/web"]);
    assert_eq!(harness.due(), ["db parent-changed", "web parent-gone"]);
    // A list from a quorum may go back in `a`; `b` does not go back with it.
    let (task, shape) = task_in(&harness, CACHE, "a");
    let old = ResourceVersion(3);
    assert_eq!(
        harness.state.table.begin_list(task, Since::Now, old),
        Ok(())
    );
    let mut object = named("a", "old", "old");
    object["metadata"]["resourceVersion"] = json!("2");
    let stored = keep(&object.to_string(), &shape).unwrap();
    assert_eq!(harness.state.page(task, vec![stored]), Ok(()));
    assert_eq!(harness.state.end_list(task, old, harness.now), Ok(()));
    assert_eq!(kept(&harness, CACHE), ["a/old", "b/web"]);
    let (other, _) = task_in(&harness, CACHE, "b");
    assert!(harness.state.table.version(task) < harness.state.table.version(other));
    let put = harness.state.bookmark(other, old, harness.now);
    assert_eq!(
        put,
        Err(Stale::WentBack),
        "each goes by its own last version"
    );
}

#[test]
fn a_namespace_that_cannot_be_read_holds_up_its_own_parents_only() {
    let mut harness = limited(ReadScope::ParentNamespace);
    for namespace in ["a", "b"] {
        for kind in [CACHE, SECRET, POD] {
            list_in(&mut harness, kind, namespace, Vec::new());
        }
        put_in(
            &mut harness,
            CACHE,
            namespace,
            json!({"metadata": {"name": namespace, "uid": namespace}}),
        );
    }
    harness.due();
    let (task, _) = task_in(&harness, SERVICE, "b");
    let refused = WireFailure::Status {
        code: 403,
        message: "not in b".to_owned(),
        retry_after: None,
    };
    harness.state.failed(task, &refused, harness.now).unwrap();
    list_in(&mut harness, SERVICE, "a", Vec::new());
    assert_eq!(harness.due(), ["a kind-changed"], "b still waits");
    let waiting = |harness: &Harness, section: &Section| -> Vec<String> {
        let waiting = harness.state.table.waiting(harness.subscriber, section);
        let waiting = waiting.into_iter();
        waiting.map(|waiting| waiting.why.to_string()).collect()
    };
    let [a, b] = ["a", "b"].map(named_section);
    assert_eq!(waiting(&harness, &a), [""; 0]);
    assert!(waiting(&harness, &b)[0].contains("not in b"));
    assert_eq!(
        waiting(&harness, &Section::Whole),
        waiting(&harness, &b),
        "and is told of the whole"
    );
    let services = gvk(SERVICE).group_kind();
    assert_eq!(
        harness
            .state
            .table
            .child_count(harness.subscriber, &services),
        None,
        "not all are known"
    );

    list_in(&mut harness, SERVICE, "b", Vec::new());
    assert_eq!(harness.due(), ["b kind-changed"]);
    assert_eq!(waiting(&harness, &Section::Whole), [""; 0]);
    assert_eq!(
        harness
            .state
            .table
            .child_count(harness.subscriber, &services),
        Some(0)
    );
}

#[test]
fn own_writes_are_waited_for_in_their_own_namespace() {
    let mut harness = limited(ReadScope::ParentNamespace);
    put_parents(&mut harness);
    let web = Reader {
        subscriber_id: harness.subscriber,
        parent: id_in("b", "web"),
    };
    let child = ObjectId::new(gvk(SERVICE).group_kind(), Some("b"), "s");
    let written = ResourceVersion(harness.version + 1);
    let due = harness.now + Duration::from_secs(5);
    let expected = ExpectedState::Version(written);
    harness
        .state
        .subscribers
        .expect(&web, &child, expected, due);
    harness.version += 5;
    let later = ResourceVersion(harness.version);
    let (elsewhere, _) = task_in(&harness, SERVICE, "a");
    let passed = harness.state.bookmark(elsewhere, later, harness.now);
    assert_eq!(passed, Ok(()));
    let status = |harness: &mut Harness| harness.state.expectation_status(&web, harness.now);
    assert_eq!(status(&mut harness), ExpectationStatus::Until(due));
    let (there, _) = task_in(&harness, SERVICE, "b");
    let passed = harness.state.bookmark(there, later, harness.now);
    assert_eq!(passed, Ok(()));
    assert_eq!(status(&mut harness), ExpectationStatus::None);
}

#[test]
fn each_namespace_has_its_own_freshness_check() {
    let mut harness = limited(ReadScope::ParentNamespace);
    for namespace in ["a", "b"] {
        list_all_in(&mut harness, namespace);
    }
    put_in(
        &mut harness,
        CACHE,
        "a",
        json!({"metadata": {"name": "web", "uid": "one"}}),
    );
    harness
        .state
        .require_freshness_checks(&Section::Whole, harness.now);
    let unchecked = harness.state.table.unchecked();
    assert_eq!(unchecked.len(), 8);
    let target = |harness: &Harness, one: &UncheckedWatch| {
        let FreshnessCheck::Compare(target) = harness.state.table.freshness_check(one) else {
            panic!("{one:?}");
        };
        (target.served.kind, target.section)
    };
    let [a, b] = ["a", "b"].map(named_section);
    let contents = Contents::new();
    for (section, passes) in [(&a, false), (&b, true)] {
        let wanted = (gvk(CACHE), section.clone());
        let caches = unchecked.iter().find(|one| target(&harness, one) == wanted);
        let passed = harness.state.check_by_contents(caches.unwrap(), &contents);
        assert_eq!(passed, passes, "{section:?}");
    }
    assert_eq!(harness.state.table.unchecked().len(), 7);
    for one in harness.state.table.unchecked() {
        if target(&harness, &one).1 == a {
            let version = ResourceVersion::default();
            assert!(harness.state.check_by_version(&one, version));
        }
    }
    let waiting = |section| harness.state.table.waiting(harness.subscriber, section);
    assert_eq!(waiting(&a), []);
    assert_eq!(waiting(&b)[0].why, Why::Unchecked);
}

#[test]
fn a_read_of_another_namespace_is_refused() {
    let list = |harness: &mut Harness, namespace: Option<&str>| {
        harness
            .pods(&mut ReadRecord::default(), namespace, "")
            .map(|pods| pods.len())
    };
    let unseen = |namespace: &str| {
        Err(ReadFailure::OutsideWatchedNamespaces {
            kind: gvk(POD),
            namespace: namespace.into(),
        })
    };
    let ready = |scope| {
        let mut harness = limited(scope);
        for namespace in ["a", "b"] {
            list_all_in(&mut harness, namespace);
            put_in(
                &mut harness,
                POD,
                namespace,
                json!({"metadata": {"name": "p", "uid": namespace}}),
            );
        }
        harness
    };
    let mut harness = ready(ReadScope::Cluster);
    assert_eq!(list(&mut harness, None), Ok(2), "all that the host sees");
    assert_eq!(list(&mut harness, Some("b")), Ok(1));
    assert_eq!(list(&mut harness, Some("c")), unseen("c"));
    let got = harness.object(&mut ReadRecord::default(), POD, Some("c"), "p");
    assert_eq!(got.unwrap_err(), unseen("c").unwrap_err());

    let mut harness = ready(ReadScope::Namespaces(["a", "c"].map(Arc::from).into()));
    assert_eq!(list(&mut harness, Some("a")), Ok(1));
    // The host sees only a part of what is granted.
    assert_eq!(list(&mut harness, None), unseen("c"));
    let not_granted = Err(ReadFailure::NotGranted(gvk(POD)));
    assert_eq!(list(&mut harness, Some("b")), not_granted);
}
