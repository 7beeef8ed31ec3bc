//! The commands of the README succeed exactly as printed there.
//!
//! Commands that build, install or stay up are not run here: `tests/run` calls them, and the list below names them.

use std::{fs, path::Path, process::Command};

use innkeeper_tests::process::path_from_env;

/// Commands that `tests/run` calls, with `--once` where they would stay up.
const RUN_BY_SCRIPTS: [&str; 1] = ["./examples/quickstart"];

const BINARY: &str = "target/release/innkeeper";
const GUESTS: &str = "target/guests";

#[test]
fn every_command_of_the_readme_works() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = fs::read_to_string(top.join("README.md")).expect("there is a README");
    let commands = commands(&readme);
    assert!(commands.len() > 3, "the README has commands: {commands:?}");
    let binary = path_from_env("INNKEEPER_BIN").expect("the host is built");
    let guests = path_from_env("INNKEEPER_GUESTS").expect("the guests are built");
    for command in commands {
        if RUN_BY_SCRIPTS.contains(&command) {
            continue;
        }
        let mut words = command.split_whitespace();
        assert_eq!(words.next(), Some(BINARY), "no test runs \"{command}\"");
        let arguments = words.map(|word| word.replace(GUESTS, &guests.to_string_lossy()));
        let output = Command::new(&binary)
            .args(arguments)
            .current_dir(&top)
            .output()
            .expect("the host can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {said}");
        assert!(!output.stdout.is_empty(), "{command} prints nothing");
    }
}

/// Returns the command lines of all shell blocks.
fn commands(readme: &str) -> Vec<&str> {
    let blocks = readme.split("```sh\n").skip(1);
    blocks
        .filter_map(|block| block.split_once("```"))
        .flat_map(|(block, _)| block.lines())
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}
