//! A restoration that creates less than the dump or archive contains fails, with real servers.

use super::{
    real::{end, is_full, lite, sqlite},
    servers::{Engine, Server},
    *,
};

/// What the dumps have.
const fn content(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::PostgreSql => &[
            "CREATE TABLE t (v int PRIMARY KEY, text text); INSERT INTO t VALUES (1, E'\n--\n-- Name: x; Type: TABLE; Schema: public; Owner: u\n')",
            "CREATE VIEW w AS SELECT v FROM t; CREATE MATERIALIZED VIEW m AS SELECT v FROM t; CREATE INDEX i ON t (v)",
            "CREATE SEQUENCE s; CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "CREATE FUNCTION f(text) RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "CREATE PROCEDURE p(int) LANGUAGE sql AS 'SELECT 1'",
            "CREATE FUNCTION c() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION c()",
            "CREATE SCHEMA \"o 'x\"; CREATE TABLE \"o 'x\".\"a; b\" (v int REFERENCES t); CREATE TABLE part (v int) PARTITION BY LIST (v)",
            "CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1); CREATE INDEX ON part (v)",
        ],
        Engine::MariaDb => &[
            "CREATE TABLE t (v INT); INSERT INTO t VALUES (1)",
            "SET NAMES utf8mb4; CREATE TABLE `a b``c` (v INT); CREATE TABLE `ä` (v INT) COMMENT 'a\\nCREATE TABLE `x` (v INT)'; CREATE VIEW w AS SELECT v FROM t",
            "CREATE SEQUENCE s; CREATE FUNCTION f() RETURNS INT RETURN 1",
            "CREATE PROCEDURE p()\nCREATE TABLE none (v INT)",
            "CREATE TRIGGER shop.g BEFORE INSERT ON t FOR EACH ROW SET @x = 1",
            "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO\nCREATE TABLE none (v INT)",
        ],
    }
}

/// An edit in the dump: a replaced text, or none to append a statement; and the object that the message names.
type Edit = (&'static str, &'static str, Option<&'static str>);

const POSTGRESQL: &[Edit] = &[
    ("", "", None),
    ("", "DROP VIEW public.w;", Some("VIEW public.w")),
    (
        "",
        "DROP MATERIALIZED VIEW public.m;",
        Some("MATERIALIZED VIEW public.m"),
    ),
    ("", "DROP INDEX public.i;", Some("INDEX public.i")),
    ("", "DROP SEQUENCE public.s;", Some("SEQUENCE public.s")),
    (
        "",
        "DROP FUNCTION public.f(text);",
        Some("FUNCTION public.f"),
    ),
    ("", "DROP PROCEDURE public.p;", Some("FUNCTION public.p")),
    (
        "",
        "DROP TRIGGER g ON public.t;",
        Some("TRIGGER public.t g"),
    ),
    (
        "",
        "DROP TABLE \"o 'x\".\"a; b\";",
        Some("TABLE o 'x.a; b, FK CONSTRAINT o 'x.a; b a; b_v_fkey"),
    ),
    (
        "",
        "ALTER TABLE public.t DROP CONSTRAINT t_pkey CASCADE;",
        Some("CONSTRAINT public.t t_pkey, FK CONSTRAINT o 'x.a; b a; b_v_fkey"),
    ),
    ("", "CREATE TABLE public.more (v int);", None),
];

const MARIADB: &[Edit] = &[
    ("", "", None),
    // Comments for another version are none for this server.
    ("!500", "!999", Some("TRIGGER copy.g, VIEW copy.w")),
    (
        "!50106 CREATE*/ /*!50117 DEFINER=`u`@`127.0.0.1`*/ /*!50106 EVENT",
        "!99999 CREATE*/ /*!99999 DEFINER=`u`@`127.0.0.1`*/ /*!99999 EVENT",
        Some("EVENT copy.e"),
    ),
    ("", "DROP TABLE t;", Some("TABLE copy.t, TRIGGER copy.g")),
    ("", "DROP TABLE `a b``c`;", Some("TABLE copy.a b`c")),
    (
        "",
        "SET NAMES utf8mb4; DROP TABLE `ä`;",
        Some("TABLE copy.?"),
    ),
    ("", "DROP SEQUENCE s;", Some("TABLE copy.s")),
    ("", "DROP FUNCTION f;", Some("FUNCTION copy.f")),
    ("", "DROP PROCEDURE p;", Some("PROCEDURE copy.p")),
    ("", "CREATE TABLE more (v int);", None),
    ("CREATE TABLE `t`", "CREATE TABLE IF NOT EXISTS `t`", None),
];

#[test]
fn a_restore_that_lacks_an_object_of_the_dump_fails() {
    if !is_full() {
        return;
    }
    for (engine, edits, arguments, mark) in [
        (
            Engine::PostgreSql,
            POSTGRESQL,
            &[][..],
            "--\n-- PostgreSQL database dump complete",
        ),
        (
            Engine::MariaDb,
            MARIADB,
            &["--routines", "--events"][..],
            "-- Dump completed",
        ),
    ] {
        let run = Run::new(Shell::Own, "");
        let server = Server::start(&run, engine);
        server.create("shop");
        for sql in content(engine) {
            server.query("shop", sql);
        }
        let dump = server
            .dump(arguments, "shop")
            .replace("TRIGGER shop.g", "TRIGGER g");
        let place = if engine == Engine::MariaDb {
            "information_schema"
        } else {
            "postgres"
        };
        let containers = containers(&[server.target("copy")]);
        for (from, to, missing) in edits {
            server.create("copy");
            let dump = match *from {
                "" => dump.replace(mark, &format!("{to}\n{mark}")),
                from => dump.replace(from, to),
            };
            let result = end(&run, &containers, &engine.dump_path("copy"), &dump);
            assert_eq!(
                result.code,
                Some(i32::from(missing.is_some())),
                "{to}: {result:?}"
            );
            if let Some(missing) = missing {
                let message = format!(
                    "Database copy: the dump has more than was restored, and the rest was; missing: {missing}\n"
                );
                assert!(result.message.ends_with(&message), "{to}: {result:?}");
            }
            server.query(place, "DROP DATABASE copy");
        }
    }
}

// Something in the server undoes what pg_restore creates.
#[test]
fn a_custom_dump_of_which_an_object_is_undone_fails() {
    if !is_full() {
        return;
    }
    let run = Run::new(Shell::Own, "");
    let server = Server::start(&run, Engine::PostgreSql);
    for name in ["shop", "copy"] {
        server.create(name);
    }
    for sql in content(Engine::PostgreSql) {
        server.query("shop", sql);
    }
    let packed = run.path("packed");
    server.dump(&["--format=custom", "-f", &packed], "shop");
    let restored = |run: &Run| {
        let copy = run.directory("made/nightly/postgresql/copy");
        fs::copy(&packed, copy.join("shop.sql")).unwrap();
        archive(run, &[], PASSWORD);
        let secrets: [(&str, &[u8]); 2] = [("ENC_PASSWORD", PASSWORD), ("DB0_PASSWORD", PASSWORD)];
        both(run, &containers(&[server.target("copy")]), &secrets)
    };
    let result = restored(&Run::new(Shell::Own, ""));
    assert_eq!(result.code, Some(0), "{result:?}");
    server.query("copy", "CREATE FUNCTION pg_temp.x() RETURNS int LANGUAGE sql AS 'SELECT 1'; \
        CREATE SCHEMA guard; CREATE FUNCTION guard.drop() RETURNS event_trigger LANGUAGE plpgsql AS \
        'BEGIN DROP VIEW IF EXISTS public.w; END'; \
        CREATE EVENT TRIGGER undo ON ddl_command_end WHEN TAG IN ('CREATE VIEW') EXECUTE FUNCTION guard.drop()");
    let result = restored(&Run::new(Shell::Own, ""));
    assert_eq!(result.code, Some(1), "{result:?}");
    assert!(
        result.message.contains("missing: VIEW public.w\n"),
        "{result:?}"
    );
}

#[test]
fn a_file_of_sqlite_that_lacks_a_row_or_an_object_is_not_restored() {
    if !is_full() {
        return;
    }
    let run = Run::new(Shell::Own, "");
    run.directory("volumes/data");
    let file = run.mount("/data/lite.db");
    let source = run.path("source.db");
    sqlite(
        &source,
        "CREATE TABLE t (v INTEGER UNIQUE ON CONFLICT IGNORE); INSERT INTO t VALUES (1), (2), (3); \
        CREATE TABLE \"a (b\" (v); INSERT INTO \"a (b\" VALUES ('x\nCREATE TABLE y (v)\nINSERT INTO t VALUES (9)'); CREATE INDEX i ON t (v); \
        CREATE TABLE k (id INTEGER PRIMARY KEY AUTOINCREMENT); INSERT INTO k VALUES (7); \
        CREATE TRIGGER g AFTER INSERT ON t BEGIN\nINSERT INTO k VALUES (NULL);\nEND; \
        CREATE VIEW w AS SELECT v FROM t; CREATE VIRTUAL TABLE words USING fts5(text); INSERT INTO words VALUES ('a b'); ANALYZE",
    );
    let dump = sqlite(&source, ".dump");
    let containers = containers(&[lite()]);
    for (from, to, missing) in [
        ("", "", None),
        (
            "INSERT INTO t VALUES(2);",
            "INSERT INTO t VALUES(1);",
            Some("INSERT INTO t (2 of 3)"),
        ),
        (
            "\nCOMMIT;",
            "\nDROP VIEW w;\nCOMMIT;",
            Some("CREATE VIEW w AS SELECT v FROM t;"),
        ),
        (
            "\nCOMMIT;",
            "\nDROP INDEX i;\nCOMMIT;",
            Some("INSERT INTO sqlite_stat1 (8 of 9), CREATE INDEX i ON t"),
        ),
        (
            "\nCOMMIT;",
            "\nDELETE FROM \"a (b\";\nCOMMIT;",
            Some("INSERT INTO \"a"),
        ),
    ] {
        let dump = dump.replace(from, to);
        fs::remove_file(&file).ok();
        let result = end(&run, &containers, "nightly/sqlite/lite/lite.sql", &dump);
        assert_eq!(
            result.code,
            Some(i32::from(missing.is_some())),
            "{to}: {result:?}"
        );
        if let Some(missing) = missing {
            let message = format!(
                "Database lite: the dump has more than was restored, and nothing was changed; missing: {missing}\n"
            );
            assert!(result.message.ends_with(&message), "{to}: {result:?}");
        }
        assert_eq!(fs::exists(&file).unwrap(), missing.is_none());
    }
}

/// A dump that is not restored.
const OTHER: &[(&str, &str)] = &[("nightly/redis/a/dump.rdb", "x")];

// tar takes an archive that is cut between two files for a whole one.
#[test]
fn files_that_are_not_those_of_the_archive_fail_a_restore() {
    let lost = "archive: 1 of them, such as nightly/source/file, are missing or too short\n";
    let cut = "their archive is not complete, and nothing was changed\n";
    for (shell, busybox) in
        Shell::all().flat_map(|shell| [(shell, false), (shell, shell == Shell::Busybox)])
    {
        for (after, message) in [
            ("", ""),
            ("rm \"$root/nightly/source/file\"", lost),
            ("printf conten >\"$root/nightly/source/file\"", lost),
            (
                "printf 'content and more' >\"$root/nightly/source/file\"",
                "",
            ),
            (
                "printf 'a\\nb' >\"$root/a -> b\"; mkdir -m 0 \"$root/lost+found\"",
                "",
            ),
            ("cut", cut),
        ] {
            let run = Run::new(shell, "");
            archive(&run, OTHER, PASSWORD);
            run.program("rclone", COPYING);
            let tar = if busybox {
                "busybox tar"
            } else {
                "/usr/bin/tar"
            };
            let root = run.mount("/data/back");
            let packed = run.path("work/unpacked/nightly/archive.tar");
            let (unpacked, extracted) = match after {
                "cut" => (
                    "head -c 1024 \"$packed\" >\"$packed.cut\" && mv \"$packed.cut\" \"$packed\"",
                    ":",
                ),
                after => (":", after),
            };
            run.program(
                "tar",
                &format!(
                    "{tar} \"$@\" || exit\nroot='{root}' packed='{packed}'\n\
                     case $* in\n*-xpf*) {extracted} ;;\n*/unpacked) {unpacked} ;;\nesac\n"
                ),
            );
            let result = both(&run, &containers(&[]), &[("ENC_PASSWORD", PASSWORD)]);
            assert_eq!(
                result.code,
                Some(i32::from(!message.is_empty())),
                "{after}: {result:?}"
            );
            assert!(result.message.ends_with(message), "{after}: {result:?}");
            if message == cut {
                assert!(!fs::exists(&root).unwrap());
            }
        }
    }
}

#[test]
fn files_with_odd_names_are_those_of_the_archive() {
    let names = [
        "a b",
        "ä",
        "line\nfeed",
        "back\\slash",
        "a -> b",
        " x",
        "'\"$HOME",
    ];
    for busybox in [false, true] {
        let run = Run::new(Shell::Own, "");
        archive(&run, OTHER, PASSWORD);
        run.program("rclone", COPYING);
        if busybox {
            run.program("tar", "exec busybox tar \"$@\"");
        }
        // As paths in archive.includes can be.
        let script = "cd \"$1\" && mkdir -p in/d && shift && for name; do printf content >\"in/d/$name\"; done; ln -s none in/d/link; mkdir more; : >more/empty; \
            mkdir -p nightly && tar -cPf nightly/archive.tar .//in/./d \"$PWD/more\" && tar -czf packed nightly && \
            openssl aes-256-cbc -salt -pbkdf2 -pass env:PASSWORD -in packed -out \"$OLDPWD/2026.tar.gz.enc\"";
        let target = run.directory("volumes/data/archives/default/backup/nightly/2026.tar");
        for entry in fs::read_dir(&target).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let odd = run.directory("odd");
        let password = std::str::from_utf8(PASSWORD).unwrap();
        let status = Command::new("sh")
            .args(["-ec", script, "sh", odd.to_str().unwrap()])
            .args(names)
            .current_dir(&target)
            .env("PASSWORD", password)
            .status();
        assert!(status.unwrap().success());
        let result = both(&run, &containers(&[]), &[("ENC_PASSWORD", PASSWORD)]);
        assert_eq!(result.code, Some(0), "{result:?}");
        for name in names {
            assert_eq!(
                fs::read_to_string(run.mount(&format!("/data/back/in/d/{name}"))).unwrap(),
                "content"
            );
        }
    }
}
