//! `innkeeper test` on real plugins.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use innkeeper_tests::{manifest::root, process::path_from_env};
use serde_json::{Value, json};

const SUCCESS: i32 = 0;
const BAD_USE: i32 = 2;
const FINDING: i32 = 3;

fn test(arguments: &[&str]) -> Output {
    Command::new(path_from_env("INNKEEPER_BIN").expect("the host is built"))
        .arg("test")
        .args(arguments)
        .output()
        .expect("the host can be started")
}

fn guest(name: &str) -> PathBuf {
    path_from_env("INNKEEPER_GUESTS").unwrap().join(name)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths are text")
}

#[track_caller]
fn check(output: &Output, code: i32, part: &str) -> String {
    let out = &output.stdout;
    let err = &output.stderr;
    let log = [out, err]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat();
    assert_eq!(output.status.code(), Some(code), "{log}");
    assert!(log.contains(part), "{log}");
    log
}

#[test]
fn the_shipped_plugins_have_the_properties_of_good_reconcilers() {
    for name in ["backup", "etcd", "memcached", "wordpress"] {
        let file = guest(&format!("{name}.wasm"));
        check(
            &test(&[text(&file), "--parents", "30"]),
            SUCCESS,
            "10 passed, 0 failed",
        );
    }
}

/// Ten plugins with one bad habit each, and the good plugin that they are otherwise.
#[test]
fn ten_bad_plugins_are_found_with_a_small_parent() {
    let file = path_from_env("INNKEEPER_TEST_GUESTS")
        .unwrap()
        .join("careless.wasm");
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.yaml");
    let run = |habit: &str| {
        fs::write(&config, format!("habit: {habit}\n")).unwrap();
        // Each call to the plugin that spins lasts until the deadline.
        let parents = if habit == "spins" { "1" } else { "40" };
        let config = [
            "--config",
            text(&config),
            "--parents",
            parents,
            "-o",
            "json",
        ];
        test(&[&[text(&file)], &config[..]].concat())
    };
    check(&run("good"), SUCCESS, "");
    let rare = "  weather: Hail";
    for (habit, property, part, spec) in [
        ("random-name", "deterministic", "random numbers", ""),
        ("grows", "converges", "still changes after 10 rounds", ""),
        (
            "oscillates",
            "converges",
            "still changes after 10 rounds",
            "",
        ),
        ("first-child", "order-independent", "in another order", ""),
        ("rare-field", "total", "afraid of hail", rare),
        ("unknown-field", "valid-output", "there is no field dta", ""),
        ("undeclared", "inside-grants", "Service", ""),
        ("spins", "total", "did not answer within", ""),
        ("prunes", "keeps-children", "while an object is missing", ""),
        ("forgets", "survives-deletion", "does not contain it", ""),
    ] {
        let output = run(habit);
        check(&output, FINDING, part);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let results = report["results"].as_array().unwrap();
        let name = format!("property {property}");
        let result = results
            .iter()
            .find(|result| result["name"] == *name)
            .unwrap();
        let problem = result["problem"].as_str().unwrap_or_default();
        assert!(problem.contains(part), "{habit}: {report:#}");
        // The smallest parent contains only the field that matters.
        let (_, parent) = problem.split_once("# parent.yaml\n").unwrap();
        let (_, rest) = parent.split_once("\nspec:").unwrap();
        let fields: Vec<&str> = rest
            .split("\n#")
            .next()
            .unwrap_or_default()
            .lines()
            .filter(|line| line.starts_with("  "))
            .collect();
        assert_eq!(fields.join("\n"), spec, "{habit}: {problem}");
    }
}

/// Creates a directory with one case, with an example as parent.
fn a_case(directory: &Path) -> PathBuf {
    let case = directory.join("first");
    fs::create_dir(&case).unwrap();
    let example = root().join("examples/memcached/01-article.yaml");
    fs::copy(example, case.join("parent.yaml")).unwrap();
    case
}

#[test]
fn a_case_is_written_compared_and_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let case = a_case(directory.path());
    let file = guest("memcached.wasm");
    let arguments = [
        text(&file),
        "--parents",
        "0",
        "--cases",
        text(directory.path()),
    ];
    let with = |more: &[&str]| test(&[&arguments[..], more].concat());
    check(
        &with(&[]),
        FINDING,
        "there is no expected answer: run again with --update",
    );
    check(&with(&["--update"]), SUCCESS, "ok      case first");
    check(&with(&[]), SUCCESS, "ok      case first");
    let expected = case.join("expect.yaml");
    let changed = fs::read_to_string(&expected)
        .unwrap()
        .replace("outcome: desired", "outcome: keep");
    fs::write(&expected, changed).unwrap();
    let part = "outcome is \"desired\", and was \"keep\"";
    check(&with(&[]), FINDING, part);
    let json = with(&["-o", "json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["results"][0]["name"], "case first");
    assert!(json["cost"]["fuel"].as_u64().unwrap() > 1000);
    check(
        &with(&["-o", "junit"]),
        FINDING,
        "<testcase name=\"case first\"><failure>",
    );
    // No pass is as cheap as this.
    let budget = directory.path().join("budget.yaml");
    fs::write(&budget, "fuel: 10\n").unwrap();
    check(&with(&[]), FINDING, "and the budget in");
}

/// Creates a memcached recording with an answer that the plugin does not give.
pub(crate) fn a_recording() -> Value {
    let selector = "app.kubernetes.io/component=cache,app.kubernetes.io/instance=web,\
                    app.kubernetes.io/managed-by=innkeeper,app.kubernetes.io/name=memcached";
    let pods = json!({"verb": "list", "apiVersion": "v1", "kind": "Pod", "namespace": "default", "labelSelector": selector});
    json!({
        "recording": "v1", "plugin": "memcached", "revision": "sha256:00", "secret": false, "phase": "reconcile",
        "nowMs": 1_896_076_800_000_u64, "config": {}, "children": [],
        "reads": [{"read": pods, "answer": {"list": []}}], "answer": {"outcome": "keep"},
        "parent": {
            "apiVersion": "cache.example.com/v1", "kind": "Memcached",
            "metadata": {"name": "web", "namespace": "default", "uid": "1"}, "spec": {"size": 2},
        },
    })
}

#[test]
fn a_recording_is_a_case_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = guest("memcached.wasm");
    let cases = text(directory.path());
    let arguments = [text(&file), "--parents", "0", "--cases", cases];
    let with = |more: &[&str]| test(&[&arguments[..], more].concat());
    let path = directory.path().join("web.json");
    fs::write(&path, a_recording().to_string()).unwrap();
    let part = "FAILED  case web.json\n  children is [";
    let log = check(&with(&[]), FINDING, part);
    let part = "outcome is \"desired\", and was \"keep\"";
    assert!(log.contains(part), "{log}");
    check(&with(&["--update"]), SUCCESS, "ok      case web.json");
    check(&with(&[]), SUCCESS, "ok      case web.json");
    // Only the answer and the revision change.
    let mut updated: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(updated["answer"]["outcome"], "desired");
    assert_ne!(updated["revision"], "sha256:00");
    for field in ["answer", "revision"] {
        updated[field] = a_recording()[field].clone();
    }
    assert_eq!(updated, a_recording());

    updated["reads"] = json!([]);
    fs::write(&path, updated.to_string()).unwrap();
    check(
        &with(&[]),
        FINDING,
        "the recording does not contain this read",
    );

    fs::write(&path, "{\"recording\": \"v1\"").unwrap();
    let log = check(&with(&[]), BAD_USE, "web.json is no recording of a pass");
    assert!(log.contains("EOF while parsing"), "{log}");
    let mut other = a_recording();
    other["config"] = json!({"unknown": true});
    fs::write(&path, other.to_string()).unwrap();
    let log = check(
        &with(&[]),
        BAD_USE,
        "web.json: failed to configure the plugin",
    );
    assert!(log.contains("unknown"), "{log}");
}

#[test]
fn bad_input_is_refused_with_its_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let empty = text(directory.path());
    let file = guest("memcached.wasm");
    let file = text(&file);
    check(&test(&[empty]), BAD_USE, "found no plugin in");
    check(&test(&["/nowhere.wasm"]), BAD_USE, "/nowhere.wasm");
    check(
        &test(&[file, "--cases", "/nowhere"]),
        BAD_USE,
        "failed to read the cases in /nowhere",
    );
    check(
        &test(&[file, "--config", "/nowhere"]),
        BAD_USE,
        "failed to read /nowhere",
    );
    check(&test(&[file, "--parents=x"]), BAD_USE, "--parents");
    let case = a_case(directory.path());
    fs::write(case.join("parent.yaml"), "kind: [").unwrap();
    check(&test(&[file, "--cases", empty]), BAD_USE, "failed to parse");
    fs::write(
        case.join("parent.yaml"),
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
    )
    .unwrap();
    check(
        &test(&[file, "--cases", empty]),
        BAD_USE,
        "contains 0 parents of kind",
    );
}
