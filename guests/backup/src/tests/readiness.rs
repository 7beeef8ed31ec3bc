//! The lives of parents: `Ready` is only true for a generation that the cluster shows, and normal operation has no
//! Warning event.

use std::fmt::Write as _;

use expect_test::expect;
use innkeeper_guest_testing::stored_status;
use innkeeper_sdk::testing::TestRequest;

use super::{
    outcomes::{complete, job},
    restore::{ran, restore},
    *,
};

const OWNER: &str = "00000000-0000-4000-8000-000000000001";

/// Runs a parent's passes, one after the other.
#[derive(Default)]
struct Life {
    status: Value,
    /// Returns the step, the condition `Ready` and the events of each pass.
    told: String,
}

impl Life {
    /// A pass that sees these children by their keys.
    fn pass(
        &mut self,
        step: &str,
        parent: &Value,
        children: &[(&str, &Value)],
        objects: &[Value],
    ) -> Answer {
        let mut parent = parent.clone();
        parent["metadata"]["uid"] = json!(OWNER);
        let request = TestRequest::new(&parent).status(&self.status);
        let add = |request: TestRequest, (key, object): &(&str, &Value)| request.child(key, object);
        let request = children.iter().fold(request, add).build();
        let outcome = Plugin::reconcile(&request, &host(objects)).unwrap();
        let report = outcome.report();
        self.status = stored_status(&outcome);
        let ready = condition(report, "Ready");
        let (ready, _) = ready.split_once(':').unwrap();
        let events: Vec<_> = report
            .events
            .iter()
            .map(|condition| format!("{:?} {}", condition.type_, condition.reason))
            .collect();
        writeln!(self.told, "{step}: {ready} [{}]", events.join(", ")).unwrap();
        outcome
    }
}

/// Returns an answer's child as the cluster shows it.
fn shown(outcome: &Answer, key: &str, status: Value) -> Value {
    let mut child = Value::from(outcome.child(key).unwrap().object.clone());
    child["metadata"]["uid"] = json!(key);
    child["metadata"]["creationTimestamp"] = json!("2026-08-20T01:00:00Z");
    child["status"] = status;
    child
}

fn running() -> Value {
    json!({ "startTime": "2026-08-20T02:00:01Z", "active": 1 })
}

fn run_once(life: &mut Life) {
    let around = around();
    let once = backup(json!({}));
    let first = life.pass("once, applied", &once, &[], &around);
    for (step, status) in [
        ("once, pending", json!({})),
        ("once, running", running()),
        ("once, succeeded", complete()),
    ] {
        life.pass(
            step,
            &once,
            &[("run", &shown(&first, "run", status))],
            &around,
        );
    }
    life.pass("once, Job deleted", &once, &[], &around);
}

fn run_by_schedule(life: &mut Life) {
    let around = around();
    let schedule = |cron: &str, suspend: bool| {
        backup(json!({ "schedule": { "cron": cron }, "suspend": suspend }))
    };
    let parent = schedule("0 2 * * *", false);
    let first = life.pass("schedule, applied", &parent, &[], &around);
    let config = shown(&first, "config", json!({}));
    let last = json!({ "lastScheduleTime": "2026-08-20T02:00:00Z" });
    let cron_job = shown(&first, "schedule", last.clone());
    let children = [("config", &config), ("schedule", &cron_job)];
    life.pass("schedule, observed", &parent, &children, &around);
    for (step, status) in [
        ("schedule, running", running()),
        ("schedule, ended", complete()),
    ] {
        let mut objects = around.clone();
        objects.push(job("nightly-1", "r", "schedule", status));
        life.pass(step, &parent, &children, &objects);
    }
    life.pass("schedule, Job deleted", &parent, &children, &around);
    for (step, edited) in [
        ("schedule, suspended", schedule("0 2 * * *", true)),
        ("schedule, resumed", schedule("0 2 * * *", false)),
        ("schedule, edited", schedule("0 * * * *", false)),
    ] {
        let answer = life.pass(step, &edited, &children, &around);
        let cron_job = shown(&answer, "schedule", last.clone());
        let children = [("config", &config), ("schedule", &cron_job)];
        life.pass(&format!("{step}, observed"), &edited, &children, &around);
    }
}

fn restored(life: &mut Life) {
    let parent = restore(json!({}));
    let objects = ran();
    let first = life.pass("Restore, applied", &parent, &[], &objects);
    for (step, status) in [
        ("Restore, pending", json!({})),
        ("Restore, running", running()),
        ("Restore, succeeded", complete()),
    ] {
        let job = shown(&first, "restore", status);
        life.pass(step, &parent, &[("restore", &job)], &objects);
    }
    life.pass("Restore, Job deleted", &parent, &[], &objects);
}

fn probed(life: &mut Life) {
    let around = around();
    life.pass("Storage, without probe", &s3(), &[], &around);
    let mut parent = s3();
    parent["spec"]["probe"] = json!({});
    parent["metadata"]["generation"] = json!(2);
    let first = life.pass("Storage, applied", &parent, &[], &around);
    for (step, status) in [
        ("Storage, running", running()),
        ("Storage, stored", complete()),
    ] {
        life.pass(
            step,
            &parent,
            &[("probe", &shown(&first, "probe", status))],
            &around,
        );
    }
    // The host may delete the last Job and make the next one in one pass, which stores no status between them.
    let before = life.status.clone();
    parent["metadata"]["generation"] = json!(3);
    let next = life.pass("Storage, edited", &parent, &[], &around);
    life.status = before;
    for (step, status) in [
        ("Storage, edited and running", running()),
        ("Storage, edited and stored", complete()),
    ] {
        let mut job = shown(&next, "probe", status);
        job["metadata"]["uid"] = json!("next");
        life.pass(step, &parent, &[("probe", &job)], &around);
    }
}

#[test]
fn a_parent_is_ready_for_what_was_observed_and_normal_operation_has_no_warning_event() {
    let mut life = Life::default();
    for part in [run_once, run_by_schedule, restored, probed] {
        life.status = json!({});
        part(&mut life);
    }
    expect![[r"
        once, applied: False/Pending []
        once, pending: False/Pending [Normal RunStarted]
        once, running: False/Running []
        once, succeeded: True/Completed [Normal BackupSucceeded]
        once, Job deleted: True/Completed []
        schedule, applied: False/Pending []
        schedule, observed: True/Scheduled []
        schedule, running: True/Scheduled [Normal RunStarted]
        schedule, ended: True/Scheduled [Normal BackupSucceeded]
        schedule, Job deleted: True/Scheduled []
        schedule, suspended: False/Pending [Normal Suspended]
        schedule, suspended, observed: True/Scheduled []
        schedule, resumed: True/Scheduled [Normal Resumed]
        schedule, resumed, observed: True/Scheduled []
        schedule, edited: False/Pending []
        schedule, edited, observed: True/Scheduled []
        Restore, applied: False/Pending []
        Restore, pending: False/Pending [Normal RestoreStarted]
        Restore, running: False/Running []
        Restore, succeeded: True/Restored [Normal RestoreSucceeded]
        Restore, Job deleted: True/Restored []
        Storage, without probe: True/Valid []
        Storage, applied: False/Pending []
        Storage, running: False/Pending []
        Storage, stored: True/Available [Normal StorageAvailable]
        Storage, edited: False/Pending []
        Storage, edited and running: False/Pending []
        Storage, edited and stored: True/Available [Normal StorageAvailable]
    "]]
    .assert_eq(&life.told);
    assert!(!life.told.contains("Warning"), "{}", life.told);
}

#[test]
fn a_claim_that_grows_is_waited_for() {
    let parent = |size: &str| {
        let state = json!({ "mode": "Volume", "size": size });
        backup(json!({ "schedule": { "cron": "0 2 * * *" }, "state": state }))
    };
    let pass = |parent: &Value, observed: &Answer| {
        let request = TestRequest::new(parent).answered(observed).build();
        Plugin::reconcile(&request, &host(&around())).unwrap()
    };
    let first = reconcile(&parent("64Mi"), &around()).unwrap();
    let before = pass(&parent("1Gi"), &first);
    let waiting = "False/Pending: waiting for the claim nightly-gobackup-state to be updated";
    assert_eq!(condition(before.report(), "Ready"), waiting);
    let after = pass(&parent("1Gi"), &before);
    assert!(condition(after.report(), "Ready").starts_with("True/Scheduled"));
    // It never shrinks.
    let smaller = pass(&parent("64Mi"), &before);
    assert!(condition(smaller.report(), "Ready").starts_with("True/Scheduled"));
}

#[test]
fn a_backup_that_loses_its_schedule_is_ready_without_the_cron_job() {
    let parent = backup(json!({ "schedule": { "cron": "0 2 * * *" } }));
    let scheduled = reconcile(&parent, &around()).unwrap();
    let run = json!({ "jobName": "nightly-1", "jobUID": "r", "phase": "Succeeded" });
    let status = json!({ "recentRuns": [run] });
    let ready = |request: TestRequest| {
        let outcome = Plugin::reconcile(&request.build(), &host(&around())).unwrap();
        condition(outcome.report(), "Ready")
    };
    let request = || TestRequest::new(&backup(json!({}))).status(&status);
    assert_eq!(
        ready(request().answered(&scheduled)),
        "False/Pending: waiting for the CronJob to be deleted"
    );
    assert_eq!(ready(request()), "True/Completed: nightly-1");
}

#[test]
fn a_schedule_that_missed_a_run_is_not_ready_until_one_starts_or_a_user_suspends_it() {
    let around = around();
    let parent = |suspend: bool| {
        backup(json!({ "schedule": { "cron": "30 11 * * *" }, "suspend": suspend }))
    };
    let mut life = Life::default();
    let first = life.pass("applied", &parent(false), &[], &around);
    let config = shown(&first, "config", json!({}));
    let missed = shown(&first, "schedule", json!({}));
    let children = [("config", &config), ("schedule", &missed)];
    let answer = life.pass("overdue", &parent(false), &children, &around);
    assert_eq!(
        condition(answer.report(), "Ready"),
        "False/Overdue: no run since 2026-08-20T11:30:00Z, expected by 30 11 * * *"
    );
    let overdue = life.status.clone();
    life.pass("still overdue", &parent(false), &children, &around);
    let last = json!({ "lastScheduleTime": "2026-08-20T11:30:00Z" });
    let started = shown(&first, "schedule", last);
    let children = [("config", &config), ("schedule", &started)];
    let mut objects = around.clone();
    objects.push(job("nightly-1", "r", "schedule", running()));
    life.pass("started", &parent(false), &children, &objects);

    life.status = overdue;
    let children = [("config", &config), ("schedule", &missed)];
    let answer = life.pass("suspended", &parent(true), &children, &around);
    let suspended = shown(&answer, "schedule", json!({}));
    let children = [("config", &config), ("schedule", &suspended)];
    life.pass("suspended, observed", &parent(true), &children, &around);
    expect![[r"
        applied: False/Pending []
        overdue: False/Overdue [Warning Overdue]
        still overdue: False/Overdue []
        started: True/Scheduled [Normal RunStarted]
        suspended: False/Pending [Normal Suspended]
        suspended, observed: True/Scheduled []
    "]]
    .assert_eq(&life.told);
}

/// Returns the condition `Scheduled` at a time on 2026-08-20, and the next status.
fn scheduled(schedule: Value, status: &Value, time: &str) -> (String, Value) {
    let parent = backup(json!({ "schedule": schedule }));
    let cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": { "name": "nightly", "uid": "cron-uid", "creationTimestamp": "2026-08-01T00:00:00Z" },
        "status": { "lastScheduleTime": "2026-08-20T02:00:00Z" },
    });
    let request = TestRequest::new(&parent)
        .child("schedule", &cron_job)
        .status(status)
        .build();
    let (hours, minutes) = time.split_once(':').unwrap();
    let minutes = hours.parse::<u64>().unwrap() * 60 + minutes.parse::<u64>().unwrap();
    let host = host(&around())
        .zone("America/New_York", [(0, -4 * 3600)])
        .now(1_787_184_000_000 + minutes * 60_000);
    let outcome = Plugin::reconcile(&request, &host).unwrap();
    let report = outcome.report();
    (
        condition(report, "Scheduled"),
        report.status.clone().unwrap(),
    )
}

// The new schedule has due times between the last run and the edit, when it was not in effect.
#[test]
fn an_edited_schedule_is_not_overdue_before_its_next_run() {
    let stored = json!({ "effectiveSchedule": "0 2 * * *", "nextRun": "2026-08-21T02:00:00Z" });
    let hourly = || json!({ "cron": "0 * * * *" });
    let fine = "True/Scheduled: 0 * * * *";
    let (condition, status) = scheduled(hourly(), &stored, "12:00");
    assert_eq!(
        (&*condition, &status["nextRun"]),
        (fine, &json!("2026-08-20T13:00:00Z"))
    );
    let (condition, later) = scheduled(hourly(), &status, "12:30");
    assert_eq!((&*condition, &later), (fine, &status));
    let (condition, later) = scheduled(hourly(), &status, "13:16");
    let overdue = "False/Overdue: no run since 2026-08-20T13:00:00Z, expected by 0 * * * *";
    assert_eq!(condition, overdue);
    let (condition, _) = scheduled(hourly(), &later, "14:30");
    assert_eq!(condition, overdue);

    let elsewhere = json!({ "cron": "0 2 * * *", "timeZone": "America/New_York" });
    let (condition, _) = scheduled(elsewhere, &stored, "12:00");
    assert_eq!(condition, "True/Scheduled: 0 2 * * *");
}

// The runs that were due meanwhile were skipped, as concurrencyPolicy says.
#[test]
fn a_run_longer_than_its_period_is_not_overdue_at_its_end() {
    let run = json!({
        "jobName": "nightly-1", "jobUID": "r", "phase": "Succeeded",
        "startTime": "2026-08-20T02:00:01Z", "completionTime": "2026-08-20T11:50:00Z",
    });
    let status = json!({ "effectiveSchedule": "0 * * * *", "recentRuns": [run] });
    let hourly = || json!({ "cron": "0 * * * *" });
    let (condition, _) = scheduled(hourly(), &status, "11:50");
    assert_eq!(condition, "True/Scheduled: 0 * * * *");
    let (condition, _) = scheduled(hourly(), &status, "12:16");
    assert_eq!(
        condition,
        "False/Overdue: no run since 2026-08-20T12:00:00Z, expected by 0 * * * *"
    );
}
