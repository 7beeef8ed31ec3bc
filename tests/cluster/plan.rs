//! `innkeeper plan`: the effects of a revision on live parents, compared with the writes of the real
//! swap.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use innkeeper_tests::{
    Host, admin, eventually, manifest::is_ready, process::path_from_env, user::Kind,
};
use serde_json::{Value, json};

use crate::{
    moody::{MoodyFixture, NAME, good, mood},
    plugins::{HEALTHY, PluginSite},
    stage::{Stage, lines},
};

const SUCCESS: i32 = 0;
const FAILURE: i32 = 1;
const USAGE: i32 = 2;
/// The exit code for deletes and faults.
const FINDING: i32 = 3;

const MEMCACHED: (&str, &str) = ("cache.example.com/v1", "Memcached");
const PARENTS: [&str; 4] = ["one", "two", "three", "four"];

/// Long enough for a host to go on with an unfinished work.
const QUIET: Duration = Duration::from_secs(1);

fn guest(variable: &str, name: &str) -> PathBuf {
    path_from_env(variable)
        .unwrap()
        .join(format!("{name}.wasm"))
}

/// Runs `innkeeper plan` for a plugin against the cluster of a stage.
fn plan(stage: &Stage, plugin: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(path_from_env("INNKEEPER_BIN").unwrap());
    command.arg("plan").arg(plugin);
    command.arg("--kubeconfig").arg(stage.plane.kubeconfig());
    command.arg("--cache-dir");
    command.arg(stage.plane.directory().join("plan-cache"));
    command.args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

/// Checks the exit code, and returns the standard output.
#[track_caller]
fn printed(output: &Output, exit: i32) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{text}\n{error}");
    text
}

#[track_caller]
fn document(output: &Output, exit: i32) -> Value {
    serde_json::from_str(&printed(output, exit)).unwrap()
}

/// Writes a configuration to a file and returns its path.
fn config(stage: &Stage, config: &Value) -> String {
    let path = stage.plane.directory().join("plan-config.json");
    fs::write(&path, config.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Returns the writes since a mark, except for Plugin statuses: the host updates their usage and parent counts every ten
/// seconds, so one may follow the last write of a parent.
fn writes(stage: &Stage, mark: usize) -> Vec<String> {
    lines(&stage.writes_since(mark))
        .into_iter()
        .filter(|line| !line.contains(" plugins.innkeeper.dev/status "))
        .collect()
}

/// Returns the differences of a parent in a plan.
fn differences<'a>(planned: &'a Value, name: &str) -> &'a [Value] {
    planned["parents"]
        .as_array()
        .unwrap()
        .iter()
        .find(|parent| parent["name"] == name)
        .unwrap()["differences"]
        .as_array()
        .unwrap()
}

/// Starts a host with the Plugin `cache` and its parents.
fn cached() -> (PluginSite, Host) {
    let (site, host) = PluginSite::started();
    site.apply(&json!({}));
    site.wait_conditions(&host, &HEALTHY);
    let stage = &site.stage;
    let namespace = &site.namespace;
    stage.wait_served(&host, &["memcacheds.cache.example.com"]);
    stage.restart_collector();
    for name in PARENTS {
        let parent = json!({
            "apiVersion": MEMCACHED.0, "kind": MEMCACHED.1, "metadata": {"name": name},
            "spec": {"size": 2},
        });
        stage.apply_new(namespace, &parent);
    }
    for name in PARENTS {
        stage.wait(&host, namespace, (MEMCACHED.0, MEMCACHED.1, name), is_ready);
    }
    stage.settle(QUIET);
    (site, host)
}

#[test]
fn the_counts_of_a_plan_are_the_writes_of_the_swap() {
    let (site, host) = cached();
    let stage = &site.stage;
    let plugin = guest("INNKEEPER_GUESTS", "memcached");
    let as_cache = ["--name", "cache", "--output", "json"];

    // The Plugin in the cluster gives configuration and grants, so its own component changes
    // nothing.
    let mark = stage.mark();
    let same = document(&plan(stage, &plugin, &as_cache), SUCCESS);
    let counts = &same["counts"];
    assert_eq!(
        (&counts["parents"], &counts["unchanged"]),
        (&json!(4), &json!(4)),
        "{same:#}"
    );
    assert_eq!(same["parents"], json!([]));

    let image = json!({"images": {"memcached": "memcached:planned"}});
    let file = config(stage, &image);
    let asked = format!("{}/two", site.namespace);
    let arguments = [&["--config", &file, "--parent", &asked][..], &as_cache].concat();
    let planned = document(&plan(stage, &plugin, &arguments), SUCCESS);
    let counts = json!({
        "creates": 0, "updates": 4, "deletes": 0, "parents": 4, "unchanged": 0,
        "statusChanges": 4, "faults": 0, "faultsKnown": 0, "skipped": 0,
    });
    assert_eq!(planned["counts"], counts, "{planned:#}");
    let kinds = json!([
        {"group": "apps", "kind": "Deployment", "creates": 0, "updates": 4, "deletes": 0},
    ]);
    assert_eq!(planned["kinds"], kinds);
    let differences = differences(&planned, "two");
    let image_line = |line: &Value| {
        line.as_str()
            .unwrap()
            .contains("containers[0].image is \"memcached:planned\", and was \"memcached:")
    };
    assert!(differences.iter().any(image_line), "{differences:#?}");
    let update = format!("update apps/v1 Deployment {asked}");
    assert_eq!(differences[0], update.as_str());
    assert_eq!(writes(stage, mark), [""; 0]);

    let mark = stage.mark();
    site.apply(&json!({"config": image}));
    site.wait_conditions(&host, &HEALTHY);
    for name in PARENTS {
        stage.wait(
            &host,
            &site.namespace,
            ("apps/v1", "Deployment", name),
            |it| {
                let container = &it["spec"]["template"]["spec"]["containers"][0];
                container["image"] == "memcached:planned"
            },
        );
    }
    stage.settle(QUIET);
    let mut written = lines(&stage.writes_since(mark));
    written.retain(|line| !line.contains("/status") && !line.contains("events."));
    written.sort();
    let mut expected = PARENTS.map(|name| format!("patch deployments.apps {name} 200"));
    expected.sort();
    assert_eq!(written, expected);

    // A change that waits for a host is no effect of the candidate.
    Stage::stop(host);
    let one = (MEMCACHED.0, MEMCACHED.1, "one");
    stage.merge(&site.namespace, one, &json!({"spec": {"size": 3}}));
    let waits = document(&plan(stage, &plugin, &as_cache), SUCCESS);
    assert_eq!(waits["counts"]["updates"], 1, "{waits:#}");
    let arguments = [&["--against", plugin.to_str().unwrap()][..], &as_cache].concat();
    let beyond = document(&plan(stage, &plugin, &arguments), SUCCESS);
    assert_eq!(beyond["counts"]["unchanged"], 4, "{beyond:#}");
}

#[test]
fn deletes_and_faults_of_a_plan_are_findings_and_the_swap_confirms_the_deletes() {
    const CHILDREN: usize = 6;

    let (fixture, host) = MoodyFixture::started(CHILDREN);
    fixture.wait_verdicts(&host, &["Good"]);
    let stage = &fixture.site.stage;
    stage.settle(QUIET);
    let plugin = guest("INNKEEPER_TEST_GUESTS", "moody");
    let plan_of = |spec: &Value, more: &[&str]| {
        let file = config(stage, &spec["config"]);
        let arguments = [&["--name", NAME, "--config", &file][..], more].concat();
        plan(stage, &plugin, &arguments)
    };

    let mark = stage.mark();
    printed(&plan_of(&good("one"), &[]), SUCCESS);
    let deletes = printed(&plan_of(&mood("nothing"), &[]), FINDING);
    assert!(deletes.contains("\nDeletes 6 children:\n"), "{deletes}");
    let child = format!("\n  ConfigMap {}/moody-3\n", fixture.site.namespace);
    assert!(deletes.contains(&child), "{deletes}");
    assert!(!deletes.contains('\u{1b}'), "{deletes}");
    let json = document(&plan_of(&mood("nothing"), &["--output", "json"]), FINDING);
    assert_eq!(json["counts"]["deletes"], CHILDREN, "{json:#}");
    let markdown = printed(&plan_of(&mood("trap"), &["--output", "markdown"]), FINDING);
    assert!(markdown.contains("**Fails for "), "{markdown}");
    assert!(markdown.contains("GuestTrapped"), "{markdown}");
    assert_eq!(writes(stage, mark), [""; 0]);

    let mark = stage.mark();
    fixture.apply(&mood("nothing"));
    fixture.wait_healthy(&host);
    stage.settle(QUIET);
    let written: Vec<String> = lines(&stage.writes_since(mark))
        .into_iter()
        .filter(|line| line.starts_with("delete configmaps"))
        .collect();
    assert_eq!(written.len(), CHILDREN, "{written:?}");
    Stage::stop(host);
}

#[test]
fn unusable_input_of_a_plan_is_named() {
    let plugin = guest("INNKEEPER_GUESTS", "memcached");
    let stage = Stage::api_only(vec![plugin.clone()]);
    let file = config(&stage, &json!({"no-such-field": 1}));
    let (plugin, missing) = (plugin.as_path(), Path::new("/none/plugin.wasm"));
    let rows: [(&Path, &[&str], i32, &str); 7] = [
        (missing, &[], USAGE, "failed to read /none/plugin.wasm"),
        (
            plugin,
            &["--against", "/none/other.wasm"],
            USAGE,
            "failed to read /none/other.wasm",
        ),
        (
            plugin,
            &["--config", "/none/config.yaml"],
            USAGE,
            "/none/config.yaml",
        ),
        (
            plugin,
            &["--config", &file],
            USAGE,
            "failed to configure the plugin",
        ),
        (
            plugin,
            &["--parent", "a/b/c"],
            USAGE,
            "write it as NAMESPACE/NAME",
        ),
        (
            plugin,
            &["--namespaces", "no-such-namespace"],
            USAGE,
            "there is no namespace no-such-namespace",
        ),
        (
            plugin,
            &[],
            FAILURE,
            "the cluster does not serve cache.example.com/v1 Memcached",
        ),
    ];
    for (plugin, arguments, exit, message) in rows {
        let output = plan(&stage, plugin, arguments);
        printed(&output, exit);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(message), "{arguments:?}: {error}");
    }

    stage.install_crds();
    let memcacheds = Kind::cluster(MEMCACHED.0, MEMCACHED.1);
    eventually("the parents are served", || {
        stage.plane.user().list(memcacheds, "").map(drop)
    });
    let none = plan(&stage, plugin, &["--parent", "demo/web"]);
    printed(&none, USAGE);
    let error = String::from_utf8_lossy(&none.stderr);
    let message = "plugin memcached has no parent demo/web";
    assert!(error.contains(message), "{error}");
}

/// The status of a Plugin has room for numbers and a few names. The whole plan is the one of `innkeeper plan`, for as long as
/// the candidate waits.
#[test]
fn a_candidate_that_waits_has_its_plan_at_the_admin_address() {
    let mut fixture = MoodyFixture::new(12);
    let arguments = &mut fixture.site.stage.options.arguments;
    arguments.extend(admin::ARGUMENTS.map(str::to_owned));
    arguments.push("--debug-endpoints".to_owned());
    let host = fixture.start();
    fixture.wait_verdicts(&host, &["Good"]);
    let address = admin::address(&host);
    let ask = |path: &str| admin::ask(&address, "GET", path, "").unwrap();
    let path = "/debug/plans/moody";
    assert_eq!(ask(path).0, 404);

    let nothing = mood("nothing");
    fixture.apply(&nothing);
    let waits = ["Serving=True/Serving", "Degraded=True/TooManyPrunes"];
    let candidate = fixture.wait(&host, &waits)["candidate"].clone();
    assert_eq!(candidate["plan"], path, "{candidate:#}");
    let (status, shown) = ask(path);
    assert_eq!(status, 200, "{shown}");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["parents"].as_array().unwrap().len(), 12, "{shown:#}");
    let stage = &fixture.site.stage;
    let configuration = config(stage, &nothing["config"]);
    let arguments = ["--config", &configuration, "--output", "json"];
    let output = plan(stage, &guest("INNKEEPER_TEST_GUESTS", "moody"), &arguments);
    assert_eq!(shown, document(&output, FINDING));

    let mut approved = nothing;
    approved["rollout"] = json!({"approve": candidate["revision"]});
    fixture.apply(&approved);
    fixture.wait_healthy(&host);
    assert_eq!(ask(path).0, 404);
    Stage::stop(host);
}
