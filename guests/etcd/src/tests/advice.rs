//! Remedies must be safe in the state in which they are shown.

use super::*;

fn message(outcome: &Answer, kind: &str) -> String {
    outcome
        .report()
        .find_condition(kind)
        .unwrap()
        .message
        .clone()
}

fn warnings(outcome: &Answer) -> Vec<String> {
    let status = outcome.report().status.as_ref().unwrap();
    status["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| warning["code"].as_str().unwrap().to_owned())
        .collect()
}

/// A formed cluster with the children from the last answer.
fn cluster(size: i32, spec: &Value) -> (EtcdCluster, Vec<(String, Value)>) {
    let mut merged = json!({ "size": size, "image": IMAGE });
    merged
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    let parent = parent(merged);
    let ready = || host().objects((0..size).map(|ordinal| pod(ordinal, true, IMAGE)));
    let first = answer(TestRequest::new(&parent), &host());
    let second = answer(observing(&parent, &settled(&first, 0)), &host());
    let third = answer(observing(&parent, &settled(&second, size)), &ready());
    (parent, settled(&third, size))
}

fn annotated(mut parent: EtcdCluster) -> EtcdCluster {
    let annotation = (
        "etcd.ydzs.io/allow-unsafe-rollout".to_owned(),
        "true".to_owned(),
    );
    parent.metadata.annotations = Some([annotation].into());
    parent
}

/// An unready member's Pod, with additional status fields.
fn down(ordinal: i32, status: &Value) -> Value {
    let mut pod = pod(ordinal, false, IMAGE);
    let own = pod["status"].as_object_mut().unwrap();
    let conditions = own["conditions"].as_array().unwrap().clone();
    own.extend(status.as_object().unwrap().clone());
    own["conditions"].as_array_mut().unwrap().extend(conditions);
    pod
}

#[test]
fn an_unsafe_roll_out_is_advised_only_where_a_quorum_survives_it() {
    const ADVICE: &str = "annotate the EtcdCluster with etcd.ydzs.io/allow-unsafe-rollout";
    for (size, ready, is_advised) in [
        (1, 0..0, false),
        (2, 1..2, false),
        (3, 1..3, false),
        (3, 2..3, false),
        (4, 1..4, false),
        (5, 1..5, true),
        (5, 2..5, false),
        (7, 2..7, true),
    ] {
        let (before, children) = cluster(size, &json!({}));
        let edited = parent(json!({ "size": size, "image": IMAGE, "snapshotCount": 5000 }));
        let pods = (0..size).map(|ordinal| pod(ordinal, ready.contains(&ordinal), IMAGE));
        let host = host().objects(pods);
        let outcome = answer(observing(&edited, &children), &host);
        let progressing = message(&outcome, "Progressing");
        assert_eq!(
            progressing.contains(ADVICE),
            is_advised,
            "{size} {ready:?}: {progressing}"
        );
        assert!(!warnings(&outcome).contains(&"UnsafeRolloutAllowed".to_owned()));
        // While it is set, there is a warning but no advice to set it, with and without a rollout.
        for parent in [edited, before] {
            let allowed = answer(observing(&annotated(parent), &children), &host);
            assert!(warnings(&allowed).contains(&"UnsafeRolloutAllowed".to_owned()));
            for condition in &allowed.report().conditions {
                assert!(
                    !condition.message.contains("annotate"),
                    "{}",
                    condition.message
                );
                assert_ne!(condition.reason, "RolloutHeld");
            }
        }
    }
}

#[test]
fn a_member_without_a_node_is_named_with_its_remedy() {
    const LOST: &str = "2 of 3 members are ready; Pod demo-2 on node north should have ended at 1970-01-01T00:01:00Z: bring \
                        the node back; if it is gone for good, delete the Node, or run kubectl delete pod demo-2 --force";
    let unscheduled = |words: &str| {
        down(
            2,
            &json!({ "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words,
        }] }),
        )
    };
    let mut leaving = pod(2, false, IMAGE);
    leaving["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:01:00Z");
    leaving["spec"]["nodeName"] = json!("north");
    let waiting = |reason: &str| {
        down(
            2,
            &json!({ "conditions": [], "containerStatuses": [{
            "name": "etcd", "ready": false, "state": { "waiting": { "reason": reason } },
        }] }),
        )
    };
    let (parent, children) = cluster(3, &json!({}));
    let ready = |ready: i32| (0..ready).map(|ordinal| pod(ordinal, true, IMAGE));
    let affinity = "0/3 nodes are available: 3 node(s) had volume node affinity conflict.";
    let back = format!(
        "Pod demo-2 has no node: {affinity}: bring back the node with the volume of PersistentVolumeClaim data-demo-2"
    );
    let replaced = format!(
        "2 of 3 members are ready; {back}; if it is gone for good, delete that claim and Pod demo-2: the member is then \
         replaced with the data of the others"
    );
    for (pod, now_ms, expected) in [
        (&leaving, 119_000, "2 of 3 members are ready"),
        (&leaving, 120_000, LOST),
        (&unscheduled(affinity), 0, &*replaced),
        (
            &unscheduled("0/1 nodes are available: 1 Insufficient cpu."),
            0,
            "2 of 3 members are ready; Pod demo-2 has no node: 0/1 nodes are available: 1 Insufficient cpu.: add nodes, or \
             change resources, podTemplate or antiAffinity",
        ),
        (
            &unscheduled("pod has unbound immediate PersistentVolumeClaims"),
            0,
            "2 of 3 members are ready; Pod demo-2 has no node: pod has unbound immediate PersistentVolumeClaims: see the \
             events of PersistentVolumeClaim data-demo-2",
        ),
        (
            &waiting("ErrImagePull"),
            0,
            "2 of 3 members are ready; Pod demo-2: ImagePullBackOff",
        ),
        (&waiting("PodInitializing"), 0, "2 of 3 members are ready"),
    ] {
        let host = host().objects(ready(2)).object(pod).now(now_ms);
        let outcome = answer(observing(&parent, &children), &host);
        assert_eq!(message(&outcome, "Degraded"), expected);
        let edited = super::parent(json!({ "image": IMAGE, "snapshotCount": 5000 }));
        let outcome = answer(observing(&edited, &children), &host);
        let progressing = message(&outcome, "Progressing");
        assert!(progressing.contains(expected), "{progressing}");
    }
    let unseen = host().objects(ready(2)).object(&leaving).now(119_000);
    let early = answer(observing(&parent, &children), &unseen);
    let second = std::time::Duration::from_secs(1);
    assert_eq!(early.report().requeue, Some(second));
}

#[test]
fn the_data_of_a_lost_node_are_kept_without_a_quorum() {
    let (parent, children) = cluster(3, &json!({}));
    let unscheduled = |ordinal: i32| {
        down(
            ordinal,
            &json!({ "conditions": [{
            "type": "PodScheduled", "status": "False",
            "message": "node(s) didn't match PersistentVolume's node affinity",
        }] }),
        )
    };
    let host = host()
        .object(&pod(0, true, IMAGE))
        .objects([unscheduled(1), unscheduled(2)]);
    let outcome = answer(observing(&parent, &children), &host);
    for condition in &outcome.report().conditions {
        assert!(
            !condition.message.contains("delete"),
            "{}",
            condition.message
        );
    }
    assert!(message(&outcome, "Degraded").contains("Pod demo-1 has no node"));
}

#[test]
fn a_claim_that_pods_use_is_not_to_be_deleted() {
    const FREE: &str = "claims of an earlier cluster exist: data-demo-0, data-demo-1, data-demo-2; delete them, or set \
                        storage.existingClaims to Adopt";
    const USED: &str = "claims of an earlier cluster exist: data-demo-0, data-demo-1, data-demo-2, in use by Pods demo-0; do \
                        not delete them: set storage.existingClaims to Adopt and the annotation innkeeper.dev/adopt to \
                        \"true\" to continue with these members";
    let adopting = parent(json!({ "image": IMAGE, "storage": { "existingClaims": "Adopt" } }));
    let advice = |parent: &EtcdCluster, from: usize, host: &FakeHost| {
        let request = retained_claims()
            .into_iter()
            .enumerate()
            .skip(from)
            .fold(TestRequest::new(parent), |request, (at, claim)| {
                request.retained(&format!("claim-{at}"), &claim)
            });
        message(&answer(request, host), "Available")
    };
    let mut leaving = pod(0, false, IMAGE);
    leaving["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:01:00Z");
    let ends = |ordinal| host().object(&pod(ordinal, true, IMAGE));
    assert_eq!(advice(&article(), 0, &host()), FREE);
    for pod in [pod(0, true, IMAGE), pod(0, false, IMAGE), leaving] {
        assert_eq!(advice(&article(), 0, &host().object(&pod)), USED);
    }
    let missing = advice(&adopting, 1, &host());
    assert!(
        missing.ends_with("or delete the others and set storage.existingClaims to Refuse"),
        "{missing}"
    );
    let missing = advice(&adopting, 1, &ends(1));
    assert!(
        missing.ends_with("and keep the others, in use by Pods demo-1"),
        "{missing}"
    );
}

#[test]
fn a_lost_claim_of_a_member_that_is_ready_is_kept() {
    let (parent, mut children) = cluster(3, &json!({}));
    let claim = children
        .iter_mut()
        .find(|(key, _)| key == "claim-1")
        .unwrap();
    claim.1["status"] = json!({ "phase": "Lost" });
    let host = host().objects([
        pod(0, false, IMAGE),
        pod(1, true, IMAGE),
        pod(2, true, IMAGE),
    ]);
    let outcome = answer(observing(&parent, &children), &host);
    assert_eq!(reason(&outcome, "Degraded"), "MembersUnhealthy");
}

#[test]
fn the_services_of_another_owner_are_no_endpoints() {
    let (parent, children) = cluster(3, &json!({}));
    let ready = host().objects((0..3).map(|ordinal| pod(ordinal, true, IMAGE)));
    for (missing, service, client, members) in [
        ("client", "demo-client", false, 3),
        ("headless", "demo", true, 0),
    ] {
        let mut children = children.clone();
        children.retain(|(key, _)| key != missing);
        let outcome = answer(observing(&parent, &children), &ready);
        let endpoints = &outcome.report().status.as_ref().unwrap()["endpoints"];
        assert_eq!(endpoints.get("client").is_some(), client, "{endpoints}");
        let listed = endpoints["members"].as_array().map_or(0, Vec::len);
        assert_eq!(listed, members, "{endpoints}");
        let warnings = &outcome.report().status.as_ref().unwrap()["warnings"];
        assert_eq!(warnings[1]["code"], "ServiceNotOwned");
        let expected = format!(
            "Service {service} is missing or belongs to another owner: status.endpoints omits it, see the condition Synced"
        );
        assert_eq!(warnings[1]["message"], expected);
        // This answer creates a Service that is merely missing; the host reports one with another owner.
        assert_eq!(reason(&outcome, "Ready"), "Ready");
    }
}

/// A claim's status, and the warning's code and message.
const GROWTH: &[(&str, &str, &str)] = &[
    ("{}", "", ""),
    (
        r#"{"conditions":[{"type":"Resizing","status":"True"}]}"#,
        "",
        "",
    ),
    (
        r#"{"conditions":[{"type":"FileSystemResizePending","status":"True","message":"Waiting for user to (re-)start a pod"}]}"#,
        "FileSystemResizePending",
        "PersistentVolumeClaim data-demo-1: the volume has grown, but its file system has not; if that lasts for minutes, it grows \
         when the Pod starts again: change the annotation etcd.ydzs.io/restart-trigger of the EtcdCluster to restart the members \
         one by one",
    ),
    (
        r#"{"conditions":[{"type":"FileSystemResizePending","status":"False"}]}"#,
        "",
        "",
    ),
    (
        r#"{"allocatedResourceStatuses":{"storage":"NodeResizePending"}}"#,
        "",
        "",
    ),
    (
        r#"{"conditions":[{"type":"ControllerResizeError","status":"True","message":"quota exceeded"}]}"#,
        "VolumeResizeFailed",
        "the storage does not let volumes grow, PersistentVolumeClaim data-demo-1: quota exceeded; free storage for the new size; Kubernetes retries, and until then the database quota follows the current size",
    ),
    (
        r#"{"conditions":[{"type":"NodeResizeError","status":"True"}],
            "allocatedResourceStatuses":{"storage":"NodeResizeInfeasible"}}"#,
        "VolumeResizeFailed",
        "the storage does not let volumes grow, PersistentVolumeClaim data-demo-1: NodeResizeError; free storage for the new size; Kubernetes retries, and until then the database quota follows the current size",
    ),
    (
        r#"{"allocatedResourceStatuses":{"storage":"ControllerResizeInfeasible"}}"#,
        "VolumeResizeFailed",
        "the storage does not let volumes grow, PersistentVolumeClaim data-demo-1: ControllerResizeInfeasible; free storage for the new size; Kubernetes retries, and until then the database quota follows the current size",
    ),
    (
        r#"{"allocatedResourceStatuses":{"storage":"NodeResizeFailed"}}"#,
        "VolumeResizeFailed",
        "the storage does not let volumes grow, PersistentVolumeClaim data-demo-1: NodeResizeFailed; free storage for the new size; Kubernetes retries, and until then the database quota follows the current size",
    ),
];

#[test]
fn a_volume_that_does_not_grow_is_told() {
    let (parent, children) = cluster(3, &json!({ "storage": { "size": "8Gi" } }));
    let ready = host().objects((0..3).map(|ordinal| pod(ordinal, true, IMAGE)));
    for (status, code, message) in GROWTH {
        let mut children = children.clone();
        let claim = children
            .iter_mut()
            .find(|child| child.0 == "claim-1")
            .unwrap();
        claim.1["status"] = serde_json::from_str(status).unwrap();
        let outcome = answer(observing(&parent, &children), &ready);
        let status = outcome.report().status.as_ref().unwrap();
        let warning = &status["warnings"][0];
        assert_eq!(warning["code"].as_str().unwrap_or_default(), *code);
        assert_eq!(warning["message"].as_str().unwrap_or_default(), *message);
        let has_event = outcome
            .report()
            .events
            .iter()
            .any(|event| event.reason == *code);
        assert_eq!(has_event, *code == "VolumeResizeFailed");
    }
}
