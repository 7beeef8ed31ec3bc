//! A pass's complete outcome as JSON.

use innkeeper_command::{Failure, Output};
use innkeeper_model::ReadKey;
use innkeeper_plan as plan;
use innkeeper_policy::{self as policy, Rules};
use innkeeper_sandbox::{CallOutput, End};
use serde_json::json;

/// Checks the guest's answer with the host's policy; returns each child as the host would apply it.
pub(super) fn checked(end: End, rules: &Rules<'_>) -> CallOutput {
    let checked = match end {
        End::Answered(outcome) => {
            policy::check(outcome, rules).map(|outcome| End::Answered(outcome.into_inner()))
        }
        End::GuestFault(fault) => {
            policy::check_fault(fault).map(|fault| End::GuestFault(fault.into_inner()))
        }
        end @ (End::Faulted(_) | End::Parked(_)) => Ok(end),
    };
    match checked {
        Ok(end) => {
            let mut output = CallOutput::from(end);
            for child in &mut output.children {
                child.object = plan::stated(child);
            }
            output
        }
        Err(rejection) => CallOutput::failed(rejection.reason(), rejection.message().to_owned()),
    }
}

/// Encodes the outcome as one JSON object.
pub(super) fn json(
    answer: &CallOutput,
    reads: &[ReadKey],
    fuel: Option<u64>,
) -> Result<Output, Failure> {
    let mut rendered = answer.to_json();
    rendered.insert("reads".to_owned(), json!(reads));
    rendered.insert("fuel".to_owned(), fuel.into());
    Output::json(&rendered)
}
