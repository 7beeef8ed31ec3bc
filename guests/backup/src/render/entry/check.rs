//! Checks of the translated keys.
//!
//! gobackup itself accepts most of these errors and then fails late, or stores less than intended.

use serde_json::Value;

use super::{Config, flag, given, text, texts};
use crate::{references::Source, stop::Stop};

/// Checks the translated keys of a database.
pub(super) fn database(source: &Source, config: &Config) -> Result<(), Stop> {
    required(source, config)?;
    match source.type_.name {
        "postgresql" | "mysql" | "mariadb" | "mssql"
            if !given(config, "database") && !flag(config, "all_databases") =>
        {
            return Err(error(
                source,
                "database",
                "is required unless config.all_databases is true",
            ));
        }
        "influxdb" | "influxdb2" => {
            let chosen = given(config, "bucket") || given(config, "bucket_id");
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
        && (given(config, "tables") || given(config, "exclude_tables"))
    {
        return Err(error(
            source,
            "all_databases",
            "cannot be used with config.tables or config.exclude_tables",
        ));
    }
    if source.type_.name == "postgresql"
        && let Some(compress) = text(config, "compress")
        && !["gzip", "lz4", "zstd"]
            .iter()
            .any(|it| compress.starts_with(it))
    {
        return Err(error(
            source,
            "compress",
            "must begin with gzip, lz4 or zstd",
        ));
    }
    if source.type_.name == "postgresql" && flag(config, "all_databases") {
        no_shell_characters(source, config)?;
    }
    no_white_space(source, config)
}

/// Checks the translated keys of a storage.
pub(super) fn storage(source: &Source, config: &Config) -> Result<(), Stop> {
    if source.type_.is_s3_like {
        for key in ["access_key_id", "secret_access_key"] {
            if !given(config, key) {
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
        "r2" if !given(config, "account_id") && !given(config, "endpoint") => Err(error(
            source,
            "account_id",
            "is required unless config.endpoint is given",
        )),
        "sftp" | "scp" if !given(config, "password") && !given(config, "private_key") => Err(
            error(source, "password", "or config.private_key is required"),
        ),
        "local" if !text(config, "path").is_some_and(|path| path.starts_with('/')) => {
            Err(error(source, "path", "must be absolute"))
        }
        _ => Ok(()),
    }
}

fn required(source: &Source, config: &Config) -> Result<(), Stop> {
    let missing = source
        .type_
        .keys()
        .find(|key| key.is_required && !given(config, key.name));
    missing.map_or(Ok(()), |key| Err(error(source, key.name, "is required")))
}

/// Rejects white space in values: gobackup splits the command lines of some types there, without
/// any quoting.
fn no_white_space(source: &Source, config: &Config) -> Result<(), Stop> {
    if !source.type_.splits_command {
        return Ok(());
    }
    for key in source.type_.keys() {
        // Splitting is intended for arguments. Scripts are no part of the command line.
        if matches!(
            key.name,
            "args" | "before_script" | "after_script" | "on_exit"
        ) {
            continue;
        }
        let one = config.get(key.name).and_then(Value::as_str);
        let is_split = one
            .into_iter()
            .chain(texts(config, key.name))
            .any(|text| text.contains(char::is_whitespace));
        if is_split {
            return Err(error(
                source,
                key.name,
                "contains white space, which gobackup cannot pass on",
            ));
        }
    }
    Ok(())
}

/// Characters with a meaning in a shell.
const SHELL: &[char] = &[
    '!', '"', '#', '$', '&', '\'', '(', ')', '*', ';', '<', '>', '?', '[', '\\', ']', '`', '{',
    '|', '}', '~', '\n',
];

/// Rejects characters of the shell: gobackup gives the command line of `pg_dumpall` to one.
fn no_shell_characters(source: &Source, config: &Config) -> Result<(), Stop> {
    let scripts = ["before_script", "after_script", "on_exit"];
    let keys = source.type_.keys().map(|key| key.name);
    for key in keys.filter(|key| *key != "password" && !scripts.contains(key)) {
        let one = config.get(key).and_then(Value::as_str);
        let mut texts = one.into_iter().chain(texts(config, key));
        if texts.any(|text| text.contains(SHELL)) {
            let problem = "contains a character that the shell of pg_dumpall would act on";
            return Err(error(source, key, problem));
        }
    }
    Ok(())
}

fn error(source: &Source, key: &str, problem: &str) -> Stop {
    Stop::invalid_reference(format!("{} {problem}", source.path(key)))
}
