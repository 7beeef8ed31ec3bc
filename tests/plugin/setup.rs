//! The progress of `tests/setup`.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use innkeeper_tests::manifest::root;

/// Runs two parts of the script in a copy of it, whose compilers do nothing, and returns the lines with estimates.
fn estimates(copy: &Path) -> Vec<String> {
    let script = r#"PATH="$0/bin:$PATH" exec "$0/tests/setup" --only host --only controlplane"#;
    let mut setup = Command::new("sh");
    let output = setup.args(["-c", script]).arg(copy).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    text.lines()
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

#[test]
fn setup_estimates_the_time_left_for_what_was_never_built() {
    let copy = tempfile::tempdir().unwrap();
    for path in ["tests/setup", "tests/controlplane/go.mod"] {
        write(copy.path(), path, &fs::read(root().join(path)).unwrap());
    }
    for path in [
        "bin/cargo",
        "bin/cc",
        "bin/make",
        "tests/controlplane/build",
    ] {
        write(copy.path(), path, b"#!/bin/sh\n");
    }
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
