//! Faults: the reasons for which a pass has no answer.

use std::fmt;

use crate::host::ReadError;
use crate::outcome::Report;

/// The kind of a [`Fault`], which decides when the next pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The cause is temporary: the host tries again with back-off.
    Retry,
    /// The parent or an object that it names is wrong: the host tries again when an input changes.
    Invalid,
    /// The plugin itself is wrong: the host tries again when an input changes, the configuration included.
    Fatal,
}

/// The result of a pass without an answer; the host changes no child.
///
/// ```
/// use innkeeper_sdk::fault::{Fault, FaultKind};
///
/// let fault = Fault::invalid("spec.size: must be odd");
/// assert_eq!(fault.kind, FaultKind::Invalid);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind, which decides when the next pass runs.
    pub kind: FaultKind,
    /// A sentence for users: the problem, the field, and the remedy.
    pub message: String,
    /// Status and conditions of the parent; none leaves the stored ones as they are.
    pub report: Option<Box<Report>>,
}

impl Fault {
    /// A fault with a temporary cause: the host tries again with back-off.
    pub fn retry(message: impl Into<String>) -> Self {
        Self::new(FaultKind::Retry, message)
    }

    /// A fault of the parent or of an object that it names: the host tries again when an input
    /// changes.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(FaultKind::Invalid, message)
    }

    /// A fault of the plugin itself: the host tries again when an input changes, the configuration included.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self::new(FaultKind::Fatal, message)
    }

    /// Adds status and conditions to the fault.
    pub fn with_report(mut self, report: Report) -> Self {
        self.report = Some(Box::new(report));
        self
    }

    fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            report: None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

/// A failed read becomes `retry`: grants and served kinds change without the parent.
impl From<ReadError> for Fault {
    fn from(error: ReadError) -> Self {
        Self::retry(error.to_string())
    }
}
