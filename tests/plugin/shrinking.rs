//! `innkeeper shrink`: smaller recordings that show the same failure (O5).

use std::{fs, os::unix::fs::PermissionsExt as _, process::Output};

use innkeeper_tests::{process::path_from_env, registry::Client};
use serde_json::{Value, json};

use crate::{
    bisecting::{build, check, client},
    testing::a_recording,
};

const SUCCESS: i32 = 0;
const BAD_USE: i32 = 2;
const FINDING: i32 = 3;

/// A recording of a parent for which unruly traps, with much beside the cause.
fn a_trap() -> Value {
    let child = |number: u32| {
        let name = format!("a-{number}");
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": "x"}});
        json!({"key": format!("child-{number}"), "retained": false, "object": object})
    };
    let children: Vec<Value> = (0..9).map(child).collect();
    let read =
        json!({"verb": "get", "apiVersion": "v1", "kind": "Pod", "namespace": "a", "name": "b"});
    let mut recording = a_recording();
    recording["parent"] = json!({
        "apiVersion": "test.innkeeper.dev/v1", "kind": "Unruly",
        "metadata": {"name": "a", "namespace": "demo", "uid": "1", "labels": {"a": "b"}, "resourceVersion": "7"},
        "spec": {"behaviour": "trap"}, "status": {"conditions": [{"type": "Ready"}, {"type": "Synced"}]},
    });
    recording["children"] = children.into();
    recording["reads"] = json!([{"read": read, "answer": {"object": {"kind": "Pod"}}}]);
    recording
}

fn shrink(client: &Client, more: &[&str]) -> Output {
    let arguments = [&["shrink", "recording.json"], more].concat();
    client.output(&arguments).unwrap()
}

fn small(client: &Client) -> Value {
    let text = fs::read(client.directory().join("small.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn o5_a_recorded_fault_becomes_smaller_and_stays_the_same() {
    let client = client();
    client.put("recording.json", a_trap().to_string()).unwrap();
    let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
    let plugin = guests.join("unruly.wasm");
    let plugin = plugin.to_str().unwrap();
    let arguments = ["--plugin", plugin, "--to", "small.json"];
    check(&shrink(&client, &arguments), SUCCESS, "small.json\n");
    let found = small(&client);
    let parent = json!({
        "apiVersion": "test.innkeeper.dev/v1", "kind": "Unruly",
        "metadata": {"name": "a", "namespace": "demo", "uid": "1"}, "spec": {"behaviour": "trap"},
    });
    assert_eq!(found["parent"], parent);
    assert_eq!(
        (&found["children"], &found["reads"]),
        (&json!([]), &json!([]))
    );
    assert_eq!(found["answer"]["fault"]["kind"], "GuestTrapped");
    let path = client.directory().join("small.json");
    let mode = fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let replay = client.output(&["replay", "small.json", "--plugin", plugin]);
    let part = "the answer is the recorded one";
    check(&replay.unwrap(), SUCCESS, part);
    let again = shrink(&client, &arguments);
    check(
        &again,
        BAD_USE,
        "failed to write small.json, which must be a new file: File exists",
    );
}

#[test]
fn o5_a_recording_becomes_smaller_while_two_builds_differ() {
    let client = client();
    client.put("old.wasm", build(0, false)).unwrap();
    client.put("new.wasm", build(0, true)).unwrap();
    let mut recording = a_recording();
    recording["parent"]["spec"]["memcached"] = json!({"threads": 8});
    recording["parent"]["status"] = json!({"replicas": 7});
    client.put("recording.json", recording.to_string()).unwrap();
    let shrink = |plugin: &str, more: &[&str]| {
        let arguments = ["--plugin", plugin, "--to", "small.json"];
        shrink(&client, &[&arguments[..], more].concat())
    };
    let part = "shows no failure: new.wasm ends without a fault: give the build with another answer by --against";
    check(&shrink("new.wasm", &[]), BAD_USE, part);
    let part = "shows no failure: old.wasm and old.wasm give the same answer";
    check(
        &shrink("old.wasm", &["--against", "old.wasm"]),
        BAD_USE,
        part,
    );
    check(
        &shrink("new.wasm", &["--against", "old.wasm"]),
        SUCCESS,
        "bytes of the input in",
    );
    let found = small(&client);
    assert_eq!(found["parent"]["spec"].get("memcached"), None);
    assert_eq!(found["parent"].get("status"), None);
    // The expected answer is that of the old build.
    for (plugin, code, part) in [
        ("old.wasm", SUCCESS, "the answer is the recorded one"),
        ("new.wasm", FINDING, "RuntimeDefects"),
    ] {
        let replay = ["replay", "small.json", "--plugin", plugin];
        check(&client.output(&replay).unwrap(), code, part);
    }
    client.put("recording.json", "{").unwrap();
    check(
        &shrink("new.wasm", &[]),
        BAD_USE,
        "is no recording of a pass",
    );
}
