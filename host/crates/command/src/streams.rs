//! The standard streams of a command, and the exit codes of all commands.

use std::{
    error::Error,
    io::{self, Read, Write},
    process::ExitCode,
};

use innkeeper_model::{Blame, error_chain};
use innkeeper_sandbox as plugin;

use super::plain;

/// The standard streams; tests give others.
pub struct Streams<'a> {
    /// The input that `-` names.
    pub stdin: &'a mut dyn Read,
    /// The output of the command.
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

    /// Writes an error with its causes as one line.
    pub fn report(&mut self, error: &(dyn Error + 'static)) {
        let text = format!("error: {}", error_chain(error));
        self.note(&text);
    }

    /// Writes a text to the standard error, without control characters: errors hold texts of guests and servers.
    pub fn note(&mut self, text: &str) {
        for line in text.split('\n') {
            // A closed standard error must not fail the command.
            drop(writeln!(self.stderr, "{}", plain(line)));
        }
    }
}

/// The end of a command, which decides the exit code of the process.
///
/// The codes are the same for every command:
///
/// | code | variant | meaning |
/// |---|---|---|
/// | 0 | `Success` | the command did its work, and its answer is good |
/// | 1 | `Failure` | the command failed: a server does not answer or refuses, a build fails, a disk is full |
/// | 2 | `Usage` | the command line, the environment, or a file that they name cannot be used |
/// | 3 | `Finding` | the command did its work, and its answer is bad: not Ready, refused, rejected, different |
/// | 128 + n | `Signal` | a second signal with number n cut off `run` or `dev`; shells report killed processes so |
///
/// The hidden command `compile` is the exception: its codes are a private protocol between the host and the compiler
/// process, see [`child`](fn@plugin::artifact::child).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command did its work, and its answer is good.
    Success,
    /// The command failed.
    Failure,
    /// The command line, the environment, or a file that they name cannot be used.
    Usage,
    /// The command did its work, and its answer is bad.
    Finding,
    /// A second signal with this number cut off the host.
    Signal(u8),
}

impl Exit {
    /// Returns the end of a command after a failure of a source.
    pub const fn of_blame(blame: Blame) -> Self {
        match blame {
            Blame::Guest => Self::Finding,
            Blame::Parent | Blame::Host => Self::Usage,
            Blame::Cluster => Self::Failure,
        }
    }

    /// Returns the end of a command that could not start or describe a plugin.
    pub const fn of_plugin(error: &plugin::Error) -> Self {
        match error {
            plugin::Error::Link { .. }
            | plugin::Error::Describe { .. }
            | plugin::Error::Manifest { .. }
            | plugin::Error::Embedded { .. } => Self::Finding,
            plugin::Error::Config { .. } => Self::Usage,
            plugin::Error::ConfigureEngine { .. }
            | plugin::Error::MapAgain { .. }
            | plugin::Error::StartThread { .. }
            | plugin::Error::PoolClosed => Self::Failure,
        }
    }

    /// The exit code of the process.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::Finding => 3,
            Self::Signal(number) => 128_u8.saturating_add(number),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The examples in the help of a command; a test parses each of them.
#[macro_export]
macro_rules! examples {
    ($($example:literal),+) => {
        concat!("Examples:\n", $("  ", $example, "\n",)+ "\n")
    };
}

/// The exit codes in the help of a command, with the meaning of a finding if the command has findings.
#[macro_export]
macro_rules! exit_codes {
    () => {
        "Exit codes:\n  0  success\n  1  failure\n  2  the command line, the environment, or a file that they name cannot be used"
    };
    ($finding:literal) => {
        concat!(
            $crate::exit_codes!(),
            "\n  3  ",
            $finding
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_no_escape_sequences() {
        let mut stderr = Vec::new();
        let mut streams = Streams {
            stdin: &mut io::empty(),
            stdout: &mut io::sink(),
            stderr: &mut stderr,
        };
        streams.note("error: \u{1b}[2Jgone\n  at line 3");
        assert_eq!(stderr, b"error: [2Jgone\n  at line 3\n");
    }
}
