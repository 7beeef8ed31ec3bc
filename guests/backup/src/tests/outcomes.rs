//! The children of an answer, and the report on the runs in the cluster.

use innkeeper_sdk::testing::TestRequest;
use k8s_openapi::api::batch::v1::Job;

use super::*;

#[test]
fn the_article_makes_a_configuration_and_a_job() {
    let (related, parent) = article();
    let outcome = reconcile(&parent, &related).unwrap();
    assert_eq!(
        names(&outcome),
        ["Secret/example-backup-gobackup", "Job/example-backup"]
    );

    let secret = &outcome.child("config").unwrap().object;
    let keys: Vec<&String> = secret["data"].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "DB0_PASSWORD",
            "ENC_PASSWORD",
            "ST0_ACCESS_KEY_ID",
            "ST0_SECRET_ACCESS_KEY",
            "gobackup.yml"
        ]
    );

    let run = outcome.child("run").unwrap();
    assert_eq!(
        (run.apply, &run.after[..]),
        (ApplyPolicy::Always, &["config".to_owned()][..])
    );
    let spec = &run.object["spec"];
    assert_eq!(spec["activeDeadlineSeconds"], 21600);
    // The storage has keep.
    assert_eq!(spec["backoffLimit"], 0);
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["restartPolicy"], "Never");
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "huacnlee/gobackup:latest");
    let variables: Vec<&str> = container["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        variables,
        [
            "HOME",
            "TMPDIR",
            "GOBACKUP_DIR",
            "DOLLAR",
            "MODEL",
            "STORAGES",
            "SECRETS",
            "POD_UID",
            "ENC_PASSWORD",
            "DB0_PASSWORD",
            "ST0_ACCESS_KEY_ID",
            "ST0_SECRET_ACCESS_KEY"
        ]
    );
    assert_eq!(
        container["env"][9]["valueFrom"]["secretKeyRef"],
        json!({ "name": "example-backup-gobackup", "key": "DB0_PASSWORD" })
    );
    assert_eq!(
        condition(outcome.report(), "Ready"),
        "False/Pending: the run has not been created yet"
    );
}

#[test]
fn pods_are_admitted_by_pod_security_restricted() {
    let (related, parent) = article();
    let outcome = reconcile(&parent, &related).unwrap();
    let pod = &outcome.child("run").unwrap().object["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    assert_eq!(pod["automountServiceAccountToken"], false);
    let context = &pod["containers"][0]["securityContext"];
    assert_eq!(context["allowPrivilegeEscalation"], false);
    assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
    assert_eq!(context["readOnlyRootFilesystem"], true);
}

#[test]
fn references_beside_and_inside_the_spec_mean_the_same() {
    let (related, beside) = article();
    let mut inside = beside.clone();
    for key in ["backupModelRef", "databaseRefs", "storageRefs"] {
        let value = inside.as_object_mut().unwrap().remove(key).unwrap();
        inside["spec"][key] = value;
    }
    let inside = reconcile(&inside, &related).unwrap();
    assert_eq!(inside, reconcile(&beside, &related).unwrap());
}

#[test]
fn every_example_makes_children() {
    const CRON: &str = include_str!("../../../../examples/backup/02-article-cron.yaml");
    const SCHEDULED: &str = include_str!("../../../../examples/backup/03-scheduled.yaml");
    const FILES: &str = include_str!("../../../../examples/backup/04-files.yaml");
    const NOW: &str = include_str!("../../../../examples/backup/05-run-now.yaml");
    const NOTIFIERS: &str = include_str!("../../../../examples/backup/07-notifiers.yaml");
    const VERIFIED: &str = include_str!("../../../../examples/backup/08-verified.yaml");
    const MANY: &str = include_str!("../../../../examples/backup/09-many-databases.yaml");
    const ENCRYPTED: &str = include_str!("../../../../examples/backup/10-encrypted.yaml");
    let table = [
        (NOTIFIERS, &["Secret/orders-gobackup", "CronJob/orders"][..]),
        (VERIFIED, &["Secret/ledger-gobackup", "CronJob/ledger"]),
        (MANY, &["Secret/platform-gobackup", "CronJob/platform"]),
        (
            ENCRYPTED,
            &[
                "Secret/vault-cron-gobackup",
                "CronJob/vault",
                "PersistentVolumeClaim/vault-gobackup-state",
            ],
        ),
        (
            CRON,
            &[
                "Secret/example-cronbackup-cron-gobackup",
                "CronJob/example-cronbackup",
            ],
        ),
        (SCHEDULED, &["Secret/shop-gobackup", "CronJob/shop"]),
        (
            FILES,
            &[
                "Secret/uploads-gobackup",
                "CronJob/uploads",
                "PersistentVolumeClaim/uploads-gobackup-state",
                "PersistentVolumeClaim/uploads-gobackup-local",
            ],
        ),
        (
            NOW,
            &[
                "Secret/on-demand-gobackup",
                "CronJob/on-demand",
                "Job/on-demand-run-2161954e",
            ],
        ),
    ];
    for (yaml, expected) in table {
        let mut objects = in_namespace(documents(yaml));
        let parent = objects.pop().unwrap();
        objects.extend(article().0);
        assert_eq!(names(&reconcile(&parent, &objects).unwrap()), expected);
    }
}

#[test]
fn job_and_cron_job_run_the_same() {
    let once = reconcile(&backup(json!({})), &around()).unwrap();
    let schedule = json!({ "cron": "0 2 * * *" });
    let often = reconcile(&backup(json!({ "schedule": schedule })), &around()).unwrap();
    let schedule = &often.child("schedule").unwrap().object["spec"];
    assert_eq!(
        schedule["jobTemplate"]["spec"],
        once.child("run").unwrap().object["spec"]
    );
    assert_eq!(schedule["concurrencyPolicy"], "Forbid");
    assert_eq!(schedule["timeZone"], "Etc/UTC");
    assert_eq!(schedule["suspend"], false);
}

#[test]
fn taking_the_schedule_away_prunes_the_cron_job() {
    let schedule = json!({ "every": "day", "at": "02:00" });
    let often = backup(json!({ "schedule": schedule, "suspend": true }));
    let outcome = reconcile(&often, &around()).unwrap();
    assert_eq!(
        names(&outcome),
        ["Secret/nightly-gobackup", "CronJob/nightly"]
    );
    let spec = &outcome.child("schedule").unwrap().object["spec"];
    assert_eq!(
        (&spec["schedule"], &spec["suspend"]),
        (&json!("0 2 * * *"), &json!(true))
    );
    let outcome = reconcile(&backup(json!({ "suspend": true })), &around()).unwrap();
    assert_eq!(names(&outcome), ["Secret/nightly-gobackup"]);
    assert!(condition(outcome.report(), "Ready").starts_with("False/Suspended"));
}

#[test]
fn a_claim_that_is_large_enough_is_left_alone() {
    let parent = backup(json!({ "state": { "mode": "Volume" } }));
    let first = reconcile(&parent, &around()).unwrap();
    let claim = first.child("state").unwrap();
    assert_eq!(
        (claim.apply, claim.removal),
        (ApplyPolicy::Always, RemovalPolicy::Retain)
    );
    assert_eq!(first.child("run").unwrap().after, ["config", "state"]);

    let again = |size: &str| {
        let parent = backup(json!({ "state": { "mode": "Volume", "size": size } }));
        let request = TestRequest::new(&parent).answered(&first).build();
        Plugin::reconcile(&request, &host(&around()))
            .unwrap()
            .child("state")
            .unwrap()
            .apply
    };
    assert_eq!(again("1Mi"), ApplyPolicy::Hold);
    assert_eq!(again("64Mi"), ApplyPolicy::Hold);
    assert_eq!(again("1Gi"), ApplyPolicy::Always);
}

#[test]
fn another_class_of_an_existing_claim_is_a_warning() {
    let parent = |class: &str| {
        let state = json!({ "mode": "Volume", "storageClassName": class });
        backup(json!({ "state": state }))
    };
    let first = reconcile(&parent("fast"), &around()).unwrap();
    let warnings = |class: &str| {
        let request = TestRequest::new(&parent(class)).answered(&first).build();
        let outcome = Plugin::reconcile(&request, &host(&around())).unwrap();
        assert_eq!(outcome.child("state").unwrap().apply, ApplyPolicy::Hold);
        outcome.report().status.as_ref().unwrap()["warnings"].clone()
    };
    let message = "state: claim nightly-gobackup-state exists with storageClassName fast, which cannot change";
    let expected = json!([{ "code": "ClaimUnchanged", "message": message }]);
    assert_eq!(warnings("slow"), expected);
    assert_eq!(warnings("fast"), json!([]));
}

#[test]
fn keys_of_several_lines_are_files() {
    let config = json!({
        "host": "h", "username": "u", "private_key_ref": { "name": "ssh", "key": "id" },
    });
    let mut objects = around();
    objects[1] = related("Storage", "s", json!({ "type": "sftp", "config": config }));
    objects.push(secret("ssh", &["id"]));
    let refs = json!([{ "name": "s", "keep": 3 }]);
    let outcome = reconcile(&backup(json!({ "storageRefs": refs })), &objects).unwrap();
    assert!(
        configuration(&outcome).contains("private_key: \"/etc/gobackup/keys/ST0_PRIVATE_KEY\""),
    );
    let pod = &outcome.child("run").unwrap().object["spec"]["template"]["spec"];
    let volume = pod["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|volume| volume["name"] == "keys");
    assert_eq!(
        volume.unwrap()["projected"]["sources"],
        json!([{ "secret": { "name": "ssh", "items": [{ "key": "id", "path": "ST0_PRIVATE_KEY" }] } }])
    );
    // gobackup cannot read the state file back from sftp, and `keep` needs it.
    assert!(outcome.child("state").is_some());
}

/// A Job as the cluster shows it.
pub(crate) fn job(name: &str, uid: &str, owner: &str, status: Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": "default", "uid": uid,
            "creationTimestamp": "2026-08-20T02:00:00Z",
            "labels": {
                "app.kubernetes.io/name": "gobackup", "app.kubernetes.io/instance": "nightly",
                "app.kubernetes.io/component": "run", "app.kubernetes.io/managed-by": "innkeeper",
                "gobackup.io/parent-kind": "backup",
            },
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Any", "name": "any", "uid": owner, "controller": true,
            }],
        },
        "status": status,
    })
}

pub(crate) fn complete() -> Value {
    json!({
        "startTime": "2026-08-20T02:00:01Z", "completionTime": "2026-08-20T02:01:00Z",
        "conditions": [{ "type": "Complete", "status": "True",
                         "lastTransitionTime": "2026-08-20T02:01:00Z" }],
    })
}

pub(crate) fn failed() -> Value {
    json!({
        "startTime": "2026-08-20T02:00:01Z",
        "conditions": [{ "type": "Failed", "status": "True", "message": "backoff limit reached",
                         "lastTransitionTime": "2026-08-20T02:03:00Z" }],
    })
}

pub(crate) fn pod(owner: &str, message: &str) -> Value {
    let mut pod = job("pod", "pod-uid", owner, json!({}));
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["status"] = json!({ "containerStatuses": [{
        "name": "gobackup", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "terminated": { "exitCode": 0, "message": message } },
    }] });
    pod
}

#[test]
fn a_run_that_ends_well_makes_the_parent_ready_and_stays_recorded() {
    let parent = backup(json!({}));
    let uid = "00000000-0000-4000-8000-000000000001";
    let stored = json!({ "artifacts": [{ "storage": "s", "file": "2026.tgz" }] });
    let mut objects = around();
    objects.push(pod("run-uid", &stored.to_string()));
    let request = TestRequest::new(&parent)
        .child("run", &job("nightly", "run-uid", uid, complete()))
        .build();
    let outcome = Plugin::reconcile(&request, &host(&objects)).unwrap();
    assert_eq!(outcome.child("run").unwrap().apply, ApplyPolicy::Hold);
    let report = outcome.report();
    assert_eq!(
        condition(report, "Ready"),
        "True/Completed: stored 2026.tgz in s"
    );
    assert_eq!(
        condition(report, "Succeeded"),
        "True/LastRunSucceeded: stored 2026.tgz in s"
    );
    assert_eq!(
        condition(report, "Scheduled"),
        "False/NoSchedule: no schedule is in effect"
    );
    let status = report.status.clone().unwrap();
    assert_eq!(status["phase"], "Succeeded");
    assert_eq!(status["successCount"], 1);
    assert_eq!(status["lastSuccessfulBackupTime"], "2026-08-20T02:01:00Z");
    let reasons: Vec<&str> = report
        .events
        .iter()
        .map(|event| event.reason.as_str())
        .collect();
    assert_eq!(reasons, ["RunStarted", "BackupSucceeded"]);

    // After the Job is deleted, no new one is created and the result stays.
    let request = TestRequest::new(&parent).status(&status).build();
    let later = Plugin::reconcile(&request, &host(&around())).unwrap();
    assert_eq!(names(&later), ["Secret/nightly-gobackup"]);
    let mut expected = status;
    expected["countedJobs"] = json!([]);
    assert_eq!(later.report().status.clone().unwrap(), expected);
    assert!(later.report().events.is_empty());
}

#[test]
fn a_changed_configuration_starts_no_run_and_causes_a_warning() {
    let first = reconcile(&backup(json!({})), &around()).unwrap();
    let parent = backup(json!({ "description": "changed" }));
    let request = TestRequest::new(&parent).answered(&first).build();
    let outcome = Plugin::reconcile(&request, &host(&around())).unwrap();
    assert_eq!(outcome.child("run").unwrap().apply, ApplyPolicy::Hold);
    let warnings = &outcome.report().status.as_ref().unwrap()["warnings"];
    assert_eq!(warnings[0]["code"], "SpecChangedAfterRun");
}

#[test]
fn a_cron_backup_counts_only_jobs_of_its_own_cron_job() {
    let schedule = json!({ "cron": "0 2 * * *" });
    let parent = backup(json!({ "schedule": schedule }));
    let first = reconcile(&parent, &around()).unwrap();
    let mut cron_job = first.child("schedule").unwrap().object.clone();
    cron_job["metadata"]["uid"] = json!("cron-uid");
    cron_job["metadata"]["creationTimestamp"] = json!("2026-08-19T00:00:00Z");
    cron_job["status"] = json!({ "lastScheduleTime": "2026-08-20T02:00:00Z" });
    let mut objects = around();
    objects.push(job("nightly-1", "mine", "cron-uid", complete()));
    objects.push(job("nightly-2", "theirs", "other-uid", failed()));
    let request = TestRequest::new(&parent)
        .child("config", &first.child("config").unwrap().object)
        .child("schedule", &cron_job)
        .build();
    let outcome = Plugin::reconcile(&request, &host(&objects)).unwrap();
    let status = outcome.report().status.clone().unwrap();
    assert_eq!(
        (&status["successCount"], &status["failureCount"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(status["nextRun"], "2026-08-21T02:00:00Z");
    assert_eq!(
        condition(outcome.report(), "Ready"),
        "True/Scheduled: next run at 2026-08-21T02:00:00Z"
    );
    // 14 hours later, when the next run is due.
    let wait = outcome.report().requeue.unwrap();
    assert_eq!(wait.as_millis(), 14 * 3_600_000 + 1);
}

#[test]
fn a_schedule_is_ready_when_the_cluster_has_its_configuration() {
    let parent = |cron: &str, keep: i32| {
        let storages = json!([{ "name": "s", "keep": keep }]);
        backup(json!({ "schedule": { "cron": cron }, "storageRefs": storages }))
    };
    let pass = |parent: &Value, observed: &Answer| {
        let request = TestRequest::new(parent).answered(observed).build();
        Plugin::reconcile(&request, &host(&around())).unwrap()
    };
    let first = reconcile(&parent("0 2 * * *", 1), &around()).unwrap();
    let ready = "True/Scheduled: next run at 2026-08-21T02:00:00Z";
    let same = pass(&parent("0 2 * * *", 1), &first);
    assert_eq!(condition(same.report(), "Ready"), ready);
    for (edited, child) in [
        (parent("0 3 * * *", 1), "the CronJob"),
        (parent("0 2 * * *", 2), "the Secret with the configuration"),
    ] {
        let before = pass(&edited, &first);
        let waiting = format!("False/Pending: waiting for {child} to be updated");
        assert_eq!(condition(before.report(), "Ready"), waiting);
        let after = pass(&edited, &before);
        assert!(condition(after.report(), "Ready").starts_with("True/Scheduled"));
    }
}

#[test]
fn a_schedule_that_did_not_run_is_overdue() {
    let parent = backup(json!({ "schedule": { "cron": "0 2 * * *" } }));
    let cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": { "name": "nightly", "uid": "cron-uid", "creationTimestamp": "2026-08-18T00:00:00Z" },
        "status": { "lastScheduleTime": "2026-08-19T02:00:00Z" },
    });
    let request = TestRequest::new(&parent)
        .child("schedule", &cron_job)
        .build();
    let outcome = Plugin::reconcile(&request, &host(&around())).unwrap();
    assert_eq!(
        condition(outcome.report(), "Scheduled"),
        "False/Overdue: no run since 2026-08-20T02:00:00Z, expected by 0 2 * * *"
    );
    assert!(
        outcome
            .report()
            .events
            .iter()
            .any(|event| event.reason == "Overdue")
    );
}

// The runs that the suspension skipped are not due.
#[test]
fn a_resumed_schedule_is_not_overdue_before_its_next_run() {
    let parent = backup(json!({ "schedule": { "cron": "0 2 * * *" } }));
    let cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": { "name": "nightly", "uid": "cron-uid", "creationTimestamp": "2026-08-01T00:00:00Z" },
        "status": { "lastScheduleTime": "2026-08-10T02:00:00Z" },
    });
    let scheduled = |status: &str, reason: &str, since: &str| {
        let stored = json!({ "conditions": [{
            "type": "Scheduled", "status": status, "reason": reason, "message": "",
            "lastTransitionTime": since,
        }] });
        let request = TestRequest::new(&parent)
            .child("schedule", &cron_job)
            .status(&stored)
            .build();
        let outcome = Plugin::reconcile(&request, &host(&around())).unwrap();
        condition(outcome.report(), "Scheduled")
    };
    let fine = "True/Scheduled: 0 2 * * *";
    assert_eq!(
        scheduled("False", "Suspended", "2026-08-10T12:00:00Z"),
        fine
    );
    assert_eq!(scheduled("True", "Scheduled", "2026-08-20T11:00:00Z"), fine);
    assert_eq!(
        scheduled("True", "Scheduled", "2026-08-18T12:00:00Z"),
        "False/Overdue: no run since 2026-08-19T02:00:00Z, expected by 0 2 * * *",
    );
    assert_eq!(
        scheduled("False", "Overdue", "2026-08-19T02:15:00Z"),
        "False/Overdue: no run since 2026-08-11T02:00:00Z, expected by 0 2 * * *",
    );
}

// No condition states that a waiting or finished parent is suspended.
#[test]
fn a_suspension_has_no_event_in_each_pass() {
    let blocked = backup(json!({ "suspend": true, "databaseRefs": [{ "name": "none" }] }));
    let mut scheduled = blocked.clone();
    scheduled["spec"]["schedule"] = json!({ "cron": "@daily" });
    for parent in [blocked, scheduled] {
        let outcome = reconcile(&parent, &around()).unwrap();
        let mut status = outcome.report().status.clone().unwrap();
        status["conditions"] = json!(outcome.report().conditions);
        let request = TestRequest::new(&parent).status(&status).build();
        let again = Plugin::reconcile(&request, &host(&around())).unwrap();
        assert_eq!(again.report().events, [], "{parent}");
    }
}

/// Berlin's summer time began on 2026-03-29.
const SUMMER_MS: u64 = 1_774_746_000_000;

#[test]
fn due_times_are_those_of_the_time_zone() {
    let schedule = json!({ "cron": "0 2 * * *", "timeZone": "Europe/Berlin" });
    let parent = backup(json!({ "schedule": schedule }));
    let cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": { "name": "nightly", "uid": "cron-uid", "creationTimestamp": "2026-08-18T00:00:00Z" },
        "status": { "lastScheduleTime": "2026-08-19T00:00:00Z" },
    });
    let request = TestRequest::new(&parent)
        .child("schedule", &cron_job)
        .build();
    let berlin = host(&around()).zone("Europe/Berlin", [(0, 3600), (SUMMER_MS, 7200)]);
    let outcome = Plugin::reconcile(&request, &berlin).unwrap();
    let report = outcome.report();
    assert_eq!(
        condition(report, "Scheduled"),
        "False/Overdue: no run since 2026-08-20T00:00:00Z, expected by 0 2 * * *"
    );
    let status = report.status.as_ref().unwrap();
    assert_eq!(status["nextRun"], "2026-08-21T00:00:00Z");
    assert!(report.requeue.is_some());
}

// The API server would refuse the CronJob, and the parent would wait for it.
#[test]
fn an_unknown_time_zone_is_reported() {
    for (zone, is_known) in [
        ("UTC", true),
        ("Etc/UTC", true),
        ("Europe/Berlin", true),
        ("Europe/Berln", false),
        ("europe/berlin", false),
        ("Europe/berlin", false),
        ("utc", false),
        ("Local", false),
        ("+01:00", false),
        ("/Berlin", false),
    ] {
        let schedule = json!({ "cron": "0 2 * * *", "timeZone": zone });
        let parent = backup(json!({ "schedule": schedule }));
        let answer = reconcile(&parent, &around());
        let Err(fault) = answer else {
            assert!(is_known, "{zone}");
            continue;
        };
        assert!(!is_known, "{zone}: {fault:?}");
        let message = format!("schedule.timeZone: {zone} is not a known time zone");
        assert!(fault.message.starts_with(&message), "{fault:?}");
        let report = fault.report.as_ref().unwrap();
        assert!(condition(report, "Ready").starts_with("False/Invalid: "));
        assert!(condition(report, "Scheduled").starts_with("False/"));
    }
}

// `kubectl apply && kubectl wait --for=condition=Ready` would wait for nothing.
#[test]
fn an_invalid_parent_is_not_ready_and_says_why() {
    let spec = json!({ "schedule": { "cron": "@daily" }, "compressWith": { "type": "rar" } });
    let invalid = backup(spec);
    let cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "nightly", "uid": "cron-uid" },
    });
    for request in [
        TestRequest::new(&invalid),
        TestRequest::new(&invalid).child("schedule", &cron_job),
    ] {
        let fault = Plugin::reconcile(&request.build(), &host(&around())).unwrap_err();
        assert_eq!(
            condition(&fault.report.unwrap(), "Ready"),
            "False/Invalid: compressWith.type: rar is unknown to gobackup"
        );
    }
}

#[test]
fn the_stated_job_is_a_valid_job() {
    let first = reconcile(&backup(json!({})), &around()).unwrap();
    let object = &first.child("run").unwrap().object;
    serde_json::from_value::<Job>(object.clone().into()).unwrap();
}

pub(super) fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "default" },
    })
}

/// Returns the Pod for a parent with these fields, and the warning codes.
fn pod_of(spec: Value, storage: Value) -> (Value, Vec<String>) {
    let mut objects = around();
    objects[1] = storage;
    objects.extend([claim("data"), secret("ssh", &["id"])]);
    let outcome = reconcile(&backup(spec), &objects).unwrap();
    let status = outcome.report().status.as_ref().unwrap();
    let codes = status["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| warning["code"].as_str().unwrap().to_owned())
        .filter(|code| code != "ClearTextCredential")
        .collect();
    let run = outcome.child("run").expect("there is a run");
    (run.object["spec"]["template"]["spec"].clone(), codes)
}

#[test]
fn a_run_is_placed_by_its_template_and_beside_the_pods_that_use_its_volumes() {
    let hostname = "kubernetes.io/hostname";
    let beside =
        json!({ "labelSelector": { "matchLabels": { "app": "shop" } }, "topologyKey": hostname });
    let zone = json!({ "labelSelector": {}, "topologyKey": "zone" });
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let run_with = json!({ "labelSelector": { "matchLabels": { "app": "shop" } } });
    let (pod, _) = pod_of(json!({ "runWith": run_with }), s3());
    assert_eq!(
        pod["affinity"],
        json!({ "podAffinity": { required: [beside] } })
    );
    assert_eq!(pod.get("nodeSelector"), None);

    let template = json!({ "spec": {
        "nodeSelector": { "disk": "ssd" },
        "affinity": { "podAffinity": { required: [zone] } },
    } });
    let spec = json!({ "podTemplate": template, "runWith": run_with });
    let (pod, _) = pod_of(spec, s3());
    assert_eq!(pod["nodeSelector"], json!({ "disk": "ssd" }));
    assert_eq!(
        pod["affinity"],
        json!({ "podAffinity": { required: [zone, beside] } })
    );
}

fn data(read_only: bool) -> Value {
    json!([{
        "name": "data", "mountPath": "/data", "readOnly": read_only,
        "persistentVolumeClaim": { "claimName": "data" },
    }])
}

fn local(path: &str) -> Value {
    let config = json!({ "path": path, "keep": 1 });
    related("Storage", "s", json!({ "type": "local", "config": config }))
}

// The kubelet changes group and mode of each file in a volume whose source is not read-only.
#[test]
fn a_run_leaves_the_files_of_an_application_alone() {
    let nothing = |codes: &[String]| assert!(codes.is_empty(), "{codes:?}");
    let source = |pod: &Value| {
        let volume = pod["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .find(|volume| volume["name"] == "data-data")
            .unwrap();
        volume["persistentVolumeClaim"].clone()
    };
    let (pod, codes) = pod_of(json!({ "volumes": data(true) }), s3());
    nothing(&codes);
    assert_eq!(
        source(&pod),
        json!({ "claimName": "data", "readOnly": true })
    );
    assert_eq!(pod["securityContext"].get("fsGroup"), None);

    let (pod, codes) = pod_of(json!({ "volumes": data(false) }), s3());
    nothing(&codes);
    assert_eq!(source(&pod), json!({ "claimName": "data" }));
    assert_eq!(pod["securityContext"].get("fsGroup"), None);

    // The run's own claims need the group.
    let (pod, codes) = pod_of(json!({ "volumes": data(true) }), local("/backups"));
    nothing(&codes);
    assert_eq!(pod["securityContext"]["fsGroup"], 65532);
    assert_eq!(
        pod["securityContext"]["fsGroupChangePolicy"],
        "OnRootMismatch"
    );
    assert_eq!(source(&pod)["readOnly"], true);

    let (pod, codes) = pod_of(json!({ "volumes": data(false) }), local("/backups"));
    assert_eq!(codes, ["VolumeGroupChanged"]);
    assert_eq!(pod["securityContext"]["fsGroup"], 65532);

    let (pod, codes) = pod_of(json!({ "volumes": data(false) }), local("/data/backups"));
    nothing(&codes);
    assert_eq!(pod["securityContext"]["fsGroup"], 65532);

    let nfs = json!([{ "name": "n", "mountPath": "/n", "nfs": { "server": "s", "path": "/" } }]);
    let parent = backup(json!({ "volumes": nfs }));
    let outcome = reconcile_with(&parent, &around(), &json!({ "hostVolumes": true })).unwrap();
    let pod = &outcome.child("run").unwrap().object["spec"]["template"]["spec"];
    assert!(
        pod["volumes"]
            .to_string()
            .contains(r#""nfs":{"path":"/","readOnly":true,"server":"s"}"#)
    );
}

#[test]
fn a_run_has_the_user_and_the_groups_of_the_parent() {
    let (pod, _) = pod_of(json!({}), s3());
    let context = &pod["securityContext"];
    assert_eq!(
        (&context["runAsUser"], &context["runAsGroup"]),
        (&json!(65532), &json!(65532))
    );
    let user = json!({ "runAsUser": 33, "supplementalGroups": [44] });
    let (pod, _) = pod_of(json!({ "securityContext": user }), local("/backups"));
    assert_eq!(
        pod["securityContext"],
        json!({
            "runAsNonRoot": true, "runAsUser": 33, "runAsGroup": 33, "fsGroup": 33,
            "fsGroupChangePolicy": "OnRootMismatch", "supplementalGroups": [44],
            "seccompProfile": { "type": "RuntimeDefault" },
        })
    );
    let user = json!({ "runAsUser": 33, "runAsGroup": 0, "fsGroup": 1 });
    let (pod, codes) = pod_of(
        json!({ "securityContext": user, "volumes": data(false) }),
        s3(),
    );
    let context = &pod["securityContext"];
    assert_eq!(
        (&context["runAsGroup"], &context["fsGroup"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(codes, ["VolumeGroupChanged"]);
}

// A parent of the first generation may have no spec, and absent blocks get no defaults.
#[test]
fn constant_defaults_stand_in_the_schema_and_are_those_of_the_plugin() {
    let mut parent = backup(json!({}));
    let spec = parent["spec"].as_object().unwrap().clone();
    let mut objects = around();
    objects[1] = local("/backups");
    let plain = reconcile(&parent, &objects).unwrap();
    parent["spec"]["state"] = json!({});
    parent["spec"]["localVolume"] = json!({});
    let admitted = PLUGIN
        .schema("Backup")
        .admit(parent.as_object().unwrap().clone())
        .unwrap()
        .object;
    let defaults: Value = admitted["spec"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, _)| !spec.contains_key(*key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    assert_eq!(
        defaults,
        json!({
            "activeDeadlineSeconds": 21600, "backoffLimit": 2, "expandEnv": false, "imagePullPolicy": "IfNotPresent",
            "localVolume": { "size": "10Gi" }, "state": { "mode": "Auto", "size": "64Mi" }, "suspend": false,
        })
    );
    let outcome = reconcile(&json!(admitted), &objects).unwrap();
    assert_eq!(outcome.children(), plain.children());
    assert_eq!(names(&outcome).len(), 4);
}

#[test]
fn keep_has_no_effect_on_gcs_with_a_key() {
    let gcs = |config: Value| {
        let mut config = config;
        config["bucket"] = json!("b");
        config["keep"] = json!(3);
        related("Storage", "s", json!({ "type": "gcs", "config": config }))
    };
    let has_claim = |pod: &Value| {
        pod["volumes"]
            .to_string()
            .contains("nightly-gobackup-state")
    };
    for config in [
        json!({ "credentials": "{}" }),
        json!({ "credentials_ref": { "name": "keys", "key": "id" } }),
        json!({ "credentials_file": "/data/key.json" }),
    ] {
        let (pod, codes) = pod_of(json!({}), gcs(config));
        assert_eq!(codes, ["RetentionNotKept"]);
        assert!(!has_claim(&pod));
    }
    let (pod, codes) = pod_of(json!({}), gcs(json!({})));
    assert_eq!(codes, Vec::<String>::new());
    assert!(has_claim(&pod));
}
