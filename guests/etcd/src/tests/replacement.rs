//! Members that lost their data: Jobs replace them in etcd, step by step.

use super::*;

/// A Pod that has waited for data or an admission from the start.
fn waiting(ordinal: i32, uid: &str) -> Value {
    let mut pod = pod(ordinal, false, IMAGE);
    pod["metadata"]["uid"] = json!(uid);
    pod["status"]["initContainerStatuses"] = json!([{
        "name": "admit", "ready": false, "restartCount": 0,
        "state": { "running": { "startedAt": "1970-01-01T00:00:00Z" } },
    }]);
    pod
}

/// A host with these members ready and others waiting.
fn cluster(ready: &[i32], empty: &[(i32, &str)]) -> FakeHost {
    let ready = ready.iter().map(|ordinal| pod(*ordinal, true, IMAGE));
    let empty = empty.iter().map(|(ordinal, uid)| waiting(*ordinal, uid));
    host().objects(ready).objects(empty).now(60_000)
}

fn data(outcome: &Answer, key: &str) -> Value {
    outcome.child("state").unwrap().object["data"][key].clone()
}

fn annotation(outcome: &Answer, key: &str) -> Value {
    let key = format!("etcd.ydzs.io/{key}");
    outcome.child("state").unwrap().object["metadata"]["annotations"][key].clone()
}

/// An answer's Jobs: key, name, and `held` or `made`.
fn jobs(outcome: &Answer) -> Vec<String> {
    let jobs = outcome
        .children()
        .iter()
        .filter(|child| child.kind() == "Job");
    let line = |child: &Child| {
        let policy = if child.apply == ApplyPolicy::Hold {
            "held"
        } else {
            "made"
        };
        format!("{} {} {policy}", child.key, child.name())
    };
    jobs.map(line).collect()
}

/// An answer's children in the cluster, with the Jobs that existed before.
fn after(outcome: &Answer, before: &[(String, Value)]) -> Vec<(String, Value)> {
    let mut children = settled(outcome, 3);
    for (key, object) in &mut children {
        let was = before.iter().find(|(its, _)| its == key);
        if object["kind"] == "Job" {
            *object = was.map_or_else(|| object.clone(), |(_, was)| was.clone());
            object["metadata"]["uid"] = json!(key);
        }
    }
    children
}

/// Ends a Job, at 50 s, with a Pod message.
fn end(
    children: &mut [(String, Value)],
    host: FakeHost,
    key: &str,
    condition: &str,
    message: &str,
) -> FakeHost {
    let (_, job) = children.iter_mut().find(|(its, _)| its == key).unwrap();
    job["status"] = json!({ "conditions": [{
        "type": condition, "status": "True", "lastTransitionTime": "1970-01-01T00:00:50Z",
    }] });
    let owner = json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"], "uid": key, "controller": true,
    });
    host.object(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{key}-x"), "namespace": "default", "ownerReferences": [owner],
            "labels": base_labels("etcd", "demo", "operation"),
        },
        "status": { "containerStatuses": [{
            "name": "etcdctl", "state": { "terminated": { "exitCode": 0, "message": message } },
        }] },
    }))
}

/// The list of members as a survey reports it.
const MEMBERS: &str = "a1 https://demo-0.demo.default.svc:2380\n\
                       b2 https://demo-1.demo.default.svc:2380\n\
                       c3 https://demo-2.demo.default.svc:2380\n";

fn variable(outcome: &Answer, key: &str, name: &str) -> Value {
    let job = Value::from(outcome.child(key).unwrap().object.clone());
    let environment = &job["spec"]["template"]["spec"]["containers"][0]["env"];
    environment
        .as_array()
        .unwrap()
        .iter()
        .find(|variable| variable["name"] == name)
        .map(|variable| variable["value"].clone())
        .unwrap_or_default()
}

/// The children of a formed article whose last member's replacement has this progress.
fn begun(replacing: Option<&str>) -> Vec<(String, Value)> {
    let (outcome, _) = formed(&article());
    let mut children = settled(&outcome, 3);
    let (_, state) = children.iter_mut().find(|(key, _)| key == "state").unwrap();
    if let Some(replacing) = replacing {
        state["metadata"]["annotations"]["etcd.ydzs.io/replacing"] = json!(replacing);
    }
    children
}

/// The Job for that member.
fn job(replacing: Option<&str>) -> Child {
    let children = begun(replacing);
    let host = cluster(&[0, 1], &[(2, "new")]);
    answer(observing(&article(), &children), &host)
        .child("operation-0")
        .unwrap()
        .clone()
}

pub(super) fn survey() -> Child {
    job(None)
}

pub(super) fn removal() -> Child {
    job(Some("2=lost:c3"))
}

pub(super) fn addition() -> Child {
    job(Some("2=removed"))
}

#[test]
fn a_member_without_data_is_found_and_removed() {
    let parent = article();
    let begin = begun(None);
    let two = || cluster(&[0, 1], &[(2, "new")]);

    // A member with data passes the init container at once, so a short wait says nothing.
    let early = answer(observing(&parent, &begin), &two().now(29_000));
    assert_eq!(jobs(&early), [""; 0]);
    assert_eq!(
        early.report().requeue,
        Some(std::time::Duration::from_secs(1))
    );

    let survey = answer(observing(&parent, &begin), &two());
    assert_eq!(jobs(&survey), ["operation-0 demo-survey-0 made"]);
    assert_eq!(reason(&survey, "Progressing"), "ReplacingMember");
    assert_eq!(reason(&survey, "Available"), "QuorumAvailable");
    assert_eq!(
        variable(&survey, "operation-0", "ENDPOINTS"),
        "http://demo-0.demo.default.svc:2379 http://demo-1.demo.default.svc:2379 http://demo-2.demo.default.svc:2379"
    );
    let mut children = after(&survey, &begin);
    let runs = answer(observing(&parent, &children), &two());
    assert_eq!(jobs(&runs), ["operation-0 demo-survey-0 held"]);
    let finished = end(&mut children, two(), "operation-0", "Complete", MEMBERS);
    let recorded = answer(observing(&parent, &children), &finished);
    assert_eq!(annotation(&recorded, "replacing"), "2=lost:c3");
    assert_eq!(annotation(&recorded, "sequence"), "1");

    let children = after(&recorded, &children);
    let removal = answer(observing(&parent, &children), &finished);
    assert_eq!(
        jobs(&removal),
        [
            "operation-0 demo-survey-0 held",
            "operation-1 demo-remove-2-1 made"
        ]
    );
    assert_eq!(variable(&removal, "operation-1", "MEMBER_ID"), "c3");
    let mut children = after(&removal, &children);
    let finished = end(&mut children, two(), "operation-1", "Complete", "");
    let removed = answer(observing(&parent, &children), &finished);
    assert_eq!(annotation(&removed, "replacing"), "2=removed");
    assert_eq!(removed.report().events[0].reason, "MemberRemoved");
    let listed = data(&removed, "ETCD_INITIAL_CLUSTER");
    assert!(!listed.as_str().unwrap().contains("demo-2"), "{listed}");
    assert_eq!(
        removed.child("members").unwrap().object["spec"]["replicas"],
        3
    );
    assert!(removed.child("claim-2").is_some());
}

#[test]
fn a_removed_member_is_added_and_its_pod_admitted_once() {
    let parent = article();
    let begin = begun(Some("2=removed"));
    let two = || cluster(&[0, 1], &[(2, "new")]);
    let addition = answer(observing(&parent, &begin), &two());
    assert_eq!(jobs(&addition), ["operation-0 demo-add-2-0 made"]);
    let mut children = after(&addition, &begin);
    let finished = end(&mut children, two(), "operation-0", "Complete", "");
    let added = answer(observing(&parent, &children), &finished);
    assert_eq!(annotation(&added, "replacing"), "2=added");
    assert_eq!(added.report().events[0].reason, "MemberAdded");
    let children = after(&added, &children);
    let admitted = answer(observing(&parent, &children), &two());
    assert_eq!(annotation(&admitted, "replacing"), Value::Null);
    assert_eq!(data(&admitted, "ADMIT_2"), "new");
    let listed = data(&admitted, "ETCD_INITIAL_CLUSTER");
    assert!(listed.as_str().unwrap().contains("demo-2="), "{listed}");
    let children = after(&admitted, &children);
    // The Pod that is admitted is not lost, however long it waits; the next one is.
    let patient = answer(observing(&parent, &children), &two());
    assert_eq!(jobs(&patient), [""; 0]);
    let next = answer(
        observing(&parent, &children),
        &cluster(&[0, 1], &[(2, "newer")]),
    );
    assert_eq!(data(&next, "ADMIT_2"), Value::Null);
    assert_eq!(
        jobs(&next).last().unwrap(),
        "operation-1 demo-survey-1 made"
    );

    let whole = answer(observing(&parent, &children), &cluster(&[0, 1, 2], &[]));
    assert_eq!(data(&whole, "ADMIT_2"), Value::Null);
    assert_eq!(reason(&whole, "Ready"), "Ready");
    assert_eq!(whole.report().events[0].reason, "MemberReplaced");
}

#[test]
fn the_pods_of_jobs_bring_their_shell() {
    let (outcome, _) = formed(&article());
    let two = cluster(&[0, 1], &[(2, "new")]);
    let survey = answer(observing(&article(), &settled(&outcome, 3)), &two);
    let job = Value::from(survey.child("operation-0").unwrap().object.clone());
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], IMAGE);
    assert_eq!(pod["initContainers"][0]["image"], "busybox:1.37.0-musl");
    let command = &pod["containers"][0]["command"];
    assert_eq!(command[0], "/tools/busybox");
    assert_eq!(pod["securityContext"]["runAsUser"], 65532);
    assert_eq!(
        pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"],
        true
    );
    // No Service of the cluster leads to the Pod.
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["app.kubernetes.io/component"], "operation");
}

#[test]
fn a_failed_job_is_told_and_repeated() {
    let parent = article();
    let (outcome, _) = formed(&parent);
    let two = || cluster(&[0, 1], &[(2, "new")]);
    let survey = answer(observing(&parent, &settled(&outcome, 3)), &two());
    let mut children = after(&survey, &[]);
    let finished = end(
        &mut children,
        two(),
        "operation-0",
        "Failed",
        "no member answers\n",
    );
    let failed = answer(observing(&parent, &children), &finished);
    assert_eq!(annotation(&failed, "sequence"), "1");
    let children = after(&failed, &children);
    let waits = answer(observing(&parent, &children), &finished);
    assert_eq!(jobs(&waits), ["operation-0 demo-survey-0 held"]);
    let progressing = waits.report().find_condition("Progressing").unwrap();
    assert_eq!(progressing.reason, "OperationFailed");
    assert_eq!(
        progressing.message,
        "Job demo-survey-0 failed: no member answers"
    );
    assert_eq!(reason(&waits, "Degraded"), "OperationFailed");
    // It ended 10 s ago.
    assert_eq!(
        waits.report().requeue,
        Some(std::time::Duration::from_secs(50))
    );
    let again = answer(observing(&parent, &children), &finished.now(110_000));
    assert_eq!(
        jobs(&again).last().unwrap(),
        "operation-1 demo-survey-1 made"
    );
}

#[test]
fn the_result_of_a_survey_may_come_after_its_end() {
    let parent = article();
    let (outcome, _) = formed(&parent);
    let two = || cluster(&[0, 1], &[(2, "new")]);
    let survey = answer(observing(&parent, &settled(&outcome, 3)), &two());
    for (message, expected) in [
        ("", "0"),
        ("c3", "0"),
        ("c3 https://elsewhere:2380", "0"),
        ("not-hexadecimal https://demo-2.demo.default.svc:2380", "0"),
        (MEMBERS, "1"),
    ] {
        let mut children = after(&survey, &[]);
        let finished = end(&mut children, two(), "operation-0", "Complete", message);
        let waits = answer(observing(&parent, &children), &finished);
        assert_eq!(annotation(&waits, "sequence"), expected, "{message:?}");
        // A result that does not come, or makes no sense, is none: the survey is repeated.
        let late = answer(observing(&parent, &children), &finished.now(110_000));
        assert_eq!(annotation(&late, "sequence"), "1", "{message:?}");
    }
}

#[test]
fn without_a_quorum_no_member_is_replaced() {
    let parent = article();
    let (outcome, _) = formed(&parent);
    let one = cluster(&[0], &[(1, "new-1"), (2, "new-2")]);
    let blocked = answer(observing(&parent, &settled(&outcome, 3)), &one);
    assert_eq!(jobs(&blocked), [""; 0]);
    let available = blocked.report().find_condition("Available").unwrap();
    assert_eq!(available.reason, "QuorumLost");
    assert_eq!(
        available.message,
        "1 of 3 members are ready, quorum is 2; without data: demo-1, demo-2; if the other members do not come back, \
         restore a snapshot into a new cluster"
    );
    assert_eq!(reason(&blocked, "Progressing"), "WaitingForHealthyMembers");
}

#[test]
fn a_member_that_keeps_failing_is_told_with_its_remedy() {
    let mut broken = pod(1, false, IMAGE);
    broken["status"]["containerStatuses"] = json!([{
        "name": "etcd", "ready": false, "restartCount": 5,
        "state": { "waiting": { "reason": "CrashLoopBackOff" } },
        "lastState": { "terminated": { "exitCode": 1, "reason": "Error" } },
    }]);
    let (outcome, _) = formed(&article());
    let children = settled(&outcome, 3);
    let degraded = |pod: &Value| {
        let host = cluster(&[0, 2], &[]).object(pod);
        let outcome = answer(observing(&article(), &children), &host);
        let degraded = outcome.report().find_condition("Degraded").unwrap();
        (degraded.reason.clone(), degraded.message.clone())
    };
    let (reason, message) = degraded(&broken);
    assert_eq!(reason, "MemberBroken");
    assert_eq!(
        message,
        "demo-1 does not start, see the log; if the data is damaged or the volume gone, delete PersistentVolumeClaim \
         data-demo-1 and Pod demo-1: the member is then replaced with the data of the others"
    );
    let pointer = "/status/containerStatuses/0/lastState/terminated";
    let terminated = broken.pointer_mut(pointer).unwrap();
    terminated["message"] = json!("panic: walpb: crc mismatch\n");
    let words = format!("{message}; the log of demo-1 ends: panic: walpb: crc mismatch");
    assert_eq!(degraded(&broken).1, words);
    broken["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"] =
        json!("OOMKilled");
    assert_eq!(degraded(&broken).0, "MembersUnhealthy");
}

fn volatile() -> EtcdCluster {
    parent(json!({ "size": 3, "image": IMAGE, "storage": { "medium": "Memory" } }))
}

#[test]
fn founders_on_a_volatile_medium_are_admitted_at_once_and_once() {
    let first = answer(TestRequest::new(&volatile()), &host());
    let second = answer(observing(&volatile(), &settled(&first, 0)), &host());
    assert_eq!(data(&second, "ADMIT_0"), Value::Null);
    let begin = settled(&second, 3);
    let names = ["uid-0", "uid-1", "uid-2"];
    let all = |uids: [&str; 3]| {
        let pods: Vec<(i32, &str)> = (0..).zip(uids).collect();
        cluster(&[], &pods).now(0)
    };
    let some = cluster(&[], &[(0, "uid-0"), (1, "uid-1")]).now(0);
    let partly = answer(observing(&volatile(), &begin), &some);
    assert_eq!(data(&partly, "ADMIT_0"), Value::Null);
    let admitted = answer(observing(&volatile(), &begin), &all(names));
    for (ordinal, uid) in names.iter().enumerate() {
        assert_eq!(data(&admitted, &format!("ADMIT_{ordinal}")), *uid);
    }
    let children = after(&admitted, &begin);
    // One that was replaced may have voted: it waits until the others have formed the cluster.
    let one = answer(
        observing(&volatile(), &children),
        &all(["uid-0", "uid-1", "v2"]),
    );
    assert_eq!(data(&one, "ADMIT_2"), "uid-2");
    // Without any Pod that was admitted, there is no cluster.
    let none = answer(observing(&volatile(), &children), &all(["v0", "v1", "v2"]));
    assert_eq!(data(&none, "ADMIT_2"), "v2");
    let formed = answer(observing(&volatile(), &children), &cluster(&[0, 1, 2], &[]));
    assert_eq!(data(&formed, "ETCD_INITIAL_CLUSTER_STATE"), "existing");
    assert_eq!(data(&formed, "ADMIT_2"), Value::Null);
}

#[test]
fn a_stateful_set_on_a_volatile_medium_goes_only_before_etcd_has_run() {
    let first = answer(TestRequest::new(&volatile()), &host());
    let second = answer(observing(&volatile(), &settled(&first, 0)), &host());
    let pods = |has_run: bool| {
        let pods = (0..3).map(|ordinal| {
            let mut pod = pod(ordinal, false, IMAGE);
            let state = if has_run { "running" } else { "waiting" };
            pod["status"]["containerStatuses"] =
                json!([{ "name": "etcd", "state": { state: {} } }]);
            pod
        });
        host().objects(pods)
    };
    let admitted = answer(observing(&volatile(), &settled(&second, 3)), &pods(false));
    let other =
        parent(json!({ "size": 3, "image": "etcd:v3.4.14", "storage": { "medium": "Memory" } }));
    let children = settled(&admitted, 3);
    let never = answer(observing(&other, &children), &pods(false));
    assert!(never.child("members").is_none());
    let perhaps = answer(observing(&other, &children), &pods(true));
    assert!(perhaps.child("members").is_some());
}

#[test]
fn record_and_status_may_be_lost_together() {
    let (outcome, _) = formed(&article());
    let mut children = settled(&outcome, 3);
    children.retain(|(key, _)| key != "state");
    // No Pod is ready, so only the StatefulSet tells that the cluster is formed.
    let again = answer(
        observing(&article(), &children),
        &cluster(&[], &[(0, "new")]),
    );
    assert_eq!(data(&again, "ETCD_INITIAL_CLUSTER_STATE"), "existing");
}

#[test]
fn a_volatile_medium_needs_members_to_spare() {
    for (spec, expected) in [
        (
            json!({ "size": 1, "storage": { "medium": "EmptyDir" } }),
            Some(
                "spec.size: 1 members cannot replace one that lost its data, and with storage.medium EmptyDir each deletion \
                 of a Pod does that: set size to 3 or more, or storage.medium to Persistent",
            ),
        ),
        (
            json!({ "size": 3, "storage": { "medium": "EmptyDir" } }),
            None,
        ),
        (
            json!({ "storage": { "medium": "Memory" }, "resources": { "limits": { "memory": "1Gi" } } }),
            Some(
                "spec.resources.limits.memory: it includes the data with storage.medium Memory, so it must be at least \
                 128Mi larger than storage.size, 1Gi",
            ),
        ),
        (
            json!({ "storage": { "medium": "Memory" }, "resources": { "limits": { "memory": "1152Mi" } } }),
            None,
        ),
    ] {
        let request = TestRequest::new(&parent(spec)).build();
        let problem = Plugin::reconcile(&request, &host())
            .err()
            .map(|fault| fault.message);
        assert_eq!(problem.as_deref(), expected);
    }
}
