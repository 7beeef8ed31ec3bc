//! The error for an answer that breaks a rule.

use innkeeper_model::reason;

/// The reason for rejecting an answer as a whole; the host writes no part of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    reason: &'static str,
    message: String,
}

impl Rejection {
    /// Makes a rejection of an answer that breaks a rule of the contract.
    pub(super) fn output(message: impl Into<String>) -> Self {
        Self {
            reason: reason::OUTPUT_REJECTED,
            message: message.into(),
        }
    }

    /// Makes a rejection of an answer with a child that the plugin may not create.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self {
            reason: reason::CHILD_FORBIDDEN,
            message: message.into(),
        }
    }

    /// Puts the key of the child that caused the rejection before the message.
    pub(super) fn in_child(self, key: &str) -> Self {
        Self {
            message: format!("child \"{key}\": {}", self.message),
            ..self
        }
    }

    /// Returns the reason for the condition `Synced`: `OutputRejected` or `ChildForbidden`.
    pub const fn reason(&self) -> &'static str {
        self.reason
    }

    /// Returns the defect, its place in the answer and the remedy.
    pub fn message(&self) -> &str {
        &self.message
    }
}
