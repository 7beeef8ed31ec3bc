//! The reasons for which a pass states no children.

use innkeeper_sdk::{host::ReadError, prelude::*};

/// The reason for which a pass states no children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The parent itself has an error.
    Invalid(String),
    /// A referenced object is missing or has an error. The children stay as they are.
    Blocked {
        /// Reason of the condition `Ready`.
        reason: &'static str,
        /// The condition's message.
        message: String,
    },
    /// A temporary error. The host tries again.
    Fault(Fault),
}

impl Stop {
    pub(crate) fn blocked(reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::Blocked { reason, message }
    }

    /// A related object that cannot be rendered.
    pub(crate) fn invalid_reference(message: impl Into<String>) -> Self {
        Self::blocked("InvalidReference", message)
    }

    /// Returns the answer with the report about this problem: the children stay as they are.
    ///
    /// A working schedule continues with the last good configuration, and the creation of a missing object starts a pass.
    pub(crate) fn outcome(
        self,
        report: impl FnOnce(&str, &str) -> Report,
    ) -> Result<Answer, Fault> {
        match self {
            Self::Blocked { reason, message } => Ok(Answer::keep(report(reason, &message))),
            Self::Invalid(problem) => {
                let report = report("Invalid", &problem);
                Err(Fault::invalid(problem).with_report(report))
            }
            Self::Fault(fault) => Err(fault),
        }
    }
}

/// An error in the parent.
impl From<String> for Stop {
    fn from(problem: String) -> Self {
        Self::Invalid(problem)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        Self::Fault(error.into())
    }
}
