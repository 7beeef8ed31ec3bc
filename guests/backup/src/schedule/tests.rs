//! Every form of a schedule, and its next due time.

use innkeeper_sdk::testing::TestRequest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Cron, effective};
use crate::{api::Schedule, stop::Stop, tests::backup};

fn attempt(schedule: &Value) -> (Option<String>, Option<String>) {
    let schedule = Schedule::deserialize(schedule).expect("the schedule fits its type");
    let request = TestRequest::new(&backup(json!({}))).build();
    match effective(&request, &schedule) {
        Ok(effective) => (Some(effective.expression), None),
        Err(Stop::Invalid(message)) => (None, Some(message)),
        Err(other) => panic!("{other:?}"),
    }
}

fn translated(schedule: &Value) -> String {
    attempt(schedule).0.expect("the schedule can be expressed")
}

fn rejected(schedule: &Value) -> String {
    attempt(schedule).1.expect("the schedule is rejected")
}

#[test]
fn every_becomes_a_cron_expression() {
    let table = [
        ("day", None, "0 0 * * *"),
        ("1day", Some("02:30"), "30 2 * * *"),
        ("24h", Some("2:05"), "5 2 * * *"),
        ("week", Some("04:00"), "0 4 * * 0"),
        ("month", None, "0 0 1 * *"),
        ("1m", None, "* * * * *"),
        ("15m", None, "*/15 * * * *"),
        ("15m", Some("00:05"), "5/15 * * * *"),
        ("60m", Some("00:05"), "5 * * * *"),
        ("1h", None, "0 * * * *"),
        ("6h", None, "0 */6 * * *"),
        ("6h", Some("08:30"), "30 2/6 * * *"),
    ];
    for (every, at, expected) in table {
        let schedule = json!({ "every": every, "at": at });
        assert_eq!(translated(&schedule), expected, "{every} {at:?}");
    }
}

#[test]
fn rejects_an_interval_that_cron_cannot_express() {
    for every in ["7m", "3day", "0m", "5h", "-1h", "h", "often"] {
        assert_eq!(
            rejected(&json!({ "every": every })),
            format!("schedule.every: {every} cannot be expressed as a cron expression")
        );
    }
    for at in ["24:00", "12:60", "noon", "1"] {
        assert_eq!(
            rejected(&json!({ "every": "day", "at": at })),
            format!("schedule.at: {at} is not a time of day, HH:MM")
        );
    }
}

#[test]
fn rejects_the_expressions_that_kubernetes_rejects() {
    for cron in [
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 7",
        "*/0 * * * *",
        "5-1 * * * *",
        "a * * * *",
    ] {
        assert!(rejected(&json!({ "cron": cron })).starts_with("schedule.cron: "));
    }
    for cron in ["@daily", "@yearly", "0 2 * jan-mar mon,fri", "5/10 * ? * *"] {
        assert_eq!(translated(&json!({ "cron": cron })), cron);
    }
}

#[test]
fn random_times_are_stable_and_valid() {
    for macro_ in [
        "@hourly-random",
        "@daily-random",
        "@weekly-random",
        "@monthly-random",
    ] {
        let once = translated(&json!({ "cron": macro_ }));
        assert_eq!(translated(&json!({ "cron": macro_ })), once);
        assert!(Cron::parse(&once).is_ok());
    }
}

#[test]
fn random_times_are_spread() {
    let schedule: Schedule = serde_json::from_value(json!({ "cron": "@daily-random" })).unwrap();
    let times: std::collections::BTreeSet<String> = (0..200)
        .map(|number| {
            let mut parent = backup(json!({}));
            parent["metadata"]["name"] = json!(format!("parent-{number}"));
            let request = TestRequest::new(&parent).build();
            effective(&request, &schedule).unwrap().expression
        })
        .collect();
    // With 200 of 1440 minutes, about 13 collide by chance.
    assert!(times.len() > 150, "{} different times", times.len());
}

#[test]
fn knows_the_next_due_time() {
    let table = [
        ("0 2 * * *", "2026-08-20T02:00:00Z", "2026-08-21T02:00:00Z"),
        ("0 2 * * *", "2026-08-20T01:59:59Z", "2026-08-20T02:00:00Z"),
        ("* * * * *", "2026-12-31T23:59:30Z", "2027-01-01T00:00:00Z"),
        ("0 0 31 * *", "2026-08-31T00:00:00Z", "2026-10-31T00:00:00Z"),
        ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("@weekly", "2026-08-20T00:00:00Z", "2026-08-23T00:00:00Z"),
        (
            "30 2/6 * * *",
            "2026-08-20T03:00:00Z",
            "2026-08-20T08:30:00Z",
        ),
        // If both day fields are restricted, one match suffices.
        (
            "0 0 1 * mon",
            "2026-08-25T00:00:00Z",
            "2026-08-31T00:00:00Z",
        ),
        (
            "0 0 1 * mon",
            "2026-08-31T00:00:00Z",
            "2026-09-01T00:00:00Z",
        ),
    ];
    for (cron, after, expected) in table {
        let next = Cron::parse(cron)
            .unwrap()
            .next_after(after.parse().unwrap());
        assert_eq!(next.unwrap().to_string(), expected, "{cron} after {after}");
    }
    let never = Cron::parse("0 0 30 2 *").unwrap();
    assert_eq!(
        never.next_after("2026-01-01T00:00:00Z".parse().unwrap()),
        None
    );
}
