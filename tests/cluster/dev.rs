//! The command `dev`, which starts a control plane of its own.

use std::{
    fs::{self, File},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use innkeeper_tests::{
    admin::address as admin_address,
    eventually_for,
    process::{Running, bound, is_full, path_from_env, spawn_bound},
};
use rustix::process::{Pid, Signal, kill_process};

use crate::{admin, stage::Stage};

/// The longest time of the first build, which compiles the standard library and all dependencies.
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
        .split_once("plugin memcached is granted all that it asks for:\n")
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
fn dev_with_keep_leaves_the_control_plane_without_a_host() {
    let directory = tempfile::tempdir().unwrap();
    let guests = path_from_env("INNKEEPER_GUESTS").unwrap();
    let program = path_from_env("INNKEEPER_CONTROLPLANE").unwrap();
    let output = bound(&path_from_env("INNKEEPER_BIN").unwrap())
        .args(["dev", "--once", "--keep", "--dir"])
        .arg(directory.path())
        .arg("--controlplane")
        .arg(&program)
        .arg("--plugin")
        .arg(guests.join("memcached.wasm"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let (_, after) = text
        .split_once("stop it with: kill ")
        .unwrap_or_else(|| panic!("{text}"));
    let pid: i32 = after.split(';').next().unwrap().parse().unwrap();
    let pid = Pid::from_raw(pid).unwrap();
    // Also if the test fails below.
    let _end = End(pid);
    let listed = bound(&program)
        .args(["kubectl", "get", "namespaces"])
        .env("KUBECONFIG", directory.path().join("kubeconfig"))
        .output()
        .unwrap();
    assert!(listed.status.success(), "{listed:?}");
}

/// A crate that `dev` develops, with the text that it has printed.
struct Session {
    project: tempfile::TempDir,
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
            .current_dir(project.path().join("ponds"))
            // The settings of the suites are no business of a project.
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

    /// Waits for a text after what was printed before; returns the time.
    #[track_caller]
    fn wait(&mut self, before: usize, text: &str, limit: Duration) -> Duration {
        let began = Instant::now();
        eventually_for(limit, text, || {
            let out = self.file("out");
            let is_there = out.get(before..).is_some_and(|it| it.contains(text));
            is_there.then_some(()).ok_or(out)
        });
        began.elapsed()
    }

    /// Replaces a text in the source of the plugin; returns the length of what was printed before.
    fn edit(&self, from: &str, to: &str) -> usize {
        let source = self.project.path().join("ponds/src/lib.rs");
        let text = fs::read_to_string(&source).unwrap();
        assert!(text.contains(from), "{from}");
        let before = self.file("out").len();
        fs::write(&source, text.replacen(from, to, 1)).unwrap();
        before
    }
}

/// Only `tests/full` builds a project: the first build takes minutes.
#[test]
fn dev_builds_plans_and_swaps_the_crate_after_each_change() {
    if !is_full() {
        return;
    }
    let mut session = Session::start();
    session.wait(0, "1 parent is Ready", FIRST_BUILD);

    // A change of the code, in a cluster with one parent.
    let short = Duration::from_mins(1);
    let before = session.edit("\"config\")", "\"settings\")");
    let code = session.wait(before, "serves revision", short);
    session.wait(
        before,
        "plan for 1 parents: 0 deletes, 0 creates, 1 updates",
        short,
    );

    // A change that does not compile leaves the revision in place.
    let before = session.edit("Ok(Outcome", "Ok(Nothing; Outcome");
    session.wait(before, "the active revision stays", short);
    session.edit("Ok(Nothing; Outcome", "Ok(Outcome");

    // So does one that fails for the parent.
    let before = session.edit(
        "let spec = spec.map_err",
        "panic!(\"broken\"); #[allow(unreachable_code)] let spec = spec.map_err",
    );
    session.wait(before, "1 faults", short);
    session.wait(before, "not swapped: the active revision stays", short);
    session.edit("panic!(\"broken\"); #[allow(unreachable_code)] ", "");

    // A change of the configuration needs no build.
    let before = session.file("out").len();
    fs::write(
        session.project.path().join("ponds/config.yaml"),
        "depth: 2\n",
    )
    .unwrap();
    let config = session.wait(before, "serves revision", short);
    assert!(!session.file("out")[before..].contains("building"));
    eprintln!("from a saved file to the new revision: code {code:?}, configuration {config:?}");
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
    let arguments = ["--kubeconfig", kubeconfig.to_str().unwrap(), "ponds"];
    check(project.path(), &arguments, true, 2, "serves the Plugins of");
}

#[test]
fn dev_refuses_what_it_cannot_develop() {
    let directory = tempfile::tempdir().unwrap();
    let rows: [(&[&str], i32, &str); 4] = [
        (&[], 2, "failed to read the workspace"),
        (&["--plugin", "a.wasm", "."], 2, "cannot be used with"),
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

/// Ends a process and waits until it is gone.
struct End(Pid);

impl Drop for End {
    fn drop(&mut self) {
        kill_process(self.0, Signal::TERM).ok();
        let state = format!("/proc/{}/stat", self.0.as_raw_nonzero());
        let deadline = Instant::now() + Duration::from_secs(20);
        // A process whose parent does not collect it stays as a zombie.
        while fs::read_to_string(&state).is_ok_and(|stat| !stat.contains(") Z "))
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(50));
        }
    }
}
