//! The script of a run, for the `sh` of busybox and for dash.
//!
//! Before gobackup starts, it checks the values of credentials, which the plugin never sees. A message
//! names the field and never the value.
//!
//! NB: The kubelet replaces `$(NAME)` in the script if a variable of this name exists, so no text of a user
//! may contain it; see [`quoted`].

use std::fmt::Write;

use crate::{
    plan::Plan,
    render::{Passing, SHELL},
};

/// Prints a message, which also becomes the termination message, and ends the run.
const FAIL: &str = r#"set -u
fail() {
  printf '%s\n' "$1" >&2
  printf '%s\n' "$1" >>/dev/termination-log
  exit 1
}
"#;

/// Checks a credential: `check PASSING FIELD VALUE`.
///
/// gobackup expands credentials before it parses the configuration, so a further line would be a further
/// setting, which can be a script. A line feed at the end is harmless. The last three breaks are those of
/// YAML besides the ASCII ones. A further word would be a further argument, such as an option that loads
/// code.
const CHECK: &str = r#"feed='
'
check() {
  value=${3%"$feed"}
  for break in "$feed" "$(printf '\r')" "$(printf '\302\205')" "$(printf '\342\200\250')" \
    "$(printf '\342\200\251')"; do
    case $value in
    *"$break"*) fail "$2: the value has several lines; gobackup reads a credential of one line" ;;
    esac
  done
  [ "$1" != value ] || return 0
  case $value in
  *[[:space:]]*) fail "$2: the value has white space, where gobackup splits the command line" ;;
  esac
  [ "$1" != word ] || return 0
  case $value in
  -*) fail "$2: the value begins with a dash, as an option does" ;;
  esac
  [ "$1" != operand ] || return 0
  case $value in
  SHELL) fail "$2: the value has a character that the shell of pg_dumpall would act on" ;;
  esac
}
"#;

/// Runs gobackup, fails if it succeeds without an upload, and writes the names of the stored files as the
/// termination message.
///
/// gobackup exits with 0 in some cases in which it stores nothing, for example for a storage type
/// that it does not have. The script therefore checks that the state of each storage is newer than
/// the start of the run. Both times are those of files on one file system, so clocks of other machines
/// do not matter; they are compared in whole seconds, the resolution that every file system has.
const PERFORM: &str = r#"mkdir -p "$GOBACKUP_DIR/cycler"
started="$GOBACKUP_DIR/.started"
touch "$started" || exit 1
gobackup perform --config /etc/gobackup/gobackup.yml || exit $?
artifacts=""
for key in $STORAGES; do
  state="$GOBACKUP_DIR/cycler/${MODEL}_$key.json"
  if [ ! -f "$state" ] || [ "$(stat -c %Y "$state")" -lt "$(stat -c %Y "$started")" ]; then
    fail "nothing was stored in $key"
  fi
  file=$(grep -o '"file_key" *: *"[^"]*"' "$state" | tail -n 1 | cut -d '"' -f 4)
  artifacts="$artifacts${artifacts:+,}{\"storage\":\"$key\",\"file\":\"$file\"}"
done
printf '{"artifacts":[%s]}' "$artifacts" >/dev/termination-log
"#;

/// The script for one parent.
pub(super) fn script(plan: &Plan<'_>) -> String {
    let mut script = FAIL.to_owned();
    script.push_str(&CHECK.replace("SHELL", &shell_pattern()));
    for credential in &plan.rendered.credentials {
        let passing = match credential.passing {
            Passing::File => continue,
            Passing::Value => "value",
            Passing::Word => "word",
            Passing::Operand => "operand",
            Passing::Shell => "shell",
        };
        let (field, name) = (quoted(&credential.field), &credential.name);
        line(
            &mut script,
            format_args!("check {passing} {field} \"${{{name}-}}\""),
        );
    }
    script.push_str(PERFORM);
    script
}

fn line(script: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(script, "{line}").expect("writing to a String cannot fail");
}

/// The pattern for a text with a character that a shell acts on. A line feed has been refused before.
fn shell_pattern() -> String {
    let characters = SHELL.iter().filter(|it| **it != '\n');
    let patterns: Vec<String> = characters
        .map(|it| format!("*{}*", quoted(&it.to_string())))
        .collect();
    patterns.join(" | ")
}

/// A word of the script that stands for any text. It never contains `$(`, which the kubelet would expand.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''").replace('$', "$''"))
}
