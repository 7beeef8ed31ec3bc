//! `innkeeper status`: the state of plugins and parents, from a running host and from the cluster.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Result, bail};
use innkeeper_tests::{Host, admin::address, eventually, process::path_from_env, user::Kind};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    plugins::PLUGIN,
    stage::{Stage, is_synced, wait_logged},
    suite::Target,
};

const GOOD: Target<'static> = ("test.innkeeper.dev/v1", "Unruly", "good");
const BAD: Target<'static> = ("test.innkeeper.dev/v1", "Unruly", "bad");

/// The exit code for a successful answer that reports a fault.
pub(crate) const FINDING: i32 = 3;
const NO_ANSWER: i32 = 1;

fn innkeeper(arguments: &[&str]) -> Command {
    let mut command = Command::new(path_from_env("INNKEEPER_BIN").unwrap());
    command.args(arguments).stdin(Stdio::null());
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    innkeeper(arguments).output().unwrap()
}

#[track_caller]
pub(crate) fn document(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}\n{error}"))
}

/// A control plane with a host, its admin endpoints, and the guest `unruly`, which behaves as its
/// parents tell it.
struct StatusFixture {
    stage: Stage,
    host: Host,
    address: String,
    namespace: String,
    kubeconfig: String,
}

impl StatusFixture {
    fn start() -> Self {
        Self::start_with(&[], |_| {})
    }

    fn start_with(more: &[&str], prepare: impl FnOnce(&Stage)) -> Self {
        let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
        let mut stage = Stage::api_only(vec![guests.join("unruly.wasm")]);
        let arguments = ["--admin-address", "127.0.0.1:0", "--debug-endpoints"];
        let arguments = arguments.iter().chain(more).copied();
        stage.options.arguments = arguments.map(str::to_owned).collect();
        prepare(&stage);
        let host = stage.host();
        let address = address(&host);
        stage.wait_served(&host, &["unrulies.test.innkeeper.dev"]);
        let namespace = stage.namespace("survey");
        let kubeconfig = stage.plane.kubeconfig().to_str().unwrap().to_owned();
        Self {
            stage,
            host,
            address,
            namespace,
            kubeconfig,
        }
    }

    fn put(&self, (api_version, kind, name): Target<'_>, behaviour: &str) {
        let parent = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": name},
            "spec": {"behaviour": behaviour},
        });
        self.stage.apply(&self.namespace, &parent);
    }

    fn wait_synced(&self, target: Target<'_>, status: &str, reason: &str) {
        let synced = |parent: &Value| is_synced(parent, status, reason);
        self.stage.wait(&self.host, &self.namespace, target, synced);
    }

    fn of_host(&self, more: &[&str]) -> Output {
        run(&[&["status", "--admin-address", &self.address], more].concat())
    }

    fn of_cluster(&self, more: &[&str]) -> Output {
        run(&[&["status", "--kubeconfig", &self.kubeconfig], more].concat())
    }
}

#[test]
fn status_lists_unready_parents_with_reasons_from_the_host_and_from_the_cluster() {
    let site = StatusFixture::start();
    site.put(GOOD, "good");
    site.wait_synced(GOOD, "True", "Applied");
    let healthy = eventually("status reports no fault", || -> Result<String> {
        let output = site.of_host(&[]);
        match output.status.code() {
            Some(0) => Ok(String::from_utf8(output.stdout)?),
            _ => bail!("{output:?}"),
        }
    });
    assert!(healthy.contains("The only parent is Ready."), "{healthy}");

    site.put(BAD, "trap");
    site.wait_synced(BAD, "False", "GuestTrapped");
    let found = eventually("the host shows the fault", || {
        let output = site.of_host(&["-o", "json"]);
        assert_eq!(output.status.code(), Some(FINDING), "{output:?}");
        let found = document(&output);
        if found["parents"][0]["reason"] == "GuestTrapped" {
            Ok(found)
        } else {
            Err(found)
        }
    });
    let plugin = &found["plugins"][0];
    assert_eq!(
        (&plugin["name"], &plugin["serving"]),
        (&json!("unruly"), &json!("True"))
    );
    assert_eq!(
        (&plugin["parents"], &plugin["ready"]),
        (&json!(2), &json!(1))
    );
    assert!(plugin["faults"].as_u64() >= Some(1), "{found}");
    let parent = &found["parents"][0];
    assert_eq!(found["parents"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(
        (&parent["name"], &parent["synced"]),
        (&json!("bad"), &json!("False"))
    );
    assert_eq!(parent["namespace"], *site.namespace);
    assert_eq!(parent["lastPass"]["outcome"], "failed", "{found}");
    let fault = &found["faults"][0];
    assert_eq!(fault["reason"], "GuestTrapped", "{found}");
    let named = format!("Unruly.test.innkeeper.dev {}/bad", site.namespace);
    assert_eq!(fault["parent"], *named, "{found}");

    let output = site.of_host(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "1 of 2 parents are not Ready",
        &*named,
        "Last faults:",
        "GuestTrapped: ",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    check_cluster(&site);

    let mut host = site.host;
    host.stop().unwrap();
    let silent = run(&["status", "--admin-address", &site.address]);
    assert_eq!(silent.status.code(), Some(NO_ANSWER), "{silent:?}");
    let error = String::from_utf8(silent.stderr).unwrap();
    assert!(
        error.contains(&format!("no host answers at {}", site.address)),
        "{error}"
    );
}

/// Checks the same without the host.
#[track_caller]
fn check_cluster(site: &StatusFixture) {
    let output = site.of_cluster(&["-o", "json"]);
    assert_eq!(output.status.code(), Some(FINDING), "{output:?}");
    let found = document(&output);
    assert_eq!(found["parents"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found["parents"][0]["name"], "bad", "{found}");
    assert_eq!(found["parents"][0]["plugin"], "unruly", "{found}");

    let output = site.of_cluster(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut rows = text.lines().skip_while(|line| !line.starts_with("PLUGIN "));
    let row: Vec<&str> = rows.nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["unruly", "2", "1"], "{text}");
}

/// The conditions of the parents stay as the host left them, so they tell nothing about a host that is gone.
#[test]
fn status_reports_a_host_that_is_gone_and_a_missing_definition() {
    // As in another release of the chart, which has its own namespace and lease.
    let lease = [
        "--host-namespace=hosts",
        "--lease-name=release-a",
        "--leader-elect",
        "--lease-duration=4",
        "--lease-renew-deadline=3",
        "--lease-retry=1",
    ];
    let mut site = StatusFixture::start_with(&lease, |stage| {
        stage.install_plugin_crd();
        // The host looks for the definition only once, at its start.
        eventually("Plugins are served", || {
            stage.plane.user().list(PLUGIN, "").map(drop)
        });
    });
    wait_logged(
        &site.host,
        "the host says that it serves files alone",
        "not serving the Plugin resources",
    );
    site.put(GOOD, "good");
    site.wait_synced(GOOD, "True", "Applied");
    let reports = |site: &StatusFixture, code, expected: &str| {
        eventually(&format!("status reports {expected:?}"), || -> Result<()> {
            let output = site.of_cluster(&[]);
            let text = String::from_utf8_lossy(&output.stdout);
            if output.status.code() == Some(code) && text.contains(expected) {
                return Ok(());
            }
            bail!("{output:?}")
        });
    };
    reports(&site, 0, "The only parent is Ready.");
    let crds = Kind::cluster("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let user = site.stage.plane.user();
    user.delete(crds, "plugins.innkeeper.dev").unwrap();
    let missing = "Problem: the CustomResourceDefinition plugins.innkeeper.dev is missing";
    reports(&site, FINDING, missing);
    site.stage.install_plugin_crd();
    reports(&site, 0, "The only parent is Ready.");
    site.host.process().signal(Signal::KILL).unwrap();
    reports(&site, FINDING, "renewed the Lease hosts/release-a last at ");
    let user = site.stage.plane.user();
    let leases = Kind::new("coordination.k8s.io/v1", "Lease", "hosts");
    user.delete(leases, "release-a").unwrap();
    let missing = "Problem: no host runs: no Lease has the label app.kubernetes.io/name=innkeeper";
    reports(&site, FINDING, missing);
}

#[test]
fn status_watch_shows_every_change_until_it_is_stopped() {
    let site = StatusFixture::start();
    let arguments = ["--watch", "--interval", "1", "-o", "json"];
    let arguments = [
        &["status", "--admin-address", &*site.address],
        &arguments[..],
    ]
    .concat();
    let mut watching = innkeeper(&arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (sender, lines) = mpsc::channel();
    let out = BufReader::new(watching.stdout.take().unwrap());
    let reader = thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let next = |expected: &str, holds: &dyn Fn(&Value) -> bool| loop {
        let line = lines.recv_timeout(Duration::from_mins(1));
        let line: Value = serde_json::from_str(&line.expect(expected)).unwrap();
        if holds(&line) {
            return;
        }
    };
    next("no parent yet", &|found| {
        found["plugins"][0]["parents"] == 0
    });
    site.put(BAD, "invalid");
    next("an invalid parent", &|found| {
        found["parents"][0]["reason"] == "Invalid"
    });
    site.put(BAD, "good");
    next("a ready parent", &|found| {
        found["plugins"][0]["ready"] == 1 && found["parents"] == json!([])
    });
    watching.kill().unwrap();
    watching.wait().unwrap();
    reader.join().unwrap();
    Stage::stop(site.host);
}

#[test]
fn status_names_the_fault_if_no_host_answers() {
    let site = StatusFixture::start();
    // The API server is no host.
    let kubeconfig = std::fs::read_to_string(&site.kubeconfig).unwrap();
    let server = kubeconfig.split("https://").nth(1).unwrap();
    let server = server.split(['"', '\n', '/', ' ']).next().unwrap();
    let wrong = run(&["status", "--admin-address", server]);
    assert_eq!(wrong.status.code(), Some(NO_ANSWER), "{wrong:?}");
    for (arguments, expected) in [
        (&["status", "--admin-address", "8080"][..], "HOST:PORT"),
        (&["status", "--kubeconfig", "/none"], "/none"),
        (&["status", "--interval", "3"], "--watch"),
    ] {
        let output = run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    site.stage.plane.control(&["pause", "apiserver"]).unwrap();
    let silent = site.of_cluster(&[]);
    site.stage.plane.control(&["resume", "apiserver"]).unwrap();
    assert_eq!(silent.status.code(), Some(NO_ANSWER), "{silent:?}");
    let error = String::from_utf8(silent.stderr).unwrap();
    assert!(
        error.starts_with("error: failed to ask the cluster: "),
        "{error}"
    );
    Stage::stop(site.host);
}
