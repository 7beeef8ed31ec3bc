//! The script of a run, under the `sh` of this machine, with a program in place of gobackup.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, id},
    sync::atomic::{AtomicUsize, Ordering},
};

use super::*;

/// The user of a run.
const USER: u32 = 65532;

/// A program in place of gobackup that stores an archive in each storage.
const STORING: &str = r#"echo gobackup runs
for key in $STORAGES; do
  echo '[{"file_key":"f.tar"}]' >"$GOBACKUP_DIR/cycler/${MODEL}_$key.json"
done
"#;

/// The directories of a run, deleted at the end.
struct Run {
    root: PathBuf,
    shell: Shell,
}

/// A shell with its programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shell {
    /// `sh` of this machine.
    Own,
    /// That of the default image, if this machine has it.
    Busybox,
}

impl Shell {
    fn all() -> impl Iterator<Item = Self> {
        let busybox = Command::new("busybox").arg("true").status();
        let has_busybox = busybox.is_ok_and(|it| it.success());
        std::iter::once(Self::Own).chain(has_busybox.then_some(Self::Busybox))
    }
}

/// The end of a run.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    code: Option<i32>,
    /// The lines of both streams.
    log: String,
    /// The termination message.
    message: String,
}

impl Run {
    /// A run with this program in place of gobackup.
    fn new(shell: Shell, gobackup: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("innkeeper-backup-{}-{number}", id());
        let run = Self {
            root: std::env::temp_dir().join(name),
            shell,
        };
        for directory in ["bin", "state", "work", "home", "keys"] {
            run.directory(directory);
        }
        run.file("termination", "");
        if shell == Shell::Busybox {
            let install = ["busybox", "--install", "-s"];
            let mut command = Command::new("env");
            let status = command.args(install).arg(run.root.join("bin")).status();
            assert!(status.unwrap().success());
        }
        let program = run.file("bin/gobackup", &format!("#!/bin/sh\n{gobackup}"));
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        run
    }

    /// The user and group of new files; none unless the tests run as root.
    fn owner() -> Option<u32> {
        static OWNER: LazyLock<Option<u32>> = LazyLock::new(|| {
            let probe = std::env::temp_dir().join(format!("innkeeper-backup-owner-{}", id()));
            fs::write(&probe, "").unwrap();
            let is_root = chown(&probe, Some(USER), Some(USER)).is_ok();
            fs::remove_file(probe).unwrap();
            is_root.then_some(USER)
        });
        *OWNER
    }

    /// A new directory of the run's user.
    fn directory(&self, path: &str) -> PathBuf {
        let path = self.root.join(path);
        fs::create_dir_all(&path).unwrap();
        chown(&path, Self::owner(), Self::owner()).unwrap();
        path
    }

    /// A new file of the run's user.
    fn file(&self, path: &str, content: &str) -> PathBuf {
        let path = self.root.join(path);
        fs::write(&path, content).unwrap();
        chown(&path, Self::owner(), Self::owner()).unwrap();
        path
    }

    /// The script of an answer, with paths of this run.
    fn script(&self, outcome: &Outcome) -> String {
        let container =
            &outcome.child("run").unwrap().object["spec"]["template"]["spec"]["containers"][0];
        let script = container["args"][0].as_str().unwrap();
        let root = self.root.to_str().unwrap();
        script
            .replace("/dev/termination-log", &format!("{root}/termination"))
            .replace("/etc/gobackup/keys", &format!("{root}/keys"))
    }

    /// Runs the script of an answer with these values of Secrets, by the names of their variables.
    fn end(&self, outcome: &Outcome, values: &[(&str, &[u8])]) -> Ended {
        let container =
            &outcome.child("run").unwrap().object["spec"]["template"]["spec"]["containers"][0];
        let path = format!("{}/bin:{}", self.path(""), std::env::var("PATH").unwrap());
        let mut command = match self.shell {
            Shell::Own => Command::new("/bin/sh"),
            Shell::Busybox => Command::new(self.root.join("bin/sh")),
        };
        command
            .args(["-c", &self.script(outcome)])
            .current_dir(&self.root)
            .env_clear();
        for variable in container["env"].as_array().unwrap() {
            let value = variable["value"].as_str().unwrap_or("value");
            command.env(variable["name"].as_str().unwrap(), value);
        }
        for (name, value) in values {
            command.env(name, OsStr::from_bytes(value));
        }
        command
            .env("PATH", path)
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("work"))
            .env("GOBACKUP_DIR", self.path("state"))
            .env("POD_UID", "0f8fad5b-d9cb-469f-a165-70867728950e");
        if let Some(user) = Self::owner() {
            command.uid(user).gid(user);
        }
        let output = command.output().unwrap();
        let log = [output.stdout, output.stderr].concat();
        let message = fs::read(self.root.join("termination")).unwrap();
        Ended {
            code: output.status.code(),
            log: String::from_utf8_lossy(&log).into_owned(),
            message: String::from_utf8_lossy(&message).into_owned(),
        }
    }

    fn path(&self, path: &str) -> String {
        self.root.join(path).to_str().unwrap().to_owned()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let is_gone = fs::remove_dir_all(&self.root).is_ok();
        assert!(is_gone || !Path::new(&self.root).exists());
    }
}

/// The answer for a database with its credentials in a Secret.
fn with_database(type_: &str, further: Value) -> Outcome {
    let mut config = json!({
        "username_ref": { "name": "keys", "key": "id" },
        "password_ref": { "name": "keys", "key": "pg" },
    });
    for (key, value) in further.as_object().unwrap() {
        config[key] = value.clone();
    }
    let mut objects = around();
    objects[0] = related("Database", "pg", json!({ "type": type_, "config": config }));
    reconcile(&backup(json!({})), &objects).unwrap()
}

/// The end of a run with a program in place of gobackup, the same in each shell.
fn end(gobackup: &str, outcome: &Outcome, values: &[(&str, &[u8])]) -> Ended {
    let ends = Shell::all().map(|shell| Run::new(shell, gobackup).end(outcome, values));
    let ends: Vec<Ended> = ends.collect();
    assert!(ends.iter().all(|it| *it == ends[0]), "{ends:?}");
    ends.into_iter().next().unwrap()
}

/// The first line of a run with these values; `ok` if gobackup ran.
fn verdict(outcome: &Outcome, values: &[(&str, &[u8])]) -> String {
    let ended = end(STORING, outcome, values);
    let first = ended.log.lines().next().unwrap_or_default().to_owned();
    if ended.code == Some(0) {
        assert_eq!(first, "gobackup runs", "{ended:?}");
        return "ok".to_owned();
    }
    assert_eq!(ended.message.trim_end(), first, "{ended:?}");
    first
}

#[test]
fn a_run_tells_the_stored_files() {
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    let ended = end(STORING, &outcome, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let expected = json!({ "artifacts": [{ "storage": "s", "file": "f.tar" }] });
    let message: Value = serde_json::from_str(&ended.message).unwrap();
    assert_eq!(message, expected);
}

#[test]
fn a_run_that_stores_nothing_fails() {
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    let ended = end("echo done", &outcome, &[]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.message.ends_with("nothing was stored in s\n"),
        "{ended:?}"
    );
    let ended = end("echo 'cannot connect' >&2; exit 7", &outcome, &[]);
    assert_eq!(ended.code, Some(7));
    assert!(ended.log.contains("cannot connect"), "{ended:?}");
}

#[test]
fn a_credential_of_several_lines_ends_the_run() {
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    for password in [
        "",
        "one line",
        "$(id) `id` \"'\\",
        "a final line feed\n",
        "ä",
        "-x",
    ] {
        let password = password.as_bytes();
        assert_eq!(verdict(&outcome, &[("DB0_PASSWORD", password)]), "ok");
    }
    for password in [
        "a\n  before_script: id",
        "a\rb",
        "a\u{85}b",
        "a\u{2028}b",
        "a\u{2029}b",
    ] {
        assert_eq!(
            verdict(&outcome, &[("DB0_PASSWORD", password.as_bytes())]),
            "Database pg: config.password_ref: the value has several lines; gobackup reads a credential \
             of one line"
        );
    }
}

#[test]
fn a_credential_with_white_space_ends_the_run_where_command_lines_are_split() {
    let space = "the value has white space, where gobackup splits the command line";
    for type_ in ["mysql", "mariadb", "mongodb", "mssql"] {
        let outcome = with_database(type_, json!({ "database": "shop" }));
        assert_eq!(verdict(&outcome, &[("DB0_PASSWORD", b"one-word\n")]), "ok");
        for password in [
            "a --plugin-dir=/v",
            "a\tb",
            " a",
            "a ",
            "a\u{b}b",
            "a\u{c}b",
        ] {
            assert_eq!(
                verdict(&outcome, &[("DB0_PASSWORD", password.as_bytes())]),
                format!("Database pg: config.password_ref: {space}"),
            );
        }
        assert_eq!(
            verdict(&outcome, &[("DB0_USERNAME", b"root --plugin-dir=/v")]),
            format!("Database pg: config.username_ref: {space}"),
        );
    }
    // The password of PostgreSQL is a variable of its clients; the user name is an argument.
    let outcome = with_database("postgresql", json!({ "database": "shop" }));
    assert_eq!(verdict(&outcome, &[("DB0_PASSWORD", b"two words")]), "ok");
    assert_eq!(
        verdict(&outcome, &[("DB0_USERNAME", b"a sslkey=/v")]),
        format!("Database pg: config.username_ref: {space}"),
    );
}

#[test]
fn a_user_name_that_is_an_option_ends_the_run() {
    for type_ in [
        "postgresql",
        "mysql",
        "mariadb",
        "mongodb",
        "mssql",
        "firebird",
    ] {
        let outcome = with_database(type_, json!({ "database": "shop" }));
        assert_eq!(verdict(&outcome, &[("DB0_USERNAME", b"a-b")]), "ok");
        assert_eq!(
            verdict(&outcome, &[("DB0_USERNAME", b"--plugin-dir=/v")]),
            "Database pg: config.username_ref: the value begins with a dash, as an option does",
        );
    }
}

#[test]
fn a_user_name_for_the_shell_of_pg_dumpall_ends_the_run() {
    let outcome = with_database("postgresql", json!({ "all_databases": true }));
    for name in ["shop", "shop_1.a-b@example.com", "ä"] {
        assert_eq!(
            verdict(&outcome, &[("DB0_USERNAME", name.as_bytes())]),
            "ok"
        );
    }
    // The password is a variable, so the shell never sees it.
    assert_eq!(verdict(&outcome, &[("DB0_PASSWORD", b"$(id);'\"")]), "ok");
    for name in "!\"#$&'()*;<>?[\\]`{|}~".chars() {
        assert_eq!(
            verdict(
                &outcome,
                &[("DB0_USERNAME", format!("a{name}b").as_bytes())]
            ),
            "Database pg: config.username_ref: the value has a character that the shell of pg_dumpall \
             would act on",
            "{name}"
        );
    }
    let one = with_database("postgresql", json!({ "database": "shop" }));
    assert_eq!(verdict(&one, &[("DB0_USERNAME", b"a$b")]), "ok");
}

#[test]
fn a_message_names_the_field_of_either_generation() {
    let config = json!({ "database": "shop", "usernameRef": { "name": "keys", "key": "id" } });
    let mut objects = around();
    objects.push(related("PostgreSQL", "old", config));
    let refs = json!([{
        "apiGroup": "database.gobackup.io", "type": "PostgreSQL", "name": "old",
    }]);
    let outcome = reconcile(&backup(json!({ "databaseRefs": refs })), &objects).unwrap();
    assert_eq!(
        verdict(&outcome, &[("DB0_USERNAME", b"-a")]),
        "PostgreSQL old: usernameRef: the value begins with a dash, as an option does",
    );
    let encode = json!({ "type": "openssl", "passwordRef": { "name": "keys", "key": "id" } });
    let outcome = reconcile(&backup(json!({ "encodeWith": encode })), &around()).unwrap();
    assert_eq!(
        verdict(&outcome, &[("ENC_PASSWORD", b"a\nb")]),
        "encodeWith.passwordRef: the value has several lines; gobackup reads a credential of one line",
    );
}
