//! What a call ended with, as JSON: what `render` prints, and what a recording holds.

use innkeeper_model::{
    ApplyPolicy, Child, EventType, FaultKind, ListSelector, ObjectRef, Outcome, ReadKey, Readiness,
    RemovalPolicy, Report, reason,
};
use innkeeper_plan as plan;
use serde_json::{Map, Value, json};

use crate::End;

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub struct SaidFault {
    /// `retry`, `invalid` or `fatal` of the guest, or the host's reason.
    pub kind: &'static str,
    /// For people.
    pub message: String,
}

/// What a call ended with.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// `desired`, `keep` or `finalized`; none where there is no answer.
    pub outcome: Option<&'static str>,
    /// Why there is none.
    pub fault: Option<SaidFault>,
    /// The children of the answer.
    pub children: Vec<Child>,
    /// What is said about the parent.
    pub report: Option<Report>,
}

impl From<End> for Said {
    fn from(end: End) -> Self {
        match end {
            End::Answered(outcome) => Self::answered(outcome),
            End::GuestFault(fault) => Self {
                report: fault.report,
                ..Self::failed(fault_kind(fault.kind), fault.message)
            },
            End::Faulted(fault) => Self::failed(fault.category(), fault.to_string()),
            // Offline nothing is ever waited for, and a pass that waits is not recorded.
            End::Parked(kind) => {
                Self::failed(reason::WAITING_FOR_CACHE, format!("{kind} is not there"))
            }
        }
    }
}

impl Said {
    fn answered(outcome: Outcome) -> Self {
        let (outcome, children, report) = match outcome {
            Outcome::Desired(desired) => ("desired", desired.children, desired.report),
            Outcome::Keep(report) => ("keep", Vec::new(), report),
            Outcome::Finalized(report) => ("finalized", Vec::new(), report),
        };
        Self {
            outcome: Some(outcome),
            fault: None,
            children,
            report: Some(report),
        }
    }

    /// No answer.
    pub fn failed(kind: &'static str, message: String) -> Self {
        Self {
            fault: Some(SaidFault { kind, message }),
            ..Self::default()
        }
    }

    /// All of it but the reads.
    pub fn to_json(&self) -> Map<String, Value> {
        let Self {
            outcome,
            fault,
            children,
            report,
        } = self;
        let default = Report::default();
        let Report {
            status,
            conditions,
            events,
            requeue_after_ms,
        } = report.as_ref().unwrap_or(&default);
        let conditions = conditions.iter().map(|condition| {
            json!({
                "type": condition.kind,
                "status": condition.status.as_str(),
                "reason": condition.reason,
                "message": condition.message,
            })
        });
        let events = events.iter().map(|event| {
            json!({
                "type": match event.kind {
                    EventType::Normal => "Normal",
                    EventType::Warning => "Warning",
                },
                "reason": event.reason,
                "message": event.message,
            })
        });
        let fault = fault.as_ref();
        let fields = [
            ("outcome", json!(outcome)),
            (
                "fault",
                json!(fault.map(|fault| json!({"kind": fault.kind, "message": fault.message}))),
            ),
            ("children", children.iter().map(child).collect()),
            ("status", json!(status)),
            ("conditions", conditions.collect()),
            ("events", events.collect()),
            ("requeueAfterMs", json!(requeue_after_ms)),
        ];
        fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

const fn fault_kind(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Retry => "retry",
        FaultKind::Invalid => "invalid",
        FaultKind::Fatal => "fatal",
    }
}

fn child(child: &Child) -> Value {
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
        "generate": child.generate.iter().map(|entry| json!({
            "key": entry.key,
            "length": entry.length,
            "alphabet": entry.alphabet,
        })).collect::<Vec<_>>(),
        "object": plan::stated(child),
    })
}

/// A read as JSON.
pub fn read_to_json(key: &ReadKey) -> Value {
    let mut read = Map::new();
    match key {
        ReadKey::Get(ObjectRef {
            kind,
            namespace,
            name,
        }) => {
            read.insert("verb".to_owned(), "get".into());
            read.insert("apiVersion".to_owned(), kind.api_version().into());
            read.insert("kind".to_owned(), (*kind.kind).into());
            read.insert("namespace".to_owned(), json!(namespace.as_deref()));
            read.insert("name".to_owned(), (**name).into());
        }
        ReadKey::List(ListSelector {
            kind,
            namespace,
            label_selector,
        }) => {
            read.insert("verb".to_owned(), "list".into());
            read.insert("apiVersion".to_owned(), kind.api_version().into());
            read.insert("kind".to_owned(), (*kind.kind).into());
            read.insert("namespace".to_owned(), json!(namespace.as_deref()));
            read.insert("labelSelector".to_owned(), json!(label_selector.as_deref()));
        }
    }
    Value::Object(read)
}
