//! Translates older or more convenient keys into gobackup's.

use super::{Config, flag, is_given, rename, set, text, texts};
use crate::{api::Parent, programs, references::Source, status::Warning};

/// Returns a database's keys as gobackup reads them.
pub(super) fn database(source: &Source, parent: &Parent, warnings: &mut Vec<Warning>) -> Config {
    let mut config = source.config.clone();
    match source.type_.name {
        "mongodb" => mongodb(source, &mut config, warnings),
        "redis" => redis(source, &mut config, parent, warnings),
        "influxdb" | "influxdb2" => influxdb(&mut config),
        "etcd" => etcd(&mut config),
        "postgresql" => postgresql(source, &mut config, parent, warnings),
        "mysql" => {
            let args = text(&config, "args").unwrap_or_default();
            let args = programs::whole(args, is_given(&config, "tables"));
            set(&mut config, "args", args);
        }
        "firebird" if parent.spec.image.is_none() => warnings.push(Warning::new(
            "TypeNotInImage",
            format!(
                "Database {}: the gobackup image has no gbak; set spec.image to one that has it",
                source.name
            ),
        )),
        "mariadb" => warnings.push(Warning::new(
            "MariaDBNeedsDataDir",
            format!(
                "Database {}: mariadb-backup reads the server's files: mount its data directory \
                 in spec.volumes",
                source.name
            ),
        )),
        _ => {}
    }
    config
}

/// pg_dumpall does not compress, and gobackup would name the plain dump like a compressed one. It dumps all tables.
fn postgresql(source: &Source, config: &mut Config, parent: &Parent, warnings: &mut Vec<Warning>) {
    if !has_user(config, parent) {
        let field = source.path("username");
        let message = format!(
            "{field}: pg_dump asks the system for the user's name, and the run's user has none in the image; set it"
        );
        warnings.push(Warning::new("UsernameMissing", message));
    }
    if !flag(config, "all_databases") {
        return;
    }
    for (key, reason) in [
        ("compress", "does not compress"),
        ("tables", "dumps all tables"),
        ("exclude_tables", "dumps all tables"),
    ] {
        if is_given(config, key) && config.remove(key).is_some() {
            let field = source.path(key);
            let message = format!("{field} is left out: pg_dumpall {reason}");
            warnings.push(Warning::new("FieldIgnored", message));
        }
    }
}

/// Returns true if a PostgreSQL client knows the user's name. Another image or user may have one.
fn has_user(config: &Config, parent: &Parent) -> bool {
    let spec = &parent.spec;
    let user = spec.security_context.as_ref();
    let args = text(config, "args").unwrap_or_default();
    is_given(config, "username")
        || spec.image.is_some()
        || user.is_some_and(|user| user.run_as_user.is_some())
        || spec.env.iter().any(|variable| variable.name == "PGUSER")
        || args.contains("-U")
        || args.contains("--user")
}

fn mongodb(source: &Source, config: &mut Config, warnings: &mut Vec<Warning>) {
    rename(config, "auth_db", "authdb");
    let is_named = is_given(config, "database") || is_given(config, "uri");
    if !is_named && !config.contains_key("all_databases") {
        set(config, "all_databases", true);
    }
    if flag(config, "oplog") && !flag(config, "all_databases") {
        config.remove("oplog");
        warnings.push(Warning::new(
            "OplogNeedsAllDatabases",
            format!(
                "{} is left out: it needs config.all_databases",
                source.path("oplog")
            ),
        ));
    }
}

fn redis(source: &Source, config: &mut Config, parent: &Parent, warnings: &mut Vec<Warning>) {
    rename(config, "args_redis", "args");
    let sync = flag(config, "sync");
    let copy = flag(config, "copy");
    config.remove("sync");
    config.remove("copy");
    if text(config, "mode").is_none() {
        // gobackup's default is copy, which reads the server's file and needs a volume that holds it.
        set(config, "mode", if copy && !sync { "copy" } else { "sync" });
    }
    let file = text(config, "rdb_path").unwrap_or("/var/db/redis/dump.rdb");
    let is_mounted = parent.spec.volumes.iter().any(|volume| volume.holds(file));
    if text(config, "mode") == Some("copy") && !is_mounted {
        warnings.push(Warning::new(
            "RedisCopyNeedsVolume",
            format!(
                "{}: copy needs {file} inside a mount in spec.volumes",
                source.path("mode")
            ),
        ));
    }
}

fn influxdb(config: &mut Config) {
    let port = config.remove("port").and_then(|port| port.as_i64());
    let Some(host) = text(config, "host") else {
        return;
    };
    if !host.contains("://") {
        let url = format!("http://{host}:{}", port.unwrap_or(8086));
        set(config, "host", url);
    }
}

fn etcd(config: &mut Config) {
    let endpoint = match text(config, "endpoint") {
        Some(endpoint) => Some(endpoint.to_owned()),
        None => texts(config, "endpoints")
            .first()
            .map(|endpoint| (*endpoint).to_owned()),
    };
    config.remove("endpoints");
    let Some(endpoint) = endpoint else {
        return;
    };
    // gobackup names the dump file after the endpoint. A scheme's slashes would make the name a path in a directory
    // that does not exist.
    let (scheme, bare) = endpoint.split_once("://").unwrap_or(("", &endpoint));
    if scheme == "https" {
        let args = text(config, "args").map_or_else(String::new, |args| format!("{args} "));
        set(config, "args", format!("{args}--insecure-transport=false"));
    }
    set(config, "endpoint", bare.trim_end_matches('/'));
}

/// Returns a storage's keys as gobackup reads them.
pub(super) fn storage(source: &Source) -> Config {
    let mut config = source.config.clone();
    match source.type_.name {
        "azure" => {
            rename(&mut config, "bucket", "account");
            relative(&mut config);
            // gobackup's default is a slash. It joins path and name, so a dot adds nothing.
            if text(&config, "path").is_none() {
                set(&mut config, "path", ".");
            }
        }
        "gcs" => relative(&mut config),
        _ => {}
    }
    config
}

/// Removes slashes from the start of the path. Here they would become part of object names, which rclone cannot
/// express; other types ignore them or have directories.
fn relative(config: &mut Config) {
    if let Some(path) = text(config, "path") {
        let path = path.trim_start_matches('/').to_owned();
        set(config, "path", path);
    }
}
