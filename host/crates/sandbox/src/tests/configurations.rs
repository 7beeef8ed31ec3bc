//! Scripts in place of the process that checks a configuration: what follows from each way in which it can end.
//!
//! That the real one keeps itself within bounds is tested with the real program.

use std::{fs, num::NonZeroU32, time::Duration};

use innkeeper_model::{PluginReason, Retry};
use serde_json::{Map, Value, json};

use super::*;
use crate::{
    artifact::{CompileBounds, ConfigChecker},
    testing::{Description, guest, script},
};

const BOUNDS: CompileBounds = CompileBounds {
    processes_max: NonZeroU32::MIN,
    memory_bytes_max: 64 << 20,
    cpu_seconds_max: 3,
    code_bytes_max: 1 << 16,
    wall_max: Duration::from_secs(20),
    retries_max: 0,
};

/// A plugin with a schema, and a directory with the processes' traces.
struct Case {
    dir: tempfile::TempDir,
    described: Described,
}

impl Case {
    fn new(schema: Option<Value>) -> Self {
        let description = Description {
            config_schema: schema.map(|schema| schema.to_string()),
            ..Description::default()
        };
        Self {
            dir: tempfile::tempdir().unwrap(),
            described: described(&ENGINE, &guest().describing(description).build()),
        }
    }

    fn checker(&self, text: &str) -> ConfigChecker {
        let dir = self.dir.path().to_str().unwrap();
        let text = format!("echo \"$0 $*\" >>{dir}/runs; cat >{dir}/input; {text}");
        ConfigChecker::with_bounds(script(&text), BOUNDS)
    }

    fn runs(&self) -> Vec<String> {
        fs::read_to_string(self.dir.path().join("runs"))
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

fn config(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[test]
fn without_a_schema_only_nothing_fits_and_no_process_starts() {
    let case = Case::new(None);
    let checker = case.checker("echo []");
    let plugin = case.described.configure(&Map::new(), &checker).unwrap();
    assert_eq!(plugin.config(), "{}");
    let some = config(&json!({"a": 1}));
    let error = case.described.configure(&some, &checker).err().unwrap();
    assert!(
        error.to_string().contains("takes no configuration"),
        "{error}"
    );
    assert_eq!(error.reason(), PluginReason::ConfigInvalid);
    case.described.check_config_schema(&checker).unwrap();
    assert_eq!(case.runs(), <[&str; 0]>::default());
}

#[test]
fn a_configuration_is_checked_in_one_process_and_then_remembered() {
    let schema = json!({"type": "object"});
    let case = Case::new(Some(schema.clone()));
    let checker = case.checker("echo []");
    let configured = |value: &Value| case.described.configure(&config(value), &checker).unwrap();
    let one = configured(&json!({"b": 1, "a": 2}));
    assert_eq!(one.config(), r#"{"a":2,"b":1}"#);
    assert_eq!(
        one.revision(),
        configured(&json!({"a": 2, "b": 1})).revision()
    );
    let expected = format!(
        "--memory-bytes-max=67108864 --cpu-seconds-max=3 --code-bytes-max=65536 --config --host-process={}",
        std::process::id()
    );
    assert_eq!(case.runs(), [expected]);
    let input = fs::read(case.dir.path().join("input")).unwrap();
    let expected = json!({"schema": schema, "config": {"a": 2, "b": 1}});
    assert_eq!(serde_json::from_slice::<Value>(&input).unwrap(), expected);
    let two = configured(&json!({"a": 3}));
    assert_eq!(one.digest(), two.digest());
    assert_ne!(one.revision(), two.revision());
    assert_eq!(case.runs().len(), 2);
}

/// A process that ends early never makes a configuration valid.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_check_that_fails_names_the_cause_and_the_remedy() {
    let invalid = "the configuration of plugin web is not valid: ";
    let limit = "the configuration of plugin web is not accepted, because its check takes ";
    let remedy = ": make the configuration smaller, or use a plugin whose configuration schema has simpler patterns";
    let failed = "failed to check the configuration of plugin web in a separate process: ";
    for (script, reason, retry, start, end) in [
        (
            "echo '[\"/a: 1\", \"/b: 2\"]'",
            PluginReason::ConfigInvalid,
            Retry::OnChange,
            invalid,
            "/a: 1; /b: 2",
        ),
        (
            "kill -XCPU $$",
            PluginReason::ConfigLimitExceeded,
            Retry::OnChange,
            limit,
            &*format!("more than 3 s of CPU time{remedy}"),
        ),
        (
            "echo 'memory allocation of 64 bytes failed' >&2; kill -ABRT $$",
            PluginReason::ConfigLimitExceeded,
            Retry::OnChange,
            limit,
            &format!("more than 64 MiB of memory{remedy}"),
        ),
        (
            "echo 'confined: seccomp' >&2; kill -SYS $$",
            PluginReason::ConfigLimitExceeded,
            Retry::OnChange,
            limit,
            remedy,
        ),
        (
            "kill -SEGV $$",
            PluginReason::ConfigLimitExceeded,
            Retry::OnChange,
            limit,
            remedy,
        ),
        (
            "kill -XFSZ $$",
            PluginReason::ConfigLimitExceeded,
            Retry::OnChange,
            limit,
            remedy,
        ),
        (
            "echo 'error: config-schema.a: wrong' >&2; exit 3",
            PluginReason::CannotDescribe,
            Retry::OnChange,
            "the configuration schema of plugin web is not accepted: ",
            "config-schema.a: wrong",
        ),
        (
            "kill -KILL $$",
            PluginReason::HostFault,
            Retry::Backoff,
            failed,
            "give the host more CPU or memory",
        ),
        (
            "echo 'error: no memory' >&2; exit 1",
            PluginReason::HostFault,
            Retry::Backoff,
            failed,
            "no memory",
        ),
        (
            "echo 'error: full' >&2; exit 4",
            PluginReason::HostFault,
            Retry::Backoff,
            failed,
            "full",
        ),
        (
            "true",
            PluginReason::HostFault,
            Retry::Backoff,
            failed,
            "EOF while parsing a value at line 1 column 0",
        ),
    ] {
        let case = Case::new(Some(json!({"type": "object"})));
        let checker = case.checker(script);
        for _ in 0..2 {
            let error = case
                .described
                .configure(&Map::new(), &checker)
                .err()
                .unwrap();
            let text = innkeeper_model::error_chain(&error).to_string();
            assert!(
                text.starts_with(start) && text.ends_with(end),
                "{script}: {text}"
            );
            assert_eq!((error.reason(), error.retry()), (reason, retry), "{script}");
        }
        assert_eq!(case.runs().len(), 2, "{script}");
    }
}
