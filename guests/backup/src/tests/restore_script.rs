//! The scripts of a restoration under this machine's `sh`, with archives as gobackup makes them.
//!
//! Fake programs replace servers and rclone. A full run has real ones, see [`real`] and [`stores`].

use std::{fs, path::Path, process::Command};

use innkeeper_sdk::testing::TestRequest;

use super::{
    restore::{ran, restore},
    run::{Run, RunResult, Shell},
    *,
};

mod complete;
pub(super) mod real;
pub(super) mod servers;
pub(super) mod stores;

/// A password with every character that a shell, a configuration or a URL could act on.
pub(super) const PASSWORD: &[u8] = b" a 'b' \"c\" $HOME ${D} #e\\ %20";

/// A fake rclone that copies from a directory on this machine.
const COPYING: &str = r#"source=${4#src:}
if [ -d "$source" ]; then source=$source/.; fi
cp -r "$source" "$5"
"#;

/// A fake database client that shows the input.
const SHOWING: &str = r#"echo "${0##*/} $*"
echo "password [${PGPASSWORD-}${MYSQL_PWD-}]"
cat
"#;

/// Makes an archive as gobackup does: the model's directory, encrypted and in chunks.
fn archive(run: &Run, files: &[(&str, &str)], password: &[u8]) {
    let directory = run.directory("made");
    run.directory("volumes/data");
    for (path, content) in files {
        let path = Path::new("made").join(path);
        run.directory(path.parent().unwrap().to_str().unwrap());
        run.file(
            path.to_str().unwrap(),
            &whole(path.to_str().unwrap(), content),
        );
    }
    let target = run.directory("volumes/data/archives/default/backup/nightly/2026.tar");
    let script = r#"mkdir nightly/source && printf content >nightly/source/file &&
        tar $OWNER -cPf nightly/archive.tar nightly/source && rm -r nightly/source &&
        tar -czf packed nightly && openssl aes-256-cbc -salt -pbkdf2 -pass env:PASSWORD -in packed -out packed.enc &&
        split -b 100 -a 3 --numeric-suffixes packed.enc "$1/2026.tar.gz.enc-" && chmod -R a+rX "$1""#;
    let mut command = Command::new("sh");
    let password = std::ffi::OsStr::new(std::str::from_utf8(password).unwrap());
    let command = command
        .args(["-ec", script, "sh", target.to_str().unwrap()])
        .current_dir(directory)
        .env("PASSWORD", password);
    // Like a run, whose user packs the files.
    let owner = Run::owner().map(|user| format!("--owner={user} --group={user} --numeric-owner"));
    let command = command.env("OWNER", owner.unwrap_or_default());
    assert!(command.status().unwrap().success());
}

/// Returns a dump's content with the end that the program writes.
fn whole(path: &str, content: &str) -> String {
    if path.contains("/postgresql/") && !content.starts_with("PGDMP") {
        return format!("{content}--\n-- PostgreSQL database dump complete\n--\n\n");
    }
    let is_empty = content.is_empty() && path.contains("/mysql/");
    if is_empty { "--\n" } else { content }.to_owned()
}

/// Returns the containers of a restoration from a local storage, with these databases.
fn containers(databases: &[Value]) -> [Value; 2] {
    let storage = json!({ "type": "local", "config": { "path": "/data/archives" } });
    containers_from(&storage, databases)
}

/// Returns the containers of a restoration from a storage, with these databases.
fn containers_from(storage: &Value, databases: &[Value]) -> [Value; 2] {
    let names: Vec<&str> = databases
        .iter()
        .map(|object| object["metadata"]["name"].as_str().unwrap())
        .collect();
    let mut objects = ran();
    objects[1] = related("Storage", "s", storage.clone());
    let spec = &mut objects[3]["spec"];
    let references = names.iter().map(|name| json!({ "name": name }));
    spec["databaseRefs"] = references.collect();
    spec["encodeWith"] = json!({
        "type": "openssl", "args": "-pbkdf2", "passwordRef": { "name": "keys", "key": "key" },
    });
    objects.extend(databases.iter().cloned());
    let volume = json!({
        "name": "v", "mountPath": "/data", "readOnly": false, "configMap": { "name": "c" },
    });
    let parent = restore(json!({
        "confirm": names.join(","), "archive": { "targetPath": "/data/back" }, "volumes": [volume],
    }));
    let request = TestRequest::new(&parent).build();
    let outcome = Plugin::reconcile(&request, &host(&objects)).unwrap();
    containers_of(&outcome, "restore")
}

/// Returns a Job's two containers.
pub(super) fn containers_of(outcome: &Answer, key: &str) -> [Value; 2] {
    let job = outcome.child(key).expect("there is a Job");
    let job = Value::from(job.object.clone());
    let pod = &job["spec"]["template"]["spec"];
    [&pod["initContainers"][0], &pod["containers"][0]].map(Clone::clone)
}

/// Returns the containers of a verification from a local storage, with this dump and this scratch database.
fn verifying(dumped: Value, mut scratch: Value) -> [Value; 2] {
    let name = |database: &Value| json!({ "name": database["metadata"]["name"] });
    scratch["metadata"]["annotations"] = json!({ "gobackup.io/scratch": "true" });
    let mut objects = ran();
    let storage = json!({ "type": "local", "config": { "path": "/data/archives" } });
    objects[1] = related("Storage", "s", storage);
    let mut parent = objects[3].clone();
    parent["spec"]["databaseRefs"] = json!([name(&dumped)]);
    let target = json!({ "database": dumped["metadata"]["name"], "databaseRef": name(&scratch) });
    // A database file needs no scratch database.
    let is_file = dumped["spec"]["type"] == "sqlite";
    parent["spec"]["verify"] = if is_file {
        json!({})
    } else {
        json!({ "databases": [target] })
    };
    parent["spec"]["encodeWith"] = json!({
        "type": "openssl", "args": "-pbkdf2", "passwordRef": { "name": "keys", "key": "key" },
    });
    parent["spec"]["archive"] = json!({ "includes": ["/data/uploads"] });
    let volume = json!({ "name": "v", "mountPath": "/data", "configMap": { "name": "c" } });
    parent["spec"]["volumes"] = json!([volume]);
    objects.extend([dumped, scratch]);
    let request = TestRequest::new(&parent).status(&parent["status"]).build();
    let outcome = Plugin::reconcile(&request, &host(&objects)).unwrap();
    containers_of(&outcome, "verify")
}

/// Runs both containers; the second only if the first succeeds.
pub(super) fn both(run: &Run, containers: &[Value; 2], values: &[(&str, &[u8])]) -> RunResult {
    let fetched = run.execute(&containers[0], &run.search_path(), values);
    match fetched.code {
        Some(0) => run.execute(&containers[1], &run.search_path(), values),
        _ => fetched,
    }
}

pub(super) fn database(name: &str, type_: &str, further: Value) -> Value {
    let mut config = json!({ "password_ref": { "name": "keys", "key": "pg" }, "username": "u u" });
    for (key, value) in further.as_object().unwrap() {
        config[key] = value.clone();
    }
    related("Database", name, json!({ "type": type_, "config": config }))
}

#[test]
fn an_encrypted_archive_in_chunks_is_restored_one_database_after_the_other() {
    let databases = [
        database(
            "a",
            "postgresql",
            json!({ "database": "shop", "username": "u", "host": "h" }),
        ),
        database(
            "b",
            "postgresql",
            json!({ "database": "$x", "username": "u", "compress": "zstd" }),
        ),
        database("c", "mysql", json!({ "database": "shop", "username": "u" })),
    ];
    let files = [
        ("nightly/postgresql/a/shop.sql", "select 1;\n"),
        ("nightly/postgresql/b/shop.sql.zst", "PGDMP\n"),
        ("nightly/mysql/c/shop.sql", "select 2;\n"),
    ];
    let containers = containers(&databases);
    for shell in Shell::all() {
        let run = Run::new(shell, "");
        archive(&run, &files, PASSWORD);
        run.program("rclone", COPYING);
        for name in ["psql", "pg_restore", "mysql"] {
            run.program(name, SHOWING);
        }
        let right: [(&str, &[u8]); 4] = [
            ("ENC_PASSWORD", PASSWORD),
            ("DB0_PASSWORD", b"first\n"),
            ("DB1_PASSWORD", b"second"),
            ("DB2_PASSWORD", b"third"),
        ];
        let result = both(&run, &containers, &right);
        assert_eq!(result.code, Some(0), "{result:?}");
        let log = result.log.replace(run.path("").as_str(), "/");
        let expected = "pg_restore --clean --if-exists --no-owner --exit-on-error --single-transaction \
             --host=localhost --port=5432 --username=u --dbname=$x /work/unpacked/nightly/postgresql/b/shop.sql.zst\n\
             password [***]\nmysql --host=127.0.0.1 --port=3306 --user=u shop\npassword [******]\nselect 2;\n";
        assert!(log.ends_with(expected), "{log}");
        let restored = run.mount("/data/back/nightly/source/file");
        assert_eq!(fs::read_to_string(restored).unwrap(), "content");

        let run = Run::new(shell, "");
        archive(&run, &files, PASSWORD);
        run.program("rclone", COPYING);
        let wrong: [(&str, &[u8]); 1] = [("ENC_PASSWORD", b"wrong")];
        let result = both(&run, &containers, &wrong);
        assert_eq!(result.code, Some(1));
        let end = result.message.trim_end().lines().last().unwrap_or_default();
        assert!(
            end.contains("cannot decrypt 2026.tar") || end.contains("cannot unpack"),
            "{result:?}"
        );
    }
}

// gobackup names a dump by `compress` alone, and `args` can choose the format.
#[test]
fn the_content_of_a_dump_of_postgresql_decides_on_the_program() {
    let further = json!({ "database": "shop", "username": "u", "args": "--format=custom" });
    let containers = containers(&[database("a", "postgresql", further)]);
    for (content, expected) in [
        ("PGDMP\n", "pg_restore"),
        ("-- PGDMP\n", "psql"),
        ("", "psql"),
    ] {
        for shell in Shell::all() {
            let run = Run::new(shell, "");
            archive(
                &run,
                &[("nightly/postgresql/a/shop.sql", content)],
                PASSWORD,
            );
            run.program("rclone", COPYING);
            for name in ["psql", "pg_restore"] {
                run.program(name, r#"echo "${0##*/} ran" >&2"#);
            }
            let result = both(&run, &containers, &[("ENC_PASSWORD", PASSWORD)]);
            assert_eq!(result.code, Some(0), "{result:?}");
            let ran = format!("{expected} ran\n");
            assert!(result.log.ends_with(&ran), "{content:?}: {result:?}");
        }
    }
}

// mysqldump writes statements that select a database with --databases, which a Database's args can contain.
#[test]
fn a_dump_that_changes_another_database_than_the_target_is_not_restored() {
    let target = || json!({ "database": "check", "username": "u" });
    let containers = containers(&[database("c", "mysql", target())]);
    let row = "INSERT INTO `t` VALUES ('a\\nUSE `shop`;');\n";
    for (statement, other) in [
        ("USE `check`;", None),
        ("CREATE DATABASE /*!32312 IF NOT EXISTS*/ `check`;", None),
        ("USE `shop`;", Some("`shop`")),
        ("use shop;", Some("shop")),
        ("USE `check_2`;", Some("`check_2`")),
        ("/*!40000 DROP DATABASE IF EXISTS `shop`*/;", Some("`shop`")),
        // Lines of a trigger.
        ("USE INDEX (i)", None),
        ("  use key(i)", None),
        ("USE `index`;", Some("`index`")),
    ] {
        for shell in Shell::all() {
            let run = Run::new(shell, "");
            let dump = format!("{row}{statement}\n{row}");
            archive(&run, &[("nightly/mysql/c/shop.sql", &dump)], PASSWORD);
            run.program("rclone", COPYING);
            run.program("mysql", SHOWING);
            let secrets: [(&str, &[u8]); 2] =
                [("ENC_PASSWORD", PASSWORD), ("DB0_PASSWORD", b"third")];
            let result = both(&run, &containers, &secrets);
            match other {
                None => assert_eq!(result.code, Some(0), "{statement}: {result:?}"),
                Some(part) => {
                    assert_eq!(result.code, Some(1), "{statement}: {result:?}");
                    let message = format!("would change the database {part};");
                    assert!(result.message.contains(&message), "{result:?}");
                    assert!(!result.log.contains("mysql --host"), "{result:?}");
                }
            }
        }
    }
}

// MariaDB clients since 11.4 refuse a server whose certificate they cannot verify.
#[test]
fn options_about_tls_are_those_of_the_dump() {
    for (args, passed) in [
        ("--skip-ssl --single-transaction", "--skip-ssl "),
        (
            "--ssl-ca /etc/ssl/ca.pem --routines",
            "--ssl-ca /etc/ssl/ca.pem ",
        ),
        (
            "--ssl-ca=/etc/ssl/ca.pem --quick --ssl",
            "--ssl-ca=/etc/ssl/ca.pem --ssl ",
        ),
        (
            "--get-server-public-key --where=a --tls-version=TLSv1.3",
            "--get-server-public-key --tls-version=TLSv1.3 ",
        ),
        (
            "--tls-version=$(id) --ssl-cipher='a'",
            "--tls-version=$(id) --ssl-cipher='a' ",
        ),
        ("--single-transaction --routines", ""),
        (
            "--ssl-verify-server-cert --ssl --skip-ssl",
            "--ssl-verify-server-cert --ssl --skip-ssl ",
        ),
    ] {
        let config =
            |name: &str| json!({ "database": name, "username": "u", "host": "h", "args": args });
        let expected = format!("mysql {passed}--host=h --port=3306 --user=u check\n");
        let restoring = containers(&[database("a", "mysql", config("check"))]);
        let verified = verifying(
            database("a", "mysql", config("shop")),
            database("check", "mysql", config("check")),
        );
        for containers in [restoring, verified] {
            let run = Run::new(Shell::Own, "");
            archive(&run, &[("nightly/mysql/a/shop.sql", "")], PASSWORD);
            run.program("rclone", COPYING);
            run.program("mysql", "echo \"${0##*/} $*\" >&2\necho 1\n");
            let secrets: [(&str, &[u8]); 2] =
                [("ENC_PASSWORD", PASSWORD), ("DB0_PASSWORD", b"third")];
            let result = both(&run, &containers, &secrets);
            assert_eq!(result.code, Some(0), "{result:?}");
            let other: Vec<String> = result
                .log
                .lines()
                .filter(|line| line.starts_with("mysql "))
                .map(|line| {
                    format!(
                        "{}\n",
                        line.replace("--batch --raw --skip-column-names ", "")
                    )
                })
                .filter(|call| *call != expected)
                .collect();
            assert_eq!(other, Vec::<String>::new(), "{args}");
            assert!(result.log.contains(&expected), "{result:?}");
        }
    }
}

// pg_dump writes BEGIN and COMMIT around the data of each large object, even within psql's one transaction.
#[test]
fn a_failed_dump_with_large_objects_does_not_claim_that_nothing_was_changed() {
    let plain = "select 1;\n-- COMMIT;\n";
    let large = "SELECT pg_catalog.lo_create('4711');\nBEGIN;\n\nSELECT pg_catalog.lo_close(0);\n\nCOMMIT;\n";
    let unchanged = "Database a: the dump cannot be restored, and nothing was changed";
    let partly = "Database a: the dump cannot be restored; its large objects commit themselves, so a part of it may have been";
    for (name, compress, dump, expected) in [
        ("shop.sql", "", plain, unchanged),
        ("shop.sql", "", large, partly),
        // pg_restore commits once.
        ("shop.sql.gz", "gzip", large, unchanged),
    ] {
        let config = json!({ "database": "shop", "username": "u", "compress": compress });
        let containers = containers(&[database("a", "postgresql", config)]);
        for shell in Shell::all() {
            let run = Run::new(shell, "");
            archive(
                &run,
                &[(&format!("nightly/postgresql/a/{name}"), dump)],
                PASSWORD,
            );
            run.program("rclone", COPYING);
            for client in ["psql", "pg_restore"] {
                run.program(client, "echo \"ERROR: it exists\" >&2; exit 3");
            }
            let secrets: [(&str, &[u8]); 2] =
                [("ENC_PASSWORD", PASSWORD), ("DB0_PASSWORD", b"third")];
            let result = both(&run, &containers, &secrets);
            assert_eq!(result.code, Some(1), "{result:?}");
            assert_eq!(result.message, format!("ERROR: it exists\n{expected}\n"));
        }
    }
}

// The log filter needs awk too, so this one only fails for the check.
#[test]
fn a_dump_that_cannot_be_checked_is_not_restored() {
    let config = json!({ "database": "check", "username": "u" });
    let containers = containers(&[database("c", "mysql", config)]);
    for shell in Shell::all() {
        let run = Run::new(shell, "");
        archive(&run, &[("nightly/mysql/c/shop.sql", "")], PASSWORD);
        run.program("rclone", COPYING);
        run.program("mysql", SHOWING);
        run.program(
            "awk",
            "case $1 in *TARGET*) exit 2 ;; esac\nexec /usr/bin/awk \"$@\"\n",
        );
        let secrets: [(&str, &[u8]); 2] = [("ENC_PASSWORD", PASSWORD), ("DB0_PASSWORD", b"third")];
        let result = both(&run, &containers, &secrets);
        assert_eq!(result.code, Some(1), "{result:?}");
        assert!(result.message.contains("cannot be checked"), "{result:?}");
        assert!(!result.log.contains("mysql --host"), "{result:?}");
    }
}

#[test]
fn arguments_of_the_encryption_are_words_of_the_decryption() {
    let mut objects = ran();
    objects[3]["spec"]["encodeWith"] = json!({
        "type": "openssl", "args": "-pbkdf2  -iter 5",
        "passwordRef": { "name": "keys", "key": "key" },
    });
    let request = TestRequest::new(&restore(json!({}))).build();
    let outcome = Plugin::reconcile(&request, &host(&objects)).unwrap();
    let [_, container] = containers_of(&outcome, "restore");
    let script = container["args"][0].as_str().unwrap();
    let words = "openssl 'aes-256-cbc' '-pbkdf2' '-iter' '5' -d";
    assert!(script.contains(words), "{script}");
}

#[test]
fn a_verification_unpacks_files_and_empties_the_scratch_database_first() {
    let config = |name: &str| json!({ "database": name, "username": "u", "host": "h" });
    let containers = verifying(
        database("a", "postgresql", config("shop")),
        database("check", "postgresql", config("check")),
    );
    for shell in Shell::all() {
        let run = Run::new(shell, "");
        archive(
            &run,
            &[("nightly/postgresql/a/shop.sql", "select 1;\n")],
            PASSWORD,
        );
        run.program("rclone", COPYING);
        run.program("psql", SHOWING);
        let secrets: [(&str, &[u8]); 2] = [("ENC_PASSWORD", PASSWORD), ("DB0_PASSWORD", b"first")];
        let result = both(&run, &containers, &secrets);
        // psql's output is discarded, except for errors.
        assert_eq!((result.code, &*result.log), (Some(0), ""), "{result:?}");
        let file = format!("{}/nightly/source/file", run.path("work/scratch"));
        assert_eq!(fs::read_to_string(file).unwrap(), "content");

        let run = Run::new(shell, "");
        archive(&run, &[("nightly/postgresql/a/shop.sql", "")], PASSWORD);
        run.program("rclone", COPYING);
        run.program(
            "psql",
            "cat >&2\necho \"password [$PGPASSWORD] $*\" >&2\nexit 3\n",
        );
        let result = both(&run, &containers, &secrets);
        assert_eq!(result.code, Some(1), "{result:?}");
        assert!(result.log.contains("DROP SCHEMA"), "{result:?}");
        assert!(result.log.contains("password [***]"), "{result:?}");
        let message = "Database check: the scratch database cannot be emptied";
        assert!(result.message.contains(message), "{result:?}");
    }
}

// A setting may name a live database. The first statement asks whether it is a scratch database.
#[test]
fn a_verification_empties_only_a_mysql_database_that_it_knows() {
    let config = |name: &str| json!({ "database": name, "username": "u", "host": "h" });
    let containers = verifying(
        database("a", "mysql", config("shop")),
        database("check", "mysql", config("check")),
    );
    for shell in Shell::all() {
        for answer in ["1", "0", "NULL", ""] {
            let run = Run::new(shell, "");
            archive(
                &run,
                &[("nightly/mysql/a/shop.sql", "the dump\n")],
                PASSWORD,
            );
            run.program("rclone", COPYING);
            let calls = run.path("work/calls");
            run.program(
                "mysql",
                &format!(
                    "given=`cat`\nprintf '%s\\n' \"$given\" >>'{calls}'\ncase $given in\n\
                     *COUNT*) echo '{answer}' ;;\n*CONCAT*) echo 'DROP TABLE `old`;' ;;\nesac\n"
                ),
            );
            let secrets: [(&str, &[u8]); 2] =
                [("ENC_PASSWORD", PASSWORD), ("DB0_PASSWORD", b"third")];
            let result = both(&run, &containers, &secrets);
            let calls = fs::read_to_string(calls).unwrap();
            if answer == "1" {
                assert_eq!(result.code, Some(0), "{result:?}");
                let place = |text: &str| calls.find(text).unwrap_or_else(|| panic!("{calls}"));
                let order = [
                    "COUNT(*)",
                    "CREATE TABLE",
                    "\nDROP TABLE `old`;\n",
                    "the dump",
                ];
                assert!(order.map(place).is_sorted(), "{calls}");
            } else {
                assert_eq!(result.code, Some(1), "{answer}: {result:?}");
                let message = "Database check: the scratch database cannot be read, or has tables";
                assert!(result.message.contains(message), "{result:?}");
                assert_eq!(calls.lines().count(), 1, "{calls}");
            }
        }
    }
}
