//! The progress output of `tests/setup`, and how it checks a gobackup checkout.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use innkeeper_tests::manifest::root;

/// Runs two parts of the script in a copy with other compilers, and returns the lines with estimates.
fn estimates(copy: &Path) -> Vec<String> {
    let script = r#"PATH="$0/bin:$PATH" exec "$0/tests/setup" --only host --only controlplane"#;
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(copy)
        .env("INNKEEPER_PROGRESS_SECONDS", "0")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr)
        .unwrap()
        .lines()
        .filter(|line| line.ends_with(" left"))
        .map(str::to_owned)
        .collect()
}

fn write(copy: &Path, path: &str, text: &[u8]) {
    let path = copy.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Copies the script, beside compilers that do nothing.
fn copy_setup(copy: &Path) {
    for path in ["tests/setup", "tests/controlplane/go.mod"] {
        write(copy, path, &fs::read(root().join(path)).unwrap());
    }
    for path in [
        "bin/cargo",
        "bin/cc",
        "bin/make",
        "tests/controlplane/build",
    ] {
        write(copy, path, b"#!/bin/sh\n");
    }
}

/// A build prints what is compiled, how much of it was there before, and the time left by the speed so far.
#[test]
fn setup_prints_the_progress_of_a_build() {
    let copy = tempfile::tempdir().unwrap();
    copy_setup(copy.path());
    let cargo = br"#!/bin/sh
printf '    Building [>   ] 10/410: memchr       \r   Compiling memchr v2.8.3\n' >&2
printf '    Building [=>  ] 110/410: syn, serde  \r    Building [==> ] 210/410: tokio  \r   Compiling tokio v1\n' >&2
printf '    Finished\n' >&2
";
    write(copy.path(), "bin/cargo", cargo);
    let left = estimates(copy.path());
    assert_eq!(left[1], "== host: compiled 10 of 410, about 15 min left");
    // A third of the host's time took none: the last crates are large.
    assert_eq!(left[2], "== host: compiled 210 of 410, about 3 min left");
}

#[test]
fn setup_estimates_the_time_left_for_what_was_never_built() {
    let copy = tempfile::tempdir().unwrap();
    copy_setup(copy.path());
    let both = estimates(copy.path());
    assert_eq!(both[0], "== about 15 min left");
    // The first part took seconds instead of ten minutes, so this machine is fast.
    assert!(
        ["== about 0 min left", "== about 1 min left"].contains(&both[1].as_str()),
        "{both:?}"
    );
    write(copy.path(), "target/release/innkeeper", b"");
    assert_eq!(
        estimates(copy.path()),
        ["== about 5 min left", "== about 5 min left"]
    );
    write(copy.path(), "target/controlplane/controlplane", b"");
    assert!(estimates(copy.path()).is_empty());
}

/// The last line of `tests/setup --only gobackup` for this checkout.
fn gobackup(checkout: &Path) -> String {
    let copy = tempfile::tempdir().unwrap();
    for path in ["tests/setup", "tests/controlplane/go.mod"] {
        write(copy.path(), path, &fs::read(root().join(path)).unwrap());
    }
    let go = b"#!/bin/sh\n[ \"$1\" != env ] || echo go9.9\n";
    write(copy.path(), "bin/go", go);
    let script = r#"PATH="$0/bin:$PATH" exec "$0/tests/setup" --only gobackup"#;
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(copy.path())
        .env("INNKEEPER_GOBACKUP", checkout)
        .output()
        .unwrap();
    String::from_utf8(output.stderr)
        .unwrap()
        .lines()
        .last()
        .unwrap_or_default()
        .replace(checkout.to_str().unwrap(), "DIR")
}

#[test]
fn setup_builds_gobackup_from_a_clean_checkout_of_its_version_alone() {
    let directory = tempfile::tempdir().unwrap();
    let checkout = directory.path();
    let git = |arguments: &[&str]| {
        let user = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        let output = Command::new("git")
            .arg("-C")
            .arg(checkout)
            .args(user)
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let other = |tag: &str| {
        format!(
            "error: INNKEEPER_GOBACKUP: DIR is at {tag}, not at v3.1.1: run git -C DIR checkout v3.1.1"
        )
    };
    let changed =
        "error: INNKEEPER_GOBACKUP: DIR has changes: run git -C DIR stash --include-untracked";
    let built = "== gobackup: target/registry/gobackup";
    git(&["init", "--quiet"]);
    fs::write(checkout.join(".gitignore"), "dist\n").unwrap();
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message=first"]);
    assert_eq!(gobackup(checkout), other("no tag"));
    git(&["tag", "v3.1.0"]);
    assert_eq!(gobackup(checkout), other("v3.1.0"));
    git(&["tag", "v3.1.1"]);
    assert_eq!(gobackup(checkout), built);
    // The build itself leaves an ignored file.
    assert_eq!(gobackup(checkout), built);
    fs::write(checkout.join("new.go"), "").unwrap();
    assert_eq!(gobackup(checkout), changed);
    git(&["add", "."]);
    assert_eq!(gobackup(checkout), changed);
}
