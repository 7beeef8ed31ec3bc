//! The guest `backup` on the shared host: single and scheduled runs, tracked reads, claims that
//! outlive the parent.

use std::fs;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use innkeeper_tests::{HostOptions, manifest};
use serde_json::{Value, json};

use crate::{
    stage::{Stage, is_applied},
    suite::{Site, Target, reason, retained_for},
};

mod probe;
mod verification;

const API: &str = "gobackup.io/v1";

/// The Backup in `01-article.yaml`, which runs once.
const ONCE: Target<'static> = (API, "Backup", "example-backup");
const ONCE_CONFIG: Target<'static> = ("v1", "Secret", "example-backup-gobackup");
const ONCE_RUN: Target<'static> = ("batch/v1", "Job", "example-backup");

/// The Backup in `04-files.yaml`, which runs on a schedule and stores on a claim.
const FILES: Target<'static> = (API, "Backup", "uploads");
const FILES_CONFIG: Target<'static> = ("v1", "Secret", "uploads-gobackup");
const FILES_SCHEDULE: Target<'static> = ("batch/v1", "CronJob", "uploads");
const FILES_CLAIMS: [Target<'static>; 2] = [
    ("v1", "PersistentVolumeClaim", "uploads-gobackup-state"),
    ("v1", "PersistentVolumeClaim", "uploads-gobackup-local"),
];

fn once(prefix: &str) -> (Site, Value) {
    Site::with_ready_example(prefix, "examples/backup/01-article.yaml", ONCE)
}

fn files(prefix: &str) -> (Site, Value) {
    Site::with_ready_example(prefix, "examples/backup/04-files.yaml", FILES)
}

#[test]
fn the_article_runs_once_and_is_ready_when_its_job_is_complete() {
    let (site, parent) = once("backup-article");
    let status = &parent["status"];
    assert_eq!(status["phase"], "Succeeded");
    assert_eq!(status["successCount"], 1);
    assert_eq!(status["lastRun"]["jobName"], "example-backup");
    assert_eq!(reason(&parent, "Ready"), "Completed");
    for target in [ONCE_CONFIG, ONCE_RUN] {
        let owner = &site.get(target)["metadata"]["ownerReferences"][0];
        assert_eq!(owner["uid"], parent["metadata"]["uid"], "{target:?}");
        assert_eq!(owner["controller"], true, "{target:?}");
    }
    assert_eq!(
        status["lastRun"]["jobUID"],
        site.get(ONCE_RUN)["metadata"]["uid"]
    );
    let config = site.get(ONCE_CONFIG);
    let keys: Vec<&String> = config["data"].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "DB0_PASSWORD",
            "ENC_PASSWORD",
            "ST0_ACCESS_KEY_ID",
            "ST0_SECRET_ACCESS_KEY",
            "gobackup.yml",
        ]
    );
}

// The shared host refuses scripts, as one without a configuration does.
#[test]
fn the_scripts_of_the_article_run_where_the_configuration_allows_them() {
    let guests = HostOptions::with_guests(&["backup", "wordpress"]).unwrap();
    let mut stage = Stage::api_only(guests.plugins);
    for plugin in manifest::load("examples/plugins/variants/scripts.yaml").unwrap() {
        let name = plugin["metadata"]["name"].as_str().unwrap();
        let path = stage.plane.directory().join(format!("{name}-scripts.yaml"));
        fs::write(&path, plugin["spec"]["config"].to_string()).unwrap();
        let config = format!("{name}={}", path.display());
        let arguments = &mut stage.options.arguments;
        arguments.extend(["--config".to_owned(), config]);
    }
    let host = stage.host_serving(&["backups.gobackup.io", "wordpresses.example.com"]);
    let namespace = stage.namespace("backup-scripts");
    let code = json!({
        "apiVersion": "example.com/v1", "kind": "Wordpress", "metadata": {"name": "code"},
        "spec": {"configExtra": "define('WP_DEBUG', false);"},
    });
    stage.apply(&namespace, &code);
    let code = ("example.com/v1", "Wordpress", "code");
    stage.wait(&host, &namespace, code, is_applied);
    stage.apply_example(&namespace, "examples/backup/01-article.yaml");
    let is_known = |parent: &Value| parent["status"]["configHash"].is_string();
    let parent = stage.wait(&host, &namespace, ONCE, is_known);
    let codes: Vec<&Value> = parent["status"]["warnings"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|warning| &warning["code"])
        .collect();
    assert!(!codes.contains(&&json!("ScriptNotAllowed")), "{codes:?}");
    let secret = stage.get(&namespace, ONCE_CONFIG);
    let data = secret["data"]["gobackup.yml"].as_str().unwrap();
    let text = String::from_utf8(BASE64_STANDARD.decode(data).unwrap()).unwrap();
    for script in [
        "before_script: \"echo 'Starting backup'\"",
        "after_script: \"echo 'Backup completed'\"",
    ] {
        assert!(text.contains(script), "{text}");
    }
}

// The guest keeps an existing Job: neither an edit nor the Job's end starts another run.
#[test]
fn an_edit_of_a_related_object_is_one_patch_and_no_further_run() {
    let (site, _) = once("backup-edit");
    let run = site.get(ONCE_RUN);
    let mark = site.settle();
    let storage = ("storage.gobackup.io/v1", "S3", "example-s3");
    site.merge(storage, &json!({ "spec": { "bucket": "other-bucket" } }));
    let parent = site.wait(
        "the parent warns about the changed configuration",
        ONCE,
        |parent| {
            parent["status"]["warnings"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|warning| warning["code"] == "SpecChangedAfterRun")
        },
    );
    assert_eq!(parent["status"]["successCount"], 1);
    site.check_child_writes(mark, &["patch secrets example-backup-gobackup 200"]);
    assert_eq!(
        site.get(ONCE_RUN)["metadata"]["uid"],
        run["metadata"]["uid"]
    );
}

#[test]
fn a_deleted_configuration_is_recreated_and_a_deleted_run_is_not() {
    let (site, _) = once("backup-deleted");
    let before = site.get(ONCE_CONFIG);
    site.delete(ONCE_CONFIG);
    let after = site.wait("the configuration comes back", ONCE_CONFIG, |secret| {
        secret["metadata"]["uid"] != before["metadata"]["uid"]
    });
    assert_eq!(after["data"], before["data"]);
    let mark = site.settle();
    site.delete(ONCE_RUN);
    site.wait_gone(ONCE_RUN);
    site.settle();
    assert!(site.child_writes_since(mark).is_empty());
    let parent = site.wait_ready(ONCE);
    assert_eq!(parent["status"]["phase"], "Succeeded");
}

#[test]
fn a_failed_run_is_reported_and_prunes_nothing() {
    let site = Site::new("backup-failing");
    let mut objects = manifest::load("examples/backup/01-article.yaml").unwrap();
    for object in &mut objects {
        object["metadata"]["namespace"] = site.namespace.clone().into();
        if object["kind"] == "Backup" {
            object["spec"] = json!({
                "backoffLimit": 0,
                "podTemplate": { "metadata": { "annotations": { "controlplane.test/exit-code": "3" } } },
            });
        }
        site.plane.user().apply(object).unwrap();
    }
    let parent = site.wait("the parent reports the failure", ONCE, |parent| {
        reason(parent, "Ready") == "LastRunFailed"
    });
    assert_eq!(parent["status"]["phase"], "Failed");
    assert_eq!(parent["status"]["failureCount"], 1);
    assert_eq!(reason(&parent, "Stalled"), "LastRunFailed");
    site.get(ONCE_CONFIG);
    site.get(ONCE_RUN);
}

// A missing reference is not the parent's fault: the host writes nothing, and the object's creation triggers a pass.
#[test]
fn a_backup_waits_for_a_missing_reference() {
    let site = Site::new("backup-reference");
    let mut objects = manifest::load("examples/backup/01-article.yaml").unwrap();
    for object in &mut objects {
        object["metadata"]["namespace"] = site.namespace.clone().into();
    }
    let (late, early): (Vec<_>, Vec<_>) = objects
        .into_iter()
        .partition(|object| object["kind"] == "S3");
    for object in &early {
        site.plane.user().apply(object).unwrap();
    }
    site.wait("the parent reports the missing storage", ONCE, |parent| {
        reason(parent, "Ready") == "ReferenceNotFound"
    });
    assert!(site.find(ONCE_RUN).is_none());
    for object in &late {
        site.plane.user().apply(object).unwrap();
    }
    site.wait_ready(ONCE);
}

#[test]
fn an_edited_schedule_is_one_patch_of_the_cron_job() {
    let (site, _) = files("backup-schedule");
    assert_eq!(site.get(FILES_SCHEDULE)["spec"]["schedule"], "30 3 * * *");
    let mark = site.settle();
    site.merge(FILES, &json!({ "spec": { "schedule": { "at": "04:15" } } }));
    site.wait("the schedule changes", FILES_SCHEDULE, |schedule| {
        schedule["spec"]["schedule"] == "15 4 * * *"
    });
    site.wait_ready(FILES);
    site.check_child_writes(mark, &["patch cronjobs.batch uploads 200"]);
}

// A2: the host repairs an owned field and leaves a foreign one alone.
#[test]
fn an_edited_owned_field_is_repaired_and_a_foreign_field_stays() {
    let (site, _) = files("backup-drift");
    let mark = site.settle();
    site.merge(
        FILES_SCHEDULE,
        &json!({
            "spec": { "suspend": true, "jobTemplate": { "spec": { "parallelism": 1, "completions": 1 } } },
            "metadata": { "annotations": { "example.org/mine": "x" } },
        }),
    );
    let schedule = site.wait("the schedule is resumed", FILES_SCHEDULE, |schedule| {
        schedule["spec"]["suspend"] == false
    });
    assert_eq!(schedule["spec"]["jobTemplate"]["spec"]["completions"], 1);
    assert_eq!(schedule["metadata"]["annotations"]["example.org/mine"], "x");
    site.wait_ready(FILES);
    site.check_child_writes(mark, &["patch cronjobs.batch uploads 200"]);
}

// The parent is blocked, so the plugin states the observed CronJob again.
#[test]
fn a_suspended_schedule_stops_although_a_secret_is_missing() {
    let (site, _) = files("backup-stop");
    let secret = json!([{ "name": "none" }]);
    site.merge(FILES, &json!({ "spec": { "imagePullSecrets": secret } }));
    site.wait("the missing Secret is reported", FILES, |parent| {
        reason(parent, "Ready") == "SecretNotFound"
    });
    let before = site.get(FILES_SCHEDULE);
    let mark = site.settle();
    site.merge(FILES, &json!({ "spec": { "suspend": true } }));
    let stopped = site.wait("the schedule stops", FILES_SCHEDULE, |schedule| {
        schedule["spec"]["suspend"] == true
    });
    assert_eq!(
        stopped["spec"]["jobTemplate"],
        before["spec"]["jobTemplate"]
    );
    site.settle();
    site.check_child_writes(mark, &["patch cronjobs.batch uploads 200"]);
    let edit = json!({ "spec": { "suspend": false, "imagePullSecrets": [] } });
    site.merge(FILES, &edit);
    site.wait("the schedule runs again", FILES_SCHEDULE, |schedule| {
        schedule["spec"]["suspend"] == false
    });
    site.wait_ready(FILES);
}

// A Backup without a schedule runs once.
#[test]
fn a_removed_schedule_is_pruned_and_the_one_run_waits_for_the_pod_that_uses_the_volume() {
    let (site, _) = files("backup-prune");
    let mark = site.settle();
    site.merge(FILES, &json!({ "spec": { "schedule": null } }));
    site.wait_gone(FILES_SCHEDULE);
    site.settle();
    assert_eq!(site.get(FILES)["status"]["successCount"], 0);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "uploads", "namespace": site.namespace, "labels": { "app": "uploads" },
        },
        "spec": { "containers": [{ "name": "uploads", "image": "uploads" }] },
    });
    site.plane.user().create(&pod).unwrap();
    let parent = site.wait("the one run succeeds", FILES, |parent| {
        reason(parent, "Ready") == "Completed"
    });
    assert_eq!(parent["status"]["successCount"], 1);
    site.check_child_writes(
        mark,
        &[
            "patch jobs.batch uploads 201",
            "delete cronjobs.batch uploads 200",
        ],
    );
}

#[test]
fn the_claims_outlive_the_parent_and_are_reused() {
    let (site, parent) = files("backup-delete");
    let identity = format!("gobackup.io/Backup/{}/uploads", site.namespace);
    let claims = FILES_CLAIMS.map(|target| {
        let claim = site.get(target);
        let metadata = &claim["metadata"];
        assert_eq!(retained_for(metadata), identity, "{target:?}");
        assert!(metadata["ownerReferences"].is_null(), "{target:?}");
        metadata["uid"].clone()
    });
    site.delete(FILES);
    site.wait_gone(FILES);
    site.wait_gone(FILES_SCHEDULE);
    site.wait_gone(FILES_CONFIG);

    let mark = site.settle();
    site.apply_example("examples/backup/04-files.yaml");
    let again = site.wait_ready(FILES);
    assert_ne!(again["metadata"]["uid"], parent["metadata"]["uid"]);
    site.settle();
    assert_eq!(
        FILES_CLAIMS.map(|target| site.get(target)["metadata"]["uid"].clone()),
        claims
    );
    assert_eq!(
        site.child_writes_since(mark),
        [
            "patch secrets uploads-gobackup 201",
            "patch cronjobs.batch uploads 201",
        ]
    );
}

// The CRD has no field for Pods in other namespaces, so the API server drops it.
#[test]
fn a_schedule_states_the_placement_of_its_pods() {
    const ORDERS: Target<'static> = (API, "Backup", "orders");
    let (site, _) = Site::with_ready_example(
        "backup-placement",
        "examples/backup/07-notifiers.yaml",
        ORDERS,
    );
    let template = |site: &Site| {
        let schedule = site.get(("batch/v1", "CronJob", "orders"));
        schedule["spec"]["jobTemplate"]["spec"]["template"]["spec"].clone()
    };
    assert_eq!(
        template(&site)["nodeSelector"],
        json!({ "kubernetes.io/os": "linux" })
    );
    let term = json!({
        "labelSelector": { "matchLabels": { "app": "other" } },
        "namespaces": ["kube-system"], "namespaceSelector": {}, "topologyKey": "kubernetes.io/hostname",
    });
    let rule = "requiredDuringSchedulingIgnoredDuringExecution";
    let placement = json!({ "affinity": { "podAntiAffinity": { rule: [term] } } });
    let spec = json!({
        "podTemplate": { "spec": placement },
        "runWith": { "labelSelector": { "matchLabels": { "app": "orders" } } },
    });
    site.merge(ORDERS, &json!({ "spec": spec }));
    site.wait_ready(ORDERS);
    let affinity = template(&site)["affinity"].clone();
    let term = |app: &str| {
        json!({
            "labelSelector": { "matchLabels": { "app": app } }, "topologyKey": "kubernetes.io/hostname",
        })
    };
    assert_eq!(
        affinity,
        json!({
            "podAffinity": { rule: [term("orders")] },
            "podAntiAffinity": { rule: [term("other")] },
        })
    );
}

// The status records the value when the Job is observed, so the deleted Job is not made again.
#[test]
fn a_suspended_schedule_runs_once_for_each_requested_value() {
    const BACKUP: Target<'static> = (API, "Backup", "on-demand");
    let site = Site::with_example("backup-now", "examples/backup/05-run-now.yaml");
    let ran = |parent: &Value| parent["status"]["successCount"] == 1;
    let parent = site.wait("the first run succeeds", BACKUP, ran);
    assert_eq!(parent["status"]["lastRunRequest"], "before-the-upgrade");
    let first = parent["status"]["lastRun"]["jobName"].clone();
    let mark = site.settle();
    site.delete(("batch/v1", "Job", first.as_str().unwrap()));
    site.settle();
    assert!(site.child_writes_since(mark).is_empty());
    let again = json!({ "metadata": { "annotations": { "gobackup.io/run-now": "again" } } });
    site.merge(BACKUP, &again);
    let ran = |parent: &Value| parent["status"]["successCount"] == 2;
    let parent = site.wait("the second run succeeds", BACKUP, ran);
    assert_ne!(parent["status"]["lastRun"]["jobName"], first);
    site.wait_ready(BACKUP);
}

const RESTORE: Target<'static> = (API, "Restore", "on-demand-check");

/// Returns a site with the objects of the Restore example, and the Restore with this spec patch.
fn restoring(prefix: &str, edit: &Value) -> Site {
    let site = Site::with_example(prefix, "examples/backup/05-run-now.yaml");
    let objects = manifest::load("examples/backup/06-restore.yaml").unwrap();
    for mut object in objects {
        object["metadata"]["namespace"] = site.namespace.clone().into();
        if object["kind"] == "Restore" {
            for (key, value) in edit.as_object().unwrap() {
                object["spec"][key] = value.clone();
            }
        }
        site.plane.user().apply(&object).unwrap();
    }
    site
}

#[test]
fn a_restore_is_one_job_whose_end_stays() {
    let site = restoring("backup-restore", &json!({}));
    let parent = site.wait_ready(RESTORE);
    assert_eq!(reason(&parent, "Ready"), "Restored");
    assert_eq!(parent["status"]["restored"], json!(["on-demand-check"]));
    let job = ("batch/v1", "Job", "on-demand-check-restore");
    let owner = &site.get(job)["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], parent["metadata"]["uid"]);
    let user = site.plane.user();
    let edit = json!({ "spec": { "file": "other.tar" } });
    let refused = user.merge(site.kind(API, "Restore"), "on-demand-check", &edit);
    let refused = format!("{:#}", refused.unwrap_err());
    assert!(
        refused.contains("spec is immutable: create another Restore"),
        "{refused}"
    );
    let mark = site.settle();
    site.delete(job);
    site.wait_gone(job);
    site.settle();
    assert!(site.child_writes_since(mark).is_empty());
    site.wait_ready(RESTORE);
}

#[test]
fn a_failed_restore_is_reported_and_not_retried() {
    let exit = json!({ "controlplane.test/exit-code": "3" });
    let template = json!({ "metadata": { "annotations": exit } });
    let site = restoring("backup-restore-fails", &json!({ "podTemplate": template }));
    let parent = site.wait("the failure is reported", RESTORE, |parent| {
        reason(parent, "Ready") == "RestoreFailed"
    });
    assert_eq!(parent["status"]["phase"], "Failed");
    assert_eq!(reason(&parent, "Stalled"), "RestoreFailed");
}

#[test]
fn a_restore_waits_for_the_first_archive() {
    let site = restoring("backup-restore-waits", &json!({ "file": "latest" }));
    site.wait("the missing archive is reported", RESTORE, |parent| {
        reason(parent, "Ready") == "FileNotFound"
    });
    let job = ("batch/v1", "Job", "on-demand-check-restore");
    assert!(site.find(job).is_none());
}
