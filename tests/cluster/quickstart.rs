//! The quickstart on an existing cluster, which `dev --keep` has created.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use innkeeper_tests::{
    eventually,
    manifest::root,
    process::{bound, path_from_env, spawn_bound},
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The quickstart's namespaces.
const SPACE: &str = "innkeeper-quickstart";
const MARK: &str = "innkeeper-quickstart-host";

/// Adds the first argument to PATH and runs the others, without the variables that cargo sets for
/// tests: they would make build scripts run again.
const AS_USER: &str = r#"PATH="$0:$PATH"
for name in $(compgen -e CARGO_); do [[ $name == CARGO_HOME ]] || unset "$name"; done
exec "$@""#;

/// The quickstart runs on the control plane where `dev` has installed a CRD.
#[test]
fn dev_with_keep_leaves_a_control_plane_which_the_quickstart_uses_and_leaves_as_it_was() {
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
    let existing = Existing::new(&directory.path().join("kubeconfig"));
    existing.check_spares_definitions_of_others();
    existing.check_spares_a_namespace_of_others();
    existing.check_runs_and_cleans_up();
}

/// Otherwise the user could not stop the control plane: the directory is gone by then, and `dev`
/// prints the stop command only at the end.
#[test]
fn ctrl_c_during_the_start_of_a_control_plane_to_keep_stops_it() {
    let directory = tempfile::tempdir().unwrap();
    let guests = path_from_env("INNKEEPER_GUESTS").unwrap();
    let mut command = bound(&path_from_env("INNKEEPER_BIN").unwrap());
    command
        .args(["dev", "--once", "--keep", "--controlplane"])
        .arg(path_from_env("INNKEEPER_CONTROLPLANE").unwrap())
        .arg("--plugin")
        .arg(guests.join("memcached.wasm"))
        .env("TMPDIR", directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut running = spawn_bound(command).unwrap();
    // etcd starts first, and the API server takes seconds to start.
    eventually("a process that the control plane has started", || {
        let running = processes_of(directory.path());
        (running.len() > 1)
            .then_some(())
            .ok_or_else(|| running.join(", "))
    });
    running.signal(Signal::INT).unwrap();
    let status = running.wait_for(Duration::from_secs(30)).unwrap();
    assert_eq!(status.code(), Some(1), "{status}");
    let remaining = processes_of(directory.path());
    assert!(remaining.is_empty(), "{remaining:?}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Returns all processes' command lines that contain a directory.
fn processes_of(directory: &Path) -> Vec<String> {
    let directory = directory.to_str().unwrap();
    fs::read_dir("/proc")
        .unwrap()
        // A process may end at any time.
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("cmdline")).ok())
        .filter(|command| command.contains(directory))
        .collect()
}

/// An existing cluster, and a PATH with kubectl but without a usable Go.
struct Existing {
    kubeconfig: PathBuf,
    programs: TempDir,
}

impl Existing {
    fn new(kubeconfig: &Path) -> Self {
        let programs = tempfile::tempdir().unwrap();
        let control_plane = path_from_env("INNKEEPER_CONTROLPLANE").unwrap();
        symlink(control_plane, programs.path().join("kubectl")).unwrap();
        let go = programs.path().join("go");
        fs::write(&go, "#!/bin/sh\necho 'go was called' >&2\nexit 1\n").unwrap();
        fs::set_permissions(&go, fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            kubeconfig: kubeconfig.to_owned(),
            programs,
        }
    }

    /// Runs the quickstart as a user does. Returns whether it succeeded, and the output followed by the
    /// last children.
    fn quickstart(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = bound(Path::new("bash"));
        command
            .args(["-c", AS_USER])
            .arg(self.programs.path())
            .arg(root().join("examples/quickstart"))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            // Logs each pass, to debug a failed run.
            .env("INNKEEPER_LOG", "warn,innkeeper_reconcile=debug");
        let is_over = AtomicBool::new(false);
        let (output, children) = thread::scope(|scope| {
            // During the run, because the quickstart deletes the children at the end.
            let children = scope.spawn(|| self.children_until(&is_over));
            let output = command.args(arguments).output();
            is_over.store(true, Ordering::Relaxed);
            (output, children.join().unwrap())
        });
        let (succeeded, text) = result_of(&output.unwrap());
        (succeeded, text + &children)
    }

    /// Returns the last workloads and Pods in the quickstart's namespace.
    fn children_until(&self, is_over: &AtomicBool) -> String {
        let mut last = String::new();
        while !is_over.load(Ordering::Relaxed) {
            let output = self
                .kubectl_command()
                .args(["get", "deployments,statefulsets,jobs,pods"])
                .args(["--namespace", SPACE, "--output", "wide"])
                .output()
                .unwrap();
            if !output.stdout.is_empty() {
                last = String::from_utf8_lossy(&output.stdout).into_owned();
            }
            thread::sleep(Duration::from_secs(1));
        }
        last
    }

    fn kubectl_command(&self) -> Command {
        let mut command = Command::new(self.programs.path().join("kubectl"));
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.kubectl_command().args(arguments).output().unwrap();
        let (succeeded, text) = result_of(&output);
        assert!(succeeded, "{arguments:?}: {text}");
        text
    }

    fn names(&self, arguments: &[&str]) -> String {
        self.kubectl(&[&["get", "--output", "name"], arguments].concat())
    }

    fn check_spares_definitions_of_others(&self) {
        let definitions = self.names(&["customresourcedefinitions"]);
        assert!(definitions.contains("memcacheds"), "{definitions}");
        let (succeeded, text) = self.quickstart(&["--once"]);
        assert!(!succeeded, "{text}");
        let why = "the plugins' CRDs are already installed";
        assert!(text.contains(why), "{text}");
        assert!(text.contains("memcacheds.cache.example.com"), "{text}");
        assert!(!self.names(&["namespaces"]).contains(SPACE));
        let (succeeded, text) = self.quickstart(&["--remove"]);
        assert!(succeeded && text.contains("nothing to remove"), "{text}");

        // The state after a killed run, with a parent that the user created.
        self.kubectl(&["create", "namespace", MARK]);
        let label = "app.kubernetes.io/part-of=innkeeper-quickstart";
        self.kubectl(&["label", "namespace", MARK, label]);
        let parent = root().join("examples/memcached/01-article.yaml");
        self.kubectl(&["create", "--filename", parent.to_str().unwrap()]);
        let (succeeded, text) = self.quickstart(&["--remove"]);
        assert!(succeeded && text.contains("the CRDs stay"), "{text}");
        assert_eq!(self.names(&["memcacheds"]).lines().count(), 1);
        self.kubectl(&["delete", "namespace", MARK, "--ignore-not-found"]);
        self.kubectl(&["delete", "crd", "memcacheds.cache.example.com"]);
        assert_eq!(self.names(&["customresourcedefinitions"]), "");
    }

    fn check_spares_a_namespace_of_others(&self) {
        self.kubectl(&["create", "namespace", SPACE]);
        let (succeeded, text) = self.quickstart(&["--once"]);
        assert!(!succeeded && text.contains("already exists"), "{text}");
        let phase = self.kubectl(&["get", "namespace", SPACE, "-o", "jsonpath={.status.phase}"]);
        assert_eq!(phase, "Active");
        self.kubectl(&["delete", "namespace", SPACE]);
        self.kubectl(&["delete", "namespace", MARK, "--ignore-not-found"]);
    }

    fn check_runs_and_cleans_up(&self) {
        let server = self.kubectl(&[
            "config",
            "view",
            "--output",
            "jsonpath={.clusters[0].cluster.server}",
        ]);
        let (succeeded, text) = self.quickstart(&["--once", "--timeout", "300"]);
        assert!(succeeded, "{text}");
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("== cluster: ") && first.ends_with(&server),
            "{text}"
        );
        assert!(text.contains("all 4 parents are Ready"), "{text}");
        assert!(!text.contains("go was called"), "{text}");
        assert_eq!(self.names(&["customresourcedefinitions"]), "");
        self.kubectl(&["delete", "namespace", MARK, "--ignore-not-found"]);
        assert!(!self.names(&["namespaces"]).contains(SPACE));
    }
}

/// Returns whether a command succeeded, and the output with the errors.
fn result_of(output: &Output) -> (bool, String) {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output.status.success(), text)
}

/// A crate that `dev` develops, with the text that it has printed./// Terminates a process on drop.
struct End(Pid);

impl Drop for End {
    fn drop(&mut self) {
        kill_process(self.0, Signal::TERM).ok();
        let state = format!("/proc/{}/stat", self.0.as_raw_nonzero());
        let deadline = Instant::now() + Duration::from_secs(20);
        // A process that nobody waits for stays as a zombie.
        while fs::read_to_string(&state).is_ok_and(|stat| !stat.contains(") Z "))
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(50));
        }
    }
}
