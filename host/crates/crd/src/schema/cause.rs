//! The reasons for a rejection.

use serde_json::Value;

/// The longest value that a message shows, in bytes: one terminal line with a path beside it.
const SHOWN_BYTES_MAX: usize = 60;

/// One reason for a rejection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{path}: {message}")]
pub struct RejectionCause {
    /// The field: `spec.containers[0].name`; `the object` for all of it.
    pub path: String,
    /// The problem, as a sentence without a subject: `is required`.
    pub message: String,
    /// The API server evaluates no rule on an object with such a problem.
    pub(super) blocks_rules: bool,
}

impl RejectionCause {
    /// A value with the right type that breaks a constraint.
    pub(super) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        let mut path = path.into();
        if path.is_empty() {
            "the object".clone_into(&mut path);
        }
        Self {
            path,
            message: message.into(),
            blocks_rules: false,
        }
    }

    /// The same; `blocks_rules` for a problem that makes rule results meaningless, such as a wrong type.
    pub(super) fn blocking(self, blocks_rules: bool) -> Self {
        Self {
            blocks_rules,
            ..self
        }
    }
}

/// Returns all causes in one line.
pub(super) fn joined(causes: &[RejectionCause], separator: &str) -> String {
    let causes: Vec<String> = causes.iter().map(ToString::to_string).collect();
    causes.join(separator)
}

/// Returns a value as a message shows it; a long one is only mentioned.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.len() > SHOWN_BYTES_MAX {
        "the value".to_owned()
    } else {
        text
    }
}

/// An object that the API server would reject with 422.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{subject} is invalid: {}", joined(causes, "; "))]
pub struct Rejection {
    pub(super) subject: String,
    pub(super) causes: Vec<RejectionCause>,
}

impl Rejection {
    /// The reasons, ordered by path; at least one, none twice.
    pub fn causes(&self) -> &[RejectionCause] {
        &self.causes
    }
}
