//! Status writes: A9.

use expect_test::{Expect, expect};
use innkeeper_model::{Condition, ConditionStatus, Report};
use serde_json::{Value, json};

use super::build::*;
use crate::{ParentProgress, StatusWrite, has_host_condition, report_status, status, synced};

const EARLIER: &str = "2026-01-01T00:00:00Z";

fn now() -> jiff::Timestamp {
    "2026-02-02T02:02:02.5Z".parse().unwrap()
}

fn condition(kind: &str, status: ConditionStatus, reason: &str) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message: String::new(),
    }
}

fn applied() -> Condition {
    synced(ConditionStatus::True, "Applied", "")
}

fn ready() -> Condition {
    condition("Ready", ConditionStatus::True, "Ready")
}

fn shown(kind: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": EARLIER, "observedGeneration": 3,
    })
}

fn entry(manager: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": fields}})
}

fn owned_conditions(kinds: &[&str]) -> Value {
    let mut members = json!({});
    for kind in kinds {
        members[format!("k:{{\"type\":\"{kind}\"}}")] = json!({
            ".": {}, "f:type": {}, "f:status": {}, "f:reason": {}, "f:message": {}, "f:lastTransitionTime": {}, "f:observedGeneration": {},
        });
    }
    members
}

/// Returns a parent with the status that the host wrote for a guest that states `nodes: 2`.
fn written() -> Parent {
    let fields = json!({"f:nodes": {}, "f:conditions": owned_conditions(&["Synced", "Ready"])});
    owned_by(json!([entry("innkeeper:web:status", fields)]))
}

/// Returns such a parent with these status managers.
fn owned_by(entries: Value) -> Parent {
    let conditions = json!([
        shown("Synced", "True", "Applied"),
        shown("Ready", "True", "Ready")
    ]);
    let mut parent = parent("p1").with("/metadata", "managedFields", entries);
    parent.0["status"] = json!({"nodes": 2, "theirs": true, "conditions": conditions});
    parent
}

fn report(status: Value, conditions: Vec<Condition>) -> Report {
    Report {
        status: status.as_object().cloned(),
        conditions,
        ..Report::default()
    }
}

fn due(
    parent: &Parent,
    report: Option<&Report>,
    synced: &Condition,
    ready: Option<Condition>,
) -> Option<StatusWrite> {
    status(
        &manifest().name,
        &parent.object(),
        report,
        synced,
        ready,
        ParentProgress::Ok,
        now(),
    )
}

#[track_caller]
fn check(write: Option<StatusWrite>, expected: Expect) {
    let line = write
        .map(|StatusWrite { manager, status }| format!("{manager}: {}\n", Value::Object(status)));
    expected.assert_eq(&line.unwrap_or_default());
}

fn conditions_of(write: Option<StatusWrite>) -> Value {
    write.unwrap().status.remove("conditions").unwrap()
}

#[test]
fn nothing_is_written_in_a_steady_state_a9() {
    let report = report(json!({"nodes": 2.0, "gone": null}), vec![]);
    check(
        due(&written(), Some(&report), &applied(), Some(ready())),
        expect![""],
    );
    // Without the guest's part the conditions are those of the second manager, which states them once.
    let twice = owned_by(json!([
        entry(
            "innkeeper:web:status",
            json!({"f:nodes": {}, "f:conditions": owned_conditions(&["Synced", "Ready"])})
        ),
        entry(
            "innkeeper:web:host",
            json!({"f:conditions": owned_conditions(&["Synced", "Ready"])})
        ),
    ]));
    for report in [Some(&report), None] {
        check(due(&twice, report, &applied(), None), expect![""]);
    }
}

#[test]
fn the_next_report_takes_over_the_conditions_that_the_host_stated_alone_a9() {
    let of_the_host = entry(
        "innkeeper:web:host",
        json!({"f:conditions": owned_conditions(&["Synced", "Ready"])}),
    );
    let named = json!({"k:{\"type\":\"Synced\"}": {".": {}, "f:type": {}}});
    let parent = owned_by(json!([
        of_the_host,
        entry(
            "innkeeper:web:status",
            json!({"f:nodes": {}, "f:conditions": named})
        ),
    ]));
    let report = report(json!({"nodes": 2}), vec![]);
    check(
        due(&parent, Some(&report), &applied(), Some(ready())),
        expect![[r#"
            innkeeper:web:status: {"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"","observedGeneration":3,"reason":"Applied","status":"True","type":"Synced"},{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"","observedGeneration":3,"reason":"Ready","status":"True","type":"Ready"}],"nodes":2}
        "#]],
    );
}

#[test]
fn a_first_status_has_all_conditions_a9() {
    let report = report(
        json!({"nodes": 2}),
        vec![condition("Scaled", ConditionStatus::True, "Yes")],
    );
    check(
        due(&parent("p1"), Some(&report), &applied(), Some(ready())),
        expect![[r#"
            innkeeper:web:status: {"conditions":[{"lastTransitionTime":"2026-02-02T02:02:02Z","message":"","observedGeneration":3,"reason":"Applied","status":"True","type":"Synced"},{"lastTransitionTime":"2026-02-02T02:02:02Z","message":"","observedGeneration":3,"reason":"Yes","status":"True","type":"Scaled"},{"lastTransitionTime":"2026-02-02T02:02:02Z","message":"","observedGeneration":3,"reason":"Ready","status":"True","type":"Ready"}],"nodes":2}
        "#]],
    );
    check(
        due(&parent("p1"), None, &applied(), None),
        expect![[r#"
        innkeeper:web:host: {"conditions":[{"lastTransitionTime":"2026-02-02T02:02:02Z","message":"","observedGeneration":3,"reason":"Applied","status":"True","type":"Synced"},{"lastTransitionTime":"2026-02-02T02:02:02Z","message":"the host has not accepted any answer of the plugin yet","observedGeneration":3,"reason":"NoAnswerYet","status":"Unknown","type":"Ready"}]}
    "#]],
    );
}

#[test]
fn the_time_of_a_condition_changes_with_its_status_only_a9() {
    let other_reason = synced(ConditionStatus::True, "Applied", "more");
    check(
        due(&written(), None, &other_reason, None),
        expect![[r#"
        innkeeper:web:host: {"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"more","observedGeneration":3,"reason":"Applied","status":"True","type":"Synced"},{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"","observedGeneration":3,"reason":"Ready","status":"True","type":"Ready"}]}
    "#]],
    );
    let failed = synced(ConditionStatus::False, "Invalid", "");
    check(
        due(&written(), None, &failed, None),
        expect![[r#"
        innkeeper:web:host: {"conditions":[{"lastTransitionTime":"2026-02-02T02:02:02Z","message":"","observedGeneration":3,"reason":"Invalid","status":"False","type":"Synced"},{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"","observedGeneration":3,"reason":"Ready","status":"True","type":"Ready"}]}
    "#]],
    );
}

#[test]
fn another_generation_is_observed_a9() {
    let parent = written().with("/metadata", "generation", json!(4));
    let writes = due(&parent, None, &applied(), Some(ready()));
    let conditions = conditions_of(writes);
    assert_eq!(conditions[0]["observedGeneration"], 4);
    assert_eq!(conditions[0]["lastTransitionTime"], EARLIER);
}

#[test]
fn fields_that_the_guest_no_longer_states_are_removed() {
    let other = report(json!({"leader": "a"}), vec![]);
    check(
        due(&written(), Some(&other), &applied(), Some(ready())),
        expect![[r#"
            innkeeper:web:status: {"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"","observedGeneration":3,"reason":"Applied","status":"True","type":"Synced"},{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"","observedGeneration":3,"reason":"Ready","status":"True","type":"Ready"}],"leader":"a"}
        "#]],
    );
    let nothing = Report::default();
    check(
        due(&written(), Some(&nothing), &applied(), Some(ready())),
        expect![[r#"
            innkeeper:web:status: {"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"","observedGeneration":3,"reason":"Applied","status":"True","type":"Synced"},{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"","observedGeneration":3,"reason":"Ready","status":"True","type":"Ready"}]}
        "#]],
    );
    let empty = report(json!({}), vec![]);
    check(
        due(&parent("p1"), Some(&empty), &applied(), Some(ready())),
        expect![[r#"
            innkeeper:web:status: {"conditions":[{"lastTransitionTime":"2026-02-02T02:02:02Z","message":"","observedGeneration":3,"reason":"Applied","status":"True","type":"Synced"},{"lastTransitionTime":"2026-02-02T02:02:02Z","message":"","observedGeneration":3,"reason":"Ready","status":"True","type":"Ready"}]}
        "#]],
    );
}

#[test]
fn foreign_changes_of_own_fields_are_repaired() {
    let mut parent = written();
    parent.0["status"]["nodes"] = json!(7);
    let report = report(json!({"nodes": 2}), vec![]);
    check(
        due(&parent, Some(&report), &applied(), Some(ready())),
        expect![[r#"
            innkeeper:web:status: {"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"","observedGeneration":3,"reason":"Applied","status":"True","type":"Synced"},{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"","observedGeneration":3,"reason":"Ready","status":"True","type":"Ready"}],"nodes":2}
        "#]],
    );
    let mut parent = written();
    parent.0["status"]["theirs"] = json!(false);
    check(
        due(&parent, Some(&report), &applied(), Some(ready())),
        expect![""],
    );
}

#[test]
fn the_guest_may_state_ready_itself() {
    let own = report(
        json!({"nodes": 2}),
        vec![condition("Ready", ConditionStatus::False, "Mine")],
    );
    check(
        due(&written(), Some(&own), &applied(), Some(ready())),
        expect![[r#"
            innkeeper:web:status: {"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"","observedGeneration":3,"reason":"Applied","status":"True","type":"Synced"},{"lastTransitionTime":"2026-02-02T02:02:02Z","message":"","observedGeneration":3,"reason":"Mine","status":"False","type":"Ready"}],"nodes":2}
        "#]],
    );
    // A fault without a report leaves the guest's condition `Ready` in place.
    let mut theirs = written();
    theirs.0["status"]["conditions"][1] = shown("Ready", "False", "Mine");
    check(
        due(&theirs, None, &applied(), None),
        expect![[r#"
            innkeeper:web:host: {"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"","observedGeneration":3,"reason":"Applied","status":"True","type":"Synced"},{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"","observedGeneration":3,"reason":"Mine","status":"False","type":"Ready"}]}
        "#]],
    );
}

#[test]
fn a_child_that_belongs_to_another_outranks_the_ready_of_the_guest() {
    let own = report(
        json!({"nodes": 2}),
        vec![condition("Ready", ConditionStatus::True, "Mine")],
    );
    let reasons = |reason: &str| {
        let ready = condition("Ready", ConditionStatus::False, reason);
        let write = due(&written(), Some(&own), &applied(), Some(ready));
        let conditions = conditions_of(write);
        let reason = |condition: &Value| condition["reason"].as_str().unwrap().to_owned();
        conditions
            .as_array()
            .unwrap()
            .iter()
            .map(reason)
            .collect::<Vec<_>>()
    };
    for reason in ["ChildNotOwned", "ChildForbidden", "AdoptionPending"] {
        assert_eq!(reasons(reason), ["Applied", reason]);
    }
    assert_eq!(reasons("ChildrenNotReady"), ["Applied", "Mine"]);
}

#[test]
fn entries_of_other_managers_and_operations_do_not_count() {
    let mut parent = written();
    parent.0["metadata"]["managedFields"][0]["operation"] = json!("Update");
    let writes = due(&parent, None, &applied(), Some(ready()));
    assert!(writes.is_some());
}

#[test]
fn the_owner_of_the_status_of_synced_wrote_last() {
    let name = &manifest().name;
    let owning = |managers: Value| parent("p1").with("/metadata", "managedFields", managers);
    let of = |manager: &str, fields: Value| {
        entry(
            manager,
            json!({"f:conditions": {"k:{\"type\":\"Synced\"}": fields}}),
        )
    };
    let whole = json!({".": {}, "f:type": {}, "f:status": {}, "f:reason": {}});
    // The managed fields that stay with the host after another manager has changed the status.
    let named = json!({".": {}, "f:type": {}});
    for (managers, expected) in [
        (json!([]), false),
        (json!([of("innkeeper:web:host", whole.clone())]), true),
        (json!([of("innkeeper:other:host", whole.clone())]), false),
        (
            json!([
                of("innkeeper:web:host", named),
                of("innkeeper:other:host", whole.clone()),
            ]),
            false,
        ),
        // Both managers stated the same status, so both own it.
        (
            json!([
                of("innkeeper:web:host", whole.clone()),
                of("innkeeper:other:host", whole),
            ]),
            true,
        ),
        (
            json!([entry("innkeeper:web:host", owned_conditions(&["Ready"]))]),
            false,
        ),
    ] {
        let parent = owning(managers.clone()).object();
        assert_eq!(has_host_condition(name, &parent), expected, "{managers}");
    }
}

#[test]
fn readiness_without_passes_is_unknown() {
    let mut parent = written();
    parent.0["status"]["conditions"][1] = shown("Ready", "Unknown", "NotSelected");
    let retrying = synced(ConditionStatus::False, "Retrying", "");
    let writes = due(&parent, None, &retrying, None);
    assert_eq!(conditions_of(writes)[1]["reason"], "NoAnswerYet");
}

#[test]
fn a_report_alone_changes_only_the_part_of_the_guest() {
    let due = |status: Value, conditions| {
        let report = report(status, conditions);
        report_status(&manifest().name, &written().object(), &report, now())
    };
    check(due(json!({"nodes": 2}), vec![]), expect![""]);
    assert_eq!(due(json!({"nodes": 3}), vec![]).unwrap().status["nodes"], 3);
    let more = vec![condition("Full", ConditionStatus::False, "Empty")];
    assert!(due(json!({"nodes": 2}), more).is_some());
}

/// The conditions about the outlook in the write for a parent with these conditions, and a guest that states those.
fn outlook(
    before: &[Value],
    stated: &[Condition],
    outlook: ParentProgress,
    synced: &Condition,
) -> String {
    let mut parent = written();
    parent.0["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .extend(before.iter().cloned());
    let name = manifest().name;
    let report = report(json!({"nodes": 3}), stated.to_vec());
    let parent = parent.object();
    let report = Some(&report);
    let ready = Some(ready());
    let write = status(&name, &parent, report, synced, ready, outlook, now());
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap().to_owned();
    let line = |condition: &Value| {
        ["type", "status", "reason", "message"]
            .map(|field| text(condition, field))
            .join(" ")
    };
    let conditions = conditions_of(write);
    let matching =
        conditions.as_array().unwrap().iter().filter(|condition| {
            condition["type"] == "Reconciling" || condition["type"] == "Stalled"
        });
    matching.map(line).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_failed_parent_says_if_it_is_tried_again() {
    let failed = synced(ConditionStatus::False, "Invalid", "no nodes");
    let own = [condition("Stalled", ConditionStatus::True, "Mine")];
    let stalled = [shown("Stalled", "True", "Invalid")];
    let both = "Reconciling True Invalid no nodes, Stalled False Invalid ";
    for (before, stated, expected_of, synced, expected) in [
        (&[][..], &[][..], ParentProgress::Ok, &applied(), ""),
        (
            &[],
            &[],
            ParentProgress::Stalled,
            &failed,
            "Stalled True Invalid no nodes",
        ),
        (
            &[],
            &[],
            ParentProgress::Reconciling,
            &failed,
            "Reconciling True Invalid no nodes",
        ),
        (
            &stalled,
            &[],
            ParentProgress::Ok,
            &applied(),
            "Stalled False Applied ",
        ),
        (&stalled, &[], ParentProgress::Reconciling, &failed, both),
        (
            &stalled,
            &[],
            ParentProgress::Leave,
            &applied(),
            "Stalled True Invalid ",
        ),
        // The plugin states it itself.
        (
            &[],
            &own,
            ParentProgress::Ok,
            &applied(),
            "Stalled True Mine ",
        ),
        (
            &[],
            &own,
            ParentProgress::Stalled,
            &failed,
            "Stalled True Mine ",
        ),
    ] {
        assert_eq!(
            outlook(before, stated, expected_of, synced),
            expected,
            "{expected_of:?}"
        );
    }
}
