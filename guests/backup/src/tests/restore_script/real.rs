//! Restorations and verifications with real servers and the real rclone; most only in a full run.

use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

use super::{
    servers::{Engine, Server},
    *,
};

#[expect(
    clippy::disallowed_methods,
    reason = "tests/full sets it, and there is no configuration of unit tests"
)]
pub(in crate::tests) fn is_full() -> bool {
    std::env::var("INNKEEPER_FULL").as_deref() == Ok("1")
}

/// Text values that a dump has to quote, one of them with a line that looks like a statement.
const VALUES: [&str; 4] = [
    "a",
    "it''s \"b\" $HOME #",
    "back\\slash",
    "c\nUSE `other`;\n",
];

/// A statement that creates the table `t` with some values.
fn table(engine: Engine) -> String {
    let values = VALUES.map(|value| match engine {
        Engine::PostgreSql => format!("('{value}')"),
        Engine::MariaDb => format!("('{}')", value.replace('\\', r"\\")),
    });
    let values = values.join(", ");
    format!("CREATE TABLE t (v varchar(99)); INSERT INTO t VALUES {values}")
}

const ROWS: &str = "SELECT v FROM t ORDER BY v";

/// Restores the dump into the target, or verifies with it.
pub(super) fn end(run: &Run, containers: &[Value; 2], path: &str, dump: &str) -> RunResult {
    for directory in ["work", "made", "volumes/data/archives"] {
        fs::remove_dir_all(run.path(directory)).ok();
    }
    run.directory("work");
    archive(run, &[(path, dump)], PASSWORD);
    let secrets: [(&str, &[u8]); 2] = [("ENC_PASSWORD", PASSWORD), ("DB0_PASSWORD", PASSWORD)];
    both(run, containers, &secrets)
}

#[test]
fn a_restore_gives_back_the_data_of_each_server() {
    for engine in Engine::ALL {
        let run = Run::new(Shell::Own, "");
        let server = Server::start(&run, engine);
        for name in ["shop", "copy"] {
            server.create(name);
        }
        server.query("shop", &table(engine));
        let dump = server.dump(&[], "shop");
        let containers = containers(&[server.target("copy")]);
        let result = end(&run, &containers, &engine.dump_path("copy"), &dump);
        assert_eq!(result.code, Some(0), "{engine:?}: {result:?}");
        let [rows, expected] = ["copy", "shop"].map(|database| server.query(database, ROWS));
        assert_eq!(rows, expected, "{engine:?}");
        assert!(rows.contains("back\\slash\nc\nUSE `other`;\n"), "{rows}");
    }
}

// A custom dump replaces a table that is there already.
#[test]
fn a_restore_replaces_tables_by_a_custom_dump_of_postgresql() {
    if !is_full() {
        return;
    }
    let run = Run::new(Shell::Own, "");
    let server = Server::start(&run, Engine::PostgreSql);
    for name in ["shop", "copy"] {
        server.create(name);
    }
    server.query("shop", &table(Engine::PostgreSql));
    server.query(
        "copy",
        "CREATE TABLE t (v text); INSERT INTO t VALUES ('old')",
    );
    let packed = run.path("packed");
    server.dump(&["--format=custom", "--compress=6", "-f", &packed], "shop");
    let copy = run.directory("made/nightly/postgresql/copy");
    fs::copy(&packed, copy.join("shop.sql.gz")).unwrap();
    archive(&run, &[], PASSWORD);
    let secrets: [(&str, &[u8]); 2] = [("ENC_PASSWORD", PASSWORD), ("DB0_PASSWORD", PASSWORD)];
    let result = both(&run, &containers(&[server.target("copy")]), &secrets);
    assert_eq!(result.code, Some(0), "{result:?}");
    assert_eq!(server.query("copy", ROWS), server.query("shop", ROWS));
}

// A dump of all databases creates them, which a dump of a single one may not.
#[test]
fn a_restore_of_all_databases_of_mysql_creates_them() {
    if !is_full() {
        return;
    }
    let run = Run::new(Shell::Own, "");
    let server = Server::start(&run, Engine::MariaDb);
    server.create("shop");
    server.query("shop", &table(Engine::MariaDb));
    let rows = server.query("shop", ROWS);
    let dump = server.dump(&["--databases"], "shop");
    server.query("shop", "DROP DATABASE shop");
    let mut target = server.target("shop");
    let config = target["spec"]["config"].as_object_mut().unwrap();
    config.remove("database");
    config.insert("all_databases".to_owned(), json!(true));
    let path = Engine::MariaDb.dump_path("shop");
    let result = end(&run, &containers(&[target]), &path, &dump);
    assert_eq!(result.code, Some(0), "{result:?}");
    assert_eq!(server.query("shop", ROWS), rows);
}

/// A dump that fails or is refused, and the target's state after it.
struct Failure {
    engine: Engine,
    arguments: &'static [&'static str],
    source: &'static str,
    target: &'static str,
    told: &'static str,
    query: &'static str,
    left: &'static str,
}

const FAILURES: [Failure; 5] = [
    // A plain dump does not replace a table, and nothing is half done.
    Failure {
        engine: Engine::PostgreSql,
        arguments: &[],
        source: "CREATE TABLE a (v int); CREATE TABLE t (v text)",
        target: "CREATE TABLE t (v text)",
        told: "nothing was changed",
        query: "SELECT to_regclass('a') IS NULL",
        left: "t\n",
    },
    // The index is created after the large objects' data, whose COMMIT ends the one transaction.
    Failure {
        engine: Engine::PostgreSql,
        arguments: &[],
        source: "CREATE TABLE t (v text); CREATE INDEX i ON t (v); SELECT lo_from_bytea(4711, 'x')",
        target: "CREATE TABLE other (v text); CREATE INDEX i ON other (v)",
        told: "a part of it may have been",
        query: "SELECT count(*) FROM t",
        left: "0\n",
    },
    Failure {
        engine: Engine::PostgreSql,
        arguments: &["--create", "--clean"],
        source: "CREATE TABLE t (v text)",
        target: "CREATE TABLE kept (v text)",
        told: "nothing was changed",
        query: "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
        left: "kept\n",
    },
    // The dump does not drop the view, so the table cannot be created.
    Failure {
        engine: Engine::MariaDb,
        arguments: &[],
        source: "CREATE TABLE a (v int); INSERT INTO a VALUES (1); CREATE TABLE b (v int); CREATE TABLE c (v int)",
        target: "CREATE VIEW b AS SELECT 1 AS v",
        told: "what came before the error was",
        query: "SELECT v FROM a; SHOW TABLES",
        left: "1\na\nb\n",
    },
    Failure {
        engine: Engine::MariaDb,
        arguments: &["--databases"],
        source: "CREATE TABLE t (v int)",
        target: "CREATE TABLE kept (v int)",
        told: "would change the database `shop`; make it without --databases in args",
        query: "SHOW TABLES",
        left: "kept\n",
    },
];

#[test]
fn a_failed_dump_leaves_what_its_message_says() {
    if !is_full() {
        return;
    }
    for engine in Engine::ALL {
        let run = Run::new(Shell::Own, "");
        let server = Server::start(&run, engine);
        let of_engine = FAILURES.iter().filter(|failure| failure.engine == engine);
        for (place, failure) in of_engine.enumerate() {
            // The message names the first dump's selected database.
            let source = match failure.arguments {
                ["--databases"] => "shop".to_owned(),
                _ => format!("source_{place}"),
            };
            let target = format!("target_{place}");
            for (name, sql) in [(&source, failure.source), (&target, failure.target)] {
                server.create(name);
                server.query(name, sql);
            }
            let dump = server.dump(failure.arguments, &source);
            let containers = containers(&[server.target(&target)]);
            let result = end(&run, &containers, &engine.dump_path(&target), &dump);
            assert_eq!(result.code, Some(1), "{engine:?} {place}: {result:?}");
            assert!(
                result.message.contains(failure.told),
                "{engine:?} {place}: {result:?}"
            );
            let rows = server.query(&target, failure.query);
            assert_eq!(rows, failure.left, "{engine:?} {place}: {result:?}");
        }
    }
}

/// What a shop's dump can have beside the table `t`, by server.
const fn content(engine: Engine) -> &'static str {
    match engine {
        Engine::PostgreSql => {
            "CREATE SCHEMA \"o 'x\"; CREATE VIEW \"o 'x\".w AS SELECT v FROM t; SELECT lo_from_bytea(4711, 'x')"
        }
        Engine::MariaDb => {
            "CREATE TABLE `p ``'x` (id INT PRIMARY KEY); \
             CREATE TABLE a_child (id INT, FOREIGN KEY (id) REFERENCES `p ``'x` (id)); \
             CREATE VIEW w AS SELECT v FROM t; \
             CREATE SEQUENCE s; \
             CREATE TABLE h (v INT) WITH SYSTEM VERSIONING; \
             CREATE TRIGGER g BEFORE INSERT ON a_child FOR EACH ROW\n\
             SET @x = (SELECT MAX(id) FROM `p ``'x`\nUSE INDEX (PRIMARY)); \
             CREATE PROCEDURE p()\nDROP TABLE IF EXISTS none; \
             CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1"
        }
    }
}

#[test]
fn a_verification_restores_a_plain_dump_of_each_server_each_time() {
    if !is_full() {
        return;
    }
    for engine in Engine::ALL {
        let run = Run::new(Shell::Own, "");
        let server = Server::start(&run, engine);
        for name in ["shop", "scratch"] {
            server.create(name);
        }
        let (told, view, arguments) = match engine {
            Engine::PostgreSql => (
                "the database has content that no verification made",
                "SELECT v FROM \"o 'x\".w ORDER BY v",
                &[][..],
            ),
            Engine::MariaDb => (
                "has tables that no verification made",
                "SELECT v FROM w ORDER BY v",
                &["--routines", "--events"][..],
            ),
        };
        server.query("shop", &table(engine));
        server.query("shop", content(engine));
        server.query(
            "scratch",
            "CREATE TABLE stale (v int); INSERT INTO stale VALUES (1)",
        );
        let dump = server.dump(arguments, "shop");
        let containers = verifying(server.target("shop"), server.target("scratch"));
        let path = engine.dump_path("shop");
        // It may be a live database that a setting names by mistake.
        let result = end(&run, &containers, &path, &dump);
        assert_eq!(result.code, Some(1), "{result:?}");
        assert!(result.message.contains(told), "{result:?}");
        assert_eq!(server.query("scratch", "SELECT v FROM stale"), "1\n");
        server.query("scratch", "DROP TABLE stale");
        for _ in 0..2 {
            let result = end(&run, &containers, &path, &dump);
            assert_eq!(result.code, Some(0), "{engine:?}: {result:?}");
            assert_eq!(server.query("scratch", view), server.query("shop", view));
            let stale = "SELECT count(*) FROM information_schema.tables \
                 WHERE table_name = 'stale' AND table_schema IN ('public', 'scratch')";
            assert_eq!(server.query("scratch", stale), "0\n");
            server.query("scratch", "CREATE TABLE stale (v int)");
        }
        assert_eq!(server.query("shop", "SELECT count(*) FROM t"), "4\n");
    }
}

/// Returns SQLite's output for a file.
pub(in crate::tests) fn sqlite(path: &str, command: &str) -> String {
    let output = Command::new("sqlite3")
        .args([path, command])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The `Database` with the file `/data/lite.db`.
pub(super) fn lite() -> Value {
    let config = json!({ "path": "/data/lite.db" });
    related(
        "Database",
        "lite",
        json!({ "type": "sqlite", "config": config }),
    )
}

/// Dumps with their SQLite file, and true if the dump can be restored.
fn lite_dumps(run: &Run) -> [(String, bool); 4] {
    let source = run.path("source.db");
    let values = VALUES.map(|value| format!("('{value}')")).join(", ");
    sqlite(
        &source,
        &format!("CREATE TABLE t (v TEXT); CREATE INDEX i ON t (v); INSERT INTO t VALUES {values}"),
    );
    let dump = sqlite(&source, ".dump");
    let (cut, _) = dump.split_at(dump.len() / 2);
    [
        (cut.to_owned(), false),
        // SQLite ends a broken file's dump like this, and gobackup takes it for a good one.
        (dump.replace("COMMIT;", "ROLLBACK; -- due to errors"), false),
        (dump.replace("CREATE TABLE t", "CREATE TABLE t t"), false),
        (dump, true),
    ]
}

#[test]
fn a_restore_replaces_the_file_of_sqlite_by_a_whole_dump_alone() {
    if !is_full() {
        return;
    }
    let run = Run::new(Shell::Own, "");
    run.directory("volumes/data");
    let file = run.mount("/data/lite.db");
    let containers = containers(&[lite()]);
    sqlite(&file, "CREATE TABLE old (v)");
    std::os::unix::fs::chown(&file, Run::owner(), Run::owner()).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    for (dump, is_good) in lite_dumps(&run) {
        let journal = run.file("volumes/data/lite.db-journal", "stale");
        let before = fs::read(&file).unwrap();
        let result = end(&run, &containers, "nightly/sqlite/lite/lite.sql", &dump);
        if is_good {
            assert_eq!(result.code, Some(0), "{result:?}");
            assert!(!journal.exists());
        } else {
            assert_eq!(result.code, Some(1), "{result:?}");
            assert!(
                result.message.contains("Database lite: the dump"),
                "{result:?}"
            );
            assert!(result.message.contains("nothing was changed"), "{result:?}");
            assert_eq!(fs::read(&file).unwrap(), before);
            assert!(journal.exists());
        }
    }
    assert_eq!(sqlite(&file, ROWS), sqlite(&run.path("source.db"), ROWS));
    assert_eq!(sqlite(&file, ".tables").trim(), "t");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o640
    );
}

#[test]
fn a_verification_replays_the_dump_of_sqlite_into_a_file_of_its_own() {
    if !is_full() {
        return;
    }
    let run = Run::new(Shell::Own, "");
    let containers = verifying(lite(), lite());
    for (dump, is_good) in lite_dumps(&run) {
        let result = end(&run, &containers, "nightly/sqlite/lite/lite.sql", &dump);
        assert_eq!(result.code, Some(i32::from(!is_good)), "{result:?}");
    }
    let [verified, source] =
        ["work/verified.db", "source.db"].map(|path| sqlite(&run.path(path), ROWS));
    assert_eq!(verified, source);
    assert!(!Path::new(&run.mount("/data/lite.db")).exists());
}
