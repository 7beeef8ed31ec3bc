//! The script of a run, under the `sh` of this machine, with a program in place of gobackup.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, chown, symlink},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, id},
    sync::atomic::{AtomicUsize, Ordering},
};

use innkeeper_sdk::testing::TestRequest;
use proptest::prelude::*;

use super::{standin::STORING, *};

/// The user of a run.
const USER: u32 = 65532;

/// The programs of the script.
const PROGRAMS: [&str; 22] = [
    "awk",
    "cat",
    "cut",
    "date",
    "expr",
    "find",
    "grep",
    "gzip",
    "head",
    "id",
    "mkdir",
    "od",
    "printf",
    "rm",
    "sed",
    "sh",
    "sha256sum",
    "stat",
    "tail",
    "touch",
    "tr",
    "[",
];

/// The directories of a run, deleted at the end.
pub(super) struct Run {
    root: PathBuf,
    shell: Shell,
}

/// A shell with its programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shell {
    /// `sh` of this machine.
    Own,
    /// That of the default image, if this machine has it.
    Busybox,
}

impl Shell {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let busybox = Command::new("busybox").arg("true").status();
        let has_busybox = busybox.is_ok_and(|it| it.success());
        std::iter::once(Self::Own).chain(has_busybox.then_some(Self::Busybox))
    }
}

/// The end of a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    /// The lines of both streams.
    pub(super) log: String,
    /// The termination message.
    pub(super) message: String,
}

impl Run {
    /// A run with this program in place of gobackup.
    pub(super) fn new(shell: Shell, gobackup: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("innkeeper-backup-{}-{number}", id());
        let run = Self {
            root: Self::place().join(name),
            shell,
        };
        for directory in ["bin", "state", "work", "home", "keys"] {
            run.directory(directory);
        }
        run.file("termination", "");
        if shell == Shell::Busybox {
            let found = Command::new("which")
                .arg("busybox")
                .output()
                .unwrap()
                .stdout;
            let found = String::from_utf8(found).unwrap();
            for name in PROGRAMS {
                symlink(found.trim(), run.root.join("bin").join(name)).unwrap();
            }
        }
        run.program("gobackup", gobackup);
        run
    }

    /// Puts a script in the place of a program.
    pub(super) fn program(&self, name: &str, script: &str) {
        // The file of a busybox run is a link to the program of this machine, which must stay as it is.
        fs::remove_file(self.root.join("bin").join(name)).ok();
        let program = self.file(&format!("bin/{name}"), &format!("#!/bin/sh\n{script}"));
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The directory of the directories of runs: as root, one that the user of a run may enter.
    fn place() -> PathBuf {
        match Self::owner() {
            Some(_) => PathBuf::from("/tmp"),
            None => std::env::temp_dir(),
        }
    }

    /// The user and group of new files; none unless the tests run as root.
    pub(super) fn owner() -> Option<u32> {
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
    pub(super) fn directory(&self, path: &str) -> PathBuf {
        let path = self.root.join(path);
        fs::create_dir_all(&path).unwrap();
        chown(&path, Self::owner(), Self::owner()).unwrap();
        path
    }

    /// A new file of the run's user.
    pub(super) fn file(&self, path: &str, content: &str) -> PathBuf {
        let path = self.root.join(path);
        fs::write(&path, content).unwrap();
        chown(&path, Self::owner(), Self::owner()).unwrap();
        path
    }

    /// The script of an answer, with paths of this run.
    fn script(&self, outcome: &Outcome) -> String {
        self.script_of(&gobackup(outcome))
    }

    /// The script of a container, with paths of this run.
    fn script_of(&self, container: &Value) -> String {
        let script = container["args"][0].as_str().unwrap();
        let root = self.root.to_str().unwrap();
        script
            .replace("/dev/termination-log", &format!("{root}/termination"))
            .replace("/etc/gobackup/keys", &format!("{root}/keys"))
            .replace("/work/", &format!("{root}/work/"))
            .replace("'/data", &format!("'{root}/volumes/data"))
    }

    /// The path that stands for a mount of the run.
    pub(super) fn mount(&self, path: &str) -> String {
        self.path(&format!("volumes{path}"))
    }

    /// Runs the script of an answer with these values of Secrets, by the names of their variables.
    pub(super) fn end(&self, outcome: &Outcome, values: &[(&str, &[u8])]) -> Ended {
        // busybox has every program of the script.
        let path = match self.shell {
            Shell::Own => self.search_path(),
            Shell::Busybox => self.path("bin"),
        };
        self.execute(&gobackup(outcome), &path, values)
    }

    /// The directories of programs: those of this run, then those of the machine.
    pub(super) fn search_path(&self) -> String {
        format!("{}:/usr/local/bin:/usr/bin:/bin", self.path("bin"))
    }

    /// Runs the script of a container.
    pub(super) fn execute(&self, container: &Value, path: &str, values: &[(&str, &[u8])]) -> Ended {
        let mut command = match self.shell {
            Shell::Own => Command::new("/bin/sh"),
            Shell::Busybox => Command::new(self.root.join("bin/sh")),
        };
        command
            .args(["-c", &self.script_of(container)])
            .current_dir(&self.root)
            .env_clear();
        for variable in container["env"].as_array().unwrap() {
            let value = variable["value"].as_str().unwrap_or("value");
            let value = value.replace("/etc/gobackup/keys", &self.path("keys"));
            let value = match value.strip_prefix("/data/") {
                Some(rest) => self.mount(&format!("/data/{rest}")),
                None => value,
            };
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
            message: timeless(&String::from_utf8_lossy(&message)),
        }
    }

    pub(super) fn path(&self, path: &str) -> String {
        self.root.join(path).to_str().unwrap().to_owned()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let is_gone = fs::remove_dir_all(&self.root).is_ok();
        assert!(is_gone || !Path::new(&self.root).exists());
    }
}

/// A message with no seconds in the place of its number.
fn timeless(message: &str) -> String {
    let parts = message.split_once("\"seconds\":");
    let timed = parts.filter(|(_, rest)| rest.trim_end_matches('}').parse::<u8>().is_ok());
    timed.map_or_else(
        || message.to_owned(),
        |(before, _)| format!("{before}\"seconds\":0}}"),
    )
}

/// The container of a run.
pub(super) fn gobackup(outcome: &Outcome) -> Value {
    let job = Value::from(outcome.child("run").unwrap().object.clone());
    job["spec"]["template"]["spec"]["containers"][0].clone()
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
    let ends = Shell::all().map(|shell| {
        let run = Run::new(shell, gobackup);
        let mut ended = run.end(outcome, values);
        for text in [&mut ended.log, &mut ended.message] {
            *text = text.replace(&run.path(""), "/");
        }
        ended
    });
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
    let message: Value = serde_json::from_str(&ended.message).unwrap();
    let artifacts = json!([{ "storage": "s", "file": "f.tar" }]);
    let expected = json!({ "artifacts": artifacts, "bytes": null, "retention": "", "seconds": 0 });
    assert_eq!(message, expected);
    // The kubelet would expand it.
    let run = Run::new(Shell::Own, STORING);
    assert!(!run.script(&outcome).contains("$("));
}

/// The size of the archive that a run tells.
fn size(gobackup: &str, outcome: &Outcome) -> Value {
    let ended = end(gobackup, outcome, &[]);
    let message: Value = serde_json::from_str(&ended.message).unwrap();
    message["bytes"].clone()
}

// gobackup logs sizes only, with a bar before them, and each storage gets the same chunks.
#[test]
fn a_run_tells_the_size_of_the_archive() {
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    for (log, expected) in [
        (
            "2026/08/20 02:00:01 [S3] -> Uploading (12 MB)...",
            12_000_000,
        ),
        ("[=>--] 40%[S3] -> Uploading (1.3 kB)...", 1300),
        ("[SFTP] -> Uploading (83 B)...", 83),
        (
            "=> Storage | s3\n-> Uploading (2.0 GB)...\n-> Uploading (500 MB)...\n\
             => Storage | scp\n-> Uploading (2.0 GB)...\n-> Uploading (500 MB)...",
            2_500_000_000_u64,
        ),
        // The list of archives, which gobackup uploads too.
        (
            "=> Storage | s3\n-> Uploading (229 B)...\n[Cycler] Remote cycler state not found (HTTP 404), falling back to local\n\
             -> Uploading (105 B)...\n[Cycler] Saved cycler state to remote storage\n=> Storage | minio\n-> Uploading (229 B)...\n\
             -> Uploading (98 kB)...\n[Cycler] Failed to save cycler state to remote storage: AccessDenied",
            229,
        ),
    ] {
        let program = format!("echo '{log}'\n{STORING}");
        assert_eq!(size(&program, &outcome), expected, "{log}");
    }
}

// It has no size in its log, and the archive is gone after the run.
#[test]
fn a_run_tells_the_size_of_an_archive_for_sftp() {
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    for (made, file, expected) in [
        ("printf 0123456789 >f.tar", "f.tar", 10),
        (
            "printf 0123456789 >f.tar; printf 12345 >f.tar.enc",
            "f.tar.enc",
            5,
        ),
        (
            "mkdir f; printf 123 >f/f.tar-000; printf 12 >f/f.tar-001",
            "f",
            5,
        ),
    ] {
        let program = format!(
            "work=\"$TMPDIR/gobackup1/2/nightly\"\nmkdir -p \"$work/postgresql\"\necho dump >\"$work/postgresql/f.tar\"\n\
             echo \"[Model: nightly] WorkDir: $work\"\ncd \"$work/..\"\n{made}\n\
             echo '[Storage] => Storage | sftp'\n/bin/sleep 0.5\nrm -r \"$TMPDIR/gobackup1\"\n{}",
            STORING.replace("f.tar", file)
        );
        for shell in Shell::all() {
            let ended = Run::new(shell, &program).end(&outcome, &[]);
            let message: Value = serde_json::from_str(&ended.message).unwrap();
            assert_eq!(message["bytes"], expected, "{made}");
        }
    }
}

#[test]
fn a_run_tells_the_first_failure_of_retention() {
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    for (log, expected) in [
        ("[Cycler] Remove a.tar failed: AccessDenied", true),
        (
            "[Cycler] Remote cycler state not found (HTTP 503), falling back to local",
            true,
        ),
        (
            "[Cycler] Failed to fetch remote cycler state: EOF, falling back to local",
            true,
        ),
        (
            "[Cycler] Failed to unmarshal remote cycler state: \"x\" \\",
            true,
        ),
        (
            "[Cycler] Failed to save cycler state to remote storage: 403",
            true,
        ),
        ("[Cycler] Save cycler.json failed: no space left", true),
        (
            "[Cycler] Remote cycler state not found (HTTP 404), falling back to local",
            false,
        ),
        (
            "[Cycler] Remote cycler state not found or unavailable: SFTP not support download, falling back to local",
            false,
        ),
        ("[Cycler] Remove a.tar failed: file does not exist", false),
        ("[Cycler] Removed a.tar", false),
    ] {
        let program = format!("cat <<'END'\n{log}\nEND\n{STORING}");
        let ended = end(&program, &outcome, &[]);
        let message: Value = serde_json::from_str(&ended.message).unwrap();
        let told = if expected { log } else { "" };
        assert_eq!(message["retention"], told);
        let ended = end(&format!("{program}exit 1"), &outcome, &[]);
        let line = format!("keep was not carried out: {log}\n");
        assert_eq!(ended.message.ends_with(&line), expected, "{ended:?}");
    }
}

#[test]
fn a_run_tells_the_size_of_a_local_archive() {
    let mut objects = around();
    let config = json!({ "path": "/data/shelf" });
    objects[1] = related("Storage", "s", json!({ "type": "local", "config": config }));
    let request = TestRequest::new(&backup(json!({}))).config(&json!({ "storagePath": "" }));
    let outcome = Plugin::reconcile(&request.build(), &host(&objects)).unwrap();
    for shell in Shell::all() {
        check_size_on_shelf(shell, &outcome);
    }
}

/// Checks that a run tells the size of the archive that it finds in `/data/shelf`.
pub(super) fn check_size_on_shelf(shell: Shell, outcome: &Outcome) {
    let run = Run::new(shell, STORING);
    run.directory("volumes/data/shelf");
    run.file("volumes/data/shelf/f.tar", "twelve bytes");
    let ended = run.end(outcome, &[]);
    let message: Value = serde_json::from_str(&ended.message).unwrap();
    assert_eq!(message["bytes"], 12, "{ended:?}");
}

// Two runs of one parent, or parents of one claim, share the volume of the state.
#[test]
fn a_run_beside_a_later_one_tells_its_own_archive() {
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    let storing = r#"for key in $STORAGES; do
  state="$GOBACKUP_DIR/cycler/${MODEL}_$key.json"
  printf '[{"file_key":"1-%s.tar"},{"file_key":"2-other.tar"}]' "$ARCHIVE_ID" >"$state"
done
touch -d '2099-01-01 00:00:00' "$GOBACKUP_DIR/.started" "$GOBACKUP_DIR/.started.other"
"#;
    for shell in Shell::all() {
        for (code, program) in [(0, storing), (7, "exit 7"), (1, "echo done")] {
            let run = Run::new(shell, program);
            let ended = run.end(&outcome, &[]);
            assert_eq!(ended.code, Some(code), "{ended:?}");
            if code == 0 {
                let message: Value = serde_json::from_str(&ended.message).unwrap();
                let artifacts = json!([{ "storage": "s", "file": "1-bzqzswhtwrvtgjrz.tar" }]);
                assert_eq!(message["artifacts"], artifacts, "{ended:?}");
            }
            let own = run.root.join("state/.started.bzqzswhtwrvtgjrz");
            assert!(!own.exists(), "a run leaves no marker behind");
        }
    }
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
    for type_ in ["mysql", "mongodb"] {
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
    for type_ in ["postgresql", "mysql", "firebird"] {
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

/// A parent that archives these paths of the volume `/data`.
fn archiving(includes: &[&str], excludes: &[&str]) -> Outcome {
    let parent = backup(json!({
        "archive": { "includes": includes, "excludes": excludes },
        "volumes": [{
            "name": "data", "mountPath": "/data", "persistentVolumeClaim": { "claimName": "data" },
        }],
    }));
    let mut objects = around();
    objects.push(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "namespace": "default" },
    }));
    reconcile(&parent, &objects).unwrap()
}

/// The verdict on a run with these files below `/data`: path and mode; one that ends with a slash is a
/// directory, one with an arrow a symbolic link.
fn archive_verdict(includes: &[&str], excludes: &[&str], files: &[(&str, u32)]) -> String {
    let outcome = archiving(includes, excludes);
    let verdicts = Shell::all().map(|shell| {
        let run = Run::new(shell, STORING);
        run.directory("volumes/data");
        for (path, _) in files {
            let path = format!("volumes/data/{path}");
            if let Some((link, target)) = path.split_once("->") {
                symlink(target, run.root.join(link)).unwrap();
            } else if path.ends_with('/') {
                run.directory(&path);
            } else {
                run.file(&path, "content");
            }
        }
        let modes = files.iter().filter(|(path, _)| !path.contains("->"));
        let restrict = |restricted: bool| {
            for (path, mode) in modes.clone() {
                let path = run.root.join(format!("volumes/data/{path}"));
                let mode = if restricted { *mode } else { 0o700 };
                fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            }
        };
        restrict(true);
        let ended = run.end(&outcome, &[]);
        restrict(false);
        let first = ended.log.lines().next().unwrap_or_default();
        let first = first.replace(&run.mount(""), "");
        if ended.code == Some(0) {
            "ok".to_owned()
        } else {
            first
        }
    });
    let verdicts: Vec<String> = verdicts.collect();
    assert!(verdicts.iter().all(|it| *it == verdicts[0]), "{verdicts:?}");
    verdicts[0].clone()
}

#[test]
fn a_file_that_cannot_be_read_ends_the_run() {
    let unreadable = |path: &str| {
        format!(
            "archive.includes: user {USER} cannot read {path}; set securityContext of the parent to its \
             owner or group, or add the path to archive.excludes"
        )
    };
    let files: &[(&str, u32)] = &[
        ("uploads/", 0o755),
        ("uploads/a b", 0o600),
        ("uploads/c", 0),
    ];
    if Run::owner().is_some() {
        let verdict = archive_verdict(&["/data/uploads"], &[], files);
        assert_eq!(verdict, unreadable("/data/uploads/c"));
        let closed: &[(&str, u32)] = &[("uploads/", 0o755), ("uploads/d/", 0o600)];
        let verdict = archive_verdict(&["/data/uploads"], &[], closed);
        assert_eq!(verdict, unreadable("/data/uploads/d"));
        let verdict = archive_verdict(&["/data/uploads/c"], &[], files);
        assert_eq!(verdict, unreadable("/data/uploads/c"));
    }
    for excluded in [
        "/data/uploads/c",
        "/data/uploads/c/",
        "/data/uploads/?",
        "c",
        "*/c",
    ] {
        let verdict = archive_verdict(&["/data/uploads"], &[excluded], files);
        assert_eq!(verdict, "ok", "{excluded}");
    }
    let others: &[(&str, u32)] = &[
        ("uploads/", 0o755),
        ("uploads/link->nowhere", 0),
        ("uploads/it's $(id)", 0o400),
        ("private", 0),
    ];
    assert_eq!(archive_verdict(&["/data/uploads"], &[], others), "ok");
}

// The file system of a claim has such a directory, which belongs to root.
#[test]
fn the_directory_of_lost_files_of_a_mount_is_not_checked() {
    let files: &[(&str, u32)] = &[("lost+found/", 0), ("a", 0o600)];
    assert_eq!(archive_verdict(&["/data"], &[], files), "ok");
}

#[test]
fn a_path_that_would_not_be_archived_ends_the_run() {
    assert_eq!(
        archive_verdict(&["/data/uplaods"], &[], &[("uploads/", 0o755)]),
        "archive.includes: /data/uplaods does not exist",
    );
    assert_eq!(
        archive_verdict(
            &["/data/current"],
            &[],
            &[("r1/", 0o755), ("current->r1", 0)]
        ),
        "archive.includes: /data/current is a symbolic link, of which an archive has only the link; name \
         its target",
    );
}

#[test]
fn an_older_gobackup_ends_the_run() {
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    let verdict = |version: &str| {
        let program =
            format!("[ \"$1\" != --version ] || {{ echo '{version}'; exit; }}\n{STORING}");
        let ended = end(&program, &outcome, &[]);
        ended.log.lines().next().unwrap_or_default().to_owned()
    };
    for version in [
        "3.1.1",
        "v3.1.1",
        "v3.2.0",
        "v10.0.0",
        "(devel)",
        "v0.0.0-2026",
    ] {
        assert_eq!(
            verdict(&format!("gobackup version {version}")),
            "gobackup runs"
        );
    }
    for version in ["3.1.0", "2.14.0"] {
        assert_eq!(
            verdict(&format!("gobackup version {version}")),
            format!(
                "gobackup {version} is too old: it exits with 0 after errors and loses archives; use an \
                 image with 3.1.1 or newer"
            ),
        );
    }
}

#[test]
fn archives_of_two_runs_never_have_the_same_name() {
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    let text = configuration(&outcome);
    let format = "filename_format: \"2006.01.02.15.04.05-${ARCHIVE_ID}\"";
    assert!(text.contains(format), "{text}");
    let ended = end(&format!("echo \"$ARCHIVE_ID\"\n{STORING}"), &outcome, &[]);
    let id = ended.log.lines().next().unwrap();
    // Sixteen hexadecimal digits of the Pod's UID, in letters that mean nothing in a layout of Go.
    assert_eq!(id, "bzqzswhtwrvtgjrz", "{ended:?}");
}

/// A parent with a credential in each place that can hold one.
fn with_credentials() -> (Value, Vec<Value>) {
    let key = |key: &str| json!({ "name": "keys", "key": key });
    let database = json!({
        "database": "shop", "username_ref": key("user"), "password_ref": key("password"),
    });
    let storage = json!({
        "host": "h", "username": "u", "password_ref": key("ssh"), "private_key_ref": key("id"),
    });
    let parent = backup(json!({
        "encodeWith": { "type": "openssl", "passwordRef": key("encode") },
        "env": [{ "name": "MYSQL_PWD", "valueFrom": { "secretKeyRef": key("own") } }],
        "envFrom": [{ "prefix": "APP_", "secretRef": { "name": "app" } }],
        "backoffLimit": 0,
    }));
    let mut keys = secret("keys", &["user", "password", "ssh", "id", "encode", "own"]);
    for value in keys["data"].as_object_mut().unwrap().values_mut() {
        *value = json!(MARK);
    }
    let objects = vec![
        related(
            "Database",
            "pg",
            json!({ "type": "postgresql", "config": database }),
        ),
        related("Storage", "s", json!({ "type": "sftp", "config": storage })),
        keys,
        secret("app", &["TOKEN"]),
    ];
    (parent, objects)
}

/// A value of a Secret as the API server shows it.
const MARK: &str = "cGxhbnRlZC12YWx1ZQ==";

/// The forms in which programs print a value.
fn forms(value: &str) -> [String; 4] {
    let percent = |space: &str| {
        let bytes = value.bytes().map(|it| match it {
            b' ' => space.to_owned(),
            b'-' | b'_' | b'.' | b'~' => char::from(it).to_string(),
            _ if it.is_ascii_alphanumeric() => char::from(it).to_string(),
            _ => format!("%{it:02X}"),
        });
        bytes.collect::<String>()
    };
    let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
    [value.to_owned(), quoted, percent("+"), percent("%20")]
}

/// A value of one line that is in no other text.
fn planted() -> impl Strategy<Value = String> {
    "[!-~]{10,20}( [!-~]{1,9})?"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Neither the log, nor the termination message, nor the report on it holds a value of a Secret.
    #[test]
    fn no_value_of_a_secret_leaves_a_run(
        user in "[a-z][!-~]{10,20}", values in prop::collection::vec(planted(), 6), fails in any::<bool>(),
    ) {
        let (parent, objects) = with_credentials();
        let outcome = reconcile(&parent, &objects).unwrap();
        let variables = ["DB0_PASSWORD", "ST0_PASSWORD", "ENC_PASSWORD", "MYSQL_PWD", "APP_TOKEN"];
        let key = format!("-----BEGIN KEY-----\n{}\n-----END KEY-----\n", values[5]);
        let secrets: Vec<&String> = values.iter().chain([&user]).collect();
        let mut output = String::new();
        for value in &secrets {
            for form in forms(value) {
                let lines = [
                    format!("ok {form}{form} ok"),
                    format!("openssl -k {form} -in {form}"),
                    format!("\"{form}\""),
                    form,
                ];
                output += &lines.join("\n");
                output.push('\n');
            }
        }
        let code = i32::from(fails);
        let program = format!("cat \"$TMPDIR/output\" \"$TMPDIR/output\" >&2\n{STORING}exit {code}");
        for shell in Shell::all() {
            let run = Run::new(shell, &program);
            run.file("work/output", &output);
            run.file("keys/ST0_PRIVATE_KEY", &key);
            let named = variables.iter().zip(&values).map(|(name, value)| (*name, value.as_bytes()));
            let named: Vec<_> = named.chain([("DB0_USERNAME", user.as_bytes())]).collect();
            let ended = run.end(&outcome, &named);
            prop_assert_eq!(ended.code, Some(code), "{:?}", ended);
            prop_assert!(ended.log.contains("ok *** ok") || ended.log.contains("ok ****** ok"));
            let job = if fails { outcomes::failed() } else { outcomes::complete() };
            let request = TestRequest::new(&parent)
                .child("run", &outcomes::job("nightly", "a", "00000000-0000-4000-8000-000000000001", job));
            let mut seen = objects.clone();
            seen.push(outcomes::pod("a", &ended.message));
            let fake = host(&seen);
            let later = Plugin::reconcile(&request.build(), &fake).unwrap();
            let texts = [
                ("log", ended.log),
                ("message", ended.message),
                ("answers", format!("{outcome:?} {later:?}")),
                ("host log", format!("{:?}", fake.log_lines())),
            ];
            for (place, text) in &texts {
                for value in &secrets {
                    for form in forms(value) {
                        prop_assert!(!text.contains(&form), "{}: {} in {}", place, form, text);
                    }
                }
                prop_assert!(!text.contains(MARK), "{}", place);
            }
        }
    }
}

/// A line of a private key, for example in the message of a parser, gives away a part of the key.
#[test]
fn no_line_of_a_secret_of_several_lines_is_logged() {
    let (parent, objects) = with_credentials();
    let outcome = reconcile(&parent, &objects).unwrap();
    let key = "-----BEGIN KEY-----\r\nfirst-line-of-key\r\n  second-line=\r\nshort\r\n-----END KEY-----\n";
    for name in ["MYSQL_PWD", "APP_TOKEN"] {
        let program = "echo 'bad line first-line-of-key'
            echo 'key -----BEGIN KEY-----, first-line-of-key,   second-line=, short'
            echo 'second-line%3D'
            exit 1";
        let ended = end(program, &outcome, &[(name, key.as_bytes())]);
        assert_eq!(ended.log, "bad line ***\nkey ***, ***,   ***, short\n***\n");
        assert_eq!(ended.message, ended.log);
    }
}

// gobackup logs the URL, and Go's errors have it without its password.
#[test]
fn the_url_of_a_notifier_is_not_logged() {
    let url_ref = json!({ "name": "keys", "key": "pg" });
    let notifier = json!({ "name": "chat", "type": "slack", "config": { "url_ref": url_ref } });
    let outcome = reconcile(&backup(json!({ "notifiers": [notifier] })), &around()).unwrap();
    let program = "echo \"Send notification to $NT0_URL...\"
        echo 'Post \"https://u:***@hooks.example.com/services/planted-token\": dial tcp: no such host'
        exit 1";
    let url = b"https://u:hidden@hooks.example.com/services/planted-token";
    let ended = end(program, &outcome, &[("NT0_URL", url)]);
    assert_eq!(
        ended.message,
        "Send notification to ***...\nPost \"https://u:***@hooks.example.com***\": dial tcp: no such host\n"
    );
    assert_eq!(ended.log, ended.message);
}

#[test]
fn a_failure_is_told_by_the_end_of_the_log() {
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    let program = "i=0; while [ $i -lt 600 ]; do echo \"line $i ä\"; i=$((i + 1)); done; exit 3";
    let ended = end(program, &outcome, &[("DB0_PASSWORD", b"line 59")]);
    assert_eq!(ended.code, Some(3));
    assert!(ended.message.ends_with("line 589 ä\n***0 ä\n***1 ä\n***2 ä\n***3 ä\n***4 ä\n***5 ä\n***6 ä\n***7 ä\n***8 ä\n***9 ä\n"));
    // The kubelet reads at most 4096 bytes, and a character must not be cut.
    assert!(
        (3000..=4096).contains(&ended.message.len()),
        "{}",
        ended.message.len()
    );
    assert!(!ended.message.contains('\u{fffd}'));
}

// A word of the log that happens to be a short password would make the log unreadable.
#[test]
fn a_short_value_is_not_replaced() {
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    for (value, expected) in [
        ("a", "a bad attempt"),
        ("bad", "a bad attempt"),
        ("attempt", "a bad ***"),
        ("temp", "a bad at***t"),
    ] {
        let ended = end(
            "echo a bad attempt; exit 1",
            &outcome,
            &[("DB0_PASSWORD", value.as_bytes())],
        );
        assert_eq!(ended.log.trim_end(), expected, "{value}");
    }
}
