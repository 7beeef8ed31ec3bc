//! After `kubectl delete --cascade=orphan`, a new EtcdCluster adopts the etcd members as the plugin's
//! README describes, and no member restarts.

use std::{collections::BTreeMap, fs, time::Duration};

use innkeeper_tests::{
    Host, HostOptions,
    manifest::{self, condition, condition_status, is_ready},
    process::path_from_env,
    user::Kind,
};
use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::{Value, json};

use crate::{
    stage::{Stage, is_synced, wait_served},
    suite::{Target, reason},
};

const PARENT: Target<'static> = ("etcd.ydzs.io/v1alpha1", "EtcdCluster", "demo");
const EXAMPLE: &str = "examples/etcd/01-article.yaml";

/// Well above the time for a pass and the watch events after it.
const QUIET: Duration = Duration::from_millis(1500);

/// The children that must outlive their parent.
const KEPT: [(&str, &str, &str); 11] = [
    ("v1", "Pod", "demo-0"),
    ("v1", "Pod", "demo-1"),
    ("v1", "Pod", "demo-2"),
    ("v1", "PersistentVolumeClaim", "data-demo-0"),
    ("v1", "PersistentVolumeClaim", "data-demo-1"),
    ("v1", "PersistentVolumeClaim", "data-demo-2"),
    ("v1", "ConfigMap", "demo-cluster-state"),
    ("v1", "Service", "demo"),
    ("v1", "Service", "demo-client"),
    ("apps/v1", "StatefulSet", "demo"),
    ("policy/v1", "PodDisruptionBudget", "demo"),
];

/// The kinds that need `adopt: true` in the grants, according to the README.
const ADOPTED: [&str; 5] = [
    "ConfigMap",
    "Service",
    "StatefulSet",
    "PersistentVolumeClaim",
    "PodDisruptionBudget",
];

/// Starts a host with the example's grants, and with the right to adopt if `adopts`.
fn host(stage: &Stage, adopts: bool) -> Host {
    let objects = manifest::load("examples/plugins/etcd.yaml").unwrap();
    let is_plugin = |object: &&Value| object["kind"] == "Plugin";
    let plugin = objects.iter().find(is_plugin).unwrap();
    let mut grants = plugin["spec"]["grants"].clone();
    grants["crds"] = grants["parents"].clone();
    for child in grants["children"].as_array_mut().unwrap() {
        if adopts && ADOPTED.iter().any(|kind| child["kind"] == *kind) {
            child["adopt"] = json!(true);
        }
    }
    let file = stage.plane.directory().join("etcd-grants.json");
    fs::write(&file, grants.to_string()).unwrap();
    let options = HostOptions {
        arguments: vec!["--grants".to_owned(), format!("etcd={}", file.display())],
        ..stage.options.clone()
    };
    Host::start(&stage.plane.kubeconfig(), &options).unwrap()
}

fn uids(stage: &Stage, namespace: &str) -> BTreeMap<&'static str, Vec<Value>> {
    let mut uids: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for target in KEPT {
        let object = stage.get(namespace, target);
        let uid = object["metadata"]["uid"].clone();
        uids.entry(target.1).or_default().push(uid);
    }
    uids
}

/// Deletes the parent as `kubectl delete --cascade=orphan` does.
fn orphan(stage: &Stage, namespace: &str) {
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    let kind = Kind::new(PARENT.0, PARENT.1, namespace);
    stage
        .plane
        .user()
        .delete_with(kind, PARENT.2, &params)
        .expect("a parent can be deleted");
}

#[test]
fn orphaned_members_come_under_another_parent_as_the_page_says() {
    let guests = path_from_env("INNKEEPER_GUESTS").unwrap();
    let stage = Stage::full(vec![guests.join("etcd.wasm")]);
    let first = host(&stage, false);
    wait_served(&stage.plane, &first, &["etcdclusters.etcd.ydzs.io"]);
    stage.restart_collector();
    let namespace = &*stage.namespace("etcd-orphans");
    stage.apply_example(namespace, EXAMPLE);
    let parent = stage.wait(&first, namespace, PARENT, is_ready);
    stage.settle(QUIET);
    let before = uids(&stage, namespace);

    orphan(&stage, namespace);
    stage.wait(&first, namespace, PARENT, Value::is_null);
    assert_eq!(uids(&stage, namespace), before);

    // The new parent does not adopt anything by itself, and reports a remedy.
    stage.apply_example(namespace, EXAMPLE);
    let refused = stage.wait(&first, namespace, PARENT, |parent| {
        reason(parent, "Available") == "StaleClaims"
    });
    assert_ne!(refused["metadata"]["uid"], parent["metadata"]["uid"]);
    let message = condition(&refused, "Available").unwrap();
    for part in [
        "in use by Pods demo-0, demo-1, demo-2",
        "do not delete them",
        "storage.existingClaims to Adopt",
        "innkeeper.dev/adopt",
    ] {
        assert!(message.contains(part), "{message}");
    }
    Stage::stop(first);

    let second = host(&stage, true);
    let mark = stage.mark();
    let mut adopting = manifest::load(EXAMPLE).unwrap().remove(0);
    adopting["spec"]["storage"] = json!({ "existingClaims": "Adopt" });
    adopting["metadata"]["annotations"] = json!({ "innkeeper.dev/adopt": "true" });
    stage.apply(namespace, &adopting);
    let adopted = stage.wait(&second, namespace, PARENT, |parent| {
        is_ready(parent) && is_synced(parent, "True", "Applied")
    });
    assert_eq!(adopted["status"]["readyReplicas"], 3);
    assert_eq!(adopted["status"]["clusterFormed"], true);
    stage.settle(QUIET);

    // "When it is Ready, remove both."
    stage.merge(
        namespace,
        PARENT,
        &json!({
            "metadata": { "annotations": { "innkeeper.dev/adopt": null } },
            "spec": { "storage": { "existingClaims": "Refuse" } },
        }),
    );
    stage.wait(&second, namespace, PARENT, |parent| {
        is_ready(parent)
            && parent["status"]["observedGeneration"] == parent["metadata"]["generation"]
    });
    stage.settle(QUIET);
    assert_eq!(uids(&stage, namespace), before);
    let settled = stage.get(namespace, PARENT);
    assert_eq!(condition_status(&settled, "Ready"), "True", "{settled:#}");
    assert_eq!(settled["status"]["readyReplicas"], 3);
    let deletions = stage
        .writes_since(mark)
        .iter()
        .filter(|write| write.verb == "delete")
        .count();
    assert_eq!(deletions, 0);
    for target in KEPT.iter().filter(|target| target.1 != "Pod") {
        let object = stage.get(namespace, *target);
        if target.1 != "PersistentVolumeClaim" {
            let owner = &object["metadata"]["ownerReferences"][0]["uid"];
            assert_eq!(*owner, settled["metadata"]["uid"], "{target:?}");
        }
    }
}
