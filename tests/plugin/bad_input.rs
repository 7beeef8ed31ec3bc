//! Bad input to author commands: each message names the input, and each failure has a distinct exit code.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use innkeeper_tests::process::path_from_env;

const FAILURE: i32 = 1;
const BAD_USE: i32 = 2;

/// Runs a command in a directory and checks how it ends.
#[track_caller]
fn check(directory: &Path, arguments: &[&str], path: Option<&str>, code: i32, message: &str) {
    let mut command = Command::new(path_from_env("INNKEEPER_BIN").unwrap());
    command.args(arguments).current_dir(directory);
    command.env_remove("KUBECONFIG").env("HOME", directory);
    if let Some(path) = path {
        command.env("PATH", path).env_remove("INNKEEPER_RUSTC");
        command.env_remove("RUSTC").env_remove("CARGO");
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(error.contains(message), "{arguments:?}: {error}");
}

#[test]
fn files_that_are_no_plugins_are_refused_by_every_command() {
    let directory = tempfile::tempdir().unwrap();
    let component = |text: &str| wat::parse_str(text).unwrap();
    let files = [
        ("missing.wasm", None, "there is no file missing.wasm"),
        (
            "core.wasm",
            Some(component("(module)")),
            "this is a core WebAssembly module, not a component",
        ),
        (
            "empty.wasm",
            Some(component("(component)")),
            "it neither imports nor exports innkeeper:plugin",
        ),
        (
            "later.wasm",
            Some(component(
                r#"(component (instance $r) (export "innkeeper:plugin/reconciler@9.0.0" (instance $r)))"#,
            )),
            "unsupported contract version innkeeper:plugin@9.0.0 (supported: 0.1.0)",
        ),
    ];
    let parent = "apiVersion: example.com/v1\nkind: Pond\nmetadata: {name: koi}\n";
    fs::write(directory.path().join("parent.yaml"), parent).unwrap();
    for (file, bytes, message) in files {
        if let Some(bytes) = bytes {
            fs::write(directory.path().join(file), bytes).unwrap();
        }
        let commands: [&[&str]; 6] = [
            &["render", "--plugin", file, "parent.yaml"],
            &["manifests", file],
            &["test", file],
            &["plan", file],
            &["dump", file, "--to", "dump"],
            &["push", file, "127.0.0.1:1/plugins/pond:1", "--insecure"],
        ];
        for arguments in commands {
            check(directory.path(), arguments, None, BAD_USE, message);
        }
    }
    assert!(!directory.path().join("dump").exists());
}

#[test]
fn files_that_are_no_recordings_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("text"), "apiVersion: v1").unwrap();
    fs::write(directory.path().join("foreign"), r#"{"kind": "Pond"}"#).unwrap();
    let foreign = "is no recording of a pass: use a file of innkeeper record";
    let files = [
        ("missing", "failed to read missing"),
        ("text", foreign),
        ("foreign", foreign),
    ];
    for (file, message) in files {
        check(directory.path(), &["replay", file], None, BAD_USE, message);
    }
}

#[test]
fn a_machine_without_a_toolchain_is_told_what_to_install() {
    let directory = tempfile::tempdir().unwrap();
    let lib = directory.path().join("src");
    fs::create_dir(&lib).unwrap();
    fs::write(lib.join("lib.rs"), "").unwrap();
    let manifest = "[package]\nname = \"pond\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"cdylib\"]\n[workspace]\n";
    fs::write(directory.path().join("Cargo.toml"), manifest).unwrap();
    check(
        directory.path(),
        &["build"],
        Some("/none"),
        FAILURE,
        "cargo",
    );
}
