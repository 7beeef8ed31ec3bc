//! Numbers on their way from a parent through a plugin to a child.

use std::{fs, path::Path, process::Command};

use innkeeper_tests::process::path_from_env;
use serde_json::{Value, json};

/// Enough floats to expose an inexact parser: about one in five random ones does.
const FLOATS: usize = 300;

/// Floats whose shortest text has up to 17 digits.
fn floats() -> Vec<f64> {
    let mut state = 1_u64;
    let mut next = || {
        // The multiplier of Knuth's MMIX.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        f64::from_bits((state >> 12) | 0x3ff0_0000_0000_0000).mul_add(1000.0, -1000.0)
    };
    (0..FLOATS).map(|_| next()).collect()
}

/// The maximum number of items in the spec's list.
const ITEMS: usize = 60;

#[test]
fn floats_reach_a_child_with_all_their_digits() {
    let directory = tempfile::tempdir().unwrap();
    let numbers = floats();
    for numbers in numbers.chunks(ITEMS) {
        assert_eq!(copied(directory.path(), numbers), numbers);
    }
}

/// Returns the numbers in the child that the guest `unruly` creates for a parent.
fn copied(directory: &Path, numbers: &[f64]) -> Vec<f64> {
    let path = directory.join("parent.json");
    let parent = json!({
        "apiVersion": "test.innkeeper.dev/v1", "kind": "Unruly", "metadata": {"name": "floats"},
        "spec": {"behaviour": "good", "numbers": numbers},
    });
    fs::write(&path, parent.to_string()).unwrap();
    let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
    let output = Command::new(path_from_env("INNKEEPER_BIN").unwrap())
        .args(["render", "-o", "json", "--plugin"])
        .arg(guests.join("unruly.wasm"))
        .arg("--parent")
        .arg(path)
        .arg("--cache-dir")
        .arg(directory.join("cache"))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let children = answer["children"].as_array().unwrap();
    let text = children[0]["object"]["data"]["numbers"].as_str().unwrap();
    serde_json::from_str(text).unwrap()
}
