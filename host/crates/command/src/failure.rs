//! A failure ends a command: message, cause and exit code.

use std::error::Error;

use innkeeper_source as source;

use crate::{Exit, Streams};

/// A failure that ends a command.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    exit: Exit,
    message: String,
    #[source]
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// Creates a failure without a source.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            source: None,
        }
    }

    /// The exit code.
    pub const fn exit(&self) -> Exit {
        self.exit
    }
}

impl Streams<'_> {
    /// Returns a command's exit code, and reports a failure.
    pub fn end(&mut self, result: Result<Exit, Failure>) -> Exit {
        result.unwrap_or_else(|failure| {
            self.report(&failure);
            failure.exit
        })
    }
}

impl From<source::Error> for Failure {
    fn from(error: source::Error) -> Self {
        Self {
            exit: Exit::from_blame(error.source.blame()),
            message: error.to_string(),
            source: Some(error.source.into()),
        }
    }
}

/// Results whose error ends the command.
pub trait OrFail<T, E>: Sized {
    /// Turns the error into a failure's source; the exit code depends on the error.
    fn or_fail_by(
        self,
        exit: impl FnOnce(&E) -> Exit,
        message: impl Into<String>,
    ) -> Result<T, Failure>;

    /// Turns the error into a failure's source.
    fn or_fail(self, exit: Exit, message: impl Into<String>) -> Result<T, Failure> {
        self.or_fail_by(|_| exit, message)
    }
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> OrFail<T, E> for Result<T, E> {
    fn or_fail_by(
        self,
        exit: impl FnOnce(&E) -> Exit,
        message: impl Into<String>,
    ) -> Result<T, Failure> {
        self.map_err(|source| Failure {
            exit: exit(&source),
            message: message.into(),
            source: Some(source.into()),
        })
    }
}
