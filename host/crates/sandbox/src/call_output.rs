//! The end of a call as JSON, for the output of `render` and for recordings.

use innkeeper_model::{
    ApplyPolicy, Child, Generated, Outcome, ReadKey, Readiness, RemovalPolicy, Report, reason,
};
use innkeeper_plan as plan;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::End;

/// The reason for a missing answer.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct OutputFault {
    /// `retry`, `invalid` or `fatal` of the guest, or the host's reason.
    pub kind: &'static str,
    /// The message for users.
    pub message: String,
}

/// The end of a call. Its JSON form names every field, also an empty one.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallOutput {
    /// `desired`, `keep` or `finalized`; none without an answer.
    pub outcome: Option<&'static str>,
    /// The reason for a missing answer.
    pub fault: Option<OutputFault>,
    /// The children of the answer.
    #[serde(serialize_with = "as_stated")]
    pub children: Vec<Child>,
    /// The statements about the parent; empty if there are none.
    #[serde(flatten)]
    pub report: Report,
}

impl From<End> for CallOutput {
    fn from(end: End) -> Self {
        match end {
            End::Answered(outcome) => Self::answered(outcome),
            End::GuestFault(fault) => Self {
                report: fault.report.unwrap_or_default(),
                ..Self::failed(fault.kind.into(), fault.message)
            },
            End::Faulted(fault) => Self::failed(fault.category(), fault.to_string()),
            // `render` has every kind at once, and a parked pass is not recorded.
            End::Parked(kind) => {
                Self::failed(reason::WAITING_FOR_CACHE, format!("{kind} is not there"))
            }
        }
    }
}

impl CallOutput {
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
            report,
        }
    }

    /// Returns the end of a call without an answer.
    pub fn failed(kind: &'static str, message: String) -> Self {
        Self {
            fault: Some(OutputFault { kind, message }),
            ..Self::default()
        }
    }

    /// Returns the JSON object.
    pub fn to_json(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            // Infallible: a struct whose keys are texts is an object.
            _ => Map::new(),
        }
    }
}

/// A child with the object as the host would state it to the API server.
#[derive(Serialize)]
struct OutputChild<'a> {
    key: &'a str,
    apply: ApplyPolicy,
    removal: RemovalPolicy,
    readiness: Readiness,
    after: &'a [String],
    generate: &'a [Generated],
    object: Map<String, Value>,
}

fn as_stated<S: Serializer>(children: &[Child], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(children.iter().map(|child| OutputChild {
        key: &child.key,
        apply: child.apply,
        removal: child.removal,
        readiness: child.readiness,
        after: &child.after,
        generate: &child.generate,
        object: plan::stated(child),
    }))
}

/// Returns a read as JSON.
pub fn read_to_json(key: &ReadKey) -> Value {
    // Infallible: its keys are texts.
    serde_json::to_value(key).unwrap_or_default()
}
