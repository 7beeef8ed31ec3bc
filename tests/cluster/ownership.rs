//! The host neither changes nor deletes objects that a parent does not own, whatever their name,
//! and prunes nothing after a failed apply.

use std::time::Duration;

use innkeeper_tests::{Host, HostOptions, process::path_from_env};
use serde_json::{Value, json};

use crate::{
    stage::{Stage, is_applied, is_synced, lines},
    suite::Target,
};

const UNRULY: Target<'static> = ("test.innkeeper.dev/v1", "Unruly", "parent");
const FIRST: Target<'static> = ("v1", "ConfigMap", "parent-first");
const SECOND: Target<'static> = ("v1", "ConfigMap", "parent-second");

const MEMCACHED: Target<'static> = ("cache.example.com/v1", "Memcached", "cache");
const SERVICE: Target<'static> = ("v1", "Service", "cache");
const DEPLOYMENT: Target<'static> = ("apps/v1", "Deployment", "cache");
const BUDGET: Target<'static> = ("policy/v1", "PodDisruptionBudget", "cache");

/// Well above the time for a pass and the watch events after it.
const QUIET: Duration = Duration::from_millis(800);

/// A stage with the guest `unruly`, whose parent has two ConfigMaps, `parent-first` and
/// `parent-second`.
fn unruly() -> (Stage, Host, String) {
    let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
    let (stage, host) = Stage::serving(
        vec![guests.join("unruly.wasm")],
        &["unrulies.test.innkeeper.dev"],
    );
    let namespace = stage.namespace("owner");
    (stage, host, namespace)
}

fn parent() -> Value {
    json!({
        "apiVersion": UNRULY.0, "kind": UNRULY.1, "metadata": { "name": UNRULY.2 },
        "spec": { "behaviour": "good" },
    })
}

fn owner(object: &Value) -> &Value {
    &object["metadata"]["ownerReferences"][0]["uid"]
}

fn is_child_not_owned(parent: &Value) -> bool {
    is_synced(parent, "False", "ChildNotOwned")
}

/// The host's deletes after a mark.
fn deletes(stage: &Stage, mark: usize) -> Vec<String> {
    lines(&stage.writes_since(mark))
        .into_iter()
        .filter(|line| line.starts_with("delete"))
        .collect()
}

/// A matching name does not make an object a child: the host leaves it alone, and creates the
/// child once the name is free.
#[test]
fn a_foreign_object_of_a_childs_name_is_not_merged_into() {
    let (stage, host, namespace) = unruly();
    let mark = stage.mark();
    let foreign = json!({
        "apiVersion": FIRST.0, "kind": FIRST.1, "metadata": { "name": FIRST.2 },
        "data": { "mine": "yes" },
    });
    let foreign = stage.apply(&namespace, &foreign);
    stage.apply(&namespace, &parent());
    let blocked = stage.wait(&host, &namespace, UNRULY, is_child_not_owned);
    let text = blocked["status"]["conditions"].to_string();
    assert!(text.contains(FIRST.2), "{text}");
    // The host still creates the other child.
    let second = stage.get(&namespace, SECOND);
    assert_eq!(owner(&second), &blocked["metadata"]["uid"]);
    stage.settle(QUIET);
    assert_eq!(stage.get(&namespace, FIRST), foreign);

    stage.delete(&namespace, FIRST);
    let healed = stage.wait(&host, &namespace, UNRULY, is_applied);
    let first = stage.get(&namespace, FIRST);
    assert_eq!(owner(&first), &healed["metadata"]["uid"]);
    assert_eq!(first["data"].get("mine"), None);
    assert_eq!(deletes(&stage, mark), Vec::<String>::new());
}

/// Ownership is by UID. With ownership by name, a new parent would adopt children that the garbage
/// collector is about to delete.
#[test]
fn a_new_parent_of_the_same_name_does_not_take_over_children() {
    let (stage, host, namespace) = unruly();
    stage.apply(&namespace, &parent());
    stage.wait(&host, &namespace, UNRULY, is_applied);
    Stage::stop(host);
    let mark = stage.mark();
    let old = [FIRST, SECOND].map(|child| stage.get(&namespace, child));
    // The old parent's children stay, because this control plane has no garbage collector.
    stage.delete(&namespace, UNRULY);
    let new = stage.apply(&namespace, &parent());
    assert_ne!(owner(&old[0]), &new["metadata"]["uid"]);

    let host = stage.host();
    stage.wait(&host, &namespace, UNRULY, is_child_not_owned);
    stage.settle(QUIET);
    assert_eq!(
        [FIRST, SECOND].map(|child| stage.get(&namespace, child)),
        old
    );
    assert_eq!(deletes(&stage, mark), Vec::<String>::new());

    // The test acts as the garbage collector.
    for child in [FIRST, SECOND] {
        stage.delete(&namespace, child);
    }
    stage.wait(&host, &namespace, UNRULY, is_applied);
    for child in [FIRST, SECOND] {
        let child = stage.get(&namespace, child);
        assert_eq!(owner(&child), &new["metadata"]["uid"]);
    }
    assert_eq!(deletes(&stage, mark), Vec::<String>::new());
}

/// The host deletes only after all applies have succeeded. Otherwise a failed pass could remove the
/// old child without creating the replacement.
#[test]
fn nothing_is_pruned_when_an_apply_fails() {
    let (stage, host) = Stage::serving(
        HostOptions::with_guests(&["memcached"]).unwrap().plugins,
        &["memcacheds.cache.example.com"],
    );
    let namespace = stage.namespace("prune");
    let budget = json!({ "podDisruptionBudget": { "enabled": true, "maxUnavailable": 1 } });
    stage.apply(
        &namespace,
        &json!({
            "apiVersion": MEMCACHED.0, "kind": MEMCACHED.1, "metadata": { "name": MEMCACHED.2 },
            "spec": { "size": 1, "highAvailability": budget },
        }),
    );
    stage.wait(&host, &namespace, MEMCACHED, is_applied);
    stage.get(&namespace, BUDGET);

    // While the host is stopped, a foreign Service takes the name, and the parent no longer asks
    // for the budget.
    Stage::stop(host);
    let mark = stage.mark();
    stage.delete(&namespace, SERVICE);
    let foreign = json!({
        "apiVersion": SERVICE.0, "kind": SERVICE.1, "metadata": { "name": SERVICE.2 },
        "spec": { "ports": [{ "port": 80 }] },
    });
    stage.apply(&namespace, &foreign);
    let change = json!({ "spec": { "size": 2, "highAvailability": null } });
    stage.merge(&namespace, MEMCACHED, &change);
    let host = stage.host();
    stage.wait(&host, &namespace, MEMCACHED, is_child_not_owned);
    // The host still applies the Deployment, and then deletes nothing.
    let deployment = stage.get(&namespace, DEPLOYMENT);
    assert_eq!(deployment["spec"]["replicas"], 2);
    stage.settle(QUIET);
    stage.get(&namespace, BUDGET);
    assert_eq!(deletes(&stage, mark), Vec::<String>::new());

    stage.delete(&namespace, SERVICE);
    stage.wait(&host, &namespace, MEMCACHED, is_applied);
    assert_eq!(
        deletes(&stage, mark),
        ["delete poddisruptionbudgets.policy cache 200"]
    );
    // The budget stays: foreground deletion needs a garbage collector.
    let budget = stage.get(&namespace, BUDGET);
    assert!(budget["metadata"]["deletionTimestamp"].is_string());
}
