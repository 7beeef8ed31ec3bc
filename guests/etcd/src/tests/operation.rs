//! A cluster's life: edits, upgrades, late founders, pauses, adoptions and lost records.

use super::*;

fn spec_of(outcome: &Answer) -> Value {
    Value::from(outcome.child("members").unwrap().object.clone())["spec"].clone()
}

fn partition(outcome: &Answer) -> Value {
    spec_of(outcome)["updateStrategy"]["rollingUpdate"]["partition"].clone()
}

fn status(outcome: &Answer) -> Value {
    outcome.report().status.clone().unwrap()
}

/// The problem with a parent without children.
fn problem(parent: &EtcdCluster) -> Option<String> {
    Plugin::reconcile(&TestRequest::new(parent).build(), &host())
        .err()
        .map(|fault| fault.message)
}

fn members(ready: &[bool], revisions: &[&str]) -> FakeHost {
    (0..)
        .zip(ready.iter().zip(revisions))
        .fold(host(), |host, (ordinal, (ready, revision))| {
            host.object(&pod_of_revision(ordinal, *ready, IMAGE, revision))
        })
}

#[test]
fn an_edit_takes_no_member_while_another_one_is_down() {
    let (outcome, _) = formed(&article());
    let other = parent(json!({ "size": 3, "image": IMAGE, "snapshotCount": 5000 }));
    let old = settled(&outcome, 3);
    let down = members(&[false, true, true], &["r1"; 3]);
    let blocked = answer(observing(&other, &old), &down);
    assert_eq!(partition(&blocked), 3);
    assert_eq!(reason(&blocked, "Progressing"), "RolloutHeld");
    assert_eq!(reason(&blocked, "Degraded"), "MembersUnhealthy");

    let mut annotated = other.clone();
    annotated.metadata.annotations = Some(
        [(
            "etcd.ydzs.io/allow-unsafe-rollout".to_owned(),
            "true".to_owned(),
        )]
        .into(),
    );
    assert_eq!(partition(&answer(observing(&annotated, &old), &down)), 0);

    let begun = answer(observing(&other, &old), &members(&[true; 3], &["r1"; 3]));
    assert_eq!(partition(&begun), 2);
    // The controller has not seen the new template yet, so the Pods' revision is unknown.
    let mut rolling = settled(&begun, 3);
    let set = rolling
        .iter_mut()
        .find(|(key, _)| key == "members")
        .unwrap();
    set.1["metadata"]["generation"] = json!(2);
    let unseen = answer(
        observing(&other, &rolling),
        &members(&[true; 3], &["r1"; 3]),
    );
    assert_eq!(partition(&unseen), 2);
    let set = rolling
        .iter_mut()
        .find(|(key, _)| key == "members")
        .unwrap();
    set.1["status"]["observedGeneration"] = json!(2);
    set.1["status"]["updateRevision"] = json!("r2");
    set.1["status"]["updatedReplicas"] = json!(1);
    for (ready, revisions, expected) in [
        ([true, true, false], ["r1", "r1", "r2"], 2),
        ([true, true, true], ["r1", "r1", "r2"], 1),
        ([true, false, true], ["r1", "r2", "r2"], 1),
        ([true, true, true], ["r1", "r2", "r2"], 0),
    ] {
        let step = answer(observing(&other, &rolling), &members(&ready, &revisions));
        assert_eq!(partition(&step), expected, "{revisions:?}");
        // A normal rollout is no problem.
        assert_eq!(
            reason(&step, "Progressing"),
            "RollingUpdate",
            "{revisions:?}"
        );
        assert!(!step.report().find_condition("Degraded").unwrap().is_true());
        assert!(step.report().find_condition("Available").unwrap().is_true());
    }
}

#[test]
fn a_roll_out_whose_member_does_not_start_is_reported_after_the_deadline() {
    let (outcome, _) = formed(&article());
    let other = parent(json!({ "size": 3, "image": IMAGE, "snapshotCount": 5000 }));
    let all = members(&[true; 3], &["r1"; 3]);
    let begun = answer(observing(&other, &settled(&outcome, 3)), &all);
    let mut rolling = settled(&begun, 3);
    let mut children = rolling.iter_mut();
    let (_, set) = children.find(|(key, _)| key == "members").unwrap();
    set["status"]["updateRevision"] = json!("r2");
    set["status"]["updatedReplicas"] = json!(1);
    // The Pods are as old as the time.
    let at = |now| {
        let host = members(&[true, true, false], &["r1", "r1", "r2"]).now(now);
        answer(observing(&other, &rolling), &host)
    };
    let early = at(599_000);
    assert_eq!(reason(&early, "Progressing"), "RollingUpdate");
    assert_eq!(reason(&early, "Degraded"), "RollingUpdate");
    let second = std::time::Duration::from_secs(1);
    assert_eq!(early.report().requeue, Some(second));
    let late = at(600_000);
    assert_eq!(reason(&late, "Progressing"), "DeadlineExceeded");
    assert_eq!(reason(&late, "Available"), "QuorumAvailable");
    assert_eq!(partition(&late), 2);
    let degraded = late.report().find_condition("Degraded").unwrap();
    assert!(degraded.is_true());
    assert_eq!(
        degraded.message,
        "a member with the new template did not become ready within 600 s, and no other one is replaced: see its log, and \
         correct or revert the last change; 2 of 3 members are ready"
    );
}

#[test]
fn a_late_founder_is_let_in_until_it_is_ready() {
    let first = answer(TestRequest::new(&article()), &host());
    let second = answer(observing(&article(), &settled(&first, 0)), &host());
    let quorum = members(&[true, true, false], &["r1"; 3]).now(600_000);
    let formed = answer(observing(&article(), &settled(&second, 3)), &quorum);
    let data = |outcome: &Answer| outcome.child("state").unwrap().object["data"].clone();
    assert_eq!(data(&formed)["ETCD_INITIAL_CLUSTER_STATE"], "existing");
    assert_eq!(data(&formed)["ADMIT_2"], "uid-2");
    assert_eq!(data(&formed)["ADMIT_1"], Value::Null);
    let later = answer(observing(&article(), &settled(&formed, 3)), &quorum);
    assert_eq!(data(&later)["ADMIT_2"], "uid-2");
    let whole = members(&[true; 3], &["r1"; 3]);
    let after = answer(observing(&article(), &settled(&later, 3)), &whole);
    assert_eq!(data(&after)["ADMIT_2"], Value::Null);
}

#[test]
fn a_first_version_that_was_too_high_can_be_taken_back() {
    let mistyped = parent(json!({ "size": 1, "image": "etcd:v3.9.9" }));
    let first = answer(TestRequest::new(&mistyped), &host());
    let second = answer(observing(&mistyped, &settled(&first, 0)), &host());
    let corrected = parent(json!({ "size": 1, "image": "etcd:v3.6.14" }));
    let pending = host().object(&pod(0, false, "etcd:v3.9.9"));
    let after = answer(observing(&corrected, &settled(&second, 1)), &pending);
    // It has never run, so the StatefulSet is recreated.
    assert!(after.child("members").is_none());
}

#[test]
fn an_upgrade_starts_from_the_version_that_has_run() {
    let (outcome, _) = formed(&article());
    let version = |outcome: &Answer| {
        outcome.child("state").unwrap().object["metadata"]["annotations"]["etcd.ydzs.io/version"]
            .clone()
    };
    assert_eq!(version(&outcome), "3.4.13");
    let paused = |image: &str, before: &[(String, Value)]| {
        let parent = parent(json!({ "size": 0, "image": image }));
        let request = observing(&parent, before).build();
        Plugin::reconcile(&request, &host()).map_err(|fault| fault.message)
    };
    let next = paused("etcd:v3.5.26", &settled(&outcome, 0)).unwrap();
    assert_eq!(version(&next), "3.4.13");
    assert_eq!(
        paused("etcd:v3.6.14", &settled(&next, 0)).unwrap_err(),
        "spec.image: upgrade from 3.4.13 to 3.6.14 is not allowed, go one minor version at a time"
    );
}

#[test]
fn compaction_by_revision_keeps_a_number_of_revisions() {
    for spec in [
        json!({ "size": 1, "autoCompactionMode": "revision" }),
        json!({ "size": 1, "options": { "auto-compaction-mode": "revision" } }),
    ] {
        let parent = parent(spec);
        let first = answer(TestRequest::new(&parent), &host());
        let second = answer(observing(&parent, &settled(&first, 0)), &host());
        let arguments = spec_of(&second)["template"]["spec"]["containers"][0]["args"].to_string();
        assert!(
            arguments.contains("--auto-compaction-retention=1000"),
            "{arguments}"
        );
    }
}

#[test]
fn the_quota_is_that_of_the_smallest_volume() {
    // A claim from a larger, earlier cluster.
    let without_member = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data-demo-4", "namespace": "default" },
        "spec": { "resources": { "requests": { "storage": "1000" } } },
        "status": { "capacity": { "storage": "1000" } },
    });
    let quota = |size: &str, capacities: &[&str]| {
        let parent = parent(json!({ "size": 3, "image": IMAGE, "storage": { "size": size } }));
        let first = answer(TestRequest::new(&parent), &host());
        let second = answer(observing(&parent, &settled(&first, 0)), &host());
        let mut children = settled(&second, 3);
        for (ordinal, capacity) in capacities.iter().enumerate() {
            let key = format!("claim-{ordinal}");
            let claim = children.iter_mut().find(|(name, _)| *name == key).unwrap();
            claim.1["status"] = json!({ "capacity": { "storage": capacity } });
        }
        let ready = members(&[true; 3], &["r1"; 3]);
        let request = observing(&parent, &children).retained("claim-4", &without_member);
        let after = answer(request, &ready);
        let warnings = status(&after)["warnings"].to_string();
        assert!(!warnings.contains("StorageNotExpandable"), "{warnings}");
        let arguments = spec_of(&after)["template"]["spec"]["containers"][0]["args"]
            .clone()
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone();
        arguments
            .as_str()
            .unwrap()
            .replace("--quota-backend-bytes=", "")
    };
    assert_eq!(quota("1000", &[]), "950");
    assert_eq!(quota("1000", &["2000", "1000", "1000"]), "950");
    assert_eq!(quota("2000", &["2000", "1000", "2000"]), "950");
    for size in ["20Gi", "2e36"] {
        assert_eq!(quota(size, &["20Gi"]), (8_u64 << 30).to_string());
        assert_eq!(quota(size, &[]), (8_u64 << 30).to_string());
    }
}

#[test]
fn a_default_quota_on_a_small_volume_is_warned_of_without_an_event() {
    let warned = |spec: Value| {
        let outcome = answer(TestRequest::new(&parent(spec)), &host());
        let codes: Vec<String> = status(&outcome)["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|warning| warning["code"].to_string())
            .collect();
        assert_eq!(outcome.report().events, [], "{codes:?}");
        !codes.is_empty()
    };
    let with_size = |size: &str| json!({ "size": 3, "image": IMAGE, "storage": { "size": size } });
    assert!(warned(with_size("1Gi")));
    assert!(!warned(with_size("4Gi")));
    let mut stated = with_size("1Gi");
    stated["quotaBackendBytes"] = json!(512 << 20);
    assert!(!warned(stated));
    let mut flag = with_size("1Gi");
    flag["options"] = json!({ "quota-backend-bytes": "1000" });
    assert!(!warned(flag));
}

#[test]
fn a_resume_is_no_loss_of_the_quorum() {
    let (outcome, _) = formed(&article());
    let paused = parent(json!({ "size": 0, "image": IMAGE }));
    let pause = answer(observing(&paused, &settled(&outcome, 3)), &host());
    let stored = |outcome: &Answer| {
        let mut status = status(outcome);
        let available = outcome.report().find_condition("Available").unwrap();
        status["conditions"] = json!([{
            "type": "Available", "status": if available.is_true() { "True" } else { "False" },
            "reason": available.reason, "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z",
        }]);
        status
    };
    let request = observing(&article(), &settled(&pause, 0)).status(&stored(&pause));
    let resumed = answer(request, &host());
    let request = observing(&article(), &settled(&resumed, 0)).status(&stored(&resumed));
    let starting = answer(request, &members(&[true, false, false], &["r1"; 3]));
    assert_eq!(reason(&starting, "Available"), "Resuming");
    assert!(
        !starting
            .report()
            .find_condition("Degraded")
            .unwrap()
            .is_true()
    );
    assert_eq!(starting.report().events, []);
    let request = observing(&article(), &settled(&starting, 3)).status(&stored(&starting));
    let running = answer(request, &members(&[true; 3], &["r1"; 3]));
    assert_eq!(reason(&running, "Available"), "QuorumHealthy");
    assert_eq!(running.report().events[0].reason, "Resumed");
}

#[test]
fn an_adoption_needs_the_claims_of_all_members() {
    let adopting =
        parent(json!({ "size": 3, "image": IMAGE, "storage": { "existingClaims": "Adopt" } }));
    let with = |ordinals: &[usize], members: Option<&str>| {
        let claims = retained_claims();
        let request = ordinals
            .iter()
            .fold(TestRequest::new(&adopting), |request, at| {
                let mut claim = claims[*at].clone();
                if let Some(members) = members {
                    claim["metadata"]["labels"]["etcd.ydzs.io/members"] = json!(members);
                }
                request.retained(&format!("claim-{at}"), &claim)
            });
        answer(request, &host())
    };
    for (ordinals, members, missing) in [
        (&[1, 2][..], None, "data-demo-0"),
        (&[0, 2], None, "data-demo-1"),
        (&[0], Some("3"), "data-demo-1, data-demo-2"),
    ] {
        let outcome = with(ordinals, members);
        let available = outcome.report().find_condition("Available").unwrap();
        assert_eq!(
            (available.is_true(), &*available.reason),
            (false, "StaleClaims")
        );
        assert!(
            available.message.contains(&format!("missing: {missing};")),
            "{}",
            available.message
        );
        assert!(outcome.child("state").is_none());
    }
    let whole = with(&[0, 1, 2], Some("3"));
    assert_eq!(reason(&whole, "Available"), "Resuming");
    assert!(whole.child("state").is_some());
}

#[test]
fn the_version_of_a_digest_counts_for_upgrades() {
    let digest = |version: &str, digest: &str| {
        let image = format!("etcd@sha256:{digest}");
        parent(json!({ "size": 3, "image": image, "version": version }))
    };
    let before = digest("3.5.9", "0");
    let first = answer(TestRequest::new(&before), &host());
    let second = answer(observing(&before, &settled(&first, 0)), &host());
    let ready = (0..3).fold(host(), |host, ordinal| {
        host.object(&pod(ordinal, true, "etcd@sha256:0"))
    });
    let third = answer(observing(&before, &settled(&second, 3)), &ready);
    let fourth = answer(observing(&before, &settled(&third, 3)), &ready);
    assert_eq!(status(&fourth)["currentVersion"], "3.5.9");
    let after = digest("3.6.14", "1");
    let request = observing(&after, &settled(&fourth, 3)).build();
    assert_eq!(
        Plugin::reconcile(&request, &ready).unwrap_err().message,
        "spec.version: upgrade from 3.5.9 to 3.6.14 is not allowed, go to 3.5.26 or later first"
    );
}

#[test]
fn a_version_that_contradicts_the_image_is_invalid() {
    let contradiction = parent(json!({ "image": "etcd:v3.5.1", "version": "3.6.0" }));
    assert_eq!(
        problem(&contradiction).unwrap(),
        "spec.version: 3.6.0 is not the version in the tag of spec.image, 3.5.1: remove version, or correct one of them"
    );
}

#[test]
fn a_lost_record_keeps_the_disruption_budget() {
    let (outcome, _) = formed(&article());
    let mut children = settled(&outcome, 3);
    children.retain(|(key, _)| key != "state");
    let degraded = members(&[true, false, true], &["r1"; 3]);
    let after = answer(observing(&article(), &children), &degraded);
    assert_eq!(
        after.child("pdb").unwrap().object["spec"]["minAvailable"],
        2
    );
}

#[test]
fn a_member_without_a_pod_is_listed() {
    let (outcome, _) = formed(&article());
    let two = members(&[true, true], &["r1"; 2]);
    let after = answer(observing(&article(), &settled(&outcome, 3)), &two);
    assert_eq!(
        status(&after)["members"][2],
        json!({ "name": "demo-2", "ordinal": 2, "ready": false })
    );
}

#[test]
fn a_stateful_set_goes_before_the_formation_only_if_the_claims_stay() {
    let deleting = |image: &str| {
        parent(json!({ "size": 3, "image": image, "storage": { "whenDeleted": "Delete" } }))
    };
    let first = answer(TestRequest::new(&deleting(IMAGE)), &host());
    let second = answer(observing(&deleting(IMAGE), &settled(&first, 0)), &host());
    let policy = |outcome: &Answer| {
        spec_of(outcome)["persistentVolumeClaimRetentionPolicy"]["whenDeleted"].clone()
    };
    assert_eq!(policy(&second), "Retain");
    let other = deleting("cnych/etcd:v3.4.14");
    // A record from an earlier plugin version.
    let mut children = settled(&second, 3);
    let set = children
        .iter_mut()
        .find(|(key, _)| key == "members")
        .unwrap();
    set.1["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] = json!("Delete");
    let retained = answer(observing(&other, &children), &host());
    assert_eq!(policy(&retained), "Retain");
    let removed = answer(observing(&other, &settled(&second, 3)), &host());
    assert!(removed.child("members").is_none());
    let whole = members(&[true; 3], &["r1"; 3]);
    let formed = answer(observing(&deleting(IMAGE), &settled(&second, 3)), &whole);
    assert_eq!(policy(&formed), "Delete");
}

#[test]
fn an_edited_record_starts_no_second_cluster() {
    let (outcome, ready) = formed(&article());
    let mut children = settled(&outcome, 3);
    let state = children.iter_mut().find(|(key, _)| key == "state").unwrap();
    state.1["data"]["ETCD_INITIAL_CLUSTER_STATE"] = json!("new");
    let request = observing(&article(), &children).status(&status(&outcome));
    let after = answer(request, &ready);
    assert_eq!(
        after.child("state").unwrap().object["data"]["ETCD_INITIAL_CLUSTER_STATE"],
        "existing"
    );
}

#[test]
fn a_budget_that_lets_no_member_go_is_left_out() {
    for (size, budget, expected) in [
        (1, json!({}), None),
        (2, json!({}), None),
        (3, json!({}), Some(json!({ "minAvailable": 2 }))),
        (
            1,
            json!({ "maxUnavailable": 1 }),
            Some(json!({ "maxUnavailable": 1 })),
        ),
    ] {
        let parent = parent(json!({ "size": size, "image": IMAGE, "podDisruptionBudget": budget }));
        let ready = vec![true; usize::try_from(size).unwrap()];
        let first = answer(TestRequest::new(&parent), &host());
        let second = answer(observing(&parent, &settled(&first, 0)), &host());
        let formed = answer(
            observing(&parent, &settled(&second, size)),
            &members(&ready, &["r1"; 3]),
        );
        let spec = formed.child("pdb").map(|pdb| {
            let mut spec = pdb.object["spec"].as_object().unwrap().clone();
            spec.retain(|key, _| ["minAvailable", "maxUnavailable"].contains(&&**key));
            Value::from(spec)
        });
        assert_eq!(spec, expected, "{size}");
    }
}
