//! Helpers for the tests of several commands.

use innkeeper_command::{Exit, Failure, Streams};

/// Runs a command; returns the exit code, the output, and the warnings and errors.
pub(crate) fn captured(
    mut stdin: &[u8],
    command: impl FnOnce(&mut Streams<'_>) -> Result<Exit, Failure>,
) -> (Exit, String, String) {
    let mut stdout = Vec::new();
    let mut stderr = Vec::new();
    let mut streams = Streams::new(&mut stdin, &mut stdout, &mut stderr);
    let result = command(&mut streams);
    let exit = streams.end(result);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (exit, text(stdout), text(stderr))
}
