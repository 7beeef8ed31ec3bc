//! A command's standard streams, and the exit codes of all commands.

use std::{
    error::Error,
    io::{self, Read, Write},
    process::ExitCode,
};

use innkeeper_model::{Blame, error_chain};
use strum::{EnumIter, EnumMessage, IntoEnumIterator as _};

use super::{Failure, OrFail as _, Output, plain::plain_lines};

/// The standard streams, or their replacements in tests.
pub struct Streams<'a> {
    /// The input that `-` names.
    pub stdin: &'a mut dyn Read,
    stdout: &'a mut dyn Write,
    stderr: &'a mut dyn Write,
}

impl<'a> Streams<'a> {
    /// Creates a command's streams: `stdout` for results, `stderr` for warnings and errors.
    pub fn new(
        stdin: &'a mut dyn Read,
        stdout: &'a mut dyn Write,
        stderr: &'a mut dyn Write,
    ) -> Self {
        Self {
            stdin,
            stdout,
            stderr,
        }
    }
}

impl Streams<'_> {
    /// Runs a command with the process's streams.
    pub fn for_process<T>(command: impl FnOnce(&mut Streams<'_>) -> T) -> T {
        command(&mut Streams::new(
            &mut io::stdin(),
            &mut io::stdout(),
            &mut io::stderr(),
        ))
    }

    /// Writes an error with its causes.
    pub fn report(&mut self, error: &(dyn Error + 'static)) {
        let text = format!("error: {}", error_chain(error));
        self.note(&text);
    }

    /// Writes a text to standard error, sanitized: errors contain texts from guests and servers.
    pub fn note(&mut self, text: &str) {
        // A closed standard error must not fail the command.
        drop(writeln!(self.stderr, "{}", plain_lines(text)));
    }

    /// Writes a part of the output and flushes it; fails if standard output is closed or full.
    pub fn print(&mut self, output: &Output) -> Result<(), Failure> {
        self.print_own(output.as_str().as_bytes())
    }

    /// Writes a text without foreign content.
    pub fn print_own(&mut self, text: &[u8]) -> Result<(), Failure> {
        self.stdout
            .write_all(text)
            .and_then(|()| self.stdout.flush())
            .or_fail(Exit::Failure, "failed to write the result")
    }
}

/// The result of a command. All commands have the same exit codes; the reference page has the comments of the variants.
///
/// Except for the hidden command `compile`: its codes are a private protocol of the host and the compiler process, see
/// `innkeeper_sandbox::artifact::child`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumIter, EnumMessage)]
pub enum Exit {
    /// The command succeeded with a good answer.
    Success,
    /// The command failed: a server does not answer or refuses, a build fails, a disk is full.
    Failure,
    /// The command line, the environment, or a file that they name cannot be used.
    Usage,
    /// The command succeeded with a bad answer: not Ready, refused, rejected, different.
    Finding,
    /// A second signal n aborted `run` or `dev`, as shells report killed processes.
    Signal(u8),
}

impl Exit {
    /// Returns each code with the comment above, for the reference page; 128 stands for all signals.
    pub fn documented() -> impl Iterator<Item = (u8, &'static str)> {
        Self::iter().map(|exit| (exit.code(), exit.get_documentation().unwrap_or_default()))
    }

    /// Returns the result after a source failed.
    pub const fn from_blame(blame: Blame) -> Self {
        match blame {
            Blame::Guest => Self::Finding,
            Blame::Parent | Blame::Host => Self::Usage,
            Blame::Cluster => Self::Failure,
        }
    }

    /// The process's exit code.
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

/// The examples in a command's help; a test parses each of them.
#[macro_export]
macro_rules! examples {
    ($($example:literal),+) => {
        concat!("Examples:\n", $("  ", $example, "\n",)+ "\n")
    };
}

/// The exit codes in a command's help, with the meaning of code 3 if the command uses it.
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
        let mut stdin = io::empty();
        let mut stdout = io::sink();
        Streams::new(&mut stdin, &mut stdout, &mut stderr)
            .note("error: \u{1b}[2Jgone\n  at line 3\nerror: forged");
        assert_eq!(stderr, b"error: [2Jgone\n    at line 3\n  error: forged\n");
    }
}
