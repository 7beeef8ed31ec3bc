//! The command `dev`, which starts a control plane of its own.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use innkeeper_tests::process::{bound, path_from_env};
use rustix::process::{Pid, Signal, kill_process};

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
