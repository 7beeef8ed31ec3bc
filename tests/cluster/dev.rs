//! The `dev` command, which starts a private control plane.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, Instant},
};

use innkeeper_tests::{
    Audit, Write,
    admin::address as admin_address,
    eventually_for,
    process::{Running, bound, is_full, path_from_env, spawn_bound},
};
use jiff::Timestamp;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::{admin, stage::Stage};

/// Time limit for startup and three failures, the last of them some seconds after the first.
const FAILS_AGAIN: Duration = Duration::from_mins(3);

/// Time limits from saving a file to the changed child, for code and for a configuration.
const CODE_WITHIN: Duration = Duration::from_secs(5);
const CONFIG_WITHIN: Duration = Duration::from_secs(1);

/// Time limit for the first build, which compiles the standard library and all dependencies.
const FIRST_BUILD: Duration = Duration::from_mins(15);

#[test]
fn dev_prints_the_grants_that_it_gives_to_a_plugin() {
    let guests = path_from_env("INNKEEPER_GUESTS").unwrap();
    let output = bound(&path_from_env("INNKEEPER_BIN").unwrap())
        .arg("dev")
        .arg("--controlplane")
        .arg(path_from_env("INNKEEPER_CONTROLPLANE").unwrap())
        .arg("--plugin")
        .arg(guests.join("memcached.wasm"))
        .arg("--once")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let (_, after) = text
        .split_once("plugin memcached has all requested grants:\n")
        .unwrap_or_else(|| panic!("{text}"));
    let grants: Vec<&str> = after
        .lines()
        .map_while(|line| line.strip_prefix("  "))
        .collect();
    for line in ["parents:", "children:", "podSecurity: restricted"] {
        assert!(grants.contains(&line), "{line}: {text}");
    }
}

#[test]
fn dev_prints_a_fault_of_a_plugin_once_beside_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let read = |name: &str| fs::read_to_string(path(name)).unwrap();
    let parent = "apiVersion: test.innkeeper.dev/v1\nkind: Unruly\nmetadata: {name: a}\nspec: {behaviour: trap}\n";
    fs::write(path("parent.yaml"), parent).unwrap();
    let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
    let mut command = bound(&path_from_env("INNKEEPER_BIN").unwrap());
    command
        .arg("dev")
        .arg("--controlplane")
        .arg(path_from_env("INNKEEPER_CONTROLPLANE").unwrap())
        .arg("--plugin")
        .arg(guests.join("unruly.wasm"))
        .arg("--example")
        .arg(path("parent.yaml"))
        .env("INNKEEPER_LOG", "warn,innkeeper_reconcile=debug")
        .stdout(File::create(path("out")).unwrap())
        .stderr(File::create(path("errors")).unwrap());
    let mut running = spawn_bound(command).unwrap();
    let fault = "plugin unruly failed for Unruly.test.innkeeper.dev default/a: GuestTrapped: ";
    eventually_for(FAILS_AGAIN, "the plugin fails three times", || {
        let out = read("out");
        let errors = read("errors");
        if out.contains(fault) && errors.matches("guest answered").count() > 2 {
            Ok(())
        } else {
            Err(out + &errors)
        }
    });
    let out = read("out");
    assert_eq!(out.matches(fault).count(), 1, "{out}");
    let row = "Unruly.test.innkeeper.dev default/a: Ready=Unknown, Synced=False (GuestTrapped: ";
    assert!(out.contains(row), "{out}");
    running.signal(Signal::INT).unwrap();
    let status = running.wait_for(Duration::from_mins(1)).unwrap();
    assert!(status.success(), "{status}: {}", read("errors"));
}

struct Session {
    project: TempDir,
    running: Running,
}

impl Session {
    fn start() -> Self {
        let project = tempfile::tempdir().unwrap();
        let host = path_from_env("INNKEEPER_BIN").unwrap();
        let created = bound(&host)
            .args(["new", "ponds"])
            .current_dir(project.path())
            .output()
            .unwrap();
        assert!(created.status.success(), "{created:?}");
        let mut command = bound(&host);
        command
            .args([
                "dev",
                "--example",
                "tests/example/parent.yaml",
                "--controlplane",
            ])
            .arg(path_from_env("INNKEEPER_CONTROLPLANE").unwrap())
            .arg("--dir")
            .arg(project.path().join("cluster"))
            .current_dir(project.path().join("ponds"))
            // The project must not inherit the suite's build settings.
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("CARGO_INCREMENTAL")
            .stdout(File::create(project.path().join("out")).unwrap())
            .stderr(File::create(project.path().join("errors")).unwrap());
        let running = spawn_bound(command).unwrap();
        Self { project, running }
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.project.path().join(name)).unwrap()
    }

    /// Waits for a text in the output after `before`; returns the time.
    #[track_caller]
    fn wait(&mut self, before: usize, text: &str, limit: Duration) -> Duration {
        let began = Instant::now();
        eventually_for(limit, text, || {
            let out = self.file("out");
            if out.get(before..).is_some_and(|rest| rest.contains(text)) {
                Ok(())
            } else {
                Err(out)
            }
        });
        began.elapsed()
    }

    /// Replaces a text in the plugin's source; returns the output's length before the edit.
    fn edit(&self, from: &str, to: &str) -> usize {
        let source = self.project.path().join("ponds/src/lib.rs");
        let text = fs::read_to_string(&source).unwrap();
        assert!(text.contains(from), "{from}");
        let before = self.file("out").len();
        // Two writes, as editors do.
        fs::write(&source, "").unwrap();
        fs::write(&source, text.replacen(from, to, 1)).unwrap();
        before
    }

    /// Waits until the API server has the plugin's ConfigMap with this text; returns the time since
    /// the file was saved.
    #[track_caller]
    fn wait_written(&self, saved: Timestamp, text: &str) -> Duration {
        let audit = self.project.path().join("cluster/log/apiserver.audit");
        let audit = Audit::open(audit);
        eventually_for(Duration::from_mins(1), text, || {
            let writes = audit.by_host_since(0).map_err(|error| error.to_string())?;
            let is_new_write = |write: &&Write| {
                let is_new = write.resource == "configmaps" && write.received > saved;
                is_new && write.body["data"].to_string().contains(text)
            };
            let new_write = writes
                .iter()
                .find(is_new_write)
                .ok_or_else(|| self.file("out"))?;
            Ok::<_, String>(new_write.answered.duration_since(saved).unsigned_abs())
        })
    }
}

/// A configuration for the new plugin, which copies its text into the ConfigMap.
const CONFIGURED: [(&str, &str); 3] = [
    ("type Config = NoConfig;", "type Config = Settings;"),
    (
        "/// Reconciles one parent",
        "#[derive(serde::Deserialize, schemars::JsonSchema)] struct Settings { water: Option<String> }\n/// Reconciles one parent",
    ),
    (
        "[(\"pond.json\", spec)]",
        "[(\"pond.json\", spec), (\"water\", cx.config().water.clone().unwrap_or_default())]",
    ),
];

/// Only in `tests/full`, because the first build takes minutes.
#[test]
fn dev_builds_plans_and_swaps_the_crate_after_each_change() {
    if !is_full() {
        return;
    }
    let mut session = Session::start();
    session.wait(0, "1 parent is Ready", FIRST_BUILD);

    // A code change, in a cluster with one parent.
    let short = Duration::from_mins(1);
    let saved = Timestamp::now();
    let before = session.edit("spec.json", "pond.json");
    let code = session.wait_written(saved, "pond.json");
    session.wait(before, "serves revision", short);
    let builds = session.file("out")[before..]
        .matches("building the plugin: ")
        .count();
    assert_eq!(builds, 1, "{}", session.file("out"));
    session.wait(
        before,
        "plan for 1 parents: 0 deletes, 0 creates, 1 updates",
        short,
    );

    // A change that does not compile leaves the revision in place.
    let before = session.edit("Ok(Desired", "Ok(Nothing; Desired");
    session.wait(before, "the active revision stays", short);
    session.edit("Ok(Nothing; Desired", "Ok(Desired");

    // A change that fails for the parent leaves it in place, too.
    let before = session.edit(
        "let spec = spec.map_err",
        "panic!(\"broken\"); #[allow(unreachable_code)] let spec = spec.map_err",
    );
    session.wait(before, "1 faults", short);
    session.wait(before, "not swapped: the active revision stays", short);
    let before = session.edit("panic!(\"broken\"); #[allow(unreachable_code)] ", "");
    session.wait(before, "building the plugin: ", short);

    // A configuration change needs no build; this plugin has no configuration yet.
    let file = session.project.path().join("ponds/config.yaml");
    let before = session.file("out").len();
    fs::write(&file, "depth: 2\n").unwrap();
    session.wait(before, "ConfigInvalid", short);
    let before = session.file("out").len();
    fs::remove_file(&file).unwrap();
    session.wait(before, "serves revision", short);
    assert!(!session.file("out")[before..].contains("building"));
    let mut before = 0;
    for (from, to) in CONFIGURED {
        before = session.edit(from, to);
    }
    session.wait(before, "serves revision", short);
    let saved = Timestamp::now();
    fs::write(&file, "water: salt\n").unwrap();
    let config = session.wait_written(saved, "salt");
    eprintln!(
        "from a saved file to the child in the cluster: code {code:?}, configuration {config:?}"
    );
    assert!(
        code < CODE_WITHIN && config < CONFIG_WITHIN,
        "{code:?} {config:?}"
    );
    session.running.signal(Signal::INT).unwrap();
    let status = session.running.wait_for(short).unwrap();
    assert!(status.success(), "{status}: {}", session.file("errors"));
}

/// Two hosts would undo each other's writes.
#[test]
fn dev_leaves_a_cluster_alone_that_a_host_serves() {
    let stage = Stage::api_only(Vec::new());
    let host = admin::host(&stage, &["--leader-elect", "--lease-identity", "a"]);
    admin::wait_ready(&admin_address(&host));
    let project = tempfile::tempdir().unwrap();
    let created = bound(&path_from_env("INNKEEPER_BIN").unwrap())
        .args(["new", "ponds"])
        .current_dir(project.path())
        .output()
        .unwrap();
    assert!(created.status.success(), "{created:?}");
    let kubeconfig = stage.plane.kubeconfig();
    let memcached = path_from_env("INNKEEPER_GUESTS")
        .unwrap()
        .join("memcached.wasm");
    let cluster = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    for plugin in [&["ponds"][..], &["--plugin", memcached.to_str().unwrap()]] {
        let arguments = [&cluster[..], plugin].concat();
        check(project.path(), &arguments, true, 2, "serves the Plugins of");
    }
}

#[test]
fn dev_refuses_what_it_cannot_develop() {
    let directory = tempfile::tempdir().unwrap();
    let rows: [(&[&str], i32, &str); 4] = [
        (
            &[],
            2,
            "run the command in the directory of a plugin's crate or name one",
        ),
        (&[".", "--plugin", "a.wasm"], 2, "cannot be used with"),
        (&["--ask", "--plugin", "a.wasm"], 2, "cannot be used with"),
        (&["--keep", "--kubeconfig", "k"], 2, "cannot be used with"),
    ];
    for (arguments, code, message) in rows {
        check(directory.path(), arguments, true, code, message);
    }
    check(
        directory.path(),
        &[],
        false,
        2,
        "set INNKEEPER_CONTROLPLANE",
    );
}

#[track_caller]
fn check(directory: &Path, arguments: &[&str], has_program: bool, code: i32, message: &str) {
    let mut command = bound(&path_from_env("INNKEEPER_BIN").unwrap());
    command.arg("dev").args(arguments).current_dir(directory);
    if !has_program {
        command.env_remove("INNKEEPER_CONTROLPLANE");
    }
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    assert!(errors.contains(message), "{arguments:?}: {errors}");
}
