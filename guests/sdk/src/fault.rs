//! Why a pass has no answer.

use std::fmt;

use crate::host::ReadError;
use crate::outcome::Report;

/// The kind of a [`Fault`], which decides when the next pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Something passes by itself: tried again with back-off.
    Retry,
    /// The parent or what it refers to is wrong: tried again when an input changes.
    Invalid,
    /// The plugin itself is wrong: tried again with another revision or configuration.
    Fatal,
}

/// The reconciler could not answer; no child is touched.
///
/// ```
/// use innkeeper_sdk::fault::{Fault, FaultKind};
///
/// let fault = Fault::invalid("spec.size: must be odd");
/// assert_eq!(fault.kind, FaultKind::Invalid);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind of failure.
    pub kind: FaultKind,
    /// A sentence for people: what is wrong, where, and what to do.
    pub message: String,
    /// Status and conditions; none leaves them as they are.
    pub report: Option<Box<Report>>,
}

impl Fault {
    /// Something passes by itself: tried again with back-off.
    pub fn retry(message: impl Into<String>) -> Self {
        Self::new(FaultKind::Retry, message)
    }

    /// The parent or what it refers to is wrong: tried again when an input changes.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(FaultKind::Invalid, message)
    }

    /// The plugin itself is wrong: tried again with another revision or configuration.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self::new(FaultKind::Fatal, message)
    }

    /// Says status and conditions all the same.
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

/// A read without an answer is tried again: grants and served kinds change without the parent.
impl From<ReadError> for Fault {
    fn from(error: ReadError) -> Self {
        Self::retry(error.to_string())
    }
}
