//! `innkeeper status` reports unready Plugins and parents, and hosts that are gone.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use innkeeper_tests::{Host, eventually, process::path_from_env, user::Kind};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    stage::{Stage, is_synced},
    suite::Target,
};

const GOOD: Target<'static> = ("test.innkeeper.dev/v1", "Unruly", "good");
const BAD: Target<'static> = ("test.innkeeper.dev/v1", "Unruly", "bad");

/// The exit code for a successful report with findings.
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

/// A control plane with a host and the guest `unruly`, whose parents choose the behaviour.
struct StatusFixture {
    host: Host,
    stage: Stage,
    namespace: String,
    kubeconfig: String,
}

impl StatusFixture {
    fn start() -> Self {
        Self::start_with(&["--leader-elect"])
    }

    fn start_with(arguments: &[&str]) -> Self {
        let guests = path_from_env("INNKEEPER_TEST_GUESTS").unwrap();
        let mut stage = Stage::api_only(vec![guests.join("unruly.wasm")]);
        stage.options.arguments = arguments.iter().map(|&flag| flag.to_owned()).collect();
        let host = stage.host_serving(&["unrulies.test.innkeeper.dev"]);
        let namespace = stage.namespace("survey");
        let kubeconfig = stage.plane.kubeconfig().to_str().unwrap().to_owned();
        Self {
            host,
            stage,
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
        let is_met = |parent: &Value| is_synced(parent, status, reason);
        self.stage.wait(&self.host, &self.namespace, target, is_met);
    }

    fn status(&self, more: &[&str]) -> Output {
        run(&[&["status", "--kubeconfig", &self.kubeconfig], more].concat())
    }

    /// Waits until `status` exits with this code and prints this text.
    #[track_caller]
    fn wait_status(&self, code: i32, part: &str) -> String {
        eventually(&format!("status reports {part:?}"), || {
            let output = self.status(&[]);
            let text = String::from_utf8_lossy(&output.stdout);
            if output.status.code() == Some(code) && text.contains(part) {
                return Ok(text.into_owned());
            }
            Err(format!("{output:?}"))
        })
    }
}

#[test]
fn status_lists_unready_parents_with_reasons() {
    let site = StatusFixture::start();
    site.put(GOOD, "good");
    site.wait_synced(GOOD, "True", "Applied");
    site.wait_status(0, "No parent is unready.");

    site.put(BAD, "trap");
    site.wait_synced(BAD, "False", "GuestTrapped");
    let text = site.wait_status(FINDING, "1 parent is not Ready:");
    let name = format!("Unruly.test.innkeeper.dev {}/bad", site.namespace);
    for part in ["There are no Plugins.", &*name, "GuestTrapped: "] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let output = site.status(&["-o", "json"]);
    assert_eq!(output.status.code(), Some(FINDING), "{output:?}");
    let status = document(&output);
    assert_eq!(status["parents"].as_array().unwrap().len(), 1, "{status}");
    let parent = &status["parents"][0];
    for (field, expected) in [
        ("name", "bad"),
        ("namespace", &*site.namespace),
        ("synced", "False"),
        ("reason", "GuestTrapped"),
    ] {
        assert_eq!(parent[field], expected, "{status}");
    }
    Stage::stop(site.host);
}

/// After the host is gone, the parents' conditions stay, so only the lease can reveal it.
#[test]
fn status_reports_a_host_that_is_gone() {
    // Imitates a second chart release, with a different namespace and lease.
    let mut site = StatusFixture::start_with(&[
        "--host-namespace=hosts",
        "--lease-name=release-a",
        "--leader-elect",
        "--lease-duration=4",
        "--lease-renew-deadline=3",
        "--lease-retry=1",
    ]);
    site.put(GOOD, "good");
    site.wait_synced(GOOD, "True", "Applied");
    site.wait_status(0, "No parent is unready.");
    site.host.process().signal(Signal::KILL).unwrap();
    site.wait_status(FINDING, "renewed the Lease hosts/release-a last at ");
    let user = site.stage.plane.user();
    let leases = Kind::new("coordination.k8s.io/v1", "Lease", "hosts");
    user.delete(leases, "release-a").unwrap();
    let missing = "Problem: no host runs: no Lease has the label app.kubernetes.io/name=innkeeper";
    site.wait_status(FINDING, missing);
}

#[test]
fn status_watch_shows_every_change_until_it_is_stopped() {
    let site = StatusFixture::start();
    let arguments = [
        "status",
        "--kubeconfig",
        &site.kubeconfig,
        "--watch",
        "--interval",
        "1",
        "-o",
        "json",
    ];
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
    next("no parent yet", &|status| status["parents"] == json!([]));
    site.put(BAD, "invalid");
    next("an invalid parent", &|status| {
        status["parents"][0]["reason"] == "Invalid"
    });
    site.put(BAD, "good");
    next("a ready parent", &|status| status["parents"] == json!([]));
    watching.kill().unwrap();
    watching.wait().unwrap();
    reader.join().unwrap();
    Stage::stop(site.host);
}

#[test]
fn status_names_the_failure_if_the_cluster_does_not_answer() {
    // No leader election, because the host would lose the lease during the pause.
    let site = StatusFixture::start_with(&[]);
    for (arguments, expected) in [
        (&["status", "--kubeconfig", "/none"][..], "/none"),
        (&["status", "--interval", "3"], "--watch"),
    ] {
        let output = run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    site.stage.plane.control(&["pause", "apiserver"]).unwrap();
    let silent = site.status(&[]);
    site.stage.plane.control(&["resume", "apiserver"]).unwrap();
    assert_eq!(silent.status.code(), Some(NO_ANSWER), "{silent:?}");
    let error = String::from_utf8(silent.stderr).unwrap();
    assert!(
        error.starts_with("error: failed to ask the cluster: "),
        "{error}"
    );
    Stage::stop(site.host);
}
