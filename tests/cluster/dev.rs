//! The command `dev`, which starts a control plane of its own.

use innkeeper_tests::process::{bound, path_from_env};

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
