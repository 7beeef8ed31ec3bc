//! The pages below `host/docs/reference` are generated from the code and up to date.
//!
//! Meanings and remedies come from the doc comments of constants, variants and fields.

mod conditions;
mod guests;
mod limits;
mod names;
mod plugin;

use std::{collections::BTreeMap, fmt::Write as _};

use clap::{Arg, Command, CommandFactory};
use expect_test::expect_file;
use innkeeper::config::Cli;
use innkeeper_command::Exit;
use innkeeper_tests::manifest::root;

/// Why a write to a `String` does not fail.
const TAKES_ANY_TEXT: &str = "a String takes any text";

/// The directory with the pages.
const DIRECTORY: &str = "host/docs/reference";

/// Compares a page with the file.
fn check(name: &str, title: &str, opening: &str, body: &str) {
    let marker = "<!-- Generated: UPDATE_EXPECT=1 cargo test --release --locked -p innkeeper-tests --test tidy reference. Do not edit. -->";
    let page = format!("{marker}\n\n# {title}\n\n{opening}\n\n{}\n", body.trim());
    expect_file![root().join(DIRECTORY).join(name)].assert_eq(&page);
}

/// Returns a table with one row for each item.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let row = |cells: [String; N]| format!("| {} |\n", cells.join(" | "));
    let mut text = row(head.map(str::to_owned));
    writeln!(text, "|{}", "---|".repeat(N)).expect(TAKES_ANY_TEXT);
    text.extend(rows.into_iter().map(row));
    text
}

/// Escapes a text for one cell.
fn cell(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}

/// Formats a text as a sentence in a cell.
fn sentence(text: &str) -> String {
    let text = cell(text);
    let ends = text.is_empty() || text.ends_with(['.', ':', '?']);
    if ends { text } else { format!("{text}.") }
}

fn cli() -> Command {
    let mut cli = Cli::command();
    cli.build();
    cli
}

/// Returns the commands that the help shows.
fn commands(cli: &Command) -> Vec<&Command> {
    cli.get_subcommands()
        .filter(|argument| !argument.is_hide_set() && argument.get_name() != "help")
        .collect()
}

/// Returns the command's purpose as a sentence.
fn about(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string);
    sentence(&about.unwrap_or_default())
}

fn flag(arg: &Arg) -> String {
    let values: Vec<&str> = arg
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(clap::builder::Str::as_str)
        .collect();
    let takes = arg.get_action().takes_values();
    match (arg.get_long(), arg.get_short()) {
        (Some(long), short) => {
            let short = short
                .map(|short| format!("`-{short}`, "))
                .unwrap_or_default();
            let is_optional = arg
                .get_num_args()
                .is_some_and(|count| count.min_values() == 0);
            let value = match (takes, is_optional) {
                (false, _) => String::new(),
                (true, false) => format!(" {}", values.join(" ")),
                // As the help shows a value that needs an equals sign.
                (true, true) => format!("[={}]", values.join(" ")),
            };
            format!("{short}`--{long}{value}`")
        }
        (None, _) => format!("`{}`", values.join(" ")),
    }
}

fn help(arg: &Arg) -> String {
    let text = arg
        .get_long_help()
        .or_else(|| arg.get_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    let paragraphs: Vec<String> = text.split("\n\n").map(sentence).collect();
    let mut text = paragraphs.join(" ");
    let is_bare = !arg.get_action().takes_values();
    let values = arg.get_possible_values();
    if !values.is_empty() && !is_bare {
        let names: Vec<String> = values
            .iter()
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        write!(text, " Values: {}.", names.join(", ")).expect(TAKES_ANY_TEXT);
    }
    let defaults = arg.get_default_values();
    if !defaults.is_empty() && !is_bare && !arg.is_hide_default_value_set() {
        let defaults: Vec<_> = defaults
            .iter()
            .map(|value| value.to_string_lossy())
            .collect();
        write!(text, " Default: `{}`.", defaults.join(",")).expect(TAKES_ANY_TEXT);
    }
    if let Some(env) = arg.get_env() {
        write!(text, " Environment: `{}`.", env.to_string_lossy()).expect(TAKES_ANY_TEXT);
    }
    text
}

/// Returns the lines below a heading in the text after the flags.
fn after_help(command: &Command, heading: &str) -> Vec<String> {
    let text = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    text.lines()
        .skip_while(|line| *line != heading)
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .map(|line| line.trim().to_owned())
        .collect()
}

/// The flags shown in a command's help.
fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_shown = |arg: &&Arg| {
        !arg.is_hide_set()
            && arg.get_id() != "help"
            && arg.get_id() != "version"
            && !arg.is_global_set()
    };
    command.get_arguments().filter(is_shown)
}

fn row(arg: &Arg) -> [String; 2] {
    [cell(&flag(arg)), help(arg)]
}

/// Returns the commands for each flag row.
fn owners(commands: &[&Command]) -> Vec<([String; 2], Vec<String>)> {
    let mut owners: Vec<([String; 2], Vec<String>)> = Vec::new();
    for command in commands {
        let name = command.get_name().to_owned();
        for row in flags(command).map(row) {
            match owners.iter_mut().find(|(other, _)| *other == row) {
                Some((_, names)) => names.push(name.clone()),
                None => owners.push((row, vec![name.clone()])),
            }
        }
    }
    owners
}

/// Returns the link to the section that describes a flag, if it is not the command's own: the host's limits, the section of
/// shared flags (at least three commands), or an earlier command's.
fn described_elsewhere(command: &Command, arg: &Arg, names: &[String]) -> Option<String> {
    match names {
        [first, ..] if first == command.get_name() && limits::is_limit(arg) => {
            Some("[Limits](limits.md#limits-of-the-host)".to_owned())
        }
        [_, _, _, ..] => Some("[Shared flags](#shared-flags)".to_owned()),
        [first, ..] if first != command.get_name() => {
            Some(format!("As for [`{first}`](#innkeeper-{first})"))
        }
        _ => None,
    }
}

fn section(command: &Command, owners: &[([String; 2], Vec<String>)]) -> String {
    let name = command.get_name();
    let mut text = format!("## innkeeper {name}\n\n");
    let examples = after_help(command, "Examples:").join("\n");
    writeln!(text, "```text\n{examples}\n```\n").expect(TAKES_ANY_TEXT);
    let mut tables: Vec<(Option<&str>, Vec<[String; 2]>)> = Vec::new();
    let mut others: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for arg in flags(command) {
        let row = row(arg);
        let heading = arg.get_help_heading();
        let owners = owners.iter().find(|(other, _)| *other == row);
        let link = owners.and_then(|(_, names)| described_elsewhere(command, arg, names));
        if let Some(link) = link {
            let name = arg.get_long().map(|long| format!("`--{long}`"));
            let name = name.unwrap_or_else(|| flag(arg));
            others.entry(link).or_default().push(name);
        } else if let Some((_, rows)) = tables.iter_mut().find(|(other, _)| *other == heading) {
            rows.push(row);
        } else {
            tables.push((heading, vec![row]));
        }
    }
    for (heading, rows) in tables {
        let table = table([heading.unwrap_or("flag"), "effect"], rows);
        writeln!(text, "{table}").expect(TAKES_ANY_TEXT);
    }
    for (link, flags) in others {
        writeln!(text, "{link}: {}.\n", flags.join(", ")).expect(TAKES_ANY_TEXT);
    }
    text
}

#[test]
fn the_page_of_the_command_line_is_up_to_date() {
    let cli = cli();
    let commands = commands(&cli);
    let lines = commands.iter().map(|command| {
        let name = command.get_name();
        format!("- [`{name}`](#innkeeper-{name}): {}\n", about(command))
    });
    let mut body: String = lines.collect();
    let log = cli
        .get_arguments()
        .filter(|arg| arg.is_global_set())
        .map(|arg| [cell(&flag(arg)), help(arg)]);
    let owners = owners(&commands);
    let shared = owners.iter().filter(|(_, names)| names.len() > 2);
    write!(
        body,
        "\nEvery command accepts these flags:\n\n{}\n## Shared flags\n\nSeveral commands accept these:\n\n{}\n`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` apply to registries.\n\n",
        table(["flag", "effect"], log),
        table(["flag", "effect"], shared.map(|(row, _)| row.clone()))
    )
    .expect(TAKES_ANY_TEXT);
    let sections = commands
        .into_iter()
        .map(|command| section(command, &owners));
    body.extend(sections);
    let opening = "All commands with flags, defaults and environment variables, as in `innkeeper COMMAND --help`. See [exit codes](exit-codes.md).";
    check("command-line.md", "Command line", opening, &body);
}

#[test]
fn the_page_of_exit_codes_is_up_to_date() {
    let rows = Exit::documented().map(|(code, meaning)| {
        let code = code.to_string().replace("128", "128 + n");
        [code, sentence(meaning)]
    });
    let mut body = table(["code", "meaning"], rows);
    let cli = cli();
    let rows = commands(&cli).into_iter().filter_map(|command| {
        let codes = after_help(command, "Exit codes:");
        let finding = codes.iter().find_map(|line| line.strip_prefix("3 "))?;
        Some([
            format!("`{}`", command.get_name()),
            sentence(finding.trim()),
        ])
    });
    write!(
        body,
        "\nCode 3 is a finding: the command worked, but the result is bad. Scripts can tell it from a failed command:\n\n{}",
        table(["command", "finding"], rows)
    )
    .expect(TAKES_ANY_TEXT);
    let opening = "All commands use the same exit codes.";
    check("exit-codes.md", "Exit codes", opening, &body);
}
