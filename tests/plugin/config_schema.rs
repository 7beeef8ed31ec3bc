//! Configuration schemas: what `innkeeper inspect` rejects, and the limits on the process that checks a
//! configuration.

use std::{
    fs,
    num::NonZeroU32,
    process::{Command, Output},
    time::{Duration, Instant},
};

use innkeeper_sandbox::{
    Described, Engine, EngineSettings, Error,
    artifact::{ConfigChecker, Program},
    testing::{Description, described, guest},
};
use innkeeper_tests::process::path_from_env;
use serde_json::{Map, Value, json};

/// The exit code for a rejected file.
const FINDING: i32 = 3;

/// Returns a checker that runs the product's processes.
pub(crate) fn config_checker() -> ConfigChecker {
    ConfigChecker::new(Program {
        path: path_from_env("INNKEEPER_BIN").expect("the host is built"),
        arguments: vec!["compile".into()],
    })
}

fn component(schema: &Value) -> Vec<u8> {
    let description = Description {
        config_schema: Some(schema.to_string()),
        ..Description::default()
    };
    guest().describing(description).build()
}

fn plugin(schema: &Value) -> Described {
    let engine = Engine::new(&EngineSettings::new(NonZeroU32::MIN)).unwrap();
    described(&engine, &component(schema))
}

fn inspect(schema: &Value) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("web.wasm");
    fs::write(&file, component(schema)).unwrap();
    Command::new(path_from_env("INNKEEPER_BIN").expect("the host is built"))
        .arg("inspect")
        .arg(&file)
        .output()
        .unwrap()
}

#[test]
fn inspect_refuses_a_schema_outside_of_the_accepted_form_with_its_path_and_the_remedy() {
    for (schema, problem) in [
        (
            json!({"properties": {"a": {"$ref": "#"}}}),
            "config-schema.properties.a.$ref: $ref is not accepted: state the schema in place of the reference",
        ),
        (
            json!({"properties": {"a": {"pattern": "("}}}),
            "config-schema.properties.a.pattern: ",
        ),
        (
            json!({"properties": {"a": {"pattern": "[\\p{L}\\p{N}]{60}"}}}),
            "takes at most 262144 bytes of memory",
        ),
    ] {
        let output = inspect(&schema);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(FINDING), "{stderr}");
        assert!(stderr.contains(problem), "{stderr}");
    }
    let output = inspect(&json!({"properties": {"a": {"type": "string", "pattern": "^a"}}}));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_confined_process_finds_the_problems_of_a_configuration() {
    let plugin = plugin(&json!({
        "type": "object",
        "properties": {"replicas": {"type": "integer", "minimum": 1}},
        "additionalProperties": false,
    }));
    let checker = config_checker();
    let configure = |config: Value| plugin.configure(config.as_object().unwrap(), &checker);
    let started = Instant::now();
    configure(json!({"replicas": 1})).unwrap();
    assert!(started.elapsed() < Duration::from_secs(10));
    let text = configure(json!({"replicas": 0, "x": 1}))
        .err()
        .unwrap()
        .to_string();
    assert!(text.contains("/replicas: 0 is less than"), "{text}");
    assert!(text.contains("'x'"), "{text}");
}

/// Returns a text with two letters in no order, for which no automaton stays small.
fn letters(count: usize) -> String {
    let mut state = 7_u64;
    let letter = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        if state >> 63 == 0 { 'a' } else { 'b' }
    };
    (0..count).map(letter).collect()
}

#[test]
fn a_hostile_schema_or_configuration_ends_at_a_limit_and_is_never_valid() {
    let many = |pattern: &str, count: usize| {
        let field = |number| {
            (
                format!("a{number}"),
                json!({"pattern": format!("{pattern}{number}")}),
            )
        };
        json!({"properties": (0..count).map(field).collect::<Map<_, _>>()})
    };
    let slow = json!({"additionalProperties": {"pattern": "^[ab]*a[ab]{2500}c$"}});
    for (schema, config) in [
        (many(r"^[\p{L}\p{N}]{3}", 1500), json!({})),
        (slow, json!({"a": letters(1_000_000)})),
    ] {
        let plugin = plugin(&schema);
        let started = Instant::now();
        let error = plugin
            .configure(config.as_object().unwrap(), &config_checker())
            .err()
            .unwrap();
        assert!(matches!(error, Error::ConfigLimit { .. }), "{error}");
        let text = error.to_string();
        let limits = ["more than 5 s of CPU time", "more than 256 MiB of memory"];
        assert!(limits.iter().any(|limit| text.contains(limit)), "{text}");
        assert!(started.elapsed() < Duration::from_mins(2), "{text}");
    }
}
