//! The commands `completions` and `man`, generated from the command line's definition.

use std::fs;

use clap::CommandFactory;
use innkeeper_command::{Exit, Failure, OrFail as _, Streams};

use crate::config::{Cli, CompletionsArgs, ManArgs};

/// Prints shell completions.
pub fn completions(args: &CompletionsArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    // In memory first, because the generator panics on write errors.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "innkeeper", &mut script);
    streams.print_own(&script)?;
    Ok(Exit::Success)
}

/// Writes a page for the program and one per command.
pub fn man(args: &ManArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    let directory = &args.directory;
    fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
        .or_fail(
            Exit::Failure,
            format!("failed to write the man pages to {}", directory.display()),
        )?;
    streams.note(&format!("wrote the man pages to {}", directory.display()));
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use clap_complete::Shell;

    use super::*;

    fn with_output(command: impl FnOnce(&mut Streams<'_>) -> Result<Exit, Failure>) -> String {
        let mut stdin = &b""[..];
        let mut stdout = Vec::new();
        let mut stderr = Vec::new();
        let exit = command(&mut Streams::new(&mut stdin, &mut stdout, &mut stderr));
        assert_eq!(exit.unwrap(), Exit::Success);
        String::from_utf8(stdout).unwrap()
    }

    #[test]
    fn completions_of_every_shell_know_the_flags() {
        for shell in Shell::value_variants() {
            let args = CompletionsArgs { shell: *shell };
            let script = with_output(|streams| completions(&args, streams));
            assert!(script.contains("print-grants"), "{shell}");
        }
    }

    #[test]
    fn every_command_has_a_man_page() {
        let directory = tempfile::tempdir().unwrap();
        let args = ManArgs {
            directory: directory.path().join("man"),
        };
        with_output(|streams| man(&args, streams));
        let pages: Vec<_> = fs::read_dir(&args.directory)
            .unwrap()
            .map(|page| page.unwrap().file_name())
            .collect();
        let commands = Cli::command();
        for command in commands
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
        {
            let page = format!("innkeeper-{}.1", command.get_name());
            assert!(pages.contains(&page.clone().into()), "{page}: {pages:?}");
        }
        assert!(pages.contains(&"innkeeper.1".into()), "{pages:?}");
        assert!(!pages.contains(&"innkeeper-compile.1".into()), "{pages:?}");
    }
}
