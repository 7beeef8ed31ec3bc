//! Answers as files that a review shows.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::answer::{Answer, Event, EventType, Report};
use crate::child::{ApplyPolicy, Child, Generated, Readiness, RemovalPolicy};
use crate::condition::{Condition, ConditionStatus};

/// Compares an answer with a golden file, and writes the file if it does not exist.
///
/// The path is relative to the crate directory. The file is JSON with the fields of an `expect.yaml` of
/// `innkeeper test`, without what the host adds to children. To accept a changed answer, delete the file and run the
/// test again.
///
/// ```
/// use innkeeper_sdk::prelude::*;
/// use innkeeper_sdk::testing::assert_golden;
///
/// let file = std::env::temp_dir().join("innkeeper-sdk-golden.json");
/// let answer = Desired::new().condition(Condition::new("Full", true, "Rain", "the pond is full")).into();
/// assert_golden(&answer, &file);
/// assert!(std::fs::read_to_string(&file).unwrap().contains("the pond is full"));
/// assert_golden(&answer, &file);
/// # std::fs::remove_file(file).unwrap();
/// ```
///
/// # Panics
///
/// Panics if the answer differs, or the file cannot be read or written.
pub fn assert_golden(answer: &Answer, path: impl AsRef<Path>) {
    let path = path.as_ref();
    let document = document(answer);
    if !path.exists() {
        fs::write(path, format!("{document:#}\n")).expect("the golden file should be writable");
    }
    let text = fs::read_to_string(path).expect("the golden file should be readable");
    let golden: Value = serde_json::from_str(&text).expect("the golden file should be JSON");
    assert!(
        golden == document,
        "the answer differs from {}: delete the file to accept\n{document:#}",
        path.display()
    );
}

fn document(answer: &Answer) -> Value {
    let report: &Report = answer.report();
    let name = match answer {
        Answer::Desired(_) => "desired",
        Answer::Keep(_) => "keep",
        Answer::Finalized(_) => "finalized",
    };
    json!({
        "outcome": name,
        "children": answer.children().iter().map(child).collect::<Vec<_>>(),
        "status": report.status,
        "conditions": report.conditions.iter().map(condition).collect::<Vec<_>>(),
        "events": report.events.iter().map(event).collect::<Vec<_>>(),
        "requeueAfterMs": report.requeue.map(|after| after.as_secs_f64() * 1000.0),
    })
}

fn child(child: &Child) -> Value {
    let generated = |value: &Generated| {
        json!({
            "key": value.key, "length": value.length, "alphabet": value.alphabet, "token": value.token,
        })
    };
    json!({
        "key": child.key,
        "apply": match child.apply {
            ApplyPolicy::Always => "always",
            ApplyPolicy::Once => "once",
            ApplyPolicy::Hold => "hold",
        },
        "removal": match child.removal {
            RemovalPolicy::Delete => "delete",
            RemovalPolicy::Retain => "retain",
        },
        "readiness": match child.readiness {
            Readiness::Derive => "derive",
            Readiness::Ready => "ready",
            Readiness::NotReady => "not-ready",
        },
        "after": child.after,
        "generate": child.generate.iter().map(generated).collect::<Vec<_>>(),
        "object": *child.object,
    })
}

fn condition(condition: &Condition) -> Value {
    let status = match condition.status {
        ConditionStatus::True => "True",
        ConditionStatus::False => "False",
        ConditionStatus::Unknown => "Unknown",
    };
    json!({
        "type": condition.type_, "status": status, "reason": condition.reason, "message": condition.message,
    })
}

fn event(event: &Event) -> Value {
    let type_ = match event.type_ {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    };
    json!({"type": type_, "reason": event.reason, "message": event.message})
}
