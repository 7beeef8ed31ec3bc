//! `innkeeper build`: a component with an embedded description, with the same digest in every directory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use innkeeper_tests::{
    manifest::root,
    process::{is_full, path_from_env},
};
use serde_json::Value;

/// The exit code for code that cannot be built into a plugin.
const NOT_BUILT: i32 = 1;
const BAD_USE: i32 = 2;

fn innkeeper(arguments: &[&str]) -> Output {
    Command::new(path_from_env("INNKEEPER_BIN").expect("the host is built"))
        .args(arguments)
        .output()
        .expect("the host can be started")
}

/// The guests' target directory, which has their dependencies compiled.
fn target_dir() -> PathBuf {
    path_from_env("INNKEEPER_GUESTS")
        .expect("the guests are built")
        .with_file_name("wasm")
}

fn build(directory: &Path, out: &Path, target: &Path, more: &[&str]) -> Output {
    let text = |path: &Path| path.to_str().expect("paths are text").to_owned();
    let directory = text(directory);
    let out = text(out);
    let target = text(target);
    let fixed = ["build", &directory, "--out", &out, "--target-dir", &target];
    // The profile of the guests in the target directory.
    let profile: &[&str] = if is_full() { &[] } else { &["--dev"] };
    innkeeper(&[&fixed[..], profile, more].concat())
}

#[track_caller]
fn built(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    serde_json::from_slice(&output.stdout).expect("the result is JSON")
}

const GUEST: [&str; 5] = ["-p", "innkeeper-guest-memcached", "--locked", "-o", "json"];

#[test]
fn a_component_carries_its_description_and_builds_are_reproducible() {
    let out = tempfile::tempdir().unwrap();
    let first = built(&build(&root(), out.path(), &target_dir(), &GUEST));
    let first = &first[0];
    assert_eq!(first["name"], "memcached");
    let file = out.path().join("memcached.wasm");
    assert_eq!(first["file"], file.to_str().unwrap());
    // The build leaves only this file.
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1);

    let inspected = innkeeper(&["inspect", file.to_str().unwrap(), "-o", "json"]);
    let description: Value = serde_json::from_slice(&inspected.stdout).unwrap();
    assert_eq!(description["digest"], first["digest"]);
    assert_eq!(description["embedded"], true);
    assert_eq!(description["plugin"]["name"], "memcached");
    let settings = &description["plugin"]["configSchema"]["properties"];
    assert_eq!(settings["assignUser"]["type"], "boolean", "{description}");

    let again = tempfile::tempdir().unwrap();
    let second = built(&build(&root(), again.path(), &target_dir(), &GUEST));
    assert_eq!(second[0]["digest"], first["digest"]);
    if is_full() {
        elsewhere(&first["digest"]);
    }
}

/// Without a description, each command would compile the component to get it.
#[test]
fn the_plugins_of_the_setup_carry_their_descriptions() {
    let guests = path_from_env("INNKEEPER_GUESTS").expect("the guests are built");
    for name in ["memcached", "wordpress", "etcd", "backup"] {
        let file = guests.join(format!("{name}.wasm"));
        let inspected = innkeeper(&["inspect", file.to_str().unwrap(), "-o", "json"]);
        let description: Value = serde_json::from_slice(&inspected.stdout).unwrap();
        assert_eq!(description["embedded"], true, "{name}");
    }
}

/// Builds the same source in another directory with an empty target directory and compares the digest.
#[track_caller]
fn elsewhere(digest: &Value) {
    let copy = tempfile::tempdir().unwrap();
    let listed = Command::new("git")
        .arg("ls-files")
        .current_dir(root())
        .output()
        .unwrap();
    for path in String::from_utf8(listed.stdout).unwrap().lines() {
        let from = root().join(path);
        let to = copy.path().join(path);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }
    let target = copy.path().join("target");
    let out = tempfile::tempdir().unwrap();
    let there = built(&build(copy.path(), out.path(), &target, &GUEST));
    assert_eq!(there[0]["digest"], *digest);
}

/// Creates a crate with this crate type, code and dependencies. It has this workspace's profiles, so cargo reuses the
/// standard library that was built for the guests.
fn a_crate(kind: &str, code: &str, dependencies: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, profiles) = workspace.split_once("[profile.dev]").unwrap();
    let manifest = format!(
        "[package]\nname = \"pond\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"{kind}\"]\n[dependencies]\n{dependencies}\n[workspace]\n[profile.dev]{profiles}"
    );
    fs::write(directory.path().join("Cargo.toml"), manifest).unwrap();
    fs::create_dir(directory.path().join("src")).unwrap();
    fs::write(directory.path().join("src/lib.rs"), code).unwrap();
    directory
}

#[track_caller]
fn refused(kind: &str, code: &str, more: &[&str], exit: i32, problem: &str) {
    let directory = a_crate(kind, code, "");
    check_refused(directory.path(), more, exit, problem);
}

#[track_caller]
fn check_refused(directory: &Path, more: &[&str], exit: i32, problem: &str) {
    let out = tempfile::tempdir().unwrap();
    let output = build(directory, out.path(), &target_dir(), more);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{error}");
    assert!(error.contains(problem), "{error}");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0, "{error}");
}

/// Builds the hand-written test guest with a configuration schema that contains a reference.
#[track_caller]
fn refuses_a_configuration_schema() {
    let code = fs::read_to_string(root().join("tests/guests/mirror/src/lib.rs")).unwrap();
    let schema = r##"Some(r#"{"properties":{"size":{"$ref":"./size"}}}"#.to_owned())"##;
    let wit = format!(r#"path: "{}""#, root().join("wit").display());
    let changed = code
        .replace("config_schema: None", &format!("config_schema: {schema}"))
        .replace(r#"path: "../../../wit""#, &wit);
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let dependencies: Vec<&str> = workspace
        .lines()
        .filter(|line| line.starts_with("serde_json = ") || line.starts_with("wit-bindgen = "))
        .collect();
    let directory = a_crate("cdylib", &changed, &dependencies.join("\n"));
    fs::copy(
        root().join("Cargo.lock"),
        directory.path().join("Cargo.lock"),
    )
    .unwrap();
    let problem = "config-schema.properties.size.$ref: $ref is not accepted";
    check_refused(directory.path(), &[], NOT_BUILT, problem);
}

#[test]
fn refuses_crates_that_are_no_plugins() {
    let cdylib = "cdylib";
    refused("rlib", "", &[], BAD_USE, "makes a plugin: add crate-type");
    refused(
        cdylib,
        "",
        &["-p", "lake"],
        BAD_USE,
        "failed to find the package lake",
    );
    refused(cdylib, "", &["-p", "pond=a/b"], BAD_USE, "PACKAGE=NAME");
    refused(cdylib, "fn", &[], NOT_BUILT, "cargo failed to build pond");
    refused(
        cdylib,
        "",
        &[],
        NOT_BUILT,
        "failed to make a component of pond",
    );
    let output = innkeeper(&["build", "/does/not/exist"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(BAD_USE), "{error}");
    assert!(error.contains("/does/not/exist"), "{error}");
    // It compiles the bindings once more, for a minute.
    if is_full() {
        refuses_a_configuration_schema();
    }
}
