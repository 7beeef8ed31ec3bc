//! Checks the translated keys.
//!
//! gobackup itself accepts most of these errors and then fails late, or stores less than intended.

use serde_json::Value;

use super::{Config, flag, is_given, text, texts};
use crate::{catalog::Key, references::Source, stop::Stop};

/// Checks the translated keys of a database.
pub(super) fn database(source: &Source, config: &Config) -> Result<(), Stop> {
    required(source, config)?;
    match source.type_.name {
        "postgresql" | "mysql" | "mariadb" | "mssql"
            if !is_given(config, "database") && !flag(config, "all_databases") =>
        {
            return Err(error(
                source,
                "database",
                "is required unless config.all_databases is true",
            ));
        }
        "influxdb" | "influxdb2" => {
            let chosen = is_given(config, "bucket") || is_given(config, "bucket_id");
            if !chosen && !flag(config, "all_databases") {
                return Err(error(
                    source,
                    "bucket",
                    "is required unless config.bucket_id is given or config.all_databases is true",
                ));
            }
        }
        _ => {}
    }
    if source.type_.name == "mysql"
        && flag(config, "all_databases")
        && (is_given(config, "tables") || is_given(config, "exclude_tables"))
    {
        return Err(error(
            source,
            "all_databases",
            "cannot be used with config.tables or config.exclude_tables",
        ));
    }
    exclusions(source, config)?;
    if source.type_.name == "postgresql"
        && let Some(compress) = text(config, "compress")
        && !["gzip", "lz4", "zstd"]
            .iter()
            .any(|method| compress.split(':').next() == Some(method))
    {
        return Err(error(
            source,
            "compress",
            "must be gzip, lz4 or zstd, or one of them with a colon and its detail",
        ));
    }
    // A connection string can name a key's engine, which is code.
    if source.type_.name == "postgresql"
        && text(config, "database").is_some_and(|name| name.contains('=') || name.contains("://"))
    {
        return Err(error(
            source,
            "database",
            "is a connection string; name the database alone",
        ));
    }
    texts_are_values(source, config)
}

/// Rejects excluded collections if all databases are dumped: mongodump only supports them for one.
fn exclusions(source: &Source, config: &Config) -> Result<(), Stop> {
    let is_whole = flag(config, "all_databases") && !is_given(config, "uri");
    if source.type_.name != "mongodb" || !is_whole {
        return Ok(());
    }
    let mut keys = ["exclude_tables", "exclude_tables_prefix"].into_iter();
    match keys.find(|key| is_given(config, key)) {
        None => Ok(()),
        Some(key) => {
            let problem = "needs config.database, and config.all_databases not to be true";
            Err(error(source, key, problem))
        }
    }
}

/// Checks the translated keys of a storage.
pub(super) fn storage(source: &Source, config: &Config) -> Result<(), Stop> {
    if source.type_.is_s3_like {
        for key in ["access_key_id", "secret_access_key"] {
            if !is_given(config, key) {
                return Err(error(
                    source,
                    key,
                    "is required: gobackup does not use ambient credentials",
                ));
            }
        }
    }
    required(source, config)?;
    match source.type_.name {
        "r2" if !is_given(config, "account_id") && !is_given(config, "endpoint") => Err(error(
            source,
            "account_id",
            "is required unless config.endpoint is given",
        )),
        "sftp" | "scp" if !is_given(config, "password") && !is_given(config, "private_key") => Err(
            error(source, "password", "or config.private_key is required"),
        ),
        "scp" if !is_given(config, "path") => Err(error(source, "path", "is required for scp")),
        "local" if !text(config, "path").is_some_and(|path| path.starts_with('/')) => {
            Err(error(source, "path", "must be absolute"))
        }
        _ => Ok(()),
    }
}

fn required(source: &Source, config: &Config) -> Result<(), Stop> {
    let missing = source
        .type_
        .keys
        .iter()
        .find(|key| key.is_required && !is_given(config, key.name));
    missing.map_or(Ok(()), |key| Err(error(source, key.name, "is required")))
}

/// Returns a database's texts with their keys, except for scripts, which are not part of a command line.
fn arguments<'a>(
    source: &Source,
    config: &'a Config,
) -> impl Iterator<Item = (&'static Key, &'a str)> {
    let is_script = |key: &str| matches!(key, "before_script" | "after_script" | "on_exit");
    source
        .type_
        .keys
        .iter()
        .filter(move |key| !is_script(key.name))
        .flat_map(|key| {
            config
                .get(key.name)
                .and_then(Value::as_str)
                .into_iter()
                .chain(texts(config, key.name))
                .map(move |text| (key, text))
        })
}

/// Rejects texts that gobackup or a program would not take for one value.
///
/// gobackup splits some command lines at white space, without any quoting. A program takes a value that starts with a dash
/// for an option; a password follows the option name, or is a variable. Options belong to `args`.
fn texts_are_values(source: &Source, config: &Config) -> Result<(), Stop> {
    for (key, text) in arguments(source, config) {
        let is_value = key.name != "args";
        let problem = if uses_shell(source, config) && !key.is_secret && text.contains(SHELL) {
            Some("contains a character that pg_dumpall's shell would act on")
        } else if is_value && !key.is_secret && text.starts_with('-') {
            Some("begins with a dash, as an option does")
        } else if is_value && source.type_.splits(key) && text.contains(char::is_whitespace) {
            Some("contains white space, which gobackup cannot pass on")
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(error(source, key.name, problem));
        }
    }
    Ok(())
}

/// Returns true if gobackup passes a database's command line to a shell, as for `pg_dumpall`.
pub(super) fn uses_shell(source: &Source, config: &Config) -> bool {
    source.type_.name == "postgresql" && flag(config, "all_databases")
}

/// Characters with a meaning in a shell.
pub(crate) const SHELL: &[char] = &[
    '!', '"', '#', '$', '&', '\'', '(', ')', '*', ';', '<', '>', '?', '[', '\\', ']', '`', '{',
    '|', '}', '~', '\n',
];

fn error(source: &Source, key: &str, problem: &str) -> Stop {
    Stop::invalid_reference(format!("{} {problem}", source.path(key)))
}
