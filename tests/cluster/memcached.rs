//! The memcached plugin on the shared host: a parent's life cycle, as its user and the audit log see it.

use serde_json::{Value, json};

use crate::suite::{Site, Target};

const API: &str = "cache.example.com/v1";
const PARENT: Target<'static> = (API, "Memcached", "example-memcached");
const DEPLOYMENT: Target<'static> = ("apps/v1", "Deployment", "example-memcached");
const SERVICE: Target<'static> = ("v1", "Service", "example-memcached");
const BUDGET: Target<'static> = ("policy/v1", "PodDisruptionBudget", "example-memcached");

fn article(prefix: &str) -> (Site, Value) {
    Site::with_ready_example(prefix, "examples/memcached/01-article.yaml", PARENT)
}

#[test]
fn the_article_becomes_ready() {
    let (site, parent) = article("memcached-article");
    assert_eq!(
        parent["status"]["nodes"].as_array().unwrap().len(),
        3,
        "{}",
        parent["status"]
    );
    assert_eq!(parent["status"]["readyReplicas"], 3);
    let address = format!("example-memcached.{}.svc:11211", site.namespace);
    assert_eq!(parent["status"]["serverList"], json!([address]));

    let deployment = site.get(DEPLOYMENT);
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(
        deployment["metadata"]["labels"]["innkeeper.dev/plugin"],
        "memcached"
    );
    let owner = &deployment["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], parent["metadata"]["uid"]);
    assert_eq!(owner["controller"], true);
    assert_eq!(site.get(SERVICE)["spec"]["clusterIP"], "None");
}

// An unchanged child causes no write, a changed one exactly one PATCH.
#[test]
fn scaling_is_one_patch_of_the_deployment() {
    let (site, _) = article("memcached-scale");
    let mark = site.settle();
    site.merge(PARENT, &json!({ "spec": { "size": 5 } }));
    let parent = site.wait_ready(PARENT);
    assert_eq!(parent["status"]["readyReplicas"], 5);
    site.check_child_writes(mark, &["patch deployments.apps example-memcached 200"]);
}

#[test]
fn a_deleted_child_comes_back() {
    let (site, _) = article("memcached-deleted");
    let before = site.get(SERVICE);
    site.delete(SERVICE);
    site.wait("the Service comes back", SERVICE, |service| {
        service["metadata"]["uid"] != before["metadata"]["uid"]
    });
    site.wait_ready(PARENT);
}

// The host repairs an owned field and leaves a foreign one alone.
#[test]
fn an_edited_owned_field_is_repaired_and_a_foreign_field_stays() {
    let (site, _) = article("memcached-drift");
    let mark = site.settle();
    site.merge(
        DEPLOYMENT,
        &json!({ "spec": { "replicas": 1, "minReadySeconds": 1 }, "metadata": { "annotations": { "example.org/mine": "x" } } }),
    );
    let deployment = site.wait("the replicas are repaired", DEPLOYMENT, |deployment| {
        deployment["spec"]["replicas"] == 3
    });
    assert_eq!(deployment["spec"]["minReadySeconds"], 1);
    assert_eq!(
        deployment["metadata"]["annotations"]["example.org/mine"],
        "x"
    );
    site.check_child_writes(mark, &["patch deployments.apps example-memcached 200"]);
}

fn is_whole(deployment: &Value) -> bool {
    let mut entries = deployment["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten();
    deployment["spec"]["replicas"] == 3
        && deployment["metadata"]["labels"]["app.kubernetes.io/name"].is_string()
        && deployment["metadata"]["labels"]["innkeeper.dev/plugin"] == "memcached"
        && entries
            .any(|entry| entry["manager"] == "innkeeper:memcached" && entry["operation"] == "Apply")
}

/// Damages the Deployment, and waits until exactly these writes have repaired it.
#[track_caller]
fn check_repaired(site: &Site, damage: impl FnOnce(), writes: &[&str]) {
    let mark = site.settle();
    damage();
    let is_damaged = || !is_whole(&site.get(DEPLOYMENT));
    assert!(is_damaged() || !site.writes_since(mark).is_empty());
    site.wait("the Deployment is repaired", DEPLOYMENT, is_whole);
    site.settle();
    assert_eq!(site.child_writes_since(mark), writes);
}

#[test]
fn one_write_restores_a_field_however_it_was_lost() {
    let (site, _) = article("memcached-taken");
    assert!(is_whole(&site.get(DEPLOYMENT)));
    let updated = "patch deployments.apps example-memcached 200";
    let force = || {
        let deployment = json!({
            "apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1,
            "metadata": { "name": DEPLOYMENT.2, "namespace": site.namespace },
            "spec": { "replicas": 1 },
        });
        site.plane
            .user()
            .apply_as("another-manager", &deployment)
            .unwrap();
    };
    check_repaired(&site, force, &[updated]);
    let merge = |metadata: Value| {
        site.merge(DEPLOYMENT, &json!({ "metadata": metadata }));
    };
    let unlabel = || merge(json!({ "labels": { "app.kubernetes.io/name": null } }));
    check_repaired(&site, unlabel, &[updated]);
    let forget = || merge(json!({ "managedFields": [{}] }));
    check_repaired(&site, forget, &[updated]);
    // Without the host's label the child is invisible to the host, and only the refused create
    // reveals that it exists.
    let hide = || merge(json!({ "labels": { "innkeeper.dev/plugin": null } }));
    let conflict = "patch deployments.apps example-memcached 409";
    check_repaired(&site, hide, &[conflict, updated]);
}

#[test]
fn the_child_of_a_disabled_feature_is_pruned() {
    let (site, _) = article("memcached-prune");
    let budget = json!({ "podDisruptionBudget": { "enabled": true, "maxUnavailable": 1 } });
    site.merge(PARENT, &json!({ "spec": { "highAvailability": budget } }));
    site.wait("the budget appears", BUDGET, |_| true);
    site.merge(PARENT, &json!({ "spec": { "highAvailability": null } }));
    site.wait_gone(BUDGET);
    site.wait_ready(PARENT);
}

#[test]
fn deleting_the_parent_deletes_its_children() {
    let (site, _) = article("memcached-delete");
    site.delete(PARENT);
    site.wait_gone(PARENT);
    site.wait_gone(DEPLOYMENT);
    site.wait_gone(SERVICE);
}
