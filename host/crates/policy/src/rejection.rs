//! The error for an answer that violates a rule.

use innkeeper_model::reason;

/// The rejection of a whole answer: the host writes no part of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    reason: &'static str,
    message: String,
}

impl Rejection {
    /// Rejects an answer that violates the contract.
    pub(super) fn output(message: impl Into<String>) -> Self {
        Self {
            reason: reason::OUTPUT_REJECTED,
            message: message.into(),
        }
    }

    /// Rejects an answer with a child that the plugin may not create.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self {
            reason: reason::CHILD_FORBIDDEN,
            message: message.into(),
        }
    }

    /// Puts the child's key before the message.
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

    /// Returns the defect, where it is in the answer, and the remedy.
    pub fn message(&self) -> &str {
        &self.message
    }
}
