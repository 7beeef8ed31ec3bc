//! The script of a run, and the parts that it shares with the scripts of a restoration.
//!
//! The shell is that of busybox or dash. Before gobackup starts, the script checks credentials, which the plugin never
//! sees, and the files to archive. Messages name the field and never the value.
//!
//! NB: The kubelet replaces `$(NAME)` in the script if a variable of this name exists, and a name may contain
//! blanks and quotes. The script therefore has no `$(`, not even for commands; user texts go through [`quoted`].

use std::fmt::{Display, Write};

use crate::{
    plan::Plan,
    render::{Passing, SHELL},
};

/// Prints a message, which also becomes the termination message, and ends the run.
pub(crate) const FAIL: &str = include_str!("scripts/fail.sh");

/// Filters the log: replaces the values of Secrets, and writes the last lines as the termination message.
///
/// `SECRETS` lists variables, prefixes of variables (with a star) and files. The filter works line by line. It replaces
/// values of at least four characters; of a multi-line value each trimmed line of at least eight. Longer values come first,
/// because a short one may be a part of them. Programs also print values escaped and, in URLs, percent-encoded; failed
/// requests print a URL without the password, so the path of a URL is replaced too.
///
/// The message has at most 3584 bytes, which leaves room for a message of the script in the 4096 that the kubelet reads. It
/// starts with a whole character.
///
/// The filter also adds up the upload sizes in the log and writes the archive size to `.size`: the largest sum of a
/// storage, because each storage gets all chunks of the same archive. The last upload is gobackup's list of archives.
///
/// gobackup only logs that it failed to read or store this list, or to delete an archive. The filter writes the first such
/// line to `.retention` and to the end of the message.
pub(crate) const REDACT: &str = include_str!("scripts/redact.sh");

/// Prefix of the message line that says why gobackup kept more archives than `keep`.
pub(crate) const RETENTION: &str = "gobackup did not apply keep: ";

/// Checks the dumps of one database: `check_dump TYPE PATH NAME`. PATH is the dump's directory, for etcd the prefix of the
/// file, whose name ends with the endpoint.
///
/// gobackup trusts exit codes, but sqlite3 exits with 0 for a file that it cannot read, and mongodump for a database that
/// does not exist. So the function looks for the end of each format:
///
/// | format | end |
/// |---|---|
/// | pg_dump, plain | the comment `database dump complete` or `database cluster dump complete` |
/// | pg_dump, custom, directory, tar | pg_restore reads all of it |
/// | mysqldump | the comment `Dump completed` if the dump starts with a comment, or the end of the XML |
/// | mariadb-backup | the file that it writes last |
/// | mongodump | each document ends with a zero, an archive with a terminator |
/// | Redis | the opcode before the checksum |
/// | etcd | the SHA-256 of the rest |
/// | SQL Server | the directory of the zip file |
/// | InfluxDB | the manifest, and that of each compressed file |
/// | SQLite | COMMIT |
/// | Firebird | gbak's format has none that a shell can recognize |
pub(crate) const DUMPS: &str = include_str!("scripts/dumps.sh");

/// File in the run's home directory that checks one database: `check-dump TYPE KEY NAME`.
pub(crate) const CHECK_DUMP: &str = "check-dump";

/// Functions for the checks before gobackup starts.
///
/// `check PASSING FIELD VALUE` checks a credential. gobackup expands credentials before it parses the configuration, so a
/// second line would be another setting, which can be a script. A final line feed is harmless. The last three line breaks
/// are those of YAML besides the ASCII ones. A second word would be another argument, such as an option that loads code.
///
/// `sqlite NAME PATH` checks a SQLite file: gobackup would create a missing one, and store an empty dump of a broken one.
///
/// `include PATH EXPRESSION...` checks a path to archive, with a find expression for excluded paths: gobackup lets tar skip
/// what it cannot read, and reports success. Archives contain symbolic links, never their targets. One shell tests
/// many files; a file deleted since find saw it is no error.
///
/// `check_version` accepts a gobackup that was built without a version.
const CHECKS: &str = include_str!("scripts/checks.sh");

/// Runs gobackup, fails if it stored nothing, and writes the artifacts, the archive size and the duration as the termination
/// message.
///
/// gobackup exits with 0 in some cases in which it stores nothing, for example for a storage type that it does not have. So
/// each storage's state file must be newer than the start of the run. Both times come from one file system, so clocks of
/// other machines do not matter; they are compared in whole seconds, which every file system has. Parallel runs may share
/// the state volume, so the start file's name is unique to the run: a later run would otherwise move the start behind the
/// upload. They share one list of archives too; a run finds its own by the `ARCHIVE_ID` in the name, unless the user sets
/// the format of names.
///
/// gobackup logs no size for the types local, whose archive is a file here, and sftp. For sftp, `watch` records file sizes
/// when the upload starts, because gobackup deletes the files after it; a login to sftp takes longer than that. `watch` is
/// separate from the filter, because mawk reads many lines at once.
const PERFORM: &str = include_str!("scripts/perform.sh");

/// Returns the script for one parent.
pub(crate) fn run(plan: &Plan<'_>) -> String {
    let checks = CHECKS.replace("SHELL", &shell_pattern());
    // In a subshell: a user's variable with the name of one of the script's own is for gobackup.
    let mut script = format!("{FAIL}(\n{checks}");
    for credential in &plan.rendered.credentials {
        let passing = match credential.passing {
            Passing::File => continue,
            Passing::Value => "value",
            Passing::Word => "word",
            Passing::Operand => "operand",
            Passing::Shell => "shell",
        };
        let field = quoted(&credential.field);
        let name = &credential.name;
        line(
            &mut script,
            format_args!("check {passing} {field} \"${{{name}-}}\""),
        );
    }
    for file in &plan.rendered.sqlite {
        let name = quoted(&file.name);
        let path = quoted(&file.path);
        line(&mut script, format_args!("sqlite {name} {path}"));
    }
    let skipped = skipped(plan);
    for include in &plan.rendered.archive.includes {
        let path = quoted(without_slash(include));
        line(&mut script, format_args!("include {path} {skipped}"));
    }
    script.push_str("check_version\n) || exit 1\n");
    if plan.rendered.has_dumps {
        line(
            &mut script,
            format_args!(
                "cat >\"$HOME/{CHECK_DUMP}\" <<'END' || fail \"the home directory is not writable\"\n\
                 {DUMPS}check_dump \"$1\" \"`echo \"$TMPDIR\"/gobackup*/*/\"$MODEL/$1/$2\"`\" \"$3\"\nEND"
            ),
        );
    }
    script.push_str(REDACT);
    script.push_str(&directories(plan));
    script.push_str(PERFORM);
    script
}

/// Returns the find expression for the paths that no archive contains.
fn skipped(plan: &Plan<'_>) -> String {
    let mounts = plan.parent.spec.volumes.iter();
    let lost =
        mounts.map(|volume| format!("{}/lost+found", volume.mount_path.trim_end_matches('/')));
    let excluded = plan.rendered.archive.excludes.iter();
    lost.chain(excluded.map(|path| pattern(path)))
        // The first pattern matches nothing, so that the expression is never empty.
        .fold("-path /dev/null".to_owned(), |skipped, path| {
            format!("{skipped} -o -path {}", quoted(&path))
        })
}

/// Returns the function that prints the directory of a local storage, and nothing for other storages.
fn directories(plan: &Plan<'_>) -> String {
    let mut script = "directory() {\n  case $1 in\n".to_owned();
    for local in &plan.rendered.local {
        let key = quoted(&local.key);
        let path = quoted(without_slash(&local.path));
        line(&mut script, format_args!("  {key}) printf '%s' {path} ;;"));
    }
    script.push_str("  esac\n}\n");
    script
}

fn without_slash(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "" => "/",
        path => path,
    }
}

/// Returns find's pattern for an excluded path. tar also compares a relative one with the end of each path.
fn pattern(excluded: &str) -> String {
    let path = without_slash(excluded);
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("*/{path}")
    }
}

pub(crate) fn line(script: &mut String, line: impl Display) {
    writeln!(script, "{line}").expect("writing to a String cannot fail");
}

/// Returns the pattern for texts with shell characters, except for line feeds, which `check` rejects first.
fn shell_pattern() -> String {
    let patterns: Vec<String> = SHELL
        .iter()
        .filter(|character| **character != '\n')
        .map(|character| format!("*{}*", quoted(&character.to_string())))
        .collect();
    patterns.join(" | ")
}

/// Quotes a text as one word of a script. The word never contains `$(`, which the kubelet would expand.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''").replace('$', "$''"))
}
