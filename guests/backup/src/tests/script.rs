//! The script of a run: checks and result.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use super::{
    run::{Run, Shell, USER, end, verdict},
    standin::STORING,
    *,
};

/// Returns the answer for a database with credentials in a Secret.
fn with_database(type_: &str, further: Value) -> Answer {
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

#[test]
fn a_run_reports_the_stored_files() {
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    let result = end(STORING, &outcome, &[]);
    assert_eq!(result.code, Some(0), "{result:?}");
    let message: Value = serde_json::from_str(&result.message).unwrap();
    let artifacts = json!([{ "storage": "s", "file": "f.tar" }]);
    let expected = json!({ "artifacts": artifacts, "bytes": null, "retention": "", "seconds": 0 });
    assert_eq!(message, expected);
    // The kubelet would expand it.
    let run = Run::new(Shell::Own, STORING);
    assert!(!run.script(&outcome).contains("$("));
}

/// Returns the archive size in a run's message.
fn size(gobackup: &str, outcome: &Answer) -> Value {
    let result = end(gobackup, outcome, &[]);
    let message: Value = serde_json::from_str(&result.message).unwrap();
    message["bytes"].clone()
}

// gobackup logs sizes only, with a bar before them, and each storage gets the same chunks.
#[test]
fn a_run_reports_the_archive_size() {
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

// The log has no size, and the archive is gone after the run.
#[test]
fn a_run_reports_the_archive_size_for_sftp() {
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
            let result = Run::new(shell, &program).end(&outcome, &[]);
            let message: Value = serde_json::from_str(&result.message).unwrap();
            assert_eq!(message["bytes"], expected, "{made}");
        }
    }
}

#[test]
fn a_run_reports_the_first_retention_failure() {
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
        let result = end(&program, &outcome, &[]);
        let message: Value = serde_json::from_str(&result.message).unwrap();
        let retention = if expected { log } else { "" };
        assert_eq!(message["retention"], retention);
        let result = end(&format!("{program}exit 1"), &outcome, &[]);
        let line = format!("gobackup did not apply keep: {log}\n");
        assert_eq!(result.message.ends_with(&line), expected, "{result:?}");
    }
}

#[test]
fn a_run_reports_the_size_of_a_local_archive() {
    let mut objects = around();
    let config = json!({ "path": "/data/shelf" });
    objects[1] = related("Storage", "s", json!({ "type": "local", "config": config }));
    let request = TestRequest::new(&backup(json!({}))).config(&json!({ "storagePath": "" }));
    let outcome = Plugin::reconcile(&request.build(), &host(&objects)).unwrap();
    for shell in Shell::all() {
        check_size_on_shelf(shell, &outcome);
    }
}

/// Checks the archive size in a run's message for `/data/shelf`.
pub(super) fn check_size_on_shelf(shell: Shell, outcome: &Answer) {
    let run = Run::new(shell, STORING);
    run.directory("volumes/data/shelf");
    run.file("volumes/data/shelf/f.tar", "twelve bytes");
    let result = run.end(outcome, &[]);
    let message: Value = serde_json::from_str(&result.message).unwrap();
    assert_eq!(message["bytes"], 12, "{result:?}");
}

// Two runs of a parent, or parents with the same claim, share the state volume.
#[test]
fn parallel_runs_report_their_own_archives() {
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
            let result = run.end(&outcome, &[]);
            assert_eq!(result.code, Some(code), "{result:?}");
            if code == 0 {
                let message: Value = serde_json::from_str(&result.message).unwrap();
                let artifacts = json!([{ "storage": "s", "file": "1-bzqzswhtwrvtgjrz.tar" }]);
                assert_eq!(message["artifacts"], artifacts, "{result:?}");
            }
            let own = run.root.join("state/.started.bzqzswhtwrvtgjrz");
            assert!(!own.exists(), "a run leaves no marker behind");
        }
    }
}

#[test]
fn a_run_that_stores_nothing_fails() {
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    let result = end("echo done", &outcome, &[]);
    assert_eq!(result.code, Some(1));
    assert!(
        result.message.ends_with("gobackup stored nothing in s\n"),
        "{result:?}"
    );
    let result = end("echo 'cannot connect' >&2; exit 7", &outcome, &[]);
    assert_eq!(result.code, Some(7));
    assert!(result.log.contains("cannot connect"), "{result:?}");
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
            "Database pg: config.password_ref: the value has several lines; gobackup only reads one-line credentials"
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
    // PostgreSQL's password is a variable for the clients; the user name is an argument.
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
            "Database pg: config.username_ref: the value has a character that pg_dumpall's shell would act on",
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
        "encodeWith.passwordRef: the value has several lines; gobackup only reads one-line credentials",
    );
}

/// Returns a parent that archives these paths in the volume `/data`.
fn archiving(includes: &[&str], excludes: &[&str]) -> Answer {
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
        let result = run.end(&outcome, &[]);
        restrict(false);
        let first = result
            .log
            .lines()
            .next()
            .unwrap_or_default()
            .replace(&run.mount(""), "");
        if result.code == Some(0) {
            "ok".to_owned()
        } else {
            first
        }
    });
    let verdicts: Vec<String> = verdicts.collect();
    assert!(
        verdicts.iter().all(|verdict| *verdict == verdicts[0]),
        "{verdicts:?}"
    );
    verdicts[0].clone()
}

#[test]
fn a_file_that_cannot_be_read_ends_the_run() {
    let unreadable = |path: &str| {
        format!(
            "archive.includes: user {USER} cannot read {path}; set the parent's securityContext to its owner or group, or add the path to archive.excludes"
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

// A claim's file system has such a directory, which belongs to root.
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
        "archive.includes: /data/current is a symbolic link, and an archive would only contain the link; name its target",
    );
}

#[test]
fn an_older_gobackup_ends_the_run() {
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    let verdict = |version: &str| {
        let program =
            format!("[ \"$1\" != --version ] || {{ echo '{version}'; exit; }}\n{STORING}");
        let result = end(&program, &outcome, &[]);
        result.log.lines().next().unwrap_or_default().to_owned()
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
    let result = end(&format!("echo \"$ARCHIVE_ID\"\n{STORING}"), &outcome, &[]);
    let id = result.log.lines().next().unwrap();
    // Sixteen hexadecimal digits from the Pod's UID, in letters without a meaning in Go's time layouts.
    assert_eq!(id, "bzqzswhtwrvtgjrz", "{result:?}");
}
