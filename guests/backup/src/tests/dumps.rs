//! The dump check, with complete, truncated and empty dumps of each type.

use std::{fs, process::Command};

use super::{
    run::{Run, Shell},
    *,
};
use crate::script::DUMPS;

/// A stand-in for pg_restore that reads a dump with the word `whole`.
const READING: &str = r#"grep -rq whole "$2" || { echo "unexpected end of file" >&2; exit 1; }"#;

/// Returns the check's message about these files below a dump's directory; empty if they are complete.
fn verdict(shell: Shell, type_: &str, files: &[(&str, &[u8])]) -> String {
    let run = Run::new(shell, "");
    run.program("pg_restore", READING);
    let directory = run.directory("work/dump");
    for (name, content) in files {
        let path = directory.parent().unwrap().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let script = format!(
        "{DUMPS}check_dump {type_} {} 'Database a'\n",
        directory.display()
    );
    let mut command = match shell {
        Shell::Own => Command::new("sh"),
        Shell::Busybox => Command::new("busybox"),
    };
    if shell == Shell::Busybox {
        command.arg("sh");
    }
    let result = command
        .args(["-c", &script])
        .env("PATH", run.search_path())
        .env("TMPDIR", run.path("work"))
        .output()
        .unwrap();
    let message = String::from_utf8(result.stderr).unwrap();
    assert_eq!(result.status.success(), message.is_empty(), "{message}");
    message
        .trim_end()
        .lines()
        .last()
        .unwrap_or_default()
        .replace("Database a: the dump ", "")
}

const CUT: &str = "is not complete: its end is missing";

const NOTHING: &str = "has no content";

/// The end of a plain dump since PostgreSQL 17.6.
const RESTRICTED: &[u8] =
    b"SELECT 1;\n--\n-- PostgreSQL database dump complete\n--\n\n\\unrestrict aB3\n\n";

type Row<'a> = (&'a str, &'a [(&'a str, &'a [u8])], &'a str);

const ROWS: &[Row<'_>] = &[
    ("postgresql", &[], NOTHING),
    ("postgresql", &[("dump/a.sql", b"")], "is empty"),
    ("postgresql", &[("dump/a.sql", b"CREATE TABLE t (v int);\nCOPY t FROM stdin;\n1\n")], CUT),
    ("postgresql", &[("dump/a.sql", b"--\n-- PostgreSQL database dump complete\n--\n\n")], ""),
    ("postgresql", &[("dump/a.sql", RESTRICTED)], ""),
    ("postgresql", &[("dump/all_databases.sql", b"--\n-- PostgreSQL database cluster dump complete\n--\n\n")], ""),
    ("postgresql", &[("dump/all_databases.sql", b"--\n-- PostgreSQL database dump complete\n--\n\n--\n-- PostgreSQL database cluster dump\n")], ""),
    ("postgresql", &[("dump/a.sql", b"PGDMP whole")], ""),
    ("postgresql", &[("dump/a.sql.gz", b"PGDMP")], "is not complete: pg_restore cannot read it"),
    ("postgresql", &[("dump/a.sql/toc.dat", b"PGDMP whole")], ""),
    ("postgresql", &[("dump/a.sql/toc.dat", b"PGDMP")], "is not complete: pg_restore cannot read it"),
    ("postgresql", &[("dump/a.sql", b"toc.dat\0whole")], ""),
    ("postgresql", &[("dump/a.sql", b"toc.dat\0")], "is not complete: pg_restore cannot read it"),
    ("postgresql", &[("dump/a.sql", b"\x1f\x8bcut")], "is not complete: gzip cannot read it"),
    ("mysql", &[("dump/a.sql", b"")], "is empty"),
    ("mysql", &[("dump/a.sql", b"-- MySQL dump 10.13\nINSERT INTO t VALUES (1);\n")], CUT),
    ("mysql", &[("dump/a.sql", b"-- MariaDB dump 10.19\nINSERT INTO t VALUES ('-- Dump completed on');\n")], CUT),
    ("mysql", &[("dump/a.sql", b"-- Dump completed on 2026-08-20  2:00:01\n")], ""),
    ("mysql", &[("dump/a.sql", b"-- Dump completed\n")], ""),
    ("mysql", &[("dump/a.sql", b"<mysqldump>\n</mysqldump>\n")], ""),
    ("mysql", &[("dump/a.sql", b"INSERT INTO t VALUES (1);\n")], ""),
    ("mysql", &[("dump/a.sql", b"")], "is empty"),
    ("mariadb", &[("dump/ibdata1", b"pages")], NOTHING),
    ("mariadb", &[("dump/xtrabackup_info", b"uuid"), ("dump/shop/db.opt", b"")], ""),
    ("mariadb", &[("dump/mariadb_backup_info", b"uuid")], ""),
    ("mongodb", &[], NOTHING),
    ("mongodb", &[("dump/prelude.json", b"{}")], NOTHING),
    ("mongodb", &[("dump/shop/a.bson", b"\x05\0\0\0\0"), ("dump/shop/a.metadata.json", b"{}")], ""),
    ("mongodb", &[("dump/shop/a.bson", b""), ("dump/shop/a.metadata.json", b"{\"a\":{}}\n")], ""),
    ("mongodb", &[("dump/shop/a.bson", b"\x16\0\0\0\x02abc")], CUT),
    ("mongodb", &[("dump/shop/a.bson", b"\x05\0\0\0\0"), ("dump/shop/a.metadata.json", b"{\"a\":")], CUT),
    ("mongodb", &[("dump/shop/a.bson.gz", b"\x1f\x8bcut")], "is not complete: gzip cannot read it"),
    ("mongodb", &[("dump/a.archive", b"\x6d\xe2\x99\x81....\xff\xff\xff\xff")], ""),
    ("mongodb", &[("dump/a.archive", b"\x6d\xe2\x99\x81........")], CUT),
    ("redis", &[("dump/dump.rdb", b"")], "is empty"),
    ("redis", &[("dump/dump.rdb", b"REDIS0011\xfe\0\xff12345678")], ""),
    ("redis", &[("dump/dump.rdb", b"VALKEY080\xfe\0\xff12345678")], ""),
    ("redis", &[("dump/dump.rdb", b"REDIS0011\xfe\0\xff1234567")], CUT),
    ("redis", &[("dump/dump.rdb", b"-ERR unknown command")], "is not an RDB file"),
    ("mssql", &[], NOTHING),
    ("mssql", &[("dump/a.bacpac", b"PK\x03\x04....PK\x05\x06123456789012345678")], ""),
    ("mssql", &[("dump/a.bacpac", b"PK\x03\x04....PK\x05\x0612345678901234567")], CUT),
    ("mssql", &[("dump/a.bacpac", b"PK\x03\x04....PK\x05\x06123456789012345678"), ("dump/b.bacpac", b"PK\x03\x04....")], CUT),
    ("mssql", &[("dump/a.bacpac", b"<html>")], "is not a bacpac file"),
    ("influxdb2", &[("dump/1.sqlite.gz", b"\x1f\x8b")], NOTHING),
    ("influxdb2", &[("dump/1.manifest", b"{}"), ("dump/1.tar.gz", b"\x1f\x8bcut")], "is not complete: gzip cannot read it"),
    ("influxdb2", &[("dump/1.manifest", b"{}"), ("dump/1.bolt", b"x")], ""),
    ("sqlite", &[("dump/a.sql", b"")], "is empty"),
    ("sqlite", &[("dump/a.sql", b"BEGIN TRANSACTION;\nCOMMIT;\n")], ""),
    ("sqlite", &[("dump/a.sql", b"BEGIN TRANSACTION;\nROLLBACK; -- due to errors\n")], "is not complete: SQLite met errors in the file"),
    ("sqlite", &[("dump/a.sql", b"BEGIN TRANSACTION;\nINSERT")], CUT),
    ("firebird", &[("dump/a.fbk", b"")], "is empty"),
    ("firebird", &[("dump/a.fbk", b"x")], ""),
    ("etcd", &[], "is empty"),
    ("etcd", &[("dump-h:2379", b"short")], CUT),
];

#[test]
fn a_dump_without_its_end_is_not_complete() {
    for (type_, files, expected) in ROWS {
        for shell in Shell::all() {
            let problem = verdict(shell, type_, files);
            assert_eq!(&problem, expected, "{type_} {files:?} {shell:?}");
        }
    }
}

// etcd sends a snapshot's SHA-256 after it.
#[test]
fn the_hash_of_a_snapshot_of_etcd_is_checked() {
    use sha2_of as hash;
    let content = b"pages of a database".repeat(100);
    let whole = [content.clone(), hash(&content)].concat();
    for (snapshot, expected) in [
        (&whole[..], ""),
        (&whole[..whole.len() - 1], CUT),
        (&whole[1..], CUT),
    ] {
        for shell in Shell::all() {
            let problem = verdict(shell, "etcd", &[("dump-h:2379", snapshot)]);
            assert_eq!(problem, expected);
        }
    }
}

fn sha2_of(content: &[u8]) -> Vec<u8> {
    let hex = innkeeper_sdk::hash::sha256_hex(content);
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}

#[test]
fn the_script_after_a_dump_is_that_of_the_user_and_the_check() {
    let check = "sh \\\"${DOLLAR}{HOME}/check-dump\\\" postgresql pg 'Database pg'";
    for (further, expected) in [
        (json!({}), format!("after_script: \"{check}\"\n")),
        (
            json!({ "after_script": "thaw; exit 0", "on_exit": "always" }),
            format!("after_script: \"(\\nthaw; exit 0\\n) && {check}\"\n"),
        ),
        // It says nothing about the check.
        (
            json!({ "on_exit": "always" }),
            format!("after_script: \"{check}\"\n"),
        ),
    ] {
        let mut objects = around();
        for (key, value) in further.as_object().unwrap() {
            objects[0]["spec"]["config"][key] = value.clone();
        }
        let scripts = json!({ "scripts": true });
        let outcome = reconcile_with(&backup(json!({})), &objects, &scripts).unwrap();
        let text = configuration(&outcome);
        assert!(text.contains(&expected), "{text}");
        assert_eq!(
            text.contains("on_exit"),
            further.get("after_script").is_some()
        );
    }
}

#[test]
fn a_dump_of_mysql_is_whole_unless_its_arguments_say_otherwise() {
    for (further, expected) in [
        (
            json!({}),
            "--single-transaction --routines --events --triggers",
        ),
        (
            json!({ "args": "--skip-events" }),
            "--single-transaction --routines --events --triggers --skip-events",
        ),
        (
            json!({ "args": "--lock-all-tables" }),
            "--routines --events --triggers --lock-all-tables",
        ),
        (json!({ "args": "-x" }), "--routines --events --triggers -x"),
        (
            json!({ "tables": ["t"] }),
            "--single-transaction --triggers",
        ),
        (
            json!({ "all_databases": true, "database": "" }),
            "--single-transaction --routines --events --triggers",
        ),
    ] {
        let mut config = json!({ "database": "shop", "username": "u" });
        for (key, value) in further.as_object().unwrap() {
            config[key] = value.clone();
        }
        let mut objects = around();
        objects[0] = related(
            "Database",
            "pg",
            json!({ "type": "mysql", "config": config }),
        );
        let text = configuration(&reconcile(&backup(json!({})), &objects).unwrap());
        assert!(text.contains(&format!("args: \"{expected}\"\n")), "{text}");
    }
}

// gobackup makes no directory for the chunks there.
#[test]
fn chunks_are_refused_where_gobackup_cannot_store_them() {
    let login =
        json!({ "host": "h", "username": "u", "password": "p", "path": "/p", "root": "http://h" });
    for (type_, is_refused) in [
        ("sftp", true),
        ("ftp", true),
        ("scp", false),
        ("webdav", false),
    ] {
        let mut objects = around();
        objects[1] = related("Storage", "s", json!({ "type": type_, "config": login }));
        let parent = backup(json!({ "splitWith": { "chunkSize": "1m" } }));
        let outcome = reconcile(&parent, &objects).unwrap();
        let ready = condition(outcome.report(), "Ready");
        let message = format!("chunks of splitWith in a storage of type {type_};");
        assert_eq!(
            ready.starts_with("False/InvalidReference: Storage s: "),
            is_refused,
            "{ready}"
        );
        assert_eq!(ready.contains(&message), is_refused, "{ready}");
        assert_eq!(outcome.child("run").is_some(), !is_refused);
        let whole = reconcile(&backup(json!({})), &objects).unwrap();
        assert!(whole.child("run").is_some());
    }
}

/// A run with the stand-in and a fake sqlite3, which copies a dump and exits with 0.
fn sqlite_run(outcome: &Answer, check: &str) -> Run {
    let config = configuration(outcome);
    let run = Run::new(Shell::Own, "");
    let config = config.replace("\"/data", &format!("\"{}", run.mount("/data")));
    run.program("gobackup", &standin::program(&documents(&config)[0]));
    run.program(
        "sqlite3",
        &format!("case $* in\n*.dump) cp \"$TMPDIR/made\" \"${{2#.output }}\" ;;\n*) echo '{check}' ;;\nesac"),
    );
    run
}

#[test]
fn a_run_checks_a_file_of_sqlite_and_its_dump() {
    const HEADER: &str = "SQLite format 3\u{0}pages";
    const DUMP: &str = "BEGIN TRANSACTION;\nCOMMIT;\n";
    const READ: &str = "Database app: SQLite cannot read";
    let config = json!({ "type": "sqlite", "config": { "path": "/data/app.db" } });
    let mut objects = around();
    objects[0] = related("Database", "app", config);
    let parent = backup(json!({ "databaseRefs": [{ "name": "app" }] }));
    let outcome = reconcile(&parent, &objects).unwrap();
    let container = run::gobackup(&outcome);
    for (file, check, dump, message) in [
        (Some(HEADER), "ok", DUMP, None),
        (None, "ok", DUMP, Some("Database app: there is no file")),
        (Some(""), "ok", DUMP, Some("is not a SQLite database")),
        (
            Some("\u{1}\u{2}encrypted"),
            "ok",
            DUMP,
            Some("is not a SQLite database"),
        ),
        (Some(HEADER), "Error: database is locked", DUMP, Some(READ)),
        (Some(HEADER), "*** in database main ***", DUMP, Some(READ)),
        (Some(HEADER), "", DUMP, Some(READ)),
        (
            Some(HEADER),
            "ok",
            "BEGIN TRANSACTION;\nROLLBACK; -- due to errors\n",
            Some("Database app: the dump is not complete: SQLite met errors in the file"),
        ),
        (
            Some(HEADER),
            "ok",
            "BEGIN",
            Some("Database app: the dump is not complete"),
        ),
        (
            Some(HEADER),
            "ok",
            "",
            Some("Database app: the dump is empty"),
        ),
    ] {
        let run = sqlite_run(&outcome, check);
        run.directory("volumes/data");
        run.file("work/made", dump);
        if let Some(content) = file {
            run.file("volumes/data/app.db", content);
        }
        let result = run.execute(&container, &run.search_path(), &[]);
        match message {
            None => {
                let message: Value = serde_json::from_str(&result.message).unwrap();
                assert!(message["bytes"].as_u64() > Some(500), "{result:?}");
            }
            Some(message) => {
                assert_eq!(result.code, Some(1), "{result:?}");
                assert!(result.message.contains(message), "{message}: {result:?}");
                assert!(!result.log.contains("Uploading"), "{result:?}");
            }
        }
        assert_eq!(
            fs::exists(run.mount("/data/app.db")).unwrap(),
            file.is_some()
        );
    }
}
