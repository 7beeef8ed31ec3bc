//! The whole outcome of a pass as JSON.

use serde_json::{Map, Value, json};

use crate::{
    model::{
        ApplyPolicy, Child, ConditionStatus, EventType, FaultKind, ListSelector, ObjectRef,
        Outcome, ReadKey, Readiness, RemovalPolicy, Report, reason,
    },
    plan,
    plugin::End,
    policy::{self, Rules},
};

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// `retry`, `invalid` or `fatal` of the guest, or the host's reason.
    pub(super) kind: &'static str,
    pub(super) message: String,
}

/// What a pass ended with, checked.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Rendered {
    pub(super) outcome: Option<&'static str>,
    pub(super) fault: Option<Fault>,
    pub(super) children: Vec<Child>,
    pub(super) report: Option<Report>,
}

impl Rendered {
    /// Checks what the guest answered, as the host does.
    pub(super) fn new(end: End, rules: &Rules<'_>) -> Self {
        match end {
            End::Answered(outcome) => match policy::check(outcome, rules) {
                Ok(outcome) => Self::answered(outcome.into_inner()),
                Err(rejection) => Self::failed(rejection.reason(), rejection.message().to_owned()),
            },
            End::GuestFault(fault) => match policy::check_fault(fault, rules) {
                Ok(fault) => {
                    let fault = fault.into_inner();
                    Self {
                        report: fault.report,
                        ..Self::failed(fault_kind(fault.kind), fault.message)
                    }
                }
                Err(rejection) => Self::failed(rejection.reason(), rejection.message().to_owned()),
            },
            End::Faulted(fault) => Self::failed(fault.category(), fault.to_string()),
            // Offline nothing is ever waited for.
            End::Parked(kind) => {
                Self::failed(reason::WAITING_FOR_CACHE, format!("{kind} is not there"))
            }
        }
    }

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

    fn failed(kind: &'static str, message: String) -> Self {
        Self {
            fault: Some(Fault { kind, message }),
            ..Self::default()
        }
    }
}

const fn fault_kind(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Retry => "retry",
        FaultKind::Invalid => "invalid",
        FaultKind::Fatal => "fatal",
    }
}

/// The outcome as one JSON object and a line feed.
pub(super) fn json(rendered: &Rendered, reads: &[ReadKey], fuel: Option<u64>) -> String {
    let Rendered {
        outcome,
        fault,
        children,
        report,
    } = rendered;
    let default = Report::default();
    let Report {
        status,
        conditions,
        events,
        requeue_after_ms,
    } = report.as_ref().unwrap_or(&default);
    let value = json!({
        "outcome": outcome,
        "fault": fault.as_ref().map(|fault| json!({"kind": fault.kind, "message": fault.message})),
        "children": children.iter().map(child).collect::<Vec<_>>(),
        "status": status,
        "conditions": conditions.iter().map(|condition| json!({
            "type": condition.kind,
            "status": match condition.status {
                ConditionStatus::True => "True",
                ConditionStatus::False => "False",
                ConditionStatus::Unknown => "Unknown",
            },
            "reason": condition.reason,
            "message": condition.message,
        })).collect::<Vec<_>>(),
        "events": events.iter().map(|event| json!({
            "type": match event.kind {
                EventType::Normal => "Normal",
                EventType::Warning => "Warning",
            },
            "reason": event.reason,
            "message": event.message,
        })).collect::<Vec<_>>(),
        "requeueAfterMs": requeue_after_ms,
        "reads": reads.iter().map(read).collect::<Vec<_>>(),
        "fuel": fuel,
    });
    format!("{value:#}\n")
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

fn read(key: &ReadKey) -> Value {
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
