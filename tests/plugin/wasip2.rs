//! A guest with the toolchain's own imports: rustc makes a component for `wasm32-wasip2`, and for `wasm32-wasip1` a
//! module that the preview 1 adapter turns into a component.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::LazyLock,
};

use innkeeper_tests::process::path_from_env;
use serde_json::{Value, json};
use tempfile::TempDir;
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wit_component::ComponentEncoder;

/// The exit code of `render` for a fault.
const FAULTED: i32 = 3;
/// The time of the pass, in milliseconds since the Unix epoch.
const NOW_MS: &str = "1893456000123";

/// The directory with the adapter's component.
static ADAPTED: LazyLock<TempDir> = LazyLock::new(|| {
    let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
    let module = fs::read(guests.join("wasip1.module")).unwrap();
    let name = WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME;
    let adapter = WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER;
    let component = ComponentEncoder::default()
        .validate(true)
        .module(&module)
        .and_then(|encoder| encoder.adapter(name, adapter))
        .and_then(|mut encoder| encoder.encode())
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("wasip1.wasm"), component).unwrap();
    directory
});

/// The guest as a component, for each target.
fn components() -> [PathBuf; 2] {
    let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
    [
        guests.join("wasip2.wasm"),
        ADAPTED.path().join("wasip1.wasm"),
    ]
}

/// Renders a parent with this behavior at a fixed time.
fn render(component: &Path, behaviour: &str, seed: &str) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let parent = directory.path().join("parent.json");
    let spec = json!({
        "apiVersion": "test.innkeeper.dev/v1", "kind": "Wasip2",
        "metadata": {"name": "parent"}, "spec": {"behaviour": behaviour},
    });
    fs::write(&parent, spec.to_string()).unwrap();
    Command::new(path_from_env("INNKEEPER_BIN").unwrap())
        .args(["render", "-o", "json", "--now", "2030-01-01T00:00:00.123Z"])
        .args(["--seed", seed, "--plugin"])
        .arg(component)
        .arg("--parent")
        .arg(parent)
        .output()
        .unwrap()
}

#[track_caller]
fn check_fault(behaviour: &str, text: &str) {
    for component in components() {
        let output = render(&component, behaviour, "0");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(FAULTED), "{stderr}");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["fault"]["kind"], "GuestTrapped", "{answer}");
        let message = answer["fault"]["message"].as_str().unwrap();
        assert!(message.contains(text), "{message}");
    }
}

/// Renders a pass that prints; returns the child's data and the log.
fn printed(component: &Path, seed: &str) -> (Value, String) {
    let output = render(component, "prints", seed);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    (answer["children"][0]["object"]["data"].clone(), stderr)
}

#[test]
fn the_standard_library_sees_the_pass_and_nothing_else() {
    for component in components() {
        let printed = |seed| printed(&component, seed);
        let (data, log) = printed("1");
        for line in [
            "log: info: a line on the standard output",
            "log: error: a line on the standard error",
        ] {
            assert!(log.contains(line), "{log}");
        }
        let mut without_order = data.clone();
        without_order["order"] = Value::Null;
        let expected = json!({
            "now": NOW_MS, "waited": "0", "order": null, "variables": "0", "arguments": "1",
            "input": "", "files": "false",
        });
        assert_eq!(without_order, expected, "{}", component.display());

        // A HashSet's order depends on the pass's random bytes.
        assert_eq!(printed("1").0, data);
        let other = ["2", "3", "4"].map(|seed| printed(seed).0["order"].clone());
        assert!(other.iter().any(|order| *order != data["order"]), "{data}");
    }
}

#[test]
fn a_panic_of_the_standard_library_is_told() {
    check_fault("panics", "no answer");
}

#[test]
fn a_wait_of_the_standard_library_is_a_fault() {
    check_fault("waits", "nothing in a pass can be waited for");
}

#[test]
fn an_exit_of_the_standard_library_is_a_fault() {
    check_fault("exits", "Exited with i32 exit status 1");
}
