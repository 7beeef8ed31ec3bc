//! The replay of a call that a host has recorded in its log (O5).

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use innkeeper_tests::{
    Host, HostOptions,
    admin::{self, address, ask},
    eventually,
    process::path_from_env,
};
use serde_json::{Value, json};

use crate::{
    admin::wait_ready,
    stage::{Stage, is_applied},
};

const PARENT: (&str, &str, &str) = ("cache.example.com/v1", "Memcached", "web");

/// The recordings in a host's log, oldest first.
fn recordings(host: &Host) -> Vec<String> {
    let log = host.log().unwrap();
    let lines = log.lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let is_recording = line["target"] == "recording";
        is_recording.then(|| line["message"].as_str().map(str::to_owned))?
    });
    lines.collect()
}

fn replay(directory: &Path, recording: &str) -> Output {
    let file: PathBuf = directory.join("recording.json");
    fs::write(&file, recording).unwrap();
    let guests = path_from_env("INNKEEPER_GUESTS").unwrap();
    let mut command = Command::new(path_from_env("INNKEEPER_BIN").unwrap());
    command.args(["render", "-o", "json", "--plugin"]);
    command.arg(guests.join("memcached.wasm"));
    command.arg("--recording").arg(file);
    command
        .arg("--cache-dir")
        .arg(directory.join("render-cache"));
    command.output().unwrap()
}

#[track_caller]
fn check(output: &Output, code: i32, message: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert!(errors.contains(message), "{errors}");
}

/// A recorded call has all inputs of the guest. An input that the recording lacked would change the
/// answer of the replay.
#[test]
fn o5_a_call_recorded_on_demand_gives_the_same_answer_elsewhere() {
    let stage = Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins);
    let mut options = stage.options.clone();
    let arguments = admin::ARGUMENTS.iter().chain(&["--debug-endpoints"]);
    options.arguments = arguments.map(|argument| (*argument).to_owned()).collect();
    let host = Host::start(&stage.plane.kubeconfig(), &options).unwrap();
    wait_ready(&address(&host));
    let record = |plugin: &str| {
        let filter = format!("info,[pass{{plugin={plugin}}}]=trace");
        let changed = ask(&address(&host), "PUT", "/debug/log", &filter).unwrap();
        assert_eq!(changed.0, 200, "{changed:?}");
    };
    let namespace = stage.namespace("recorded");
    let (api_version, kind, name) = PARENT;
    record("another");
    stage.apply(
        &namespace,
        &json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": {"size": 1}}),
    );
    stage.wait(&host, &namespace, PARENT, is_applied);
    assert_eq!(
        recordings(&host),
        [""; 0],
        "the filter names another plugin"
    );

    record("memcached");
    stage.merge(&namespace, PARENT, &json!({"spec": {"size": 2}}));
    let recording = eventually("the call for the edit is recorded", || {
        let recorded = recordings(&host);
        let of_edit = recorded.iter().find(|text| text.contains("\"size\":2"));
        of_edit.cloned().ok_or_else(|| recorded.join("\n"))
    });
    Stage::stop(host);

    let directory = stage.plane.directory();
    let again = replay(directory, &recording);
    check(&again, 0, "the answer is the recorded one");
    let answer: Value = serde_json::from_slice(&again.stdout).unwrap();
    let mut changed: Value = serde_json::from_str(&recording).unwrap();
    assert_eq!(changed["answer"], answer);
    assert_eq!(
        (&changed["plugin"], &changed["secret"]),
        (&json!("memcached"), &json!(false))
    );
    let children = answer["children"].as_array().unwrap();
    assert!(!children.is_empty(), "{answer}");

    // Another input gives another answer, and the command reports the difference.
    let edited = recording.replace("\"size\":2", "\"size\":3");
    check(&replay(directory, &edited), 3, "replicas is 3, and was 2");
    changed["recording"] = json!("v9");
    check(
        &replay(directory, &changed.to_string()),
        2,
        "is no recording of a pass",
    );
}
