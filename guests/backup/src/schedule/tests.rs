//! All forms of schedules.

use innkeeper_kit::prelude::*;
use innkeeper_sdk::testing::TestRequest;
use serde_json::{Value, json};

use super::effective;
use crate::{
    api::Schedule,
    tests::{backup, host},
};

fn attempt(schedule: &Value) -> (Option<String>, Option<String>) {
    let schedule = Schedule::deserialize(schedule).expect("the schedule fits its type");
    let request = TestRequest::new(&backup(json!({}))).build();
    match effective(&request, &host(&[]), &schedule) {
        Ok(effective) => (Some(effective.expression), None),
        Err(message) => (None, Some(message)),
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
