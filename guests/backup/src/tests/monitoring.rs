//! The metrics that kube-state-metrics makes from the parents.

use super::*;

const METRICS: &str = include_str!("../../monitoring/kube-state-metrics.yaml");
const ALERTS: &str = include_str!("../../monitoring/alerts.yaml");

/// Returns the schema at a kube-state-metrics path, which names fields of list items.
fn at<'a>(schema: &'a Value, path: &Value) -> &'a Value {
    path.as_array()
        .into_iter()
        .flatten()
        .fold(schema, |schema, step| {
            let schema = schema.get("items").unwrap_or(schema);
            let field = step.as_str().unwrap();
            schema["properties"]
                .get(field)
                .unwrap_or_else(|| panic!("there is no field {field} of {path}"))
        })
}

#[test]
fn every_metric_is_of_a_field_that_is_a_number_a_time_or_a_condition() {
    let metrics = &documents(METRICS)[0];
    let resources = metrics["spec"]["resources"].as_array().unwrap();
    let mut kinds = Vec::new();
    for resource in resources {
        let kind = resource["groupVersionKind"]["kind"].as_str().unwrap();
        kinds.push(kind);
        let root = PLUGIN.root(kind);
        for (label, path) in resource["labelsFromPath"].as_object().unwrap() {
            if path[0] != "metadata" {
                assert_eq!(at(root, path)["type"], "string", "{label}");
            }
        }
        for metric in resource["metrics"].as_array().unwrap() {
            let gauge = &metric["each"]["gauge"];
            // No CRD lists the metadata fields.
            if gauge["path"][0] == "metadata" {
                continue;
            }
            let below = at(root, &gauge["path"]);
            for path in gauge["labelsFromPath"].as_object().into_iter().flatten() {
                assert_eq!(at(below, path.1)["type"], "string", "{}", path.0);
            }
            let value = at(below, &gauge["valueFrom"]);
            let is_number = value["type"] == "integer" || value["format"] == "date-time";
            let field = gauge["valueFrom"][0].as_str().unwrap();
            assert!(is_number || matches!(field, "status" | "size"), "{value}");
        }
    }
    assert_eq!(kinds, ["Backup", "CronBackup", "Restore", "Storage"]);
}

// Alert texts name conditions and reasons, which no CRD lists.
#[test]
fn the_alerts_select_the_conditions_of_a_report() {
    let conditions = |outcome: &Answer| {
        outcome
            .report()
            .conditions
            .iter()
            .map(|condition| format!("{}/{}", condition.type_, condition.reason))
            .collect::<Vec<_>>()
    };
    let parent = backup(json!({ "schedule": { "cron": "0 2 * * *" } }));
    let overdue = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": { "name": "nightly", "uid": "c", "creationTimestamp": "2026-08-18T00:00:00Z" },
    });
    let request = TestRequest::new(&parent)
        .child("schedule", &overdue)
        .build();
    let outcome = Plugin::reconcile(&request, &host(&around())).unwrap();
    assert!(conditions(&outcome).contains(&"Scheduled/Overdue".to_owned()));
    assert!(conditions(&outcome).contains(&"Failed/NotFailed".to_owned()));
    for text in [
        r#"{type="Failed"}) > 0"#,
        r#"{type="Scheduled", reason="Overdue"} == 0"#,
        r#"{type="Ready", reason=~"Invalid|InvalidReference|ReferenceNotAllowed|.*NotFound|SecretIncomplete"} == 0"#,
        r#"{type="Verified", reason=~"VerificationFailed|Invalid|InvalidReference|ReferenceNotAllowed|.*NotFound|SecretIncomplete"} == 0"#,
        r#"{type="Available", reason!="NotProbedYet"} == 0"#,
        r#"{phase="Succeeded"}"#,
    ] {
        assert!(ALERTS.contains(text), "{text}");
    }
}
