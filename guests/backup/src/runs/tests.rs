//! Runs that are lost, fail, or have unexpected termination messages.

use innkeeper_sdk::{prelude::*, testing::TestRequest};
use serde_json::{Value, json};

use super::message::quantity;
use crate::{
    Plugin,
    task::JOB_LOST,
    tests::{
        around, backup, condition, host,
        outcomes::{complete, failed, job, pod},
    },
};

const OWNER: &str = "00000000-0000-4000-8000-000000000001";

fn pass(status: &Value, jobs: &[Value], pods: &[Value]) -> Report {
    let parent = backup(json!({}));
    let request = jobs
        .iter()
        .fold(TestRequest::new(&parent).status(status), |request, job| {
            request.child("run", job)
        });
    let mut objects = around();
    objects.extend(pods.iter().cloned());
    Plugin::reconcile(&request.build(), &host(&objects))
        .unwrap()
        .report()
        .clone()
}

#[test]
fn a_job_deleted_before_its_end_is_a_failed_run() {
    let running = job(
        "nightly",
        "a",
        OWNER,
        json!({ "active": 1, "startTime": "2026-08-20T02:00:01Z" }),
    );
    let report = pass(&json!({}), &[running], &[]);
    assert_eq!(
        condition(&report, "Ready"),
        "False/Running: nightly is running"
    );
    let status = report.status.unwrap();
    assert_eq!(status["activeJob"]["uid"], "a");

    let report = pass(&status, &[], &[]);
    assert_eq!(
        condition(&report, "Succeeded"),
        format!("False/JobLost: {JOB_LOST}")
    );
    let lost = report.status.unwrap();
    assert_eq!(lost["failureCount"], 1);
    assert_eq!(lost.get("activeJob"), None);
    let report = pass(&lost, &[], &[]);
    assert_eq!(report.status.unwrap(), lost);
    assert!(report.events.is_empty());
}

#[test]
fn a_failure_reports_the_end_of_the_log() {
    let log = format!("{}\nopenssl -k *** -in x\nfailed\n", "x".repeat(5000));
    let report = pass(
        &json!({}),
        &[job("nightly", "a", OWNER, failed())],
        &[pod("a", &log)],
    );
    let run = report.status.as_ref().unwrap()["lastRun"].clone();
    assert_eq!(run["logs"].as_str().unwrap().chars().count(), 4096);
    assert_eq!(run["message"].as_str().unwrap().chars().count(), 1024);
    assert!(
        run["message"]
            .as_str()
            .unwrap()
            .ends_with("openssl -k *** -in x\nfailed")
    );
    assert!(
        report
            .events
            .iter()
            .any(|event| event.reason == "BackupFailed")
    );
}

#[test]
fn the_pods_message_may_come_after_the_end() {
    let jobs = [job("nightly", "a", OWNER, complete())];
    let first = pass(&json!({}), &jobs, &[]);
    assert_eq!(
        condition(&first, "Ready"),
        "True/Completed: nightly succeeded"
    );
    let status = first.status.unwrap();
    let artifacts = json!([{ "storage": "s", "file": "f" }]);
    let stored = json!({ "artifacts": artifacts, "bytes": 12_000_000, "seconds": 75 }).to_string();
    let later = pass(&status, &jobs, &[pod("a", &stored)]);
    assert_eq!(condition(&later, "Ready"), "True/Completed: stored f in s");
    let run = &later.status.as_ref().unwrap()["lastRun"];
    assert_eq!(
        (&run["size"], &run["durationSeconds"]),
        (&json!("12M"), &json!(75))
    );
    let without_pod = pass(&later.status.clone().unwrap(), &jobs, &[]);
    assert_eq!(without_pod.status, later.status);
}

#[test]
fn hostile_messages_are_no_artifacts() {
    for message in [
        "{\"artifacts\":[{\"storage\":",
        "[]",
        "{\"artifacts\":{}}",
        "\u{0}",
    ] {
        let jobs = [job("nightly", "a", OWNER, complete())];
        let report = pass(&json!({}), &jobs, &[pod("a", message)]);
        assert_eq!(
            condition(&report, "Ready"),
            "True/Completed: nightly succeeded"
        );
    }
}

#[test]
fn reports_five_runs_and_counts_each_once() {
    let jobs: Vec<Value> = (0..7)
        .map(|number| {
            let mut status = complete();
            status["startTime"] = json!(format!("2026-08-20T0{number}:00:00Z"));
            job(
                &format!("nightly-{number}"),
                &format!("uid-{number}"),
                OWNER,
                status,
            )
        })
        .collect();
    let status = pass(&json!({}), &jobs, &[]).status.unwrap();
    let recent = status["recentRuns"].as_array().unwrap();
    assert_eq!(recent.len(), 5);
    assert_eq!(recent[0]["jobName"], "nightly-6");
    assert_eq!(status["successCount"], 7);
    assert_eq!(pass(&status, &jobs, &[]).status.unwrap(), status);
}

#[test]
fn each_run_has_its_events_once() {
    let jobs: Vec<Value> = (0..7)
        .map(|number| {
            let mut status = complete();
            status["startTime"] = json!(format!("2026-08-20T0{number}:00:00Z"));
            let name = format!("nightly-{number}");
            job(&name, &format!("uid-{number}"), OWNER, status)
        })
        .collect();
    let reasons = |report: &Report, reason: &str| {
        report
            .events
            .iter()
            .filter(|event| event.reason == reason)
            .count()
    };
    let first = pass(&json!({}), &jobs, &[]);
    assert_eq!(reasons(&first, "RunStarted"), 7);
    assert_eq!(reasons(&first, "BackupSucceeded"), 7);
    let again = pass(&first.status.unwrap(), &jobs, &[]);
    assert!(again.events.is_empty(), "{:?}", again.events);
}

// The history limit and the TTL delete Jobs, possibly before a pass.
#[test]
fn a_job_deleted_after_its_success_is_not_a_failure() {
    let parent = backup(json!({ "schedule": { "cron": "0 2 * * *" } }));
    let lost = |last_success: Value| {
        let cron_job = json!({
            "apiVersion": "batch/v1", "kind": "CronJob",
            "metadata": { "name": "nightly", "uid": "cron-uid", "creationTimestamp": "2026-08-18T00:00:00Z" },
            "status": { "lastScheduleTime": "2026-08-20T02:00:00Z", "lastSuccessfulTime": last_success },
        });
        let run = json!({
            "jobName": "nightly-1", "jobUID": "a", "startTime": "2026-08-20T02:00:01Z", "phase": "Running",
        });
        let status = json!({ "lastRun": run, "recentRuns": [run], "failureCount": 2 });
        let request = TestRequest::new(&parent)
            .child("schedule", &cron_job)
            .status(&status)
            .build();
        let outcome = Plugin::reconcile(&request, &host(&around())).unwrap();
        let status = outcome.report().status.clone().unwrap();
        let counts = (
            status["successCount"].clone(),
            status["failureCount"].clone(),
        );
        (
            status["lastRun"]["phase"].clone(),
            counts,
            outcome.report().events[0].reason.clone(),
        )
    };
    let success = (
        json!("Succeeded"),
        (json!(1), json!(0)),
        "BackupSucceeded".to_owned(),
    );
    assert_eq!(lost(json!("2026-08-20T02:05:00Z")), success);
    let failure = (json!("Failed"), (json!(0), json!(3)), "JobLost".to_owned());
    assert_eq!(lost(json!("2026-08-19T02:05:00Z")), failure);
    assert_eq!(lost(Value::Null), failure);
}

#[test]
fn sizes_are_short_quantities() {
    let table = [
        (0, "0"),
        (999, "999"),
        (1000, "1k"),
        (1_250_000, "1.2M"),
        (12_345_678, "12M"),
        (999_999_999, "999M"),
        (u64::MAX, "18446P"),
    ];
    for (bytes, expected) in table {
        assert_eq!(quantity(bytes), expected);
    }
}

// gobackup continues when it cannot delete an archive, and only logs it.
#[test]
fn a_failure_of_retention_is_a_warning_while_a_storage_has_keep() {
    let line = "[Cycler] Remove 1.tar failed: AccessDenied";
    let good = json!({ "artifacts": [], "bytes": 1, "retention": line, "seconds": 1 }).to_string();
    let bad = format!("no space left\ngobackup did not apply keep: {line}\n");
    for (keep, status, message, is_told) in [
        (2, complete(), &good, true),
        (2, failed(), &bad, true),
        (0, complete(), &good, false),
        (2, complete(), &good.replace(line, ""), false),
        (2, failed(), &"no space left\n".to_owned(), false),
    ] {
        let parent = backup(json!({ "storageRefs": [{ "name": "s", "keep": keep }] }));
        let job = job("nightly", "a", OWNER, status);
        let request = TestRequest::new(&parent).child("run", &job).build();
        let mut objects = around();
        objects.push(pod("a", message));
        let status = Plugin::reconcile(&request, &host(&objects))
            .unwrap()
            .report()
            .status
            .clone()
            .unwrap();
        let warnings: Vec<_> = status["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|warning| warning["code"] == "RetentionNotKept")
            .collect();
        assert_eq!(
            warnings.len(),
            usize::from(is_told),
            "{keep} {message}: {status}"
        );
        let is_whole = warnings
            .iter()
            .all(|warning| warning["message"].as_str().unwrap().contains(line));
        assert!(is_whole, "{status}");
    }
}
