//! Where a command that only computes reads and writes, and how it ends.

use std::{
    error::Error,
    io::{self, Read, Write},
    process::ExitCode,
};

use innkeeper_model::{Blame, error_chain};

/// The standard streams; tests give others.
pub struct Streams<'a> {
    /// What `-` stands for as an input.
    pub stdin: &'a mut dyn Read,
    /// The result.
    pub stdout: &'a mut dyn Write,
    /// Warnings and errors.
    pub stderr: &'a mut dyn Write,
}

impl Streams<'_> {
    /// Runs a command on the streams of the process.
    pub fn of_process<T>(command: impl FnOnce(&mut Streams<'_>) -> T) -> T {
        command(&mut Streams {
            stdin: &mut io::stdin(),
            stdout: &mut io::stdout(),
            stderr: &mut io::stderr(),
        })
    }

    /// Writes the result, or a part of it that has to be seen at once.
    ///
    /// # Errors
    ///
    /// The standard output is closed or full.
    pub fn write(&mut self, result: &[u8]) -> io::Result<()> {
        self.stdout.write_all(result)?;
        self.stdout.flush()
    }

    /// How a command ended; an error is reported before.
    pub fn end<E: Error + 'static>(
        &mut self,
        result: Result<Exit, E>,
        exit: impl FnOnce(&E) -> Exit,
    ) -> Exit {
        result.unwrap_or_else(|error| {
            self.report(&error);
            exit(&error)
        })
    }

    /// Writes an error with everything that led to it as one line.
    ///
    /// A standard error that is closed is no reason to fail.
    pub fn report(&mut self, error: &(dyn Error + 'static)) {
        let text = format!("error: {}", error_chain(error));
        self.note(&text);
    }

    /// Writes a line for people to the standard error.
    pub fn note(&mut self, line: &str) {
        drop(writeln!(self.stderr, "{line}"));
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It did what it was asked to.
    Success,
    /// The object was rejected by its schema or a rule.
    Rejected,
    /// Something is not as it should be, and that is the answer.
    NotWell,
    /// The guest failed.
    GuestFault,
    /// Bad use, or an input that cannot be read.
    BadUse,
    /// A server that is needed does not answer, or refuses to.
    NoAnswer,
}

impl Exit {
    /// How a command ends that did not get what it asked others for.
    pub const fn of_blame(blame: Blame) -> Self {
        match blame {
            Blame::Guest => Self::NotWell,
            Blame::Parent | Blame::Host => Self::BadUse,
            Blame::Cluster => Self::NoAnswer,
        }
    }

    /// The code that the process ends with.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Rejected | Self::NotWell => 2,
            Self::GuestFault => 3,
            Self::BadUse => 4,
            Self::NoAnswer => 5,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
