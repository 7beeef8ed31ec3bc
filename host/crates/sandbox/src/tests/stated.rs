//! Answers in the contract's types from JSON, for the fuzz targets: missing fields are empty.

use serde_json::Value;

use super::wit;

/// Returns the answer in the only member: `desired`, `keep`, `finalized` or `fault`; none otherwise.
pub(super) fn answer(stated: &Value) -> Option<Result<wit::Outcome, wit::Fault>> {
    let (case, stated) = stated.as_object()?.iter().next()?;
    Some(match case.as_str() {
        "desired" => Ok(wit::Outcome::Desired(wit::Desired {
            children: list(stated, "children", child),
            report: report(&stated["report"]),
            prediction: stated.get("prediction").map(prediction),
        })),
        "keep" => Ok(wit::Outcome::Keep(report(stated))),
        "finalized" => Ok(wit::Outcome::Finalized(report(stated))),
        "fault" => Err(wit::Fault {
            kind: match stated["kind"].as_str() {
                Some("invalid") => wit::FaultKind::Invalid,
                Some("fatal") => wit::FaultKind::Fatal,
                _ => wit::FaultKind::Retry,
            },
            message: text(stated, "message"),
            report: stated.get("report").map(report),
        }),
        _ => return None,
    })
}

fn prediction(stated: &Value) -> wit::Prediction {
    wit::Prediction {
        report: report(&stated["report"]),
        children: list(stated, "children", |child| wit::PredictedChild {
            key: text(child, "key"),
            parts: list(child, "parts", |part| wit::PredictedPart {
                pointer: text(part, "pointer"),
                value: part.get("value").map(json),
            }),
        }),
    }
}

fn child(stated: &Value) -> wit::Child {
    wit::Child {
        key: text(stated, "key"),
        object: json(&stated["object"]),
        generate: list(stated, "generate", |stated| wit::Generated {
            key: text(stated, "key"),
            length: number(stated, "length")
                .and_then(|length| length.try_into().ok())
                .unwrap_or(u32::MAX),
            alphabet: text(stated, "alphabet"),
            token: stated.get("token").map(json),
        }),
        apply: match stated["apply"].as_str() {
            Some("once") => wit::ApplyPolicy::Once,
            Some("hold") => wit::ApplyPolicy::Hold,
            _ => wit::ApplyPolicy::Always,
        },
        removal: match stated["removal"].as_str() {
            Some("retain") => wit::RemovalPolicy::Retain,
            _ => wit::RemovalPolicy::Delete,
        },
        readiness: match stated["readiness"].as_str() {
            Some("ready") => wit::Readiness::Ready,
            Some("notReady") => wit::Readiness::NotReady,
            _ => wit::Readiness::Derive,
        },
        after: list(stated, "after", json),
    }
}

fn report(stated: &Value) -> wit::Report {
    wit::Report {
        status: stated.get("status").map(json),
        conditions: list(stated, "conditions", |stated| wit::Condition {
            type_: text(stated, "type"),
            status: match stated["status"].as_str() {
                Some("True") => wit::ConditionStatus::True,
                Some("False") => wit::ConditionStatus::False,
                _ => wit::ConditionStatus::Unknown,
            },
            reason: text(stated, "reason"),
            message: text(stated, "message"),
        }),
        events: list(stated, "events", |stated| wit::Event {
            type_: match stated["type"].as_str() {
                Some("Warning") => wit::EventType::Warning,
                _ => wit::EventType::Normal,
            },
            reason: text(stated, "reason"),
            message: text(stated, "message"),
        }),
        requeue_after_ms: number(stated, "requeueAfterMs"),
    }
}

/// Returns a JSON value's text; a text stands for itself, so that it can be no JSON.
fn json(stated: &Value) -> String {
    stated
        .as_str()
        .map_or_else(|| stated.to_string(), str::to_owned)
}

fn text(stated: &Value, field: &str) -> String {
    stated.get(field).map(json).unwrap_or_default()
}

fn number(stated: &Value, field: &str) -> Option<u64> {
    stated.get(field)?.as_u64()
}

fn list<T>(stated: &Value, field: &str, one: impl Fn(&Value) -> T) -> Vec<T> {
    stated[field]
        .as_array()
        .into_iter()
        .flatten()
        .map(one)
        .collect()
}
