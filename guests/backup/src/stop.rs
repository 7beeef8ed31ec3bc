//! Why nothing can be stated this time.

use innkeeper_sdk::{host::ReadError, prelude::*};

/// Why nothing can be stated this time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The parent itself is wrong.
    Invalid(String),
    /// What the parent refers to is missing or wrong: what is there goes on as it is.
    Blocked {
        /// The reason of the condition `Ready`.
        reason: &'static str,
        /// Its message.
        message: String,
    },
    /// It passes by itself.
    Fault(Fault),
}

impl Stop {
    /// A related object that cannot be rendered.
    pub(crate) fn invalid_reference(message: impl Into<String>) -> Self {
        Self::Blocked {
            reason: "InvalidReference",
            message: message.into(),
        }
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
