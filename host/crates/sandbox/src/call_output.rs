//! A call's outcome as JSON, for the output of `render` and for recordings.

use innkeeper_model::{Child, Outcome, Report, reason};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::End;

/// The reason for a missing answer.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct OutputFault {
    /// The guest's `retry`, `invalid` or `fatal`, or the host's reason.
    pub kind: &'static str,
    /// The message for users.
    pub message: String,
}

/// A call's outcome. The JSON form has every field, also an empty one.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallOutput {
    /// `desired`, `keep` or `finalized`; none without an answer.
    pub outcome: Option<&'static str>,
    /// The reason for a missing answer.
    pub fault: Option<OutputFault>,
    /// The desired children.
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

    /// Returns the outcome of a call without an answer.
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
