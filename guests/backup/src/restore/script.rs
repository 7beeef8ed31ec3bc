//! The scripts of a restoration.
//!
//! The first fetches the archive with rclone. The second decrypts and unpacks it and restores one database after the other.
//! It stops at the first error. As in the script of a run, a filter replaces the values of Secrets in the output.

use serde_json::Value;

use super::{
    Restoration,
    target::{Target, is_file},
};
use crate::script::{DUMPS, FAIL, REDACT, line, quoted};

/// Trims line feeds from the end of Secret values, as gobackup does.
const TRIM: &str = include_str!("../scripts/trim.sh");

/// Fetches the archive, or all chunks of a split one.
const FETCH: &str = include_str!("../scripts/fetch.sh");

/// Decrypts and unpacks the archive. The names of chunks are in the order of the content.
const UNPACK: &str = include_str!("../scripts/unpack.sh");

/// Restores one database: `postgresql NAME DIRECTORY HOST PORT USER DATABASE PASSWORD`, `mysql_` with the same arguments and
/// client options after them, or `sqlite NAME DIRECTORY FILE`.
///
/// gobackup names a PostgreSQL dump by `compress` alone, so the first bytes decide whether a dump in the format that `args`
/// set is for pg_restore (custom, directory, tar) or is a compressed plain one. PostgreSQL restores in one transaction, so a
/// failure changes nothing. A transaction cannot create a database, so a dump that does so fails. pg_dump writes the data of
/// large objects into a plain dump with a COMMIT, which ends the transaction.
///
/// mysqldump can write statements that select another database than the command line does. They start a line, which no
/// value does.
const DATABASES: &str = include_str!("../scripts/databases.sh");

/// Checks that a restoration created everything in the dump or archive. A database may have more.
///
/// A client exits with 0 for statements without effect: a server skips a comment for another version, an event trigger
/// drops what was created, a table ignores a row that exists. So `expect_TYPE` lists the names in the dump, `present_TYPE`
/// those in the server's catalog, each as `COUNT NAME`, and `compare NAME END` fails if the second list has less.
///
/// pg_dump and pg_restore write a comment before each object. mysqldump can omit comments, so the statements count; it
/// writes routines, which contain statements, between two `DELIMITER` lines, and a table in place of a view first. SQLite
/// compares the dumps of both files, including the number of rows.
///
/// `compare_files ARCHIVE DIRECTORY` checks the size of each file and lists owners other than the Pod's user. tar takes a
/// truncated archive for a complete one, so `whole_files` looks for the end.
const COMPLETE: &str = include_str!("../scripts/complete.sh");

/// Empties a scratch database: `empty_postgresql` and `empty_mysql_` with the arguments of `postgresql`.
///
/// A setting may name a live database by mistake, so a database with content is emptied only if an earlier verification
/// marked it when it was empty: by a comment in PostgreSQL, by a table in MySQL. No dump has the mark.
const EMPTY: &str = include_str!("../scripts/empty.sh");

/// Prefix of the termination message's line about owners that a restoration did not keep.
pub(super) const OWNER: &str = "owners were not kept: ";

/// Runs the steps with the log filter, and exits with their code.
const STEPS: &str = include_str!("../scripts/steps.sh");

/// Returns the script of the init container.
pub(super) fn fetch() -> String {
    format!("{FAIL}{TRIM}{FETCH}{REDACT}steps() {{\n  fetch\n}}\n{STEPS}")
}

/// Returns the script of the container that restores.
pub(super) fn restore(restoration: &Restoration<'_>) -> String {
    let unpack = UNPACK.replace("CIPHER", &decryption(restoration));
    let mut script = format!("{FAIL}{TRIM}{unpack}{DUMPS}{COMPLETE}{DATABASES}");
    if restoration.is_verification() {
        script.push_str(EMPTY);
    }
    script.push_str(REDACT);
    script.push_str("steps() {\n  unpack\n");
    for target in &restoration.targets {
        let step = database(restoration, target);
        if restoration.is_verification() && !is_file(&target.source) {
            line(&mut script, format_args!("  empty_{step}"));
        }
        line(&mut script, format_args!("  {step}"));
    }
    if let Some(directory) = &restoration.directory {
        let model = quoted(&restoration.model);
        let path = quoted(directory);
        line(&mut script, format_args!("  files {model} {path}"));
    }
    script.push_str("}\n");
    script.push_str(STEPS);
    script
}

/// Returns openssl's arguments without the password.
fn decryption(restoration: &Restoration<'_>) -> String {
    let encryption = restoration.encryption.clone().unwrap_or_default();
    let cipher = encryption.cipher.filter(|cipher| !cipher.is_empty());
    let mut arguments = vec![quoted(cipher.as_deref().unwrap_or("aes-256-cbc"))];
    if encryption.base64 == Some(true) {
        arguments.push("-base64".to_owned());
    }
    let args = encryption.args.unwrap_or_default();
    arguments.extend(args.split_whitespace().map(quoted));
    arguments.join(" ")
}

/// Prefixes of MySQL and MariaDB options about TLS and the server's key, which mysqldump and mysql share.
const TLS: [&str; 6] = [
    "--disable-ssl",
    "--get-server-public-key",
    "--server-public-key",
    "--skip-ssl",
    "--ssl",
    "--tls",
];

/// Prefixes of options with a value, which may be the next word.
const VALUED: [&str; 3] = ["--server-public-key", "--ssl-", "--tls-"];

/// Returns a dump's arguments that the client needs too, because it may refuse the server without them. MariaDB clients
/// since 11.4 verify certificates by default.
fn tls(args: &str) -> impl Iterator<Item = &str> {
    let mut takes_value = false;
    args.split_whitespace().filter(move |word| {
        let is_option = TLS.iter().any(|start| word.starts_with(start));
        let is_value = takes_value && !word.starts_with('-');
        takes_value = VALUED.iter().any(|start| word.starts_with(start))
            && *word != "--ssl-verify-server-cert"
            && !word.contains('=');
        is_option || is_value
    })
}

/// Database file that a verification creates.
const VERIFIED: &str = "/work/verified.db";

/// The step for one database.
fn database(restoration: &Restoration<'_>, target: &Target) -> String {
    let source = &target.source;
    let is_mysql = source.type_.name == "mysql";
    let (host, port, user) = if is_mysql {
        ("127.0.0.1", "3306", "root")
    } else {
        ("localhost", "5432", "")
    };
    let value = |key: &str, default: &str| {
        let variable = format!("DB{}_{}", target.index, key.to_uppercase());
        let credentials = &restoration.plan.rendered.credentials;
        if credentials
            .iter()
            .any(|credential| credential.name == variable)
        {
            return format!("\"${{{variable}-}}\"");
        }
        match source.config.get(key) {
            Some(Value::String(text)) if !text.is_empty() => quoted(text),
            Some(Value::Number(number)) => quoted(&number.to_string()),
            _ => quoted(default),
        }
    };
    let directory = format!(
        "{}/{}/{}",
        restoration.model, source.type_.rendered, target.key
    );
    let all = source.config.get("all_databases") == Some(&Value::Bool(true));
    let name = quoted(&format!("{} {}", source.kind, source.name));
    if is_file(source) {
        let path = if restoration.is_verification() {
            quoted(VERIFIED)
        } else {
            value("path", "")
        };
        return format!("sqlite {name} {} {path}", quoted(&directory));
    }
    let database = if all {
        quoted("")
    } else {
        value("database", "")
    };
    let options: String = match (is_mysql, source.config.get("args")) {
        (true, Some(Value::String(args))) => tls(args).fold(String::new(), |options, option| {
            options + " " + &quoted(option)
        }),
        _ => String::new(),
    };
    format!(
        "{} {} {} {} {} {} {database} {}{options}",
        if is_mysql { "mysql_" } else { "postgresql" },
        name,
        quoted(&directory),
        value("host", host),
        value("port", port),
        value("username", user),
        value("password", ""),
    )
}
