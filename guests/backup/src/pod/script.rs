//! The script of a run, for the `sh` of busybox and for dash.
//!
//! Before gobackup starts, it checks the values of credentials, which the plugin never sees, and the files to
//! archive. A message names the field and never the value. The output of gobackup passes a filter that
//! replaces the values of Secrets.
//!
//! NB: The kubelet replaces `$(NAME)` in the script if a variable of this name exists, and a name may contain
//! blanks and quotes. The script therefore has no `$(`, not even for commands; see [`quoted`] for texts of
//! users.

use std::fmt::Write;

use super::dumps;
use crate::{
    plan::Plan,
    render::{Passing, SHELL},
};

/// Prints a message, which also becomes the termination message, and ends the run.
pub(crate) const FAIL: &str = r#"set -u
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
return=`printf '\r'`
next=`printf '\302\205'`
line=`printf '\342\200\250'`
paragraph=`printf '\342\200\251'`
check() {
  value=${3%"$feed"}
  for break in "$feed" "$return" "$next" "$line" "$paragraph"; do
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

/// Checks a path to archive: `include PATH EXPRESSION...`, with an expression of find for the excluded paths.
///
/// gobackup lets tar skip what it cannot read, and reports success. Archives have symbolic links themselves,
/// never their targets. One shell tests many files, and a file that has gone since find saw it is no error.
const INCLUDE: &str = r#"include() {
  path=$1
  user=`id -u`
  shift
  [ ! -L "$path" ] || fail "archive.includes: $path is a symbolic link, of which an archive has only the link; name its target"
  [ -e "$path" ] || fail "archive.includes: $path does not exist"
  closed=`find "$path" \( "$@" \) -prune -o \( -type f -o -type d \) -exec sh -c 'for file; do
    if [ -r "$file" ] && { [ ! -d "$file" ] || [ -x "$file" ]; }; then continue; fi
    if [ -e "$file" ]; then printf "%s\n" "$file"; fi
  done' sh {} + 2>/dev/null | head -n 1`
  [ -z "$closed" ] || fail "archive.includes: user $user cannot read $closed; set securityContext of the parent to its owner or group, or add the path to archive.excludes"
}
"#;

/// Checks a file of SQLite: `sqlite NAME PATH`. gobackup would create a missing one, and store an empty dump of a broken one.
const SQLITE: &str = r#"sqlite() {
  [ -f "$2" ] || fail "$1: there is no file $2; correct config.path, or mount the volume that has it"
  [ -r "$2" ] || fail "$1: user `id -u` cannot read $2; set securityContext of the parent to its owner or group"
  [ "`head -c 15 "$2" | tr -d '\000'`" = "SQLite format 3" ] || fail "$1: $2 is not a database of SQLite: it is empty, encrypted or of another program"
  checked=`sqlite3 -batch -cmd '.timeout 10000' "$2" 'PRAGMA quick_check' 2>&1 | head -n 3`
  [ "$checked" = ok ] || fail "$1: SQLite cannot read $2, which may be corrupt or locked; one in WAL mode needs a volume with readOnly: false: $checked"
}
"#;

/// Checks the version of gobackup. One that was built without a version passes.
const VERSION: &str = r#"version=`gobackup --version 2>/dev/null |
  sed -n 's/.*version v\{0,1\}\([0-9]\{1,\}\)\.\([0-9]\{1,\}\)\.\([0-9]\{1,\}\).*/\1 \2 \3/p'`
set -- $version
if [ $# -eq 3 ] && [ "$1" -gt 0 ] && [ `expr "$1" \* 1000000 + "$2" \* 1000 + "$3"` -lt 3001001 ]; then
  fail "gobackup $1.$2.$3 is too old: it exits with 0 after errors and loses archives; use an image with 3.1.1 or newer"
fi
"#;

/// The filter of the log: it replaces the values of Secrets, and writes the end as the termination message.
///
/// A value has at least four characters. `SECRETS` has the names of variables, of prefixes (with a star) and of files. The log is replaced line by line, so
/// of a value with several lines each of eight characters or more counts, without blanks around it. Long values come
/// first, because a short one may be a part of them. Programs also print values with escapes and, in URLs, with
/// percent signs. The path of a URL counts too, because errors of requests print a URL without its password.
/// The message holds at most 3584 bytes, so that a further message of the script fits into
/// the 4096 that the kubelet reads, and it begins with a whole character.
///
/// It also adds up the sizes of uploaded files, which gobackup only logs, and writes that of an archive into
/// `.size`: the largest sum of a storage, because each gets all chunks of the same archive. The last upload is that of the
/// list of archives.
///
/// gobackup only logs that it cannot read or store the list of archives, or delete one. The first such line is in
/// `.retention` and at the end of the message.
const REDACT: &str = r#"redact='
function add(value) {
  # A shorter one would be in many words.
  if (length(value) > 3 && !(value in known)) { known[value] = 1; values[++count] = value }
}
function escaped(value, space,    i, c, text) {
  text = ""
  for (i = 1; i <= length(value); i++) {
    c = substr(value, i, 1)
    if (space == "") { text = text (c == "\"" || c == "\\" ? "\\" c : c) }
    else if (c == " ") { text = text space }
    else { text = text (index(plain, c) ? c : percent[c]) }
  }
  return text
}
function secret(value,    parts, i, number) {
  number = split(value, parts, "\n")
  for (i = 1; i <= number; i++) {
    gsub(/^[ \t]+|[ \t\r]+$/, "", parts[i])
    if (number > 1 && length(parts[i]) > 7) add_forms(parts[i])
  }
  sub(/\n+$/, "", value)
  add_forms(value)
}
function add_forms(value) {
  add(value)
  add(escaped(value, ""))
  add(escaped(value, "+"))
  add(escaped(value, "%20"))
  if (match(value, /^https?:\/\/[^\/]+\//) && length(value) - RLENGTH > 7) add(substr(value, RLENGTH))
}
function is_retention(line) {
  # The first run, or an archive that is gone already.
  if (line ~ /HTTP 404|[Nn]ot exist|[Nn]o such file|NoSuchKey|[Nn]ot found$/) return 0
  return line ~ /Remove .* failed: |state not found \(HTTP |Failed to fetch remote cycler state|Failed to unmarshal remote cycler state|Failed to save cycler state|Failed to write state|Failed to create temp directory|cycler.json failed|Skip save cycler.json/
}
function redacted(line, value,    at, text) {
  text = ""
  while ((at = index(line, value)) > 0) {
    text = text substr(line, 1, at - 1) "***"
    line = substr(line, at + length(value))
  }
  return text line
}
BEGIN {
  plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~"
  for (i = 1; i < 256; i++) percent[sprintf("%c", i)] = sprintf("%%%02X", i)
  for (i = 128; i < 192; i++) following = following sprintf("%c", i)
  own = " HOME TMPDIR GOBACKUP_DIR DOLLAR MODEL STORAGES SECRETS ARCHIVE_ID POD_UID PATH PWD OLDPWD SHLVL HOSTNAME "
  number = split("B kB MB GB TB PB EB", names, " ")
  factor = 1
  for (i = 1; i <= number; i++) { bytes[names[i]] = factor; factor *= 1000 }
  number = split(ENVIRON["SECRETS"], names, " ")
  for (i = 1; i <= number; i++) {
    name = names[i]
    if (name ~ /^\//) { while ((getline line < name) > 0) if (length(line) > 7) secret(line) }
    else if (name ~ /\*$/) {
      prefix = substr(name, 1, length(name) - 1)
      for (it in ENVIRON) if (index(it, prefix) == 1 && !index(own, " " it " ")) secret(ENVIRON[it])
    }
    else secret(ENVIRON[name])
  }
  for (i = 2; i <= count; i++) {
    value = values[i]
    for (j = i - 1; j > 0 && length(values[j]) < length(value); j--) values[j + 1] = values[j]
    values[j + 1] = value
  }
}
/=> Storage / {
  if (sum > size) size = sum
  sum = 0
}
/cycler state to remote storage/ {
  sum -= last
  last = 0
}
match($0, /-> Uploading \([0-9.]+ [kMGTPE]?B\)/) {
  split(substr($0, RSTART + 14, RLENGTH - 15), part, " ")
  last = part[1] * bytes[part[2]]
  sum += last
}
{
  line = $0
  for (i = 1; i <= count; i++) line = redacted(line, values[i])
  print line
  fflush()
  if (retention == "" && is_retention(line)) {
    retention = line
    gsub(/[^ -~]/, "?", retention)
    retention = substr(retention, 1, 300)
  }
  end = end line "\n"
  if (length(end) > 3584) end = substr(end, length(end) - 3583)
}
END {
  while (end != "" && index(following, substr(end, 1, 1))) end = substr(end, 2)
  printf "%s", end >"/dev/termination-log"
  if (retention != "") {
    print "RETENTION" retention >"/dev/termination-log"
    printf "%s", escaped(retention, "") >(ENVIRON["HOME"] "/.retention")
  }
  if (sum > size) size = sum
  if (size) printf "%.0f", size >(ENVIRON["HOME"] "/.size")
}
'
"#;

/// The start of the line of a termination message that says why archives were not kept as `keep` says.
pub(crate) const RETENTION: &str = "keep was not carried out: ";

/// The filter of the log, as a variable of the script.
pub(crate) fn redact() -> String {
    REDACT.replace("RETENTION", RETENTION)
}

/// Writes the sizes of the files that gobackup is about to upload, because sftp logs none and gobackup deletes them. A login
/// to sftp takes longer than this. It is no part of the filter, because mawk reads many lines at once.
const WATCH: &str = r#"watch() {
  # A script of the user may print such a line before gobackup does.
  work=
  while IFS= read -r line || [ -n "$line" ]; do
    printf '%s\n' "$line"
    case $line in
    *"WorkDir: "*) work=${line#*WorkDir: } ;;
    *"=> Storage | sftp"*)
      find "${work%/*}" -type f ! -path "$work/*" -exec stat -c '%s %n' {} + >"$HOME/.files" 2>/dev/null
      ;;
    esac
  done
}
size_of() {
  [ -s "$HOME/.files" ] || { echo null; return; }
  FILE=$1 awk '{
    length_ = split($0, part, "/")
    if (part[length_] == ENVIRON["FILE"] || part[length_ - 1] == ENVIRON["FILE"]) sum += $1
  }
  END { if (sum) printf "%.0f", sum; else printf "null" }' "$HOME/.files"
}
"#;

/// Runs gobackup, fails if it succeeds without an upload, and writes the names of the stored files, the size of
/// the archive and the duration as the termination message.
///
/// gobackup exits with 0 in some cases in which it stores nothing, for example for a storage type
/// that it does not have. The script therefore checks that the state of each storage is newer than
/// the start of the run. Both times are those of files on one file system, so clocks of other machines
/// do not matter; they are compared in whole seconds, the resolution that every file system has. The file with
/// the start has a name of its own, because runs side by side may share the volume of the state: a later run
/// would move the start of this one behind its upload. Their archives are in one list too, in which the names of
/// this run have its `ARCHIVE_ID`, unless the user gives the format of names.
///
/// gobackup logs no size for a storage of type local, whose archive is a file here.
const PERFORM: &str = r#"umask 002
ARCHIVE_ID=`printf '%s' "$POD_UID" | tr -d - | tr 0123456789abcdef bcdfghjkqrstvwxz | cut -c 1-16`
export ARCHIVE_ID
started="$GOBACKUP_DIR/.started.$ARCHIVE_ID"
trap 'rm -f "$started"' EXIT
mkdir -p "$GOBACKUP_DIR/cycler" && touch "$started" || fail "the volume of the state is not writable"
rm -f "$HOME/.exit" "$HOME/.size" "$HOME/.retention" "$HOME/.files"
begin=`date +%s`
{
  gobackup perform --config /etc/gobackup/gobackup.yml 2>&1
  echo $? >"$HOME/.exit"
} | watch | LC_ALL=C awk "$redact" || fail "the filter of the log failed: the image needs awk"
code=`cat "$HOME/.exit"`
[ "${code:-1}" = 0 ] || exit "${code:-1}"
end=`date +%s`
size=null
[ ! -s "$HOME/.size" ] || size=`cat "$HOME/.size"`
artifacts=""
for key in $STORAGES; do
  state="$GOBACKUP_DIR/cycler/${MODEL}_$key.json"
  if [ ! -f "$state" ] || [ `stat -c %Y "$state"` -lt `stat -c %Y "$started"` ]; then
    fail "nothing was stored in $key"
  fi
  files=`grep -o '"file_key" *: *"[^"]*"' "$state" | cut -d '"' -f 4`
  file=`printf '%s\n' "$files" | grep -F -e "$ARCHIVE_ID" | tail -n 1`
  [ -n "$file" ] || file=`printf '%s\n' "$files" | tail -n 1`
  artifacts="$artifacts${artifacts:+,}{\"storage\":\"$key\",\"file\":\"$file\"}"
  [ "$size" != null ] || size=`size_of "$file"`
  kept=`directory "$key"`/$file
  [ "$kept" = "/$file" ] || [ ! -f "$kept" ] || size=`stat -c %s "$kept"`
done
seconds=`expr "$end" - "$begin"`
retention=
[ ! -s "$HOME/.retention" ] || retention=`cat "$HOME/.retention"`
printf '{"artifacts":[%s],"bytes":%s,"retention":"%s","seconds":%s}' "$artifacts" "$size" "$retention" "$seconds" >/dev/termination-log
"#;

/// The script for one parent.
pub(super) fn script(plan: &Plan<'_>) -> String {
    let mut script = FAIL.to_owned();
    // A variable of a user may have the name of one of the checks, and is for gobackup.
    script.push_str("(\n");
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
    script.push_str(SQLITE);
    for file in &plan.rendered.sqlite {
        let (name, path) = (quoted(&file.name), quoted(&file.path));
        line(&mut script, format_args!("sqlite {name} {path}"));
    }
    script.push_str(INCLUDE);
    let archive = &plan.rendered.archive;
    let mounts = plan.parent.spec.volumes.iter();
    let lost = mounts.map(|it| format!("{}/lost+found", it.mount_path.trim_end_matches('/')));
    let excluded = archive.excludes.iter().map(|it| pattern(it));
    // The first pattern matches nothing, so that the expression is never empty.
    let mut skipped = "-path /dev/null".to_owned();
    for path in lost.chain(excluded) {
        skipped.push_str(" -o -path ");
        skipped.push_str(&quoted(&path));
    }
    for include in &archive.includes {
        let path = quoted(&clean(include));
        line(&mut script, format_args!("include {path} {skipped}"));
    }
    script.push_str(VERSION);
    script.push_str(") || exit 1\n");
    if plan.rendered.has_dumps {
        let (file, text) = (dumps::FILE, dumps::file());
        line(
            &mut script,
            format_args!(
                "cat >\"$HOME/{file}\" <<'END' || fail \"the home directory is not writable\"\n{text}END"
            ),
        );
    }
    script.push_str(&redact());
    script.push_str(&directories(plan));
    script.push_str(WATCH);
    script.push_str(PERFORM);
    script
}

/// The function that prints the directory of a storage of type local, and nothing for another.
fn directories(plan: &Plan<'_>) -> String {
    let mut script = "directory() {\n  case $1 in\n".to_owned();
    for local in &plan.rendered.local {
        let (key, path) = (quoted(&local.key), quoted(&clean(&local.path)));
        line(&mut script, format_args!("  {key}) printf '%s' {path} ;;"));
    }
    script.push_str("  esac\n}\n");
    script
}

/// A path without a slash at its end.
fn clean(path: &str) -> String {
    let path = path.trim_end_matches('/');
    if path.is_empty() { "/" } else { path }.to_owned()
}

/// The pattern of find for an excluded path. tar compares one that does not begin with a slash with the end of
/// each path too.
fn pattern(excluded: &str) -> String {
    let path = clean(excluded);
    if path.starts_with('/') {
        path
    } else {
        format!("*/{path}")
    }
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
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''").replace('$', "$''"))
}
