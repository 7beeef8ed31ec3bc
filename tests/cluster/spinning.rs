//! Plugins that spin until the longest deadline must not delay a well-behaved plugin.

use std::{
    fs,
    time::{Duration, Instant},
};

use innkeeper_tests::{eventually, harmless};
use serde_json::{Value, json};

use crate::{
    moody::guest,
    plugins::PLUGIN,
    sharing::wait_serving,
    stage::{Stage, is_applied},
};

/// The spinning plugins' API groups, one for each guest thread.
const GROUPS: [&str; 3] = ["one.example.com", "two.example.com", "three.example.com"];

/// Limit for each pass for the neighbour: a pass takes some 10 ms, and a spinning call 30 s.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Once the host has used this CPU time, the plugins must be spinning.
const SPINNING: Duration = Duration::from_secs(2);

fn plugin(name: &str, deadline: &str, group: &str, kind: &str) -> Value {
    json!({
        "apiVersion": PLUGIN.api_version, "kind": PLUGIN.kind, "metadata": {"name": name},
        "spec": {
            "source": {"file": {"path": format!("{name}.wasm")}},
            "limits": {"deadline": deadline, "memory": "1Gi"},
            "grants": {
                "parents": [{"group": group, "kind": kind}], "children": [{"kind": "ConfigMap"}],
            },
        },
    })
}

/// The host reserves one thread and half of the guest memory for fast plugins. Without this rule, the
/// neighbour's first pass took 30 s.
#[test]
fn plugins_that_spin_for_thirty_seconds_do_not_hold_up_their_neighbour() {
    const API: &str = "test.innkeeper.dev/v1";

    let sources = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| {
        fs::write(sources.path().join(format!("{name}.wasm")), bytes).unwrap();
    };
    let mut stage = Stage::api_only(Vec::new());
    let directory = sources.path().to_str().unwrap();
    let workers = GROUPS.len().to_string();
    stage.options.arguments = [
        "--source-dir",
        directory,
        "--workers",
        &workers,
        "--guest-memory",
        "64",
    ]
    .map(str::to_owned)
    .into();
    stage.install_plugin_crd();
    let mut host = stage.host_serving(&["plugins.innkeeper.dev"]);
    let namespace = stage.namespace("spinning");
    put("unruly", &guest("unruly"));
    stage.apply_new(
        "",
        &plugin("unruly", "250ms", "test.innkeeper.dev", "Unruly"),
    );
    for (name, group) in ["one", "two", "three"].into_iter().zip(GROUPS) {
        put(name, &harmless::spinning(group));
        stage.apply_new("", &harmless::definition(group));
        stage.apply_new("", &plugin(name, "30s", group, "Idle"));
    }
    for name in ["unruly", "one", "two", "three"] {
        wait_serving(&stage, &host, name);
    }

    let before = host.process().usage().unwrap().cpu;
    for group in GROUPS {
        let api = format!("{group}/v1");
        let parent = json!({"apiVersion": api, "kind": "Idle", "metadata": {"name": "spinning"}});
        stage.apply_new(&namespace, &parent);
    }
    eventually("the plugins spin", || {
        let used = host.process().usage().unwrap().cpu.saturating_sub(before);
        if used >= SPINNING {
            Ok(())
        } else {
            Err(format!("{used:?}"))
        }
    });
    for number in 0..10 {
        let name = format!("neighbour-{number}");
        let parent = json!({
            "apiVersion": API, "kind": "Unruly", "metadata": {"name": name}, "spec": {"behaviour": "good"},
        });
        let started = Instant::now();
        stage.apply_new(&namespace, &parent);
        stage.wait(&host, &namespace, (API, "Unruly", &name), is_applied);
        let waited = started.elapsed();
        assert!(waited <= WAIT_MAX, "{name} waited for {waited:?}");
    }
}
