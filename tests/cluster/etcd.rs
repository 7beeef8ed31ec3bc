//! The etcd plugin on the shared host: bootstrap, the record, and data that a successor may adopt.

use innkeeper_tests::{User, eventually, manifest::condition, user::Kind};
use serde_json::{Value, json};

use crate::{
    examples::restrict,
    suite::{Site, Target, reason, retained_for},
};

const PARENT: Target<'static> = ("etcd.ydzs.io/v1alpha1", "EtcdCluster", "demo");
const MEMBERS: Target<'static> = ("apps/v1", "StatefulSet", "demo");
const HEADLESS: Target<'static> = ("v1", "Service", "demo");
const CLIENT: Target<'static> = ("v1", "Service", "demo-client");
const RECORD: Target<'static> = ("v1", "ConfigMap", "demo-cluster-state");
const BUDGET: Target<'static> = ("policy/v1", "PodDisruptionBudget", "demo");
const CLAIMS: [Target<'static>; 3] = [
    ("v1", "PersistentVolumeClaim", "data-demo-0"),
    ("v1", "PersistentVolumeClaim", "data-demo-1"),
    ("v1", "PersistentVolumeClaim", "data-demo-2"),
];

/// The children that are deleted with the parent.
const OWNED: [Target<'static>; 5] = [MEMBERS, HEADLESS, CLIENT, RECORD, BUDGET];

fn article(prefix: &str) -> (Site, Value) {
    let site = Site::with_example(prefix, "examples/etcd/01-article.yaml");
    let parent = formed(&site);
    (site, parent)
}

/// Waits until the cluster is Ready and has its PodDisruptionBudget. The plugin adds the budget once the record says
/// that the cluster has formed.
fn formed(site: &Site) -> Value {
    site.wait("the disruption budget appears", BUDGET, |_| true);
    site.wait_ready(PARENT)
}

#[test]
fn the_article_becomes_ready() {
    let (site, parent) = article("etcd-article");
    assert_eq!(parent["status"]["readyReplicas"], 3);
    assert_eq!(parent["status"]["clusterFormed"], true);
    assert_eq!(parent["status"]["currentVersion"], "3.4.13");
    for target in OWNED {
        let owner = &site.get(target)["metadata"]["ownerReferences"][0];
        assert_eq!(owner["uid"], parent["metadata"]["uid"], "{target:?}");
        assert_eq!(owner["controller"], true, "{target:?}");
    }
    let identity = format!("etcd.ydzs.io/EtcdCluster/{}/demo", site.namespace);
    for target in CLAIMS {
        let metadata = &site.get(target)["metadata"];
        assert_eq!(retained_for(metadata), identity, "{target:?}");
        assert_eq!(
            metadata["labels"]["etcd.ydzs.io/cluster-uid"], parent["metadata"]["uid"],
            "{target:?}"
        );
    }
    assert_eq!(site.get(HEADLESS)["spec"]["clusterIP"], "None");
    assert_eq!(site.get(HEADLESS)["spec"]["publishNotReadyAddresses"], true);
    assert_eq!(site.get(BUDGET)["spec"]["minAvailable"], 2);
    let members = site.get(MEMBERS);
    assert_eq!(members["spec"]["replicas"], 3);
    assert_eq!(members["spec"]["podManagementPolicy"], "Parallel");
    let record = site.get(RECORD);
    let url = |ordinal: u8| {
        let namespace = &site.namespace;
        format!("demo-{ordinal}=https://demo-{ordinal}.demo.{namespace}.svc:2380")
    };
    assert_eq!(
        record["data"]["ETCD_INITIAL_CLUSTER"],
        [url(0), url(1), url(2)].join(",")
    );
    assert_eq!(record["data"]["ETCD_INITIAL_CLUSTER_STATE"], "existing");
    let late = [
        ("peer", json!({ "secretName": "late" })),
        ("client", json!({ "serverSecretName": "late" })),
    ];
    for (field, tls) in late {
        let edit = json!({ "spec": { "tls": { field: tls } } });
        let kind = site.kind(PARENT.0, PARENT.1);
        let refused = site.plane.user().merge(kind, PARENT.2, &edit).unwrap_err();
        let refused = format!("{refused:#}");
        let rule = format!("tls.{field} cannot be added or removed");
        assert!(refused.contains(&rule), "{refused}");
    }
}

// Record and claims must exist before the first Pod can start.
#[test]
fn the_members_start_after_their_record_and_claims() {
    let site = Site::new("etcd-order");
    let mark = site.settle();
    site.apply_example("examples/etcd/01-article.yaml");
    formed(&site);
    site.settle();
    let writes = site.child_writes_since(mark);
    let position = |line: &str| {
        writes
            .iter()
            .position(|write| write == line)
            .unwrap_or_else(|| panic!("no {line:?} in {writes:#?}"))
    };
    let members = position("patch statefulsets.apps demo 201");
    for early in [
        "patch services demo 201",
        "patch configmaps demo-cluster-state 201",
        "patch persistentvolumeclaims data-demo-0 201",
        "patch persistentvolumeclaims data-demo-1 201",
        "patch persistentvolumeclaims data-demo-2 201",
    ] {
        assert!(position(early) < members, "{writes:#?}");
    }
    // The record is written as new and then as existing, and StatefulSet and claims get the mark of a formed cluster. The version
    // of etcd joins the record with the StatefulSet's status, which a slow controller writes after the Pods are ready: then
    // the record is updated twice. Everything else is written once.
    let formed = "patch configmaps demo-cluster-state 200";
    assert!(members < position(formed), "{writes:#?}");
    let updates = writes.iter().filter(|line| *line == formed).count();
    assert!((1..=2).contains(&updates), "{writes:#?}");
    assert_eq!(writes.len(), 12 + updates, "{writes:#?}");
}

#[test]
fn an_edit_replaces_one_member_with_each_patch() {
    let (site, _) = article("etcd-edit");
    restrict(&site);
    let mark = site.settle();
    let edit = json!({ "spec": { "snapshotCount": 5000 } });
    site.merge(PARENT, &edit);
    site.wait_ready(PARENT);
    site.check_child_writes(mark, &["patch statefulsets.apps demo 200"; 3]);
}

#[test]
fn a_deleted_child_comes_back() {
    let (site, _) = article("etcd-deleted");
    let before = site.get(CLIENT);
    site.delete(CLIENT);
    site.wait("the Service comes back", CLIENT, |service| {
        service["metadata"]["uid"] != before["metadata"]["uid"]
    });
    site.wait_ready(PARENT);
}

// A cluster that has formed must never be told to bootstrap again.
#[test]
fn a_deleted_record_is_restored_as_that_of_a_formed_cluster() {
    let (site, _) = article("etcd-record");
    let before = site.get(RECORD);
    site.delete(RECORD);
    let after = site.wait("the record comes back", RECORD, |record| {
        record["metadata"]["uid"] != before["metadata"]["uid"]
    });
    assert_eq!(after["data"], before["data"]);
    formed(&site);
    assert_eq!(site.get(MEMBERS)["spec"]["replicas"], 3);
}

// The host repairs an owned field and leaves a foreign one alone.
#[test]
fn an_edited_owned_field_is_repaired_and_a_foreign_field_stays() {
    let (site, _) = article("etcd-drift");
    let mark = site.settle();
    site.merge(
        MEMBERS,
        &json!({
            "spec": { "revisionHistoryLimit": 9, "minReadySeconds": 1 },
            "metadata": { "annotations": { "example.org/mine": "x" } },
        }),
    );
    let members = site.wait("the limit is repaired", MEMBERS, |members| {
        members["spec"]["revisionHistoryLimit"] == 5
    });
    assert_eq!(members["spec"]["minReadySeconds"], 1);
    assert_eq!(members["metadata"]["annotations"]["example.org/mine"], "x");
    site.wait_ready(PARENT);
    site.check_child_writes(mark, &["patch statefulsets.apps demo 200"]);
}

#[test]
fn switching_the_disruption_budget_off_prunes_it() {
    let (site, _) = article("etcd-prune");
    let mark = site.settle();
    let off = json!({ "spec": { "podDisruptionBudget": { "enabled": false } } });
    site.merge(PARENT, &off);
    site.wait_gone(BUDGET);
    site.wait_ready(PARENT);
    site.check_child_writes(mark, &["delete poddisruptionbudgets.policy demo 200"]);
    let on = json!({ "spec": { "podDisruptionBudget": { "enabled": true } } });
    site.merge(PARENT, &on);
    formed(&site);
}

// Size 0 pauses the cluster: the members stop, the record and the data stay, and a larger size
// resumes with them.
#[test]
fn a_paused_cluster_resumes_with_its_data() {
    let (site, _) = article("etcd-pause");
    let claims = CLAIMS.map(|target| site.get(target)["metadata"]["uid"].clone());
    site.merge(PARENT, &json!({ "spec": { "size": 0 } }));
    site.wait("the members stop", MEMBERS, |members| {
        members["spec"]["replicas"] == 0 && members["status"]["replicas"] == 0
    });
    site.wait_gone(BUDGET);
    eventually("the parent reports that it is paused", || {
        let parent = site.get(PARENT);
        if reason(&parent, "Ready") == "Paused" {
            Ok(())
        } else {
            Err(condition(&parent, "Ready").unwrap_or_default())
        }
    });
    site.merge(PARENT, &json!({ "spec": { "size": 3 } }));
    formed(&site);
    assert_eq!(
        CLAIMS.map(|target| site.get(target)["metadata"]["uid"].clone()),
        claims
    );
    let record = site.get(RECORD);
    assert_eq!(record["data"]["ETCD_INITIAL_CLUSTER_STATE"], "existing");
}

// With `whenDeleted: Delete`, the StatefulSet controller becomes the claims' controller.
#[test]
fn claims_that_the_stateful_set_takes_over_stay_children_until_it_deletes_them() {
    let site = Site::new("etcd-taken");
    let parent = json!({
        "apiVersion": PARENT.0, "kind": PARENT.1,
        "metadata": { "name": PARENT.2, "namespace": site.namespace },
        "spec": { "size": 3, "quotaBackendBytes": 512 << 20, "storage": { "whenDeleted": "Delete" } },
    });
    site.plane.user().apply(&parent).unwrap();
    formed(&site);
    for target in CLAIMS {
        site.wait("the StatefulSet takes the claim over", target, |claim| {
            let owner = &claim["metadata"]["ownerReferences"][0];
            owner["kind"] == "StatefulSet" && owner["controller"] == true
        });
    }
    let label =
        |value: Value| json!({ "metadata": { "labels": { "etcd.ydzs.io/cluster-uid": value } } });
    site.merge(CLAIMS[0], &label(Value::Null));
    let uid = site.get(PARENT)["metadata"]["uid"].clone();
    let repaired = site.wait("the claim is repaired", CLAIMS[0], |claim| {
        claim["metadata"]["labels"]["etcd.ydzs.io/cluster-uid"] == uid
    });
    assert_eq!(
        repaired["metadata"]["ownerReferences"][0]["kind"],
        "StatefulSet"
    );
    assert_eq!(site.get(PARENT)["status"]["warnings"], json!([]));
    site.delete(PARENT);
    for target in CLAIMS {
        site.wait_gone(target);
    }
}

// A successor with the same name does not touch its predecessor's data unless its spec says `Adopt`.
#[test]
fn the_claims_outlive_the_parent_and_are_adopted_on_demand() {
    let (site, parent) = article("etcd-delete");
    let claims = CLAIMS.map(|target| site.get(target)["metadata"]["uid"].clone());
    site.delete(PARENT);
    site.wait_gone(PARENT);
    for target in OWNED {
        site.wait_gone(target);
    }
    site.apply_example("examples/etcd/01-article.yaml");
    let refused = site.wait("the old claims are refused", PARENT, |parent| {
        reason(parent, "Ready") == "StaleClaims"
    });
    assert_ne!(refused["metadata"]["uid"], parent["metadata"]["uid"]);
    assert!(site.find(MEMBERS).is_none());

    let mark = site.settle();
    let adopt = json!({ "spec": { "storage": { "existingClaims": "Adopt" } } });
    site.merge(PARENT, &adopt);
    formed(&site);
    site.settle();
    for (target, uid) in CLAIMS.into_iter().zip(claims) {
        let metadata = &site.get(target)["metadata"];
        assert_eq!(metadata["uid"], uid, "{target:?}");
        // The label still names the cluster that created the data.
        assert_eq!(
            metadata["labels"]["etcd.ydzs.io/cluster-uid"], parent["metadata"]["uid"],
            "{target:?}"
        );
    }
    let record = site.get(RECORD);
    assert_eq!(record["data"]["ETCD_INITIAL_CLUSTER_STATE"], "existing");
    // The claims keep their storage class, which the first parent left to the cluster; nothing is recreated.
    assert_eq!(
        site.child_writes_since(mark),
        [
            "patch configmaps demo-cluster-state 201",
            "patch poddisruptionbudgets.policy demo 201",
            "patch persistentvolumeclaims data-demo-0 200",
            "patch persistentvolumeclaims data-demo-1 200",
            "patch persistentvolumeclaims data-demo-2 200",
            "patch statefulsets.apps demo 201",
            "patch configmaps demo-cluster-state 200",
        ]
    );
}

/// Gives a Pod the status of a waiting init container, as the kubelet would show it.
pub(crate) fn let_wait(user: &User, namespace: &str, name: &str) {
    let pods = Kind::new("v1", "Pod", namespace);
    // The simulated kubelet leaves such a Pod alone.
    let later =
        json!({ "metadata": { "annotations": { "controlplane.test/start-after": "10m" } } });
    user.merge(pods, name, &later)
        .expect("a Pod can be patched");
    // The simulated kubelet gives a restarted Pod a second address, which the API server rejects.
    let status = json!({ "status": {
        "phase": "Pending", "podIP": null, "podIPs": null,
        "conditions": [{ "type": "Ready", "status": "False", "reason": "ContainersNotInitialized" }],
        "initContainerStatuses": [{
            "name": "admit", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } },
        }],
        "containerStatuses": [{
            "name": "etcd", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": "PodInitializing" } },
        }],
    } });
    user.merge_status(pods, name, &status)
        .expect("a status can be patched");
}

/// Waits until a Job is complete, and gives its Pod the result that etcdctl would.
fn finish(site: &Site, name: &str, result: &str) {
    site.wait("a Job is complete", ("batch/v1", "Job", name), |job| {
        condition(job, "Complete").is_some()
    });
    let pods = site.kind("v1", "Pod");
    let user = site.plane.user();
    let mut pod = user
        .list(pods, &format!("batch.kubernetes.io/job-name={name}"))
        .expect("Pods can be listed")
        .remove(0);
    let mut statuses = pod["status"]["containerStatuses"].take();
    statuses[0]["state"]["terminated"]["message"] = result.into();
    let pod = pod["metadata"]["name"].as_str().unwrap().to_owned();
    let status = json!({ "status": { "containerStatuses": statuses } });
    user.merge_status(pods, &pod, &status)
        .expect("a status can be patched");
}

// Jobs talk to etcd, and the record admits the one Pod that may use the new identity.
#[test]
fn a_member_that_lost_its_data_is_replaced() {
    let (site, _) = article("etcd-replace");
    const POD: Target<'static> = ("v1", "Pod", "demo-2");
    let before = site.get(POD)["metadata"]["uid"].clone();
    site.delete(POD);
    let pod = site.wait("the Pod comes back", POD, |pod| {
        pod["metadata"]["uid"] != before && pod["status"]["phase"] == "Running"
    });
    let_wait(site.plane.user(), &site.namespace, "demo-2");
    let url = |ordinal: u8| format!("https://demo-{ordinal}.demo.{}.svc:2380", site.namespace);
    let members: Vec<String> = (0..3)
        .map(|number| format!("a{number} {}", url(number)))
        .collect();
    finish(&site, "demo-survey-0", &members.join("\n"));
    site.wait(
        "the removal names the identity",
        ("batch/v1", "Job", "demo-remove-2-1"),
        |job| job["metadata"]["labels"]["etcd.ydzs.io/member-id"] == "a2",
    );
    site.wait("the Pod is admitted", RECORD, |record| {
        record["data"]["ADMIT_2"] == pod["metadata"]["uid"]
    });
    let parent = site.get(PARENT);
    assert_eq!(reason(&parent, "Available"), "QuorumAvailable");
    let soon = json!({ "metadata": { "annotations": { "controlplane.test/start-after": "0s" } } });
    site.merge(POD, &soon);
    site.wait_ready(PARENT);
    let record = site.wait("the admission is used", RECORD, |record| {
        record["data"]["ADMIT_2"].is_null()
    });
    assert_eq!(
        record["metadata"]["annotations"]["etcd.ydzs.io/sequence"],
        "3"
    );
    let list = record["data"]["ETCD_INITIAL_CLUSTER"].as_str().unwrap();
    assert!(list.contains("demo-2="), "{list}");
    for job in ["demo-survey-0", "demo-remove-2-1", "demo-add-2-2"] {
        site.wait_gone(("batch/v1", "Job", job));
    }
}

// On a volatile medium each Pod deletion loses a member's data, so its founders start with an admission too.
#[test]
fn a_cluster_in_memory_survives_the_deletion_of_any_pod() {
    let site = Site::with_example("etcd-memory", "examples/etcd/08-memory.yaml");
    let parent: Target<'_> = ("etcd.ydzs.io/v1alpha1", "EtcdCluster", "memory");
    site.wait_ready(parent);
    for (at, sequence) in [(0, 0), (1, 3), (2, 6)] {
        let name = format!("memory-{at}");
        let target = ("v1", "Pod", &*name);
        let before = site.get(target)["metadata"]["uid"].clone();
        site.delete(target);
        let pod = site.wait("the Pod comes back", target, |pod| {
            pod["metadata"]["uid"] != before && pod["status"]["phase"] == "Running"
        });
        let_wait(site.plane.user(), &site.namespace, &name);
        let url =
            |number: u8| format!("https://memory-{number}.memory.{}.svc:2380", site.namespace);
        let members: Vec<String> = (0..3)
            .map(|number| format!("a{number} {}", url(number)))
            .collect();
        finish(
            &site,
            &format!("memory-survey-{sequence}"),
            &members.join("\n"),
        );
        let record = ("v1", "ConfigMap", "memory-cluster-state");
        let admission = format!("ADMIT_{at}");
        site.wait("the Pod is admitted", record, |record| {
            record["data"][&admission] == pod["metadata"]["uid"]
        });
        let soon =
            json!({ "metadata": { "annotations": { "controlplane.test/start-after": "0s" } } });
        site.merge(target, &soon);
        site.wait("the admission is used", record, |record| {
            record["data"][&admission].is_null()
        });
        site.wait_ready(parent);
    }
}

// Prometheus follows the monitor to a Service, and its EndpointSlices to the members' addresses.
#[test]
fn the_production_example_lets_prometheus_find_all_members() {
    let site = Site::with_example("etcd-monitored", "examples/etcd/03-production.yaml");
    let parent: Target<'_> = ("etcd.ydzs.io/v1alpha1", "EtcdCluster", "production");
    site.wait_ready(parent);
    let monitor = ("monitoring.coreos.com/v1", "ServiceMonitor", "production");
    let monitor = site.get(monitor)["spec"].clone();
    let service = site.get(("v1", "Service", "production"));
    let labels = &service["metadata"]["labels"];
    let mut selected = monitor["selector"]["matchLabels"]
        .as_object()
        .unwrap()
        .iter();
    assert!(
        selected.all(|(key, value)| labels[key] == *value),
        "{monitor} {labels}"
    );
    let port = monitor["endpoints"][0]["port"].as_str().unwrap();
    let slices = site.kind("discovery.k8s.io/v1", "EndpointSlice");
    let service_label = "kubernetes.io/service-name=production";
    eventually("the Service has the metrics of five members", || {
        let endpoint_slices = site.plane.user().list(slices, service_label).unwrap();
        let is_metrics = |slice: &&Value| {
            let ports = slice["ports"].as_array().into_iter().flatten();
            ports
                .clone()
                .any(|entry| entry["name"] == port && entry["port"] == 2381)
        };
        let members = endpoint_slices
            .iter()
            .filter(is_metrics)
            .filter_map(|slice| slice["endpoints"].as_array());
        match members.map(Vec::len).sum() {
            5 => Ok(()),
            count => Err(format!("{count} members: {endpoint_slices:?}")),
        }
    });
}

// Nothing issues certificates here, so the test writes the Secrets as cert-manager does.
#[test]
fn a_cluster_with_certificates_of_cert_manager_waits_for_their_secrets() {
    let site = Site::with_example("etcd-issued", "examples/etcd/04-tls-cert-manager.yaml");
    let parent: Target<'_> = ("etcd.ydzs.io/v1alpha1", "EtcdCluster", "issued");
    let names = ["issued-peer-tls", "issued-server-tls", "issued-client-tls"];
    for name in names {
        let certificate = ("cert-manager.io/v1", "Certificate", name);
        site.wait("a Certificate appears", certificate, |object| {
            object["spec"]["secretName"] == name
        });
    }
    site.wait("the parent tells of the Secrets", parent, |parent| {
        reason(parent, "Ready") == "SecretNotFound"
    });
    assert!(site.find(("apps/v1", "StatefulSet", "issued")).is_none());
    for name in names {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": { "name": name, "namespace": site.namespace },
            "stringData": { "tls.crt": "certificate", "tls.key": "key", "ca.crt": "authority" },
        });
        site.plane.user().create(&secret).unwrap();
    }
    site.wait_ready(parent);
}
