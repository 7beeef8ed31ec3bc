//! Dumps of real servers and files: a run only succeeds with a complete dump, and a Restore restores it.

use std::{
    io::{Read as _, Write as _},
    process::{Command, Stdio},
};

use super::{
    super::restore_script::{
        real::sqlite,
        servers::{Engine, Server},
    },
    *,
};

/// What is wrong with a SQLite file before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lite {
    Good,
    Missing,
    Empty,
    Locked,
    Corrupt,
    Encrypted,
    Directory,
}

/// Makes the file, and returns the program that locks it.
fn prepare(case: &Case, state: Lite) -> Option<std::process::Child> {
    let path = case.run.mount("/data/app.db");
    let content = "CREATE TABLE t (v); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n \
            WHERE i < 2000) INSERT INTO t SELECT hex(randomblob(40)) FROM n";
    match state {
        Lite::Missing => {}
        Lite::Empty => drop(case.run.file("volumes/data/app.db", "")),
        Lite::Directory => drop(case.run.directory("volumes/data/app.db")),
        Lite::Encrypted => fs::write(&path, vec![0xa7; 65536]).unwrap(),
        Lite::Good | Lite::Locked | Lite::Corrupt => drop(sqlite(&path, content)),
    }
    if state == Lite::Corrupt {
        let mut bytes = fs::read(&path).unwrap();
        bytes[3 * 4096..20 * 4096].fill(0xff);
        fs::write(&path, bytes).unwrap();
    }
    if state != Lite::Missing {
        std::os::unix::fs::chown(&path, Run::owner(), Run::owner()).unwrap();
    }
    (state == Lite::Locked).then(|| {
        let mut child = Command::new("sqlite3")
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(b"BEGIN EXCLUSIVE; SELECT 1;\n")
            .unwrap();
        let mut answer = [0; 1];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut answer)
            .unwrap();
        child
    })
}

#[test]
fn a_run_with_a_broken_file_of_sqlite_fails() {
    let Some(program) = program() else { return };
    for (state, told) in [
        (Lite::Good, ""),
        (Lite::Missing, "there is no file"),
        (Lite::Empty, "is not a SQLite database"),
        (Lite::Locked, "database is locked"),
        (Lite::Corrupt, "SQLite cannot read"),
        (Lite::Encrypted, "is not a SQLite database"),
        (Lite::Directory, "there is no file"),
    ] {
        let database = json!({ "type": "sqlite", "config": { "path": "/data/app.db" } });
        let case = Case::new(
            &json!({}),
            &[related("Database", "app", database)],
            &[shelf()],
        );
        let path = case.run.mount("/data/app.db");
        let locker = prepare(&case, state);
        let result = case.perform(Some(&program));
        if let Some(mut child) = locker {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        if state == Lite::Good {
            let file = stored(&result);
            fs::remove_file(&path).unwrap();
            let restored = case.restore(&file, &json!({ "confirm": "app" }));
            assert_eq!(restored.code, Some(0), "{restored:?}");
            assert_eq!(sqlite(&path, "SELECT count(*) FROM t"), "2000\n");
            continue;
        }
        assert_eq!(result.code, Some(1), "{state:?}: {result:?}");
        assert!(
            result.message.contains("Database app: "),
            "{state:?}: {result:?}"
        );
        assert!(result.message.contains(told), "{state:?}: {result:?}");
        assert_eq!(archives(&case.run), Vec::<String>::new());
        assert_eq!(state == Lite::Missing, !fs::exists(&path).unwrap());
    }
}

/// The databases' user, who owns their routines. gobackup passes no blank in a mysql password.
struct Owner<'a> {
    server: &'a Server,
}

const OWNER_PASSWORD: &[u8] = b"my$p#a\"s";

impl<'a> Owner<'a> {
    /// Owns MariaDB databases, with the least privileges that a dump with routines needs.
    fn new(server: &'a Server, databases: &[&str]) -> Self {
        let password = std::str::from_utf8(OWNER_PASSWORD).unwrap();
        let created = format!(
            "CREATE USER o@'127.0.0.1' IDENTIFIED BY '{password}'; GRANT SELECT ON mysql.proc TO o@'127.0.0.1'"
        );
        let databases = databases.iter().map(|name| {
            format!("; CREATE DATABASE {name}; GRANT ALL PRIVILEGES ON {name}.* TO o@'127.0.0.1'")
        });
        let sql = created + &databases.collect::<String>();
        server.output(
            "mariadb",
            &["--no-defaults", "--user=root", "--execute", &sql],
            b"",
        );
        Self { server }
    }

    fn query(&self, database: &str, sql: &str) -> String {
        let form = [
            "--no-defaults",
            "--batch",
            "--skip-column-names",
            "--user=o",
        ];
        let arguments = [&form[..], &["--execute", sql, database]].concat();
        self.server.output("mariadb", &arguments, OWNER_PASSWORD)
    }

    /// A `Database` with further settings.
    fn database(&self, name: &str, further: Value) -> Value {
        let mut database = self.server.target(name);
        database["spec"]["config"]["username"] = json!("o");
        for (key, value) in further.as_object().unwrap() {
            database["spec"]["config"][key] = value.clone();
        }
        database
    }
}

const OBJECTS: &str = "SELECT (SELECT count(*) FROM information_schema.routines WHERE routine_schema = DATABASE()), \
    (SELECT count(*) FROM information_schema.events WHERE event_schema = DATABASE()), \
    (SELECT count(*) FROM information_schema.triggers WHERE trigger_schema = DATABASE()), \
    (SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE())";

#[test]
fn a_restore_of_mysql_has_routines_triggers_and_events() {
    let Some(program) = program() else { return };
    let place = Run::new(Shell::Own, "");
    let server = Server::start(&place, Engine::MariaDb);
    let owner = Owner::new(&server, &["shop", "copy"]);
    for sql in [
        "CREATE TABLE t (v INT); INSERT INTO t VALUES (1), (2)",
        "CREATE PROCEDURE p() SELECT 1",
        "CREATE FUNCTION f() RETURNS INT RETURN 1",
        "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET @x = 1",
        "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
        "CREATE VIEW w AS SELECT v FROM t",
    ] {
        owner.query("shop", sql);
    }
    for (args, code, objects) in [
        ("", 0, "2\t1\t1\t2\n"),
        ("--skip-routines --skip-events", 0, "0\t0\t1\t2\n"),
        ("--skip-comments --hex-blob", 0, "2\t1\t1\t2\n"),
        ("--lock-all-tables", 1, ""),
    ] {
        owner.query("copy", "DROP DATABASE copy; CREATE DATABASE copy");
        let databases = [
            owner.database("shop", json!({ "args": args })),
            owner.database("copy", json!({})),
        ];
        let case = Case::new(&json!({}), &databases[..1], &[shelf()])
            .value("DB0_PASSWORD", OWNER_PASSWORD);
        let result = case.perform(Some(&program));
        assert_eq!(result.code, Some(code), "{args}: {result:?}");
        if code != 0 {
            continue;
        }
        let mut case = case;
        case.objects.push(databases[1].clone());
        let overrides = json!([{ "database": "shop", "databaseRef": { "name": "copy" } }]);
        let restored = case.restore(
            &stored(&result),
            &json!({ "confirm": "copy", "overrides": overrides }),
        );
        assert_eq!(restored.code, Some(0), "{args}: {restored:?}");
        assert_eq!(owner.query("copy", OBJECTS), objects, "{args}");
        assert_eq!(owner.query("copy", "SELECT v FROM t"), "1\n2\n");
    }
}
