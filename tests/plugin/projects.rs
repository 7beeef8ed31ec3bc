//! `innkeeper new`: projects outside the repository that build, pass their tests and run; and the SDK package.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use innkeeper_tests::{
    manifest::root,
    process::{is_full, path_from_env},
};

const SUCCESS: i32 = 0;
const BAD_USE: i32 = 2;

fn run(program: &Path, directory: &Path, arguments: &[&str]) -> Output {
    Command::new(program)
        // A project must not use the suites' target directory.
        .env_remove("CARGO_TARGET_DIR")
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the program can be started")
}

fn innkeeper(directory: &Path, arguments: &[&str]) -> Output {
    let host = path_from_env("INNKEEPER_BIN").expect("the host is built");
    run(&host, directory, arguments)
}

#[track_caller]
fn check(output: &Output, code: i32, part: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(part), "{stderr}");
}

/// Builds a project with the guests' compiled dependencies, runs the tests, and renders the example.
#[track_caller]
fn works(project: &Path, name: &str) {
    let target = path_from_env("INNKEEPER_GUESTS")
        .expect("the guests are built")
        .with_file_name("wasm");
    let target = target.to_str().expect("paths are text");
    let built = innkeeper(project, &["build", "--target-dir", target]);
    check(&built, SUCCESS, "");
    let tested = run(Path::new("cargo"), project, &["test", "--locked"]);
    check(&tested, SUCCESS, "");
    check(&innkeeper(project, &["test"]), SUCCESS, "");
    let plugin = format!("target/plugins/{name}.wasm");
    let rendered = [
        "render",
        "--plugin",
        &plugin,
        "--parent",
        "tests/example/parent.yaml",
    ];
    let rendered = innkeeper(project, &rendered);
    check(&rendered, SUCCESS, "");
    let children = String::from_utf8_lossy(&rendered.stdout);
    assert!(children.contains("kind: ConfigMap"), "{children}");
}

#[test]
fn a_new_project_builds_tests_and_runs_outside_of_the_repository() {
    let around = tempfile::tempdir().unwrap();
    let project = around.path().join("ponds");
    check(&innkeeper(around.path(), &["new", "ponds"]), SUCCESS, "");
    assert!(project.join(".innkeeper/kit/Cargo.toml").is_file());
    assert!(project.join(".innkeeper/sdk/Cargo.toml").is_file());
    // cargo can read it and finds all versions in the lock file, without network access.
    let metadata = ["metadata", "--offline", "--format-version", "1"];
    check(&run(Path::new("cargo"), &project, &metadata), SUCCESS, "");
    if is_full() {
        works(&project, "ponds");
    }
}

#[test]
fn a_project_for_an_existing_definition_has_its_types() {
    let around = tempfile::tempdir().unwrap();
    // A large CRD whose kind has the reconciler's name. Plugins themselves need a grant to be parents.
    let definition = root().join("deploy/crds/plugins.innkeeper.dev.yaml");
    let definition = fs::read_to_string(definition)
        .unwrap()
        .replace("innkeeper.dev", "example.com");
    fs::write(around.path().join("crd.yaml"), definition).unwrap();
    let created = ["new", "lake", "--from-crd", "crd.yaml"];
    check(&innkeeper(around.path(), &created), SUCCESS, "");
    let project = around.path().join("lake");
    let types = fs::read_to_string(project.join("src/types.rs")).unwrap();
    assert!(types.contains("pub struct PluginSpec {"), "{types}");
    if is_full() {
        works(&project, "lake");
    }
}

#[test]
fn refuses_what_would_not_build() {
    let around = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str); 7] = [
        (&["serde"], "failed to name a plugin \"serde\""),
        (&["."], "failed to name a plugin"),
        (
            &["a", "--kind", "example.com/v1/pond"],
            "GROUP/VERSION/KIND",
        ),
        (
            &["a", "--kind", "example.com/v1/String"],
            "failed to name a type String",
        ),
        (
            &["a", "--sdk", "/nowhere"],
            "it is no version, and no directory",
        ),
        (&["a", "--sdk", "git+https://git.example"], "git+URL#REV"),
        (&["a", "--from-crd", "crd.yaml"], "failed to read crd.yaml"),
    ];
    for (arguments, part) in cases {
        let output = innkeeper(around.path(), &[&["new"], arguments].concat());
        check(&output, BAD_USE, part);
    }
    fs::create_dir(around.path().join("a")).unwrap();
    check(
        &innkeeper(around.path(), &["new", "a"]),
        BAD_USE,
        "a exists",
    );
    assert_eq!(fs::read_dir(around.path()).unwrap().count(), 1);
}

#[test]
fn the_sdk_and_the_kit_are_packages_with_the_contract_inside() {
    let target = tempfile::tempdir().unwrap();
    let package = [
        "package",
        "--package=innkeeper-sdk",
        "--package=innkeeper-kit",
        "--allow-dirty",
        "--offline",
    ];
    let listed = run(
        Path::new("cargo"),
        &root(),
        &[&package[..], &["--list"]].concat(),
    );
    check(&listed, SUCCESS, "");
    let files = String::from_utf8_lossy(&listed.stdout);
    assert!(
        files.lines().any(|file| file == "wit/plugin.wit"),
        "{files}"
    );
    if is_full() {
        let target = ["--target-dir", target.path().to_str().unwrap()];
        let features = ["--features", "innkeeper-sdk/v1_33,innkeeper-kit/v1_33"];
        let verified = [&package[..], &features, &target].concat();
        check(&run(Path::new("cargo"), &root(), &verified), SUCCESS, "");
    }
}

/// Packages what `cargo install innkeeper` fetches, in a copy, because this repository may not be published yet.
#[test]
fn the_host_and_the_build_helper_are_packages() {
    let copy = tempfile::tempdir().unwrap();
    let parts = [
        "Cargo.lock",
        "README.md",
        "LICENSE",
        "guests",
        "host",
        "tests",
        "wit",
    ];
    let status = Command::new("cp")
        .arg("-r")
        .args(parts.map(|part| root().join(part)))
        .arg(copy.path())
        .status()
        .unwrap();
    assert!(status.success());
    let published = fs::read_to_string(root().join("Cargo.toml"))
        .unwrap()
        .replace("publish = false", "publish = true");
    fs::write(copy.path().join("Cargo.toml"), published).unwrap();
    let mut names = vec!["innkeeper".to_owned(), "innkeeper-guest-build".to_owned()];
    for directory in fs::read_dir(root().join("host/crates")).unwrap() {
        let name = directory.unwrap().file_name().into_string().unwrap();
        names.push(format!("innkeeper-{name}"));
    }
    let mut arguments = vec!["package", "--offline", "--no-verify", "--allow-dirty"];
    arguments.extend(names.iter().flat_map(|name| ["--package", name]));
    let packaged = run(Path::new("cargo"), copy.path(), &arguments);
    check(&packaged, SUCCESS, "Packaging innkeeper v");
}
