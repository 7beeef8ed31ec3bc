//! The reads of guests: grants, forms and subscriptions.

use super::*;

#[test]
fn a_pass_reads_only_what_is_granted_to_it() {
    let pods = read(POD, Access::Full, ReadScope::ParentNamespace, None);
    let services = read(SERVICE, Access::Full, ReadScope::ParentNamespace, None);
    let mut world = World::reading(&["web"], vec![pods.clone(), services.clone()]);
    world.put(POD, pod("p", "web"));
    let not_granted = Err(ReadFailure::NotGranted(gvk(POD)));
    for (granted, expected) in [(services, not_granted), (pods, Ok(true))] {
        let mut made = Made::within(Arc::from([granted]));
        assert_eq!(world.get(&mut made, "p"), expected);
    }
}

#[test]
fn the_richest_needed_form_is_kept_and_each_plugin_sees_its_own() {
    let mut world = World::with(&[]);
    let poor = world.subscriber;
    world.list(POD, vec![pod("p", "web")]);
    let rich =
        world.add_reading_subscriber(vec![read(POD, Access::Full, ReadScope::Cluster, None)]);
    let failure = world.of(poor).get(&mut Made::default(), "p").unwrap_err();
    let not_synced = ReadFailure::NotSynced(gvk(POD));
    assert_eq!(failure, not_synced, "the form changes");
    let mut full = pod("p", "web");
    full["spec"] = json!({"nodeName": "n"});
    world.list(POD, vec![full]);
    for (subscriber, sees_spec) in [(rich, true), (poor, false)] {
        let text = world
            .of(subscriber)
            .object(&mut Made::default(), POD, None, "p");
        assert_eq!(text.unwrap().unwrap().contains("nodeName"), sees_spec);
    }
    world.state.remove_subscriber(rich, world.now);
    let (.., shape) = world.task(POD).unwrap();
    assert_eq!(shape.form, Access::Metadata);
}

#[test]
fn reads_are_subscriptions() {
    let mut world = World::with(&["web"]);
    let mut made = Made::default();
    assert_eq!(world.get(&mut made, "p"), Ok(false));
    assert_eq!(world.names(&mut made, "app=web"), [""; 0]);
    // Also before the pass ends.
    world.put(POD, pod("p", "db"));
    assert_eq!(world.due(), ["web related-changed"]);
    assert_eq!(world.get(&mut made, "p"), Ok(false), "repeatable");
    world.put(POD, pod("q", "db"));
    assert_eq!(world.due(), [""; 0]);
    world.put(POD, pod("q", "web"));
    assert_eq!(world.due(), ["web related-changed"]);
    world.commit(&made);

    let mut made = Made::default();
    assert_eq!(world.names(&mut made, "app=web"), ["q"]);
    world.commit(&made);
    world.put(POD, pod("p", "other"));
    assert_eq!(world.due(), [""; 0], "not read any more");
    world.remove(POD, pod("q", "web"));
    assert_eq!(world.due(), ["web related-changed"]);
    world.remove(CACHE, cache("web"));
    world.due();
    world.put(POD, pod("r", "web"));
    assert_eq!(world.due(), [""; 0], "the parent is gone");
}

#[test]
fn lists_are_sorted_and_repeatable() {
    let mut world = World::with(&[]);
    world.list(POD, vec![pod("b", "web"), pod("a", "web"), pod("c", "db")]);
    let mut made = Made::default();
    assert_eq!(world.names(&mut made, ""), ["a", "b", "c"]);
    let mut changed = pod("a", "web");
    changed["metadata"]["labels"]["x"] = json!("y");
    world.put(POD, changed);
    let pods = world.pods(&mut made, None, "app").unwrap();
    let label = &pods[0]["metadata"]["labels"]["x"];
    assert!(label.is_null(), "as it was shown first");
    let selector = "a b".to_owned();
    let failure = world.pods(&mut made, None, &selector).unwrap_err();
    assert_eq!(failure, ReadFailure::InvalidSelector { selector });
}

#[test]
fn a_read_without_a_grant_is_not_answered() {
    let monitors = read(MONITOR, Access::Full, ReadScope::Cluster, None);
    let mut world = World::reading(&[], vec![pods(), monitors]);
    let not_granted = |kind| Err(ReadFailure::NotGranted(gvk(kind)));
    for (kind, namespace, expected) in [
        (POD, None, Ok(None)),
        (POD, Some("demo"), Ok(None)),
        (POD, Some("other"), not_granted(POD)),
        (SECRET, None, not_granted(SECRET)),
        ("v2 Pod", None, not_granted("v2 Pod")),
        (MONITOR, None, Err(ReadFailure::NotServed(gvk(MONITOR)))),
    ] {
        let answer = world.object(&mut Made::default(), kind, namespace, "x");
        assert_eq!(answer, expected, "{kind} {namespace:?}");
    }
}

#[test]
fn a_grant_for_the_cluster_reaches_every_namespace() {
    let everywhere = read(POD, Access::Metadata, ReadScope::Cluster, None);
    let mut world = World::reading(&[], vec![everywhere]);
    let mut elsewhere = pod("z", "web");
    elsewhere["metadata"]["namespace"] = json!("other");
    world.list(POD, vec![pod("a", "web"), elsewhere]);
    let mut made = Made::default();
    assert_eq!(world.names(&mut made, ""), ["a", "z"]);
    let own = world.get(&mut made, "z");
    assert_eq!(own, Ok(false), "the parent's namespace");
}

#[test]
fn a_grant_for_some_namespaces_reaches_no_other() {
    let listed = ReadScope::Namespaces(["other"].map(Arc::from).into());
    let own = read(POD, Access::Full, ReadScope::ParentNamespace, None);
    let mut world = World::reading(&[], vec![own, read(POD, Access::Metadata, listed, None)]);
    let pods = [("demo", "a"), ("other", "b"), ("third", "c")].map(|(namespace, name)| {
        let mut pod = pod(name, "web");
        pod["metadata"]["namespace"] = json!(namespace);
        pod["spec"] = json!({"nodeName": "node-1"});
        pod
    });
    world.list(POD, pods.to_vec());
    let seen = |name: &str, full: bool| (name.to_owned(), full);
    let not_granted = Err(ReadFailure::NotGranted(gvk(POD)));
    for (namespace, expected) in [
        (None, Ok(vec![seen("a", true), seen("b", false)])),
        (Some("other"), Ok(vec![seen("b", false)])),
        (Some("third"), not_granted),
    ] {
        let found = world.pods(&mut Made::default(), namespace, "").map(|pods| {
            let shown = |pod: &Value| (name_of(pod), !pod["spec"].is_null());
            pods.iter().map(shown).collect::<Vec<_>>()
        });
        assert_eq!(found, expected, "{namespace:?}");
    }
}

#[test]
fn a_parked_parent_is_woken_when_the_kind_is_there() {
    let configs = read(CONFIG, Access::Full, ReadScope::ParentNamespace, None);
    let mut world = World::new();
    world.add_reading_subscriber(vec![pods(), configs]);
    world.list(CACHE, vec![cache("web"), cache("db")]);
    for kind in [SERVICE, SECRET] {
        world.list(kind, Vec::new());
    }
    world.due();
    let not_synced = Err(ReadFailure::NotSynced(gvk(POD)));
    assert_eq!(world.get(&mut Made::default(), "p"), not_synced);
    world.list(POD, Vec::new());
    assert_eq!(world.due(), ["web kind-changed"], "the one that asked");

    let is_woken = |world: &mut World| world.due().contains(&"web kind-changed".to_owned());
    let read_config = |world: &mut World| {
        let mut made = Made::default();
        let answer = world.object(&mut made, CONFIG, None, "m");
        world.commit(&made);
        answer
    };
    let not_served = Err(ReadFailure::NotServed(gvk(CONFIG)));
    assert_eq!(read_config(&mut world), not_served);
    world.serve(&[CACHE, SERVICE, SECRET, POD, CONFIG]);
    world.due();
    world.list(CONFIG, Vec::new());
    assert!(is_woken(&mut world));

    assert_eq!(read_config(&mut world), Ok(None));
    world.serve(&[CACHE, SERVICE, SECRET, POD]);
    assert!(is_woken(&mut world), "not served any more");
}
