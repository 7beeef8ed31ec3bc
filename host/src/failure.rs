//! The failure that ends a command: a message with its cause, and the exit code.

use std::error::Error;

use crate::config::{Exit, Streams};

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
    /// Returns a failure without another error behind it.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            source: None,
        }
    }

    /// The end of the command.
    pub const fn exit(&self) -> Exit {
        self.exit
    }
}

impl Streams<'_> {
    /// Writes a part of the output.
    pub(crate) fn print(&mut self, text: &str) -> Result<(), Failure> {
        self.write(text.as_bytes())
            .or_fail(Exit::Failure, "failed to write the result")
    }
}

/// Results whose error ends the command.
pub(crate) trait OrFail<T> {
    /// Returns the error as the cause of a failure.
    fn or_fail(self, exit: Exit, message: impl Into<String>) -> Result<T, Failure>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> OrFail<T> for Result<T, E> {
    fn or_fail(self, exit: Exit, message: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|source| Failure {
            source: Some(source.into()),
            ..Failure::new(exit, message)
        })
    }
}
