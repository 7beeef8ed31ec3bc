//! Why an answer is refused.

use innkeeper_model::{Blame, Retry, reason};

/// An answer that is refused as a whole; nothing of it is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    reason: &'static str,
    message: String,
}

impl Rejection {
    /// The answer breaks a rule of the contract.
    pub(super) fn output(message: impl Into<String>) -> Self {
        Self {
            reason: reason::OUTPUT_REJECTED,
            message: message.into(),
        }
    }

    /// The answer holds a child that the plugin may not have.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self {
            reason: reason::CHILD_FORBIDDEN,
            message: message.into(),
        }
    }

    /// Names the child, by its key, that the rejection is about.
    pub(super) fn in_child(self, key: &str) -> Self {
        Self {
            message: format!("child \"{key}\": {}", self.message),
            ..self
        }
    }

    /// The reason for the condition `Synced`: `OutputRejected` or `ChildForbidden`.
    pub const fn reason(&self) -> &'static str {
        self.reason
    }

    /// The same word as [`Rejection::reason`], as every error of a pass has it.
    pub const fn category(&self) -> &'static str {
        self.reason
    }

    /// What is wrong, where, and what to do.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// A refused answer is the guest's doing.
    pub const fn blame(&self) -> Blame {
        Blame::Guest
    }

    /// The same input gives the same answer, so only another input can help.
    pub const fn retry(&self) -> Retry {
        Retry::OnChange
    }
}
