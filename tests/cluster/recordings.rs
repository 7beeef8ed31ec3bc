//! Recording calls, in the log or on demand, and replaying them.

use std::{
    fs,
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use innkeeper_tests::{
    Host, HostOptions,
    admin::{address, ask},
    eventually,
    process::path_from_env,
};
use serde_json::{Value, json};

use crate::{
    admin::{host, wait_ready},
    stage::{Stage, is_applied},
};

const PARENT: (&str, &str, &str) = ("cache.example.com/v1", "Memcached", "web");

/// Returns the recordings in a host's log, oldest first.
fn recordings(host: &Host) -> Vec<String> {
    let log = host.log().unwrap();
    let lines = log.lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        if line["target"] != "recording" {
            return None;
        }
        line["message"].as_str().map(str::to_owned)
    });
    lines.collect()
}

fn memcached() -> PathBuf {
    path_from_env("INNKEEPER_GUESTS")
        .unwrap()
        .join("memcached.wasm")
}

fn replay(directory: &Path, recording: &str) -> Output {
    let plugin = memcached();
    replay_in(
        directory,
        recording,
        &["--plugin", plugin.to_str().unwrap()],
    )
}

/// Runs `innkeeper replay` in a directory.
fn replay_in(directory: &Path, recording: &str, plugin: &[&str]) -> Output {
    let file: PathBuf = directory.join("recording.json");
    fs::write(&file, recording).unwrap();
    Command::new(path_from_env("INNKEEPER_BIN").unwrap())
        .args(["replay", "-o", "json"])
        .arg(file)
        .args(plugin)
        .arg("--cache-dir")
        .arg(directory.join("replay-cache"))
        .current_dir(directory)
        .output()
        .unwrap()
}

/// Runs `innkeeper record` against a host.
pub(crate) fn record(address: &str, arguments: &[&str]) -> Output {
    Command::new(path_from_env("INNKEEPER_BIN").unwrap())
        .args(["record", "--admin-address", address])
        .args(arguments)
        .output()
        .unwrap()
}

/// Starts a host with debug endpoints.
fn start(stage: &Stage, more: &[&str]) -> Host {
    let host = host(stage, &[&["--debug-endpoints"], more].concat());
    wait_ready(&address(&host));
    host
}

#[track_caller]
pub(crate) fn check(output: &Output, code: i32, message: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert!(errors.contains(message), "{errors}");
}

/// A recording has all inputs of the guest: a missing input would change the replayed answer.
#[test]
fn a_call_recorded_on_demand_gives_the_same_answer_elsewhere() {
    let stage = Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins);
    let host = start(&stage, &[]);
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
        recorded
            .iter()
            .find(|text| text.contains("\"size\":2"))
            .cloned()
            .ok_or_else(|| recorded.join("\n"))
    });
    Stage::stop(host);

    let directory = stage.plane.directory();
    let again = replay(directory, &recording);
    check(&again, 0, "the answer is the recorded one");
    let printed: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(printed["differences"], json!([]));
    let answer = &printed["answer"];
    let mut changed: Value = serde_json::from_str(&recording).unwrap();
    assert_eq!(&changed["answer"], answer);
    assert_eq!(
        (&changed["plugin"], &changed["secret"]),
        (&json!("memcached"), &json!(false))
    );
    let children = answer["children"].as_array().unwrap();
    assert!(!children.is_empty(), "{answer}");

    // Another input gives another answer, and the command reports the difference.
    let edited = recording.replace("\"size\":2", "\"size\":3");
    let other = replay(directory, &edited);
    check(&other, 3, "the answer is not the recorded one");
    let printed: Value = serde_json::from_slice(&other.stdout).unwrap();
    let differences = printed["differences"].to_string();
    assert!(
        differences.contains("replicas is 3, and was 2"),
        "{differences}"
    );
    check_default_plugin(directory, &recording);
    changed["recording"] = json!("v9");
    check(
        &replay(directory, &changed.to_string()),
        2,
        "is no recording of a pass",
    );
}

/// Without `--plugin`, replay runs the plugin from the project in the current directory.
fn check_default_plugin(directory: &Path, recording: &str) {
    let none = replay_in(directory, recording, &[]);
    check(
        &none,
        2,
        "found no plugin in ./target/plugins: run innkeeper build",
    );
    let plugins = directory.join("target/plugins");
    fs::create_dir_all(&plugins).unwrap();
    fs::copy(memcached(), plugins.join("memcached.wasm")).unwrap();
    let output = replay_in(directory, recording, &[]);
    check(&output, 0, "the answer is the recorded one");
}

/// The host skips passes for a settled parent, so recording it makes an extra call; recording faults
/// does not. A command that records nothing reports the reason. Plugins that may read Secrets are
/// never recorded.
#[test]
fn calls_are_recorded_on_demand_into_files_and_repeated() {
    let mut plugins = HostOptions::with_guests(&["memcached"]).unwrap().plugins;
    let test_guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
    plugins.extend(["unruly", "nosy"].map(|name| test_guests.join(format!("{name}.wasm"))));
    let stage = Stage::api_only(plugins);
    let grants = stage.plane.directory().join("nosy.yaml");
    let content = "parents: [{group: test.innkeeper.dev, kind: Nosy}]\nchildren: [{kind: ConfigMap}, {kind: Secret}]\nreads: [{kind: Secret, access: full, scope: ParentNamespace}, {kind: ConfigMap, access: full, scope: Cluster}]\n";
    fs::write(&grants, content).unwrap();
    let host = start(&stage, &["--grants", &format!("nosy={}", grants.display())]);
    let namespace = stage.namespace("ordered");
    let (api_version, kind, name) = PARENT;
    stage.apply(
        &namespace,
        &json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": {"size": 1}}),
    );
    stage.wait(&host, &namespace, PARENT, is_applied);

    let address = &address(&host);
    let directory = stage.plane.directory().join("recordings");
    check_settled_parent(address, &namespace, &directory);
    check_faults(address, &namespace, &directory, &stage);
    let to = directory.to_str().unwrap();
    let none = "memcached --next-faults 1 --timeout 1";
    let parent = format!("{namespace}/{name}");
    for (arguments, code, message) in [
        (
            format!("--plugin {none} --to {to}"),
            3,
            "0 of 1 recordings in 1 s: no more calls failed",
        ),
        (
            format!("--plugin other --next-faults 1 --to {to}"),
            2,
            "refuses: no plugin other is active: GET /debug/state lists the active plugins",
        ),
        (
            format!("--parent nowhere/web --to {to}"),
            2,
            "refuses: no active plugin reconciles this parent",
        ),
        (
            format!("--plugin nosy --next-faults 1 --to {to}"),
            1,
            "the host never records plugin nosy, because it may read Secret values",
        ),
        (
            format!("--parent {parent} --to {}", grants.display()),
            2,
            "failed to create",
        ),
    ] {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        check(&record(address, &arguments), code, message);
    }
    Stage::stop(host);
    let output = record(address, &["--parent", &parent, "--to", to]);
    check(&output, 1, &format!("no host answers at {address}: "));
}

#[track_caller]
fn check_settled_parent(address: &str, namespace: &str, directory: &Path) {
    let parent = format!("{namespace}/{}", PARENT.2);
    let to = directory.to_str().unwrap();
    for number in 1..=2 {
        let taken = record(address, &["--parent", &parent, "--to", to]);
        check(&taken, 0, "waiting for 1 recordings, at most 60 s");
        let path = directory.join(format!("memcached-{namespace}-web-{number}.json"));
        let printed = String::from_utf8_lossy(&taken.stdout);
        assert_eq!(printed, format!("{}\n", path.display()));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = replay(directory, &fs::read_to_string(&path).unwrap());
        check(&again, 0, "the answer is the recorded one");
    }
    // The recordings are test cases without any change.
    fs::remove_file(directory.join("recording.json")).unwrap();
    let tested = Command::new(path_from_env("INNKEEPER_BIN").unwrap())
        .arg("test")
        .arg(memcached())
        .args(["--parents", "0"])
        .arg("--cases")
        .arg(directory)
        .arg("--cache-dir")
        .arg(directory.join("replay-cache"))
        .output()
        .unwrap();
    check(&tested, 0, "");
    let printed = String::from_utf8_lossy(&tested.stdout);
    for number in 1..=2 {
        let passed = format!("ok      case memcached-{namespace}-web-{number}.json\n");
        assert!(printed.contains(&passed), "{printed}");
    }
}

/// Creates the parent whose plugin traps only after the command waits for faults.
#[track_caller]
fn check_faults(address: &str, namespace: &str, directory: &Path, stage: &Stage) {
    let mut command = Command::new(path_from_env("INNKEEPER_BIN").unwrap())
        .args(["record", "--admin-address", address, "--to"])
        .arg(directory)
        .args(["--plugin", "unruly", "--next-faults", "2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut waits = [0; 7];
    command
        .stderr
        .as_mut()
        .unwrap()
        .read_exact(&mut waits)
        .unwrap();
    assert_eq!(waits, *b"waiting");
    stage.apply(
        namespace,
        &json!({"apiVersion": "test.innkeeper.dev/v1", "kind": "Unruly", "metadata": {"name": "a"}, "spec": {"behaviour": "trap"}}),
    );
    let output = command.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let first = directory.join(format!("unruly-{namespace}-a-1.json"));
    let first: Value = serde_json::from_slice(&fs::read(first).unwrap()).unwrap();
    assert_eq!(first["answer"]["fault"]["kind"], "GuestTrapped");
}
