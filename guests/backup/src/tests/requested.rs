//! Runs that the annotation `gobackup.io/run-now` asks for.

use innkeeper_sdk::testing::TestRequest;

use super::{
    outcomes::{complete, failed, job},
    *,
};

const OWNER: &str = "00000000-0000-4000-8000-000000000001";

/// The Job for the value `one`.
const FIRST: &str = "nightly-run-7692c3ad";

/// A parent with a schedule, unless it is null, that asks for a run.
fn asking(token: &str, schedule: Value) -> Value {
    let mut parent = backup(json!({ "schedule": schedule }));
    parent["metadata"]["annotations"] = json!({ "gobackup.io/run-now": token });
    parent
}

fn daily() -> Value {
    json!({ "cron": "0 2 * * *" })
}

fn running() -> Value {
    json!({ "active": 1, "startTime": "2026-08-20T02:00:01Z" })
}

/// Returns an answer's Jobs with their keys and policies.
fn jobs(outcome: &Answer) -> Vec<String> {
    let jobs = outcome
        .children()
        .iter()
        .filter(|child| child.kind() == "Job");
    let line = |child: &Child| format!("{} {} {:?}", child.key, child.name(), child.apply);
    jobs.map(line).collect()
}

/// The answer for a parent with these Jobs and this status.
fn pass(parent: &Value, observed: &[Value], status: &Value) -> Answer {
    let request = TestRequest::new(parent).status(status);
    let request = observed.iter().fold(request, |request, job| {
        request.child(job["metadata"]["name"].as_str().unwrap(), job)
    });
    Plugin::reconcile(&request.build(), &host(&around())).unwrap()
}

#[test]
fn each_new_value_is_one_run_also_of_a_suspended_schedule() {
    let suspended = json!({ "cron": "0 2 * * *", "suspend": true });
    for schedule in [daily(), suspended] {
        let parent = asking("one", schedule);
        let first = pass(&parent, &[], &json!({}));
        assert_eq!(jobs(&first), [format!("run-7692c3ad {FIRST} Always")]);
        assert_eq!(first.child("run-7692c3ad").unwrap().after, ["config"]);
        let template = |child: &str, path: &str| {
            Value::from(first.child(child).unwrap().object.clone())
                .pointer(path)
                .unwrap()
                .clone()
        };
        assert_eq!(
            template("run-7692c3ad", "/spec"),
            template("schedule", "/spec/jobTemplate/spec")
        );
        let status = first.report().status.clone().unwrap();
        assert_eq!(status.get("lastRunRequest"), None);

        let second = pass(&parent, &[job(FIRST, "a", OWNER, running())], &status);
        assert_eq!(jobs(&second), [format!("run-7692c3ad {FIRST} Hold")]);
        let status = second.report().status.clone().unwrap();
        assert_eq!(status["lastRunRequest"], "one");
        assert_eq!(status["activeJob"]["name"], FIRST);

        let third = pass(&parent, &[], &status);
        assert!(jobs(&third).is_empty());
        assert_eq!(
            third.report().status.as_ref().unwrap()["lastRunRequest"],
            "one"
        );
    }
    let parent = asking("", daily());
    assert!(jobs(&pass(&parent, &[], &json!({}))).is_empty());
}

#[test]
fn a_requested_run_waits_for_an_active_one_unless_both_may_run() {
    let active = [job(FIRST, "a", OWNER, running())];
    let status = json!({ "lastRunRequest": "one" });
    let first = format!("run-7692c3ad {FIRST} Hold");
    let parent = asking("two", daily());
    assert_eq!(
        jobs(&pass(&parent, &active, &status)),
        std::slice::from_ref(&first)
    );
    let parent = asking(
        "two",
        json!({ "cron": "0 2 * * *", "concurrencyPolicy": "Allow" }),
    );
    assert_eq!(
        jobs(&pass(&parent, &active, &status)),
        [
            first.clone(),
            "run-3fc4ccfe nightly-run-3fc4ccfe Always".to_owned()
        ]
    );
    let finished = [job(FIRST, "a", OWNER, complete())];
    let parent = asking("two", daily());
    assert_eq!(
        jobs(&pass(&parent, &finished, &status)),
        [first, "run-3fc4ccfe nightly-run-3fc4ccfe Always".to_owned()]
    );
}

#[test]
fn a_backup_without_schedule_runs_again() {
    let parent = asking("one", Value::Null);
    let first = pass(&parent, &[], &json!({}));
    assert_eq!(jobs(&first), ["run nightly Always"]);
    let finished = job("nightly", "a", OWNER, complete());
    let second = pass(&parent, &[finished], &json!({}));
    assert_eq!(
        jobs(&second),
        [
            "run nightly Hold".to_owned(),
            format!("run-7692c3ad {FIRST} Always")
        ]
    );
}

#[test]
fn a_backup_whose_last_run_failed_is_stalled_until_it_runs_again() {
    let finished = job("nightly", "a", OWNER, failed());
    let failure = pass(
        &backup(json!({})),
        std::slice::from_ref(&finished),
        &json!({}),
    );
    let ready = condition(failure.report(), "Ready");
    assert!(ready.starts_with("False/LastRunFailed: "), "{ready}");
    let stalled = condition(failure.report(), "Stalled");
    assert_eq!(stalled, ready.replacen("False", "True", 1));

    let is_stalled = |outcome: &Answer| outcome.report().find_condition("Stalled").is_some();
    let again = job(FIRST, "b", OWNER, running());
    let status = failure.report().status.clone().unwrap();
    let again = pass(&asking("one", Value::Null), &[finished, again], &status);
    assert!(!is_stalled(&again));
    // A schedule runs again by itself.
    let finished = job(FIRST, "a", OWNER, failed());
    let scheduled = pass(&asking("one", daily()), &[finished], &json!({}));
    let ready = condition(scheduled.report(), "Ready");
    assert!(ready.starts_with("False/LastRunFailed: "), "{ready}");
    assert!(!is_stalled(&scheduled));
}

#[test]
fn requested_runs_stay_within_the_limits_of_the_history() {
    let at = |hour: u32, mut status: Value| {
        status["startTime"] = json!(format!("2026-08-20T{hour:02}:00:00Z"));
        status
    };
    let name = |number: u32| format!("nightly-run-0000000{number}");
    let mut observed: Vec<Value> = (1..=5)
        .map(|number| job(&name(number), &name(number), OWNER, at(number, complete())))
        .collect();
    observed.push(job(&name(6), "f", OWNER, at(6, failed())));
    observed.push(job(&name(7), "g", OWNER, at(7, failed())));
    observed.push(job(&name(8), "h", OWNER, at(0, json!({ "active": 1 }))));
    let answer = pass(
        &backup(json!({ "schedule": daily() })),
        &observed,
        &json!({}),
    );
    let mut names = jobs(&answer);
    names.sort();
    let line = |number: u32| format!("run-0000000{number} {} Hold", name(number));
    assert_eq!(names, [3, 4, 5, 7, 8].map(line));
}

// The first request's Job still exists when the value returns after another one.
#[test]
fn a_repeated_value_is_another_request() {
    let parent = asking("one", daily());
    let old = job(FIRST, "a", OWNER, complete());
    let status = json!({
        "lastRunRequest": "two", "countedJobs": ["a"],
        "recentRuns": [{ "jobName": FIRST, "jobUID": "a", "phase": "Succeeded" }],
    });
    let request =
        |outcome: &Answer| outcome.report().status.clone().unwrap()["lastRunRequest"].clone();
    let first = pass(&parent, std::slice::from_ref(&old), &status);
    assert!(jobs(&first).is_empty());
    assert_eq!(request(&first), "two");
    let status = first.report().status.clone().unwrap();
    let second = pass(&parent, &[], &status);
    assert_eq!(jobs(&second), [format!("run-7692c3ad {FIRST} Always")]);
    let status = second.report().status.clone().unwrap();
    let third = pass(&parent, &[job(FIRST, "b", OWNER, running())], &status);
    assert_eq!(jobs(&third), [format!("run-7692c3ad {FIRST} Hold")]);
    assert_eq!(request(&third), "one");
    // The next passes see it in the record.
    let status = third.report().status.clone().unwrap();
    let fourth = pass(&parent, &[job(FIRST, "b", OWNER, complete())], &status);
    assert_eq!(jobs(&fourth), [format!("run-7692c3ad {FIRST} Hold")]);
}
