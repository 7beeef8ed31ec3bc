//! The parents and children that a pass observes.

use super::*;

#[test]
fn children_are_found_by_uid_and_by_identity() {
    let web = "cache.example.com/Cache/demo/web";
    let mut harness = Harness::with(&["web", "db"]);
    for (kind, object, due) in [
        (SERVICE, owned("s", "web"), vec!["web child-changed"]),
        (
            SECRET,
            retained(SECRET, "kept", web),
            vec!["web child-changed"],
        ),
        (
            SERVICE,
            retained(SERVICE, "elsewhere", "other.example.com/Cache/demo/web"),
            vec![],
        ),
        (SERVICE, owned("stranger", "unknown"), vec![]),
    ] {
        harness.put(kind, object);
        assert_eq!(harness.due(), due);
    }
    let children = ["Secret demo/kept", "Service demo/s"];
    assert_eq!(harness.children("web"), children);
    assert_eq!(harness.children("db"), [""; 0]);

    // A StatefulSet adopts claims: they stay visible, and their changes are triggers.
    let mut taken = retained(SECRET, "kept", web);
    taken["metadata"]["ownerReferences"] = json!([{"uid": "uid-set", "controller": true}]);
    harness.put(SECRET, taken);
    assert_eq!(harness.due(), ["web child-changed"]);
    assert_eq!(harness.children("web"), children);

    // Another parent's object is not a child, whatever the annotation says.
    let mut stolen = retained(SECRET, "kept", web);
    stolen["metadata"]["ownerReferences"] = json!([{"uid": "uid-db", "controller": true}]);
    harness.put(SECRET, stolen);
    assert_eq!(harness.due(), ["db child-changed", "web child-changed"]);
    assert_eq!(harness.children("web"), ["Service demo/s"]);

    harness.remove(SERVICE, owned("s", "web"));
    assert_eq!(harness.due(), ["web child-changed"]);
}

/// Retained children are bounded for each parent, so only the parent with the most of them counts.
#[test]
fn the_parent_that_retains_most_is_found_among_those_that_are_there() {
    let identity = |name: &str| format!("cache.example.com/Cache/demo/{name}");
    let mut harness = Harness::with(&["web", "db"]);
    let most = |harness: &Harness| {
        harness
            .state
            .table
            .retained_most(harness.subscriber)
            .map(|(namespace, count)| (namespace.to_string(), count))
    };
    assert_eq!(most(&harness), None);
    harness.put(SERVICE, owned("s", "web"));
    for (kind, name, parent) in [
        (SECRET, "a", "web"),
        (SECRET, "b", "db"),
        (SERVICE, "c", "db"),
        (SECRET, "d", "gone"),
        (SECRET, "e", "gone"),
        (SECRET, "f", "gone"),
    ] {
        harness.put(kind, retained(kind, name, &identity(parent)));
    }
    assert_eq!(most(&harness), Some(("demo".to_owned(), 2)));
    harness.remove(CACHE, cache("db"));
    assert_eq!(most(&harness), Some(("demo".to_owned(), 1)));
}

#[test]
fn a_kind_of_parents_is_known_while_its_plugin_is_served() {
    let mut harness = Harness::with(&[]);
    let is_parent =
        |harness: &Harness, kind: &str| harness.state.table.has_parents(&gvk(kind).group_kind());
    assert!(is_parent(&harness, CACHE));
    assert!(!is_parent(&harness, SERVICE));
    harness
        .state
        .remove_subscriber(harness.subscriber, harness.now);
    assert!(!is_parent(&harness, CACHE));
}

/// A claim template can set any label and annotation in a namespace.
#[test]
fn objects_without_the_proof_of_the_host_are_not_retained() {
    let web = "cache.example.com/Cache/demo/web";
    let mut harness = Harness::with(&["web"]);
    let copied = retained(SECRET, "kept", web)["metadata"]["annotations"].clone();
    let mut copy = marked("copy", web);
    copy["metadata"]["annotations"] = copied;
    for forged in [marked("kept", web), marked("empty", ""), copy] {
        harness.put(SECRET, forged);
        assert_eq!(harness.due(), [""; 0]);
    }
    assert_eq!(harness.children("web"), [""; 0]);
    harness.put(SECRET, retained(SECRET, "kept", web));
    assert_eq!(harness.due(), ["web child-changed"]);
    assert_eq!(harness.children("web"), ["Secret demo/kept"]);
}

/// A cache that began without the key has verified nothing.
#[test]
fn retained_children_are_found_again_with_the_key() {
    let web = "cache.example.com/Cache/demo/web";
    let mut harness = Harness::new();
    harness.state.set_hash_key(None, harness.now);
    harness.add_subscriber();
    let secrets = vec![retained(SECRET, "kept", web)];
    let services = vec![retained(SERVICE, "kept", web)];
    harness.list(CACHE, vec![cache("web")]);
    harness.list(SERVICE, services.clone());
    harness.list(POD, Vec::new());
    let before = harness.task(POD);
    assert_eq!(harness.children("web"), [""; 0]);
    harness.state.set_hash_key(Some(key()), harness.now);
    assert_eq!(harness.waiting()[0].1, Why::Listing);
    // Only read so far, but another plugin may share the watch for children.
    assert_ne!(
        harness.task(POD).map(|task| task.1),
        before.map(|task| task.1)
    );
    harness.list(CACHE, vec![cache("web")]);
    harness.list(SERVICE, services);
    harness.list(SECRET, secrets);
    assert_eq!(
        harness.children("web"),
        ["Secret demo/kept", "Service demo/kept"]
    );
}

#[test]
fn a_secret_child_shows_hashes_only() {
    let mut harness = Harness::with(&["web"]);
    let mut secret = owned("s", "web");
    secret["data"] = json!({"password": "c2VjcmV0"});
    harness.put(SECRET, secret);
    let parent = harness
        .state
        .table
        .parent(harness.subscriber, &cache_id("web"));
    let children = harness
        .state
        .table
        .children(harness.subscriber, &parent.unwrap())
        .unwrap();
    assert_eq!(children[0].form, Access::Hash);
    let json = &children[0].json;
    assert!(json.contains("\"password\":\"hmac-sha256:"), "{json}");

    harness.due();
    harness.state.set_hash_key(None, harness.now);
    assert_eq!(harness.due(), ["web kind-changed"]);
    let secrets = (SECRET.to_owned(), Why::HashKeyMissing);
    assert!(harness.waiting().contains(&secrets));
}
