//! The whole outcome of a pass as JSON.

use innkeeper_model::ReadKey;
use innkeeper_policy::{self as policy, Rules};
use innkeeper_sandbox::{End, Said, read_to_json};
use serde_json::Value;

/// Checks what the guest answered, as the host does.
pub(super) fn checked(end: End, rules: &Rules<'_>) -> Said {
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
        Ok(end) => Said::from(end),
        Err(rejection) => Said::failed(rejection.reason(), rejection.message().to_owned()),
    }
}

/// The outcome as one JSON object and a line feed.
pub(super) fn json(said: &Said, reads: &[ReadKey], fuel: Option<u64>) -> String {
    let mut fields = said.to_json();
    let reads: Vec<Value> = reads.iter().map(read_to_json).collect();
    fields.insert("reads".to_owned(), reads.into());
    fields.insert("fuel".to_owned(), fuel.into());
    format!("{:#}\n", Value::Object(fields))
}
