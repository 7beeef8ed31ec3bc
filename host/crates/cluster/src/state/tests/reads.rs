//! Guest reads: grants, forms and subscriptions.

use super::*;

#[test]
fn a_pass_reads_only_what_is_granted_to_it() {
    let pods = read(POD, Access::Full, ReadScope::ParentNamespace, None);
    let services = read(SERVICE, Access::Full, ReadScope::ParentNamespace, None);
    let mut harness = Harness::reading(&["web"], vec![pods.clone(), services.clone()]);
    harness.put(POD, pod("p", "web"));
    let not_granted = Err(ReadFailure::NotGranted(gvk(POD)));
    for (granted, expected) in [(services, not_granted), (pods, Ok(true))] {
        let mut record = ReadRecord::for_grants(Arc::from([granted]));
        assert_eq!(harness.get(&mut record, "p"), expected);
    }
}

#[test]
fn the_richest_needed_form_is_kept_and_each_plugin_sees_its_own() {
    let mut harness = Harness::with(&[]);
    let poor = harness.subscriber;
    harness.list(POD, vec![pod("p", "web")]);
    let rich =
        harness.add_reading_subscriber(vec![read(POD, Access::Full, ReadScope::Cluster, None)]);
    let failure = harness
        .select(poor)
        .get(&mut ReadRecord::default(), "p")
        .unwrap_err();
    let not_synced = ReadFailure::NotSynced(gvk(POD));
    assert_eq!(failure, not_synced, "the form changes");
    let mut full = pod("p", "web");
    full["spec"] = json!({"nodeName": "n"});
    harness.list(POD, vec![full]);
    for (subscriber, sees_spec) in [(rich, true), (poor, false)] {
        let text = harness
            .select(subscriber)
            .object(&mut ReadRecord::default(), POD, None, "p");
        assert_eq!(text.unwrap().unwrap().contains("nodeName"), sees_spec);
    }
    harness.state.remove_subscriber(rich, harness.now);
    let (.., shape) = harness.task(POD).unwrap();
    assert_eq!(shape.form, Access::Metadata);
}

#[test]
fn reads_are_subscriptions() {
    let mut harness = Harness::with(&["web"]);
    let mut record = ReadRecord::default();
    assert_eq!(harness.get(&mut record, "p"), Ok(false));
    assert_eq!(harness.names(&mut record, "app=web"), [""; 0]);
    // Also before the pass ends.
    harness.put(POD, pod("p", "db"));
    assert_eq!(harness.due(), ["web related-changed"]);
    assert_eq!(harness.get(&mut record, "p"), Ok(false), "repeatable");
    harness.put(POD, pod("q", "db"));
    assert_eq!(harness.due(), [""; 0]);
    harness.put(POD, pod("q", "web"));
    assert_eq!(harness.due(), ["web related-changed"]);
    harness.commit(&record);

    let mut record = ReadRecord::default();
    assert_eq!(harness.names(&mut record, "app=web"), ["q"]);
    harness.commit(&record);
    harness.put(POD, pod("p", "other"));
    assert_eq!(harness.due(), [""; 0], "not read any more");
    harness.remove(POD, pod("q", "web"));
    assert_eq!(harness.due(), ["web related-changed"]);
    harness.remove(CACHE, cache("web"));
    harness.due();
    harness.put(POD, pod("r", "web"));
    assert_eq!(harness.due(), [""; 0], "the parent is gone");
}

#[test]
fn the_richer_of_two_grants_on_one_watch_decides_what_triggers() {
    let own = read(POD, Access::Full, ReadScope::ParentNamespace, None);
    let everywhere = read(POD, Access::Metadata, ReadScope::Cluster, None);
    let mut harness = Harness::reading(&["web"], vec![own, everywhere]);
    harness.list(POD, vec![pod("p", "web")]);
    let reads: [fn(&mut Harness, &mut ReadRecord); 2] = [
        |harness, record| assert_eq!(harness.get(record, "p"), Ok(true)),
        |harness, record| {
            let pods = harness.pods(record, Some("demo"), "app=web");
            assert_eq!(pods.unwrap().len(), 1);
        },
    ];
    for (node, read) in reads.into_iter().enumerate() {
        let mut record = ReadRecord::default();
        read(&mut harness, &mut record);
        harness.commit(&record);
        let mut scheduled = pod("p", "web");
        scheduled["spec"] = json!({"nodeName": format!("node-{node}")});
        harness.put(POD, scheduled);
        assert_eq!(harness.due(), ["web related-changed"], "read {node}");
    }
}

#[test]
fn lists_are_sorted_and_repeatable() {
    let mut harness = Harness::with(&[]);
    harness.list(POD, vec![pod("b", "web"), pod("a", "web"), pod("c", "db")]);
    let mut record = ReadRecord::default();
    assert_eq!(harness.names(&mut record, ""), ["a", "b", "c"]);
    let mut changed = pod("a", "web");
    changed["metadata"]["labels"]["x"] = json!("y");
    harness.put(POD, changed);
    let pods = harness.pods(&mut record, None, "app").unwrap();
    let label = &pods[0]["metadata"]["labels"]["x"];
    assert!(label.is_null(), "as it was shown first");
    let selector = "a b".to_owned();
    let failure = harness.pods(&mut record, None, &selector).unwrap_err();
    assert_eq!(failure, ReadFailure::InvalidSelector { selector });
}

#[test]
fn a_read_without_a_grant_is_not_answered() {
    let monitors = read(MONITOR, Access::Full, ReadScope::Cluster, None);
    let mut harness = Harness::reading(&[], vec![pods(), monitors]);
    let not_granted = |kind| Err(ReadFailure::NotGranted(gvk(kind)));
    for (kind, namespace, expected) in [
        (POD, None, Ok(None)),
        (POD, Some("demo"), Ok(None)),
        (POD, Some("other"), not_granted(POD)),
        (SECRET, None, not_granted(SECRET)),
        ("v2 Pod", None, not_granted("v2 Pod")),
        (MONITOR, None, Err(ReadFailure::NotServed(gvk(MONITOR)))),
    ] {
        let answer = harness.object(&mut ReadRecord::default(), kind, namespace, "x");
        assert_eq!(answer, expected, "{kind} {namespace:?}");
    }
}

#[test]
fn a_grant_for_the_cluster_reaches_every_namespace() {
    let everywhere = read(POD, Access::Metadata, ReadScope::Cluster, None);
    let mut harness = Harness::reading(&[], vec![everywhere]);
    let mut elsewhere = pod("z", "web");
    elsewhere["metadata"]["namespace"] = json!("other");
    harness.list(POD, vec![pod("a", "web"), elsewhere]);
    let mut record = ReadRecord::default();
    assert_eq!(harness.names(&mut record, ""), ["a", "z"]);
    let own = harness.get(&mut record, "z");
    assert_eq!(own, Ok(false), "the parent's namespace");
}

#[test]
fn a_grant_for_some_namespaces_reaches_no_other() {
    let listed = ReadScope::Namespaces(["other"].map(Arc::from).into());
    let own = read(POD, Access::Full, ReadScope::ParentNamespace, None);
    let mut harness = Harness::reading(&[], vec![own, read(POD, Access::Metadata, listed, None)]);
    let pods = [("demo", "a"), ("other", "b"), ("third", "c")].map(|(namespace, name)| {
        let mut pod = pod(name, "web");
        pod["metadata"]["namespace"] = json!(namespace);
        pod["spec"] = json!({"nodeName": "node-1"});
        pod
    });
    harness.list(POD, pods.to_vec());
    let pod_line = |name: &str, full: bool| (name.to_owned(), full);
    let not_granted = Err(ReadFailure::NotGranted(gvk(POD)));
    for (namespace, expected) in [
        (None, Ok(vec![pod_line("a", true), pod_line("b", false)])),
        (Some("other"), Ok(vec![pod_line("b", false)])),
        (Some("third"), not_granted),
    ] {
        let pods = harness
            .pods(&mut ReadRecord::default(), namespace, "")
            .map(|pods| {
                let shown = |pod: &Value| (name_of(pod), !pod["spec"].is_null());
                pods.iter().map(shown).collect::<Vec<_>>()
            });
        assert_eq!(pods, expected, "{namespace:?}");
    }
}

#[test]
fn a_parent_without_its_kind_is_woken_when_the_kind_is_there() {
    let configs = read(CONFIG, Access::Full, ReadScope::ParentNamespace, None);
    let mut harness = Harness::new();
    harness.add_reading_subscriber(vec![pods(), configs]);
    harness.list(CACHE, vec![cache("web"), cache("db")]);
    for kind in [SERVICE, SECRET] {
        harness.list(kind, Vec::new());
    }
    harness.due();
    let not_synced = Err(ReadFailure::NotSynced(gvk(POD)));
    assert_eq!(harness.get(&mut ReadRecord::default(), "p"), not_synced);
    harness.list(POD, Vec::new());
    assert_eq!(
        harness.due(),
        ["web kind-changed"],
        "the parent that reads the kind"
    );

    let is_woken = |harness: &mut Harness| harness.due().contains(&"web kind-changed".to_owned());
    let read_config = |harness: &mut Harness| {
        let mut record = ReadRecord::default();
        let answer = harness.object(&mut record, CONFIG, None, "m");
        harness.commit(&record);
        answer
    };
    let not_served = Err(ReadFailure::NotServed(gvk(CONFIG)));
    assert_eq!(read_config(&mut harness), not_served);
    harness.serve(&[CACHE, SERVICE, SECRET, POD, CONFIG]);
    harness.due();
    harness.list(CONFIG, Vec::new());
    assert!(is_woken(&mut harness));

    assert_eq!(read_config(&mut harness), Ok(None));
    harness.serve(&[CACHE, SERVICE, SECRET, POD]);
    assert!(is_woken(&mut harness), "not served any more");
}
